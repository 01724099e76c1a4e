"""What is wrong with a session before it begins."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.courses.check import (
    CourseInputs,
    HubLimits,
    SessionPlan,
    estimated,
    plans,
    plans_beside,
    rank_of_next,
    report_of,
)
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.extensions.courses.report import SessionReport, check_document
from jupyterhub_gpuspawner.extensions.seats.count import SeatCount, Smaller
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.job import tag
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot, Reservation
from tests.extensions.courses.test_course import DEEP_LEARNING, course
from tests.snapshots import cluster, node, running

START, END = (datetime(2026, 3, 2, hour, tzinfo=timezone.utc).timestamp() for hour in (9, 17))
DAY = {"date": "2026-03-02", "from": "9:00", "to": "17:00", "reservation": "ml"}
HOUR, DAYS = 3600.0, 86400.0
NODES = tuple(node(f"g{number}", "gpu:k80:4") for number in range(2))


def snapshot(**reservation: Any) -> ClusterSnapshot:
    """Two nodes of four GPUs, reserved for the course."""
    own = Reservation(
        **{"name": "ml", "start": START - HOUR, "end": END + 9 * HOUR, "nodes": ("g0", "g1"), **reservation}
    )
    return cluster(*NODES, reservations=(own,))


ALL = SeatCount(8, 12, 8, with_gpu=8, beside=8)
"""Everybody's server starts, and nobody else's."""


def reported(
    cluster_snapshot: ClusterSnapshot,
    seats: SeatCount | None = ALL,
    refused: dict[str, str] | None = None,
    *,
    slurm: dict[str, Any] | None = None,
    allow: Any = None,
    **more: Any,
) -> SessionReport:
    """The report of the only session, with this answer of Slurm's."""
    resources = {"partition": "gpu", "gpus": 1, "cpus": 2, "memory": "4G", "time": "8:00:00", **(slurm or {})}
    profile = {"display_name": "K80", "slug": "k80", "slurm": resources, **({"allow": allow} if allow else {})}
    changes = {
        "sessions": [DAY],
        "zone": "UTC",
        "roster": "t[1-8]",
        "profile": "k80",
        "start_ahead": None,
        **more.pop("course", {}),
    }
    file = CourseFile("deep", course(DEEP_LEARNING, **changes))
    snapshot = replace(cluster_snapshot, taken_at=START - 86400)
    (plan,) = plans(file, CourseInputs(parse_profiles([profile]), {"": snapshot}, **more))
    return report_of(plan, {"": snapshot}, seats if plan.requests else None, refused or {})


def texts(report: SessionReport) -> list[str]:
    """What is wrong, and then what is worth knowing."""
    return [remark.text for remark in (*report.problems, *report.hints)]


def test_all_fit_and_nothing_is_wrong() -> None:
    """Eight people, eight GPUs, a reservation around the session."""
    report = reported(snapshot())
    assert (report.fits, report.fit, report.more, report.remarks) == (True, 8, False, ())


NONE = SeatCount(8, 12, 0, waiting={"Resources": 8})
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
    "it is repeated, and starts late each day": (
        snapshot(start=START - 3 * DAYS + 1800, end=END - 3 * DAYS + HOUR, flags=frozenset({"DAILY"})),
        {},
        ["Reservation ml starts 30 min after the session begins."],
    ),
    "it is repeated, and its week has another day": (
        snapshot(start=START - 6 * DAYS, end=END - 6 * DAYS, flags=frozenset({"WEEKLY"})),
        {},
        ["Reservation ml is from Tue 2026-03-03 09:00 to Tue 2026-03-03 17:00: the session is outside it."],
    ),
    "it ends early": (
        snapshot(end=END - HOUR),
        {"slurm": {"time": "8:00:00"}},
        ["Reservation ml ends 1 h before the session does."],
    ),
    "Slurm's own time limit, which is not lowered": (
        snapshot(end=END + 900),
        {"slurm": {"time": None}},
        [
            "Servers end after 1 h, before the session does, which takes 8 h.",
            "Servers that are started more than 7 h 15 min after the session begins end with reservation ml, before "
            "the 1 h that they request.",
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
        [],
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
    "its nodes are hidden while they are powered down": (
        replace(snapshot(), nodes=NODES[:1]),
        {},
        [
            "Slurm does not show g1 of reservation ml, which may be powered down, so no seats are counted. With cloud "
            "in PrivateData of slurm.conf it does."
        ],
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
    "Slurm would refuse some": (
        snapshot(),
        {"refused": dict.fromkeys(["t2", "t7"], "Slurm refused the job: the account does not exist.")},
        ["t2, t7: Slurm refused the job: the account does not exist."],
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
    "it denies one": (snapshot(users=("-t3",)), {}, ["Reservation ml is not for t3."]),
    "no account": (
        snapshot(),
        {"without_account": {"": {"t2", "t9"}}},
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


@pytest.mark.parametrize(("cluster_snapshot", "more", "problems"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_what_would_go_wrong_is_told_before(
    cluster_snapshot: ClusterSnapshot, more: dict[str, Any], problems: list[str]
) -> None:
    """In sentences for an instructor."""
    assert texts(reported(cluster_snapshot, **more)) == problems


ANSWERS: dict[str, tuple[SeatCount, int, list[str]]] = {
    "with fewer cores all start": (
        SeatCount(8, 12, 6, waiting={"Resources": 2}, smaller=Smaller("cpus-per-task", 4, 8)),
        6,
        ["6 of 8 start; 2 wait: Resources. With 4 cores each: all 8."],
    ),
    "with less memory some more start": (
        SeatCount(8, 12, 2, waiting={"Resources": 6}, smaller=Smaller("mem", 15 * 1024, 4)),
        2,
        ["2 of 8 start; 6 wait: Resources. With 15 GiB of memory each: 4."],
    ),
    "nothing smaller helps": (
        SeatCount(8, 12, 7, waiting={"Resources": 1}),
        7,
        ["7 of 8 start; 1 waits: Resources."],
    ),
    "several reasons, one for ever": (
        SeatCount(8, 12, 5, waiting={"Licenses": 2, "PartitionTimeLimit": 1}),
        5,
        [
            "5 of 8 start; 3 wait: Licenses (2), PartitionTimeLimit (The job asks for more time than the partition "
            "allows, so it will never start) (1)."
        ],
    ),
    "sbatch refuses the request": (
        SeatCount(8, 12, 0, refusal="there is no such licence"),
        0,
        ["Slurm refuses every job: there is no such licence."],
    ),
    "some get cores far from their GPU": (
        SeatCount(8, 12, 12, with_gpu=8, beside=6),
        12,
        ["6 of 8 have their cores beside their GPU."],
    ),
    "counted by hand": (
        SeatCount(8, 12, 8, estimate="Counted by hand, as an estimate: slurmctld is not installed."),
        8,
        ["Counted by hand, as an estimate: slurmctld is not installed."],
    ),
}


@pytest.mark.parametrize(("seats", "fit", "expected"), ANSWERS.values(), ids=ANSWERS.keys())
def test_what_slurm_answers_is_told_with_what_would_help(seats: SeatCount, fit: int, expected: list[str]) -> None:
    """In Slurm's own words for the reason."""
    report = reported(snapshot(), seats)
    assert (report.fit, texts(report)) == (fit, expected)


def test_whom_slurm_would_refuse_has_no_seat() -> None:
    """However many seats there are."""
    report = reported(snapshot(), replace(ALL, fit=12), {"t1": "Slurm refused the job."})
    assert (report.fit, report.more, report.fits) == (7, False, False)


def test_nodes_on_which_nothing_can_start_are_named() -> None:
    """Those out of service now, and those that maintenance or a reservation of others takes before servers end."""
    down = NODES[1]._replace(states=frozenset({"DOWN"}), reason="disk")
    own = Reservation("ml", START - HOUR, END + 9 * HOUR, ("g0", "g1", "g2"))
    upkeep = Reservation("upkeep", END - HOUR, END, ("g0",), flags=frozenset({"MAINT", "SPEC_NODES"}))
    snapshot = cluster(NODES[0], down, node("g2", "gpu:k80:4"), reservations=(own, upkeep))

    assert texts(reported(snapshot, replace(ALL, fit=4, waiting={"Resources": 4}))) == [
        "4 of 8 start; 4 wait: Resources. Not available: g0 (in maintenance from Mon 2026-03-02 16:00, reservation "
        "upkeep), g1 (out of service now: disk)."
    ]


def test_a_profile_that_is_not_there_is_told() -> None:
    """Also an option that it does not have, and a request that Slurm would refuse."""
    assert [
        texts(reported(snapshot(), course={"profile": "v100"})),
        texts(reported(snapshot(), course={"profile": {"slug": "k80", "options": {"gpus": 2}}})),
        texts(reported(snapshot(), NONE, slurm={"gpus": 9})),
    ] == [
        ["profile.slug: there is no profile v100."],
        ["profile.options.gpus: profile k80 has no such option; its options are none."],
        ["Slurm would refuse every job: 9 GPUs are more than the 4 of a node."],
    ]


def test_sessions_that_have_ended_are_left_out() -> None:
    """Unless one is named."""
    days = [{**DAY, "date": f"2026-03-0{day}"} for day in (2, 3)]
    file = CourseFile("deep", course(DEEP_LEARNING, sessions=days, zone="UTC", profile="k80"))
    site = CourseInputs((), {"": snapshot()})
    after = datetime(2026, 3, 2, 17, 1, tzinfo=timezone.utc)

    def names(**how: Any) -> list[str]:
        return [plan.session.name for plan in plans(file, site, **how)]

    assert names() == ["2026-03-02", "2026-03-03"]
    assert names(since=after) == ["2026-03-03"]
    assert names(since=after, only="2026-03-02") == ["2026-03-02"]


def five_minutes_before(*jobs: ClusterJob, reservation: str | None) -> tuple[SessionPlan, ClusterSnapshot]:
    """The plan of a session for eight people that is started ahead, with all eight GPUs in use, and the cluster."""
    used = tuple(node(f"g{number}", "gpu:k80:4", "gpu:k80:4") for number in range(2))
    reservations = snapshot().reservations if reservation is not None else ()
    now = replace(cluster(*used, jobs=jobs, reservations=reservations), taken_at=START - 300)
    sessions = [{**DAY, "reservation": reservation}]
    changes = {"sessions": sessions, "zone": "UTC", "roster": "t[1-8]", "profile": "k80", "start_ahead": "10min"}
    resources = {"partition": "gpu", "gpus": 1, "cpus": 2, "memory": "4G", "time": "10:00:00"}
    profile = {"display_name": "K80", "slug": "k80", "slurm": resources}
    file = CourseFile("deep", course(DEEP_LEARNING, **changes))
    (plan,) = plans(file, CourseInputs(parse_profiles([profile]), {"": now}))
    return plan, now


@pytest.mark.parametrize("account", ["", "hub"], ids=["as each person", "as one account"])
@pytest.mark.parametrize("reservation", ["ml", None], ids=["in a reservation", "without a reservation"])
def test_servers_that_run_already_take_no_seats_from_their_owners(reservation: str | None, account: str) -> None:
    """So that the check can be made again once people have come, as whomever the hub submits their jobs."""
    servers = (
        running(
            str(number),
            f"g{number % 2}",
            "gpu:k80:1",
            ends_in=None,
            user=account or f"t{number}",
            partitions=("gpu",),
            reservation=reservation or "",
            tag=tag("hub", f"t{number}", ""),
        )
        for number in range(1, 9)
    )
    plan, now = five_minutes_before(*servers, reservation=reservation)

    assert estimated(plan, {"": now}, "By hand.") == SeatCount(8, 12, 8, estimate="By hand.")


def test_only_a_participants_servers_where_the_session_is_held_have_seats() -> None:
    """In its reservation any job of theirs, without one those of a hub in its partitions."""
    theirs = running("1", "g0", "gpu:k80:1", ends_in=None, user="hub", partitions=("gpu",), tag=tag("hub", "t1", ""))
    jobs = (
        theirs,
        theirs._replace(job_id="2", tag=tag("hub", "kim", "")),
        theirs._replace(job_id="3", user="t3", tag=""),
        theirs._replace(job_id="4", partitions=("batch",)),
        theirs._replace(job_id="5", nodes=()),
        theirs._replace(job_id="6", reservation="ml"),
        theirs._replace(job_id="7", user="t3", tag="", reservation="ml"),
        theirs._replace(job_id="8", user="t3", tag=tag("hub", "kim", ""), reservation="ml"),
    )

    assert [five_minutes_before(*jobs, reservation=name)[0].own_jobs for name in (None, "ml")] == [
        {"": {"1"}},
        {"": {"6", "7"}},
    ]


MOMENTS: dict[str, tuple[dict[str, Any], float, float]] = {
    "as soon as servers may be started": ({}, START - 86400, START - 600),
    "when the reservation begins": ({"start": START}, START - 86400, START),
    "now, in a session under way": ({}, START + HOUR, START + HOUR),
}


@pytest.mark.parametrize(("reservation", "now", "at"), MOMENTS.values(), ids=MOMENTS.keys())
def test_seats_are_counted_for_the_moment_at_which_servers_can_start(
    reservation: dict[str, Any], now: float, at: float
) -> None:
    """And the time limit is what is left of the session when they are submitted."""
    profile = {"display_name": "K80", "slug": "k80", "slurm": {"partition": "gpu", "gpus": 1, "time": "10:00:00"}}
    changes = {"sessions": [DAY], "zone": "UTC", "roster": "t[1-8]", "profile": "k80", "start_ahead": "10min"}
    inputs = CourseInputs(parse_profiles([profile]), {"": replace(snapshot(**reservation), taken_at=now)})
    (plan,) = plans(CourseFile("deep", course(DEEP_LEARNING, **changes)), inputs)

    (request,) = plan.requests
    assert (plan.at, request.resources.time) == (at, END - max(now, START - 600) - 60)


TWO_PROFILES = parse_profiles(
    [
        {
            "display_name": slug,
            "slug": slug,
            "slurm": {"partition": "gpu", "gpus": gpus, "cpus": 1, "memory": "1G", "time": "8:00:00"},
        }
        for slug, gpus in (("two", 2), ("one", 1))
    ]
)
"""On two nodes of four GPUs, four people fit with the first, eight with the second."""


def server_of(job: ClusterJob, user: str) -> ClusterJob:
    """A participant's, in the course's reservation."""
    return job._replace(user=user, reservation="ml", ends_at=None)


def two_profiles(cluster_snapshot: ClusterSnapshot) -> SessionPlan:
    """The plan of a session for eight people with both profiles, under way."""
    changes = {"sessions": [DAY], "zone": "UTC", "roster": "t[1-8]", "profile": ["two", "one"], "start_ahead": None}
    file = CourseFile("deep", course(DEEP_LEARNING, **changes))
    (plan,) = plans(file, CourseInputs(TWO_PROFILES, {"": replace(cluster_snapshot, taken_at=START + HOUR)}))
    return plan


@pytest.mark.parametrize(
    ("running_servers", "waiting_servers", "rank"),
    [
        (0, {}, 0),
        (0, {0: 3}, 0),
        (0, {0: 4}, 1),
        (0, {0: 99}, 1),
        (0, {1: 99}, 0),
        (0, {7: 99}, 0),
        (3, {}, 0),
        (3, {0: 1}, 1),
        (3, {1: 1}, 0),
        (4, {}, 1),
    ],
)
def test_seats_are_filled_in_the_order_of_the_profiles(
    running_servers: int, waiting_servers: dict[int, int], rank: int
) -> None:
    """The course's own servers have theirs, also those that hold nothing yet; whoever finds none waits for the last."""
    used = [min(2, max(0, running_servers - 2 * number)) for number in range(2)]
    nodes = [node(f"g{number}", "gpu:k80:4", f"gpu:k80:{2 * count}") for number, count in enumerate(used)]
    jobs = [
        server_of(running(f"{number}{server}", f"g{number}", "gpu:k80:2"), f"t{1 + 2 * number + server}")
        for number, count in enumerate(used)
        for server in range(count)
    ]
    reservation = snapshot().reservations
    cluster_snapshot = replace(cluster(*nodes, jobs=tuple(jobs), reservations=reservation), taken_at=START + HOUR)
    plan, now = two_profiles(cluster_snapshot), START + HOUR
    snapshots, people = {"": cluster_snapshot}, plan.people
    assert rank_of_next(plan.requests, plan.session, snapshots, people, now=now, waiting=waiting_servers) == rank


THREE_PROFILES = parse_profiles(
    [
        {"display_name": slug, "slug": slug, "slurm": {"partition": "gpu", "memory": "1G", "time": "8:00:00", **slurm}}
        for slug, slurm in (
            ("mig", {"gpus": 1, "gpu_type": "a100", "cpus": 1}),
            ("k80", {"gpus": 1, "gpu_type": "k80", "cpus": 1}),
            ("cpu", {"cpus": 15}),
        )
    ]
)
WAIT: dict[str, tuple[tuple[int, int], dict[int, int], int]] = {
    "nobody waits, and all is free": ((2, 2), {}, 0),
    "who waits for the first leaves the second, which has a free GPU": ((0, 1), {0: 5}, 1),
    "who waits for the second leaves the first": ((1, 0), {1: 5}, 0),
    "who waits for the third leaves both": ((0, 1), {2: 5}, 1),
    "one has asked for the last of the second": ((0, 1), {0: 5, 1: 1}, 2),
    "the first was given free while others wait for the second": ((1, 1), {1: 1}, 0),
    "as many wait for the first as it has seats": ((2, 2), {0: 2}, 1),
    "all are full": ((0, 0), {0: 1, 2: 9}, 2),
}


@pytest.mark.parametrize(("free", "waiting_servers", "rank"), WAIT.values(), ids=WAIT.keys())
def test_who_waits_for_one_profile_takes_no_seat_of_another(
    free: tuple[int, int], waiting_servers: dict[int, int], rank: int
) -> None:
    """Two A100s and two K80s, of which so many are free; the third profile has room for one on each node."""
    changes = {"sessions": [{**DAY, "reservation": None}], "zone": "UTC", "profile": ["mig", "k80", "cpu"]}
    file = CourseFile("deep", course(DEEP_LEARNING, **{**changes, "roster": "t[1-13]", "start_ahead": None}))
    kinds, now = ("a100", "k80"), START + HOUR
    nodes = [node(kind, f"gpu:{kind}:2", f"gpu:{kind}:{2 - left}") for kind, left in zip(kinds, free, strict=True)]
    jobs = tuple(
        running(f"{kind}{number}", kind, f"gpu:{kind}:1", cpus=1, ends_in=None)
        for kind, left in zip(kinds, free, strict=True)
        for number in range(2 - left)
    )
    snapshots = {"": replace(cluster(*nodes, jobs=jobs), taken_at=now)}
    (plan,) = plans(file, CourseInputs(THREE_PROFILES, snapshots))

    assert rank_of_next(plan.requests, plan.session, snapshots, plan.people, now=now, waiting=waiting_servers) == rank


def test_the_report_says_how_many_get_each_profile() -> None:
    """They are one count of seats, by Slurm or by hand, and every profile's faults are told."""
    plan = two_profiles(snapshot())
    by_hand = estimated(plan, {"": snapshot()}, "By hand.")
    assert by_hand == SeatCount(8, 12, 4, by_profile={"two": 4, "one": 0}, estimate="By hand.")
    report = report_of(plan, {"": snapshot()}, replace(ALL, by_profile={"two": 4, "one": 4}), {})
    assert (report.fits, texts(report)) == (True, ["4 get profile two, 4 get profile one."])
    assert texts(report_of(two_profiles(cluster(*NODES)), {}, None, {})) == ["There is no reservation ml."]


def test_a_fault_of_one_of_several_profiles_names_it() -> None:
    """Of one alone, there is no other that could be meant."""
    profiles = parse_profiles(
        [
            {"display_name": slug, "slug": slug, "slurm": {"partition": "gpu", "gpus": 1, "cpus": 1, "time": time}}
            for slug, time in (("long", "8:00:00"), ("short", "1:00:00"))
        ]
    )

    def remarks(*chosen: str) -> list[str]:
        changes = {"sessions": [DAY], "zone": "UTC", "roster": "t[1-8]", "profile": list(chosen), "start_ahead": None}
        file = CourseFile("deep", course(DEEP_LEARNING, **changes))
        (plan,) = plans(file, CourseInputs(profiles, {"": replace(snapshot(), taken_at=START - DAYS)}))
        return [remark.text for remark in plan.remarks]

    late = "end after 1 h, before the session does, which takes 8 h."
    assert (remarks("short"), remarks("long", "short")) == ([f"Servers {late}"], [f"Servers of profile short {late}"])


def test_the_report_names_the_profile_that_would_have_to_request_less() -> None:
    """And what becomes of people whom Slurm refuses the last of the profiles."""
    plan, smaller = two_profiles(snapshot()), Smaller("cpus-per-task", 1, 8, rank=0)
    few = replace(ALL, fit=6, waiting={"Resources": 2}, smaller=smaller)
    refused = replace(ALL, fit=6, refusal="there is no such licence")

    assert [texts(report_of(plan, {"": snapshot()}, seats, {})) for seats in (few, refused)] == [
        ["6 of 8 start; 2 wait: Resources. With 1 core each in profile two: all 8."],
        ["6 of 8 start; Slurm refuses the jobs of others: there is no such licence."],
    ]


CLUSTERS = {name: Resources(cluster=name) for name in ("juniper", "cedar")}
"""The defaults of a site with two clusters, whose nodes, partitions and jobs have the same names."""
CLUSTER_CHOICES = {name: {"display_name": name, "slurm": {"cluster": name}} for name in CLUSTERS}
ON_BOTH = parse_profiles(
    [
        {
            "display_name": "One",
            "slug": "one",
            "slurm": {"partition": "gpu", "gpus": 1, "cpus": 1, "memory": "1G", "time": "8:00:00"},
            "profile_options": {"where": {"choices": CLUSTER_CHOICES}},
        }
    ]
)


def on_both(**snapshots: ClusterSnapshot) -> tuple[SessionPlan, dict[str, ClusterSnapshot]]:
    """The plan of a session for sixteen people that is first on juniper and then on cedar, under way."""
    chosen = [{"slug": "one", "options": {"where": name}} for name in CLUSTERS]
    changes = {"sessions": [DAY], "zone": "UTC", "roster": "t[1-16]", "profile": chosen, "start_ahead": None}
    cluster_snapshots = {name: replace(snapshot, taken_at=START + HOUR) for name, snapshot in snapshots.items()}
    (plan,) = plans(
        CourseFile("deep", course(DEEP_LEARNING, **changes)), CourseInputs(ON_BOTH, cluster_snapshots, CLUSTERS)
    )
    return plan, cluster_snapshots


def test_a_course_on_two_clusters_is_counted_on_each() -> None:
    """With nodes of the same name, and with jobs of the same number, of which one is a participant's."""
    jobs = (running("1", "g0", "gpu:k80:1", user="t1", reservation="ml", ends_in=None),)
    busy = replace(snapshot(), nodes=(node("g0", "gpu:k80:4", "gpu:k80:1"), NODES[1]), jobs=jobs)
    down = node("g1", "gpu:k80:4", states=frozenset({"IDLE", "DRAIN"}))
    others = replace(busy, nodes=(busy.nodes[0], down), jobs=(jobs[0]._replace(user="kim"),))
    plan, cluster_snapshots = on_both(juniper=busy, cedar=others)
    seats = estimated(plan, cluster_snapshots, "By hand.")

    assert plan.own_jobs == {"juniper": {"1"}, "cedar": set()}
    assert seats == SeatCount(16, 24, 11, by_profile={"one on juniper": 8, "one on cedar": 3}, estimate="By hand.")
    assert texts(report_of(plan, cluster_snapshots, seats, {})) == [
        "By estimate 11 of 16 start. Not available: g1 on cedar (out of service now).",
        "8 get profile one on juniper, 3 get profile one on cedar.",
        "By hand.",
    ]


def test_what_is_wrong_on_one_cluster_is_said_of_that() -> None:
    """A reservation that it lacks; and that it does not respond, while the other one does."""
    missing, _ = on_both(juniper=snapshot(), cedar=cluster(*NODES))
    silent, _ = on_both(juniper=snapshot())

    assert [(remark.kind, remark.text) for plan in (missing, silent) for remark in plan.remarks] == [
        ("reservation", "There is no reservation ml on cedar."),
        ("silent", "Slurm on cedar does not respond, so no seats are counted."),
    ]
    assert (missing.requests, silent.requests) == ((), ())


def test_the_next_server_is_on_the_cluster_that_has_a_seat() -> None:
    """One that was never heard of has none."""
    plan, cluster_snapshots = on_both(juniper=snapshot(), cedar=snapshot())
    jobs = tuple(running(str(number), f"g{number}", "gpu:k80:4", ends_in=None) for number in range(2))
    nodes = tuple(node(f"g{number}", "gpu:k80:4", "gpu:k80:4") for number in range(2))
    full = replace(cluster_snapshots["juniper"], nodes=nodes, jobs=jobs)

    def rank(snapshots: dict[str, ClusterSnapshot]) -> int:
        return rank_of_next(plan.requests, plan.session, snapshots, plan.people, now=START + HOUR, waiting={})

    assert rank(cluster_snapshots) == 0
    assert rank({**cluster_snapshots, "juniper": full}) == 1
    assert rank({"cedar": cluster_snapshots["cedar"]}) == 1


SAME_TIME: dict[str, tuple[dict[str, Any], list[str]]] = {
    "another at the same time": ({}, ["ada"]),
    "another that is started ahead of it": ({"start_ahead": "10min", "slug": "zoe"}, ["zoe"]),
    "another at the same time, which comes after it": ({"slug": "zoe"}, []),
    "another that is over by then": ({"sessions": [{**DAY, "from": "7:00", "to": "9:00"}]}, []),
    "another that begins later": ({"sessions": [{**DAY, "from": "10:00"}]}, []),
}


@pytest.mark.parametrize(("other", "expected"), SAME_TIME.values(), ids=SAME_TIME.keys())
def test_courses_at_the_same_time_are_served_one_after_the_other(other: dict[str, Any], expected: list[str]) -> None:
    """Whose servers are started first; of those that are started together, the one whose name comes first."""
    changes: dict[str, Any] = {"sessions": [DAY], "zone": "UTC", "profile": "k80", "start_ahead": None}
    changed = {key: value for key, value in other.items() if key != "slug"}
    files = [
        CourseFile("deep", course(DEEP_LEARNING, **changes)),
        CourseFile(other.get("slug", "ada"), course(DEEP_LEARNING, **{**changes, **changed})),
    ]
    files.sort(key=lambda file: file.slug)
    profile = {"display_name": "K80", "slug": "k80", "slurm": {"partition": "gpu", "gpus": 1, "time": "8:00:00"}}
    inputs = CourseInputs(parse_profiles([profile]), {"": replace(snapshot(), taken_at=START - 86400)})
    (own,) = plans(next(file for file in files if file.slug == "deep"), inputs)
    beside = plans_beside([own], files, inputs)

    assert [plan.course for plan in own.served_before(beside)] == expected


def test_an_empty_roster_is_told() -> None:
    """Such as that of a group without members."""
    report = reported(snapshot(), course={"roster": {"groups": "ml"}}, groups={"ml": ()})
    assert texts(report) == ["Nobody is on the roster."]


def test_the_document_says_who_has_counted() -> None:
    """Slurm, a hand, or nobody."""
    by_hand = replace(ALL, estimate="Counted by hand.")
    reports = [reported(snapshot(), seats) for seats in (ALL, by_hand, NONE)]
    reports.append(reported(cluster(*NODES)))
    document = check_document("deep", reports)

    assert [(date.counted, date.fit, date.beside, date.waiting) for date in document.sessions] == [
        ("slurm", 8, 8, {}),
        ("estimate", 8, 8, {}),
        ("slurm", 0, None, {"Resources": 8}),
        ("", 0, None, {}),
    ]
