"""What is wrong with a session before it begins."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from jupyterhub_gpuspawner.courses.check import CourseInputs, HubLimits, check_course
from jupyterhub_gpuspawner.courses.folder import CourseFile
from jupyterhub_gpuspawner.courses.report import check_document
from jupyterhub_gpuspawner.profiles.profile import parse_profiles
from jupyterhub_gpuspawner.slurm.accounting import Accounting, Association, Limits
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Reservation
from jupyterhub_gpuspawner.units import parse_gres
from tests.courses.test_course import DEEP_LEARNING, course
from tests.snapshots import cluster, node, running

START, END = (datetime(2026, 3, 2, hour, tzinfo=timezone.utc).timestamp() for hour in (9, 17))
DAY = {"date": "2026-03-02", "from": "9:00", "to": "17:00", "reservation": "ml"}
HOUR = 3600.0
NODES = tuple(node(f"g{number}", "gpu:k80:4") for number in range(2))


def snapshot(**reservation: Any) -> ClusterSnapshot:
    """Two nodes of four GPUs, reserved for the course."""
    own = Reservation(
        **{"name": "ml", "start": START - HOUR, "end": END + 9 * HOUR, "nodes": ("g0", "g1"), **reservation}
    )
    return cluster(*NODES, reservations=(own,))


def checked(
    found: ClusterSnapshot, *, slurm: dict[str, Any] | None = None, allow: Any = None, **more: Any
) -> tuple[int, int, str, list[str]]:
    """Wanted, fit, tight and problems of the only session."""
    asked = {"partition": "gpu", "gpus": 1, "cpus": 2, "memory": "4G", "time": "8:00:00", **(slurm or {})}
    profile = {"display_name": "K80", "slug": "k80", "slurm": asked, **({"allow": allow} if allow else {})}
    changes = {
        "sessions": [DAY],
        "zone": "UTC",
        "roster": "t[1-8]",
        "profile": "k80",
        "start_ahead": None,
        **more.pop("course", {}),
    }
    file = CourseFile("deep", course(DEEP_LEARNING, **changes))
    site = CourseInputs(parse_profiles([profile]), replace(found, taken_at=START - 86400), **more)
    (session,) = check_document("deep", check_course(file, site)).sessions
    return session.wanted, session.fit, session.tight, [*session.problems, *session.hints]


def test_all_fit_and_nothing_is_wrong() -> None:
    """Eight people, eight GPUs, a reservation around the session."""
    assert checked(snapshot()) == (8, 8, "", [])


PROBLEMS: dict[str, tuple[ClusterSnapshot, dict[str, Any], list[str]]] = {
    "no reservation": (
        cluster(*NODES),
        {},
        ["There is no reservation ml."],
    ),
    "it starts late": (
        snapshot(start=START + 1800),
        {"slurm": {"time": "8:30:00"}},
        ["Reservation ml starts 30 min after the session begins."],
    ),
    "it ends early": (
        snapshot(end=END - HOUR),
        {"slurm": {"time": "8:00:00"}},
        [
            "Reservation ml ends 1 h before the session does.",
            "Slurm would refuse every job: 7 h 59 min is more than the 7 h left in reservation ml.",
        ],
    ),
    "Slurm's own time limit, which is not lowered": (
        snapshot(end=END + 900),
        {"slurm": {"time": None}},
        [
            "Servers end after 1 h, before the session does, which takes 8 h.",
            "Servers that are started more than 7 h 15 min after the session begins do not run: they request 1 h, and "
            "reservation ml ends before that.",
        ],
    ),
    "whoever is late gets less time": (snapshot(end=END), {}, []),
    "servers are started ahead, and the reservation ends with the session": (
        snapshot(end=END),
        {"slurm": {"time": "10:00:00"}, "course": {"start_ahead": "10min"}},
        [],
    ),
    "servers are started ahead of the reservation, which ends with the session": (
        snapshot(start=START, end=END),
        {"slurm": {"time": "10:00:00"}, "course": {"start_ahead": "10min"}},
        [
            "Slurm would refuse every job: 8 h 9 min is more than the 8 h left in reservation ml. Servers are started "
            "ahead 10 min before it begins."
        ],
    ),
    "servers that are started ahead end early": (
        snapshot(),
        {"course": {"start_ahead": "30min"}},
        ["Servers that are started ahead end 30 min before the session does."],
    ),
    "servers end early": (
        snapshot(),
        {"slurm": {"time": "2:00:00"}},
        ["Servers end after 2 h, before the session does, which takes 8 h."],
    ),
    "Slurm would delete it": (
        snapshot(flags=frozenset({"PURGE_COMP=00:05:00"})),
        {},
        ["Reservation ml has the flag PURGE_COMP: Slurm deletes it as soon as no job has used it for some minutes."],
    ),
    "it is for others": (
        snapshot(users=("t1", "t2")),
        {},
        ["Reservation ml is not for t3, t4, t5, t6, t7 and 1 more."],
    ),
    "the session is outside it": (
        snapshot(start=END + HOUR, end=END + 9 * HOUR),
        {},
        [
            "Reservation ml is from Mon 2026-03-02 18:00 to Tue 2026-03-03 02:00: the session is outside it.",
        ],
    ),
    "it is for other accounts": (
        snapshot(accounts=("proj", "dept")),
        {"slurm": {"account": "training"}},
        ["Reservation ml is for accounts proj, dept, and the profile requests account training."],
    ),
    "an account is not admitted": (
        snapshot(accounts=("-training",)),
        {"slurm": {"account": "training"}},
        ["Reservation ml is for other accounts, and the profile requests account training."],
    ),
    "nobody can open the course's page": (
        snapshot(),
        {"groups": {}, "absent_instructors": {"ada", "grace"}},
        ["None of the instructors exists: ada, grace. Nobody can open the course's page."],
    ),
    "the account is narrow": (
        snapshot(),
        {
            "slurm": {"account": "training"},
            "accounting": Accounting(
                accounts={"training": Association("training", limits=Limits(group_tres={"gres/gpu": 7}))},
                users=[Association("training", f"t{number}") for number in range(1, 9)],
                enforced=frozenset({"associations", "limits"}),
            ),
        },
        ["Account training may use 7 GPUs at once (GrpTRES): 7 of 8 people fit."],
    ),
    "licences are too few": (
        snapshot(),
        {"slurm": {"extra": ["--licenses=matlab:2"]}, "licenses": {"matlab": 6}},
        ["There are 6 licences matlab (--licenses): 3 of 8 people fit."],
    ),
    "a licence is not there": (
        snapshot(),
        {"slurm": {"extra": ["--licenses=idl"]}, "licenses": {"matlab": 6}},
        ["There is no licence idl (--licenses): 0 of 8 people fit."],
    ),
    "the hub runs fewer servers": (
        snapshot(),
        {"hub": HubLimits(active_servers=5)},
        ["The hub runs at most 5 servers at a time, those of others included (active_server_limit), and 8 are needed."],
    ),
    "the hub starts fewer at once": (
        snapshot(),
        {"hub": HubLimits(concurrent_spawns=5)},
        [
            "If all 8 people start at once, the hub takes 5 and asks the others to try again (concurrent_spawn_limit). "
            "Starting servers ahead of the session avoids this.",
        ],
    ),
    "waiting for the reservation is given up": (
        snapshot(),
        {"hub": HubLimits(queue_timeout=900)},
        [
            "A server that is started more than 15 min before the reservation begins is given up while it waits "
            "(queue_timeout).",
        ],
    ),
    "idle servers are stopped": (
        snapshot(),
        {"hub": HubLimits(culled_after=600)},
        ["The hub stops servers after 10 min without activity (idle culler), also during the session."],
    ),
    "a limit is not known": (
        snapshot(),
        {"unknown": ["The limits of Slurm's accounting are not known: slurmdbd is down."]},
        ["The limits of Slurm's accounting are not known: slurmdbd is down."],
    ),
    "it denies one": (snapshot(users=("-t3",)), {}, ["Reservation ml is not for t3."]),
    "no account": (
        snapshot(),
        {"without_account": {"t2", "t9"}},
        ["No account or home folder on this machine: t2."],
    ),
    "a group that is not there": (
        snapshot(),
        {"course": {"roster": {"names": "t[1-8]", "groups": "ml"}}, "groups": {}},
        ["The roster names groups that JupyterHub does not have: ml."],
    ),
    "the profile is for others": (
        snapshot(),
        {"allow": {"groups": ["staff"]}},
        [
            "t1, t2, t3, t4, t5 and 3 more cannot use profile k80: it is reserved for the group staff.",
        ],
    ),
}


@pytest.mark.parametrize(("found", "more", "problems"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_what_would_go_wrong_is_told_before(found: ClusterSnapshot, more: dict[str, Any], problems: list[str]) -> None:
    """In sentences for an instructor."""
    assert checked(found, **more)[3] == problems


def test_too_few_seats_are_told_with_what_would_help() -> None:
    """And which nodes are not counted."""
    down = NODES[1]._replace(states=frozenset({"DOWN"}), reason="disk")
    own = Reservation("ml", START - HOUR, END + 9 * HOUR, ("g0", "g1"))
    found = cluster(NODES[0], down, reservations=(own,))

    assert checked(found, slurm={"memory": "30G"}) == (
        8,
        2,
        "memory",
        [
            "The nodes have room for 2 of 8 people at the same time. With 30 GiB of memory for each person, 2 of 4 "
            "GPUs of node g0 can be used; 16 GiB each would allow all 4. Not counted: g1: out of service now (disk)."
        ],
    )


def test_a_profile_that_is_not_there_is_told() -> None:
    """Also an option that it does not have, and a request that Slurm would refuse."""
    assert [
        checked(snapshot(), course={"profile": "v100"})[3],
        checked(snapshot(), course={"profile": {"slug": "k80", "options": {"gpus": 2}}})[3],
        checked(snapshot(), slurm={"gpus": 9})[3],
    ] == [
        ["profile.slug: there is no profile v100."],
        ["profile.options.gpus: profile k80 has no such option; its options are none."],
        ["Slurm would refuse every job: 9 GPUs are more than the 4 of a node."],
    ]


def test_maintenance_is_named_as_such() -> None:
    """And so are nodes that others have reserved."""
    own = Reservation("ml", START - HOUR, END + 9 * HOUR, ("g0", "g1"))
    upkeep = Reservation("upkeep", START + HOUR, END, ("g1",), flags=frozenset({"MAINT", "SPEC_NODES"}))

    assert checked(cluster(*NODES, reservations=(own, upkeep)))[1:] == (
        4,
        "gpus",
        [
            "The nodes have room for 4 of 8 people at the same time. There are too few GPUs. Not counted: g1: in "
            "maintenance (reservation upkeep).",
        ],
    )


def test_a_job_for_several_partitions_has_the_seats_of_each() -> None:
    """A node that is in two of them counts once."""
    found = cluster(*NODES)
    other = replace(found.partitions[0], name="spare", nodes=("g1",), default=False)
    both = replace(found, partitions=(replace(found.partitions[0], nodes=("g0",)), other))
    course_ = {"sessions": [{key: value for key, value in DAY.items() if key != "reservation"}]}

    assert [checked(both, slurm={"partition": name}, course=course_)[1] for name in ("gpu", "spare", "gpu,spare")] == [
        4,
        4,
        8,
    ]


def test_sessions_that_have_ended_are_left_out() -> None:
    """Unless one is named."""
    days = [{**DAY, "date": f"2026-03-0{day}"} for day in (2, 3)]
    file = CourseFile("deep", course(DEEP_LEARNING, sessions=days, zone="UTC", profile="k80"))
    site = CourseInputs((), snapshot())
    after = datetime(2026, 3, 2, 17, 1, tzinfo=timezone.utc)

    def names(**how: Any) -> list[str]:
        return [report.session.name for report in check_course(file, site, **how)]

    assert names() == ["2026-03-02", "2026-03-03"]
    assert names(since=after) == ["2026-03-03"]
    assert names(since=after, only="2026-03-02") == ["2026-03-02"]


def test_servers_that_run_already_take_no_seats_from_their_owners() -> None:
    """So that the check can be made again once people have come; otherwise what is left is counted."""
    ours = tuple(
        running(str(number), "g0", "gpu:k80:1", user=user, reservation="ml", ends_in=None)
        for number, user in enumerate(("t1", "t2", "t3", "somebody"), 1)
    )
    own = Reservation("ml", START - HOUR, END + 9 * HOUR, ("g0", "g1"))
    busy = NODES[0]._replace(gres_used=parse_gres("gpu:k80:4"))

    found = cluster(busy, NODES[1], jobs=ours, reservations=(own,))

    assert (checked(found, everybody=True)[1], checked(found)[1]) == (7, 4)


def test_an_empty_roster_is_told() -> None:
    """Such as that of a group without members."""
    assert checked(snapshot(), course={"roster": {"groups": "ml"}}, groups={"ml": ()})[3] == [
        "Nobody is on the roster."
    ]
