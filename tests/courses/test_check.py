"""What is wrong with a session before it begins."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot, Reservation
from jupyterhub_gpuspawner.courses.check import Site, check_course
from jupyterhub_gpuspawner.courses.folder import CourseFile
from jupyterhub_gpuspawner.courses.rehearsal import document
from jupyterhub_gpuspawner.profiles.profile import parse_profiles
from tests.courses.test_course import DEEP_LEARNING, course
from tests.snapshots import cluster, node

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
    site = Site(parse_profiles([profile]), replace(found, taken_at=START - 86400), **more)
    session = document("deep", check_course(file, site))["sessions"][0]  # type: ignore[index]
    return session["wanted"], session["fit"], session["tight"], session["problems"]


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
            "Who starts more than 7 h 15 min after the beginning is not let in: servers run for 1 h, and reservation "
            "ml ends before that.",
        ],
    ),
    "whoever is late gets less time": (snapshot(end=END), {}, []),
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
    "it denies one": (snapshot(users=("-t3",)), {}, ["Reservation ml is not for t3."]),
    "no account": (
        snapshot(),
        {"without_account": {"t2", "t9"}},
        ["t2 have no account or home folder on this machine."],
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
            "2 of 8 people fit at the same time. With 30 GiB of memory for each person, 2 of 4 GPUs of node g0 can be "
            "used; 16 GiB each would allow all 4. Not counted: g1: out of service (disk)."
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
