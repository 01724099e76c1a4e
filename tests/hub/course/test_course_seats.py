"""The seats that are left, on the page of a course."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from jupyterhub_gpuspawner.courses.check import CourseInputs
from jupyterhub_gpuspawner.courses.folder import CourseFile
from jupyterhub_gpuspawner.hub.course.book import HubCourse
from jupyterhub_gpuspawner.hub.course.view import SeatsLeft, seats_left
from jupyterhub_gpuspawner.profiles.profile import parse_profiles
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from tests.courses.test_course import DEEP_LEARNING, course
from tests.snapshots import NOW, cluster, node, running

DAY = 86400.0
TODAY = datetime.fromtimestamp(NOW, timezone.utc).date().isoformat()
PROFILES = parse_profiles(
    [
        {
            "display_name": "K80",
            "slug": "k80",
            "slurm": {"partition": "gpu", "gpus": 1, "cpus": 2, "memory": "4G", "time": "24:00:00"},
        }
    ]
)
BUSY = cluster(
    node("g0", "gpu:k80:4", "gpu:k80:3", cpus_allocated=12),
    node("g1", "gpu:k80:4"),
    jobs=(running("1", "g0", "gpu:k80:2", ends_in=3600), running("2", "g0", "gpu:k80:1", ends_in=3 * DAY)),
)


def taught(*sessions: dict[str, str], profile: str = "k80") -> HubCourse:
    """A course of six with these sessions."""
    made = course(DEEP_LEARNING, sessions=list(sessions), zone="UTC", roster="t[1-6]", profile=profile)
    people = tuple(f"t{number}" for number in range(1, 7))
    return HubCourse("deep", CourseFile("deep", made), people=people, sessions=made.dates)


def day(after: int) -> str:
    """A date, so many days after today."""
    return datetime.fromtimestamp(NOW + after * DAY, timezone.utc).date().isoformat()


WHOLE_DAY = {"date": TODAY, "from": "0:00", "to": "23:59"}
TOMORROW = {"date": day(1), "from": "9:00", "to": "17:00"}
FOUND: dict[str, tuple[HubCourse, ClusterSnapshot, SeatsLeft | None]] = {
    "what is free now, in a session": (taught(WHOLE_DAY), BUSY, SeatsLeft(5)),
    "what jobs will have left free, before one": (taught(TOMORROW), BUSY, SeatsLeft(7)),
    "what is wrong with the next session": (
        taught({**TOMORROW, "reservation": "ml"}),
        BUSY,
        SeatsLeft(0, ("There is no reservation ml.",)),
    ),
    "no session": (taught({"date": day(-1), "from": "9:00", "to": "17:00"}), BUSY, None),
}


@pytest.mark.parametrize(("found", "snapshot", "expected"), FOUND.values(), ids=FOUND.keys())
def test_seats_that_are_left(found: HubCourse, snapshot: ClusterSnapshot, expected: SeatsLeft | None) -> None:
    """Counted by the same check as on the command line."""
    assert seats_left(found, CourseInputs(PROFILES, snapshot), now=NOW) == expected


def test_a_course_without_people_has_none() -> None:
    """Nobody is on the roster, or all were left out."""
    nobody = HubCourse("deep", taught(WHOLE_DAY).file, sessions=taught(WHOLE_DAY).sessions)
    assert seats_left(nobody, CourseInputs(PROFILES, BUSY), now=NOW) is None
