"""The seats that are left, on the page of a course, and when those of the next session are counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.courses.book import BookOfHub, HubCourse, HubPeople
from jupyterhub_gpuspawner.extensions.courses.check import CourseInputs
from jupyterhub_gpuspawner.extensions.courses.evening import CourseChecks, SessionCheck, is_due, letters
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.extensions.courses.report import SessionReport
from jupyterhub_gpuspawner.extensions.courses.view import FreeSeats, free_seats
from jupyterhub_gpuspawner.hub.extension import Letter
from jupyterhub_gpuspawner.hub.site.state import KEY, HubState
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from tests.extensions.courses.test_course import DEEP_LEARNING, course
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
    lesson = course(DEEP_LEARNING, sessions=list(sessions), zone="UTC", roster="t[1-6]", profile=profile)
    people = tuple(f"t{number}" for number in range(1, 7))
    return HubCourse("deep", CourseFile("deep", lesson), people=people, sessions=lesson.dates)


def day(after: int) -> str:
    """A date, so many days after today."""
    return datetime.fromtimestamp(NOW + after * DAY, timezone.utc).date().isoformat()


WHOLE_DAY = {"date": TODAY, "from": "0:00", "to": "23:59"}
TOMORROW = {"date": day(1), "from": "9:00", "to": "17:00"}
SEATS: dict[str, tuple[HubCourse, ClusterSnapshot, int | None]] = {
    "what is free now, in a session": (taught(WHOLE_DAY), BUSY, 5),
    "what jobs will have left free, before one": (taught(TOMORROW), BUSY, 7),
    "nothing can be counted": (taught({**TOMORROW, "reservation": "ml"}), BUSY, None),
    "no session": (taught({"date": day(-1), "from": "9:00", "to": "17:00"}), BUSY, None),
}


@pytest.mark.parametrize(("course", "snapshot", "expected"), SEATS.values(), ids=SEATS.keys())
def test_seats_that_are_left(course: HubCourse, snapshot: ClusterSnapshot, expected: int | None) -> None:
    """Counted by hand."""
    free = None if expected is None else (FreeSeats("k80", expected),)
    assert free_seats(course, CourseInputs(PROFILES, {"": snapshot}), now=NOW) == free


def test_a_course_without_people_has_none() -> None:
    """Nobody is on the roster, or all were left out."""
    nobody = HubCourse("deep", taught(WHOLE_DAY).file, sessions=taught(WHOLE_DAY).sessions)
    assert free_seats(nobody, CourseInputs(PROFILES, {"": BUSY}), now=NOW) is None


NEXT = taught(TOMORROW, {"date": day(8), "from": "9:00", "to": "17:00"})
BEGINS = NEXT.sessions[0].start.timestamp()
EVENING = BEGINS - 15 * 3600
"""18:00 of the day before a session at 9:00."""


def checked(at: float, *, course: HubCourse = NEXT, session: int = 0) -> SessionCheck:
    """A check of one of the sessions."""
    return SessionCheck(course, SessionReport(course.sessions[session], 6), at)


DUE: dict[str, tuple[HubCourse, SessionCheck | None, float, bool]] = {
    "a week before": (NEXT, None, BEGINS - 7 * DAY, True),
    "earlier": (NEXT, None, BEGINS - 7 * DAY - 60, False),
    "it was checked": (NEXT, checked(EVENING - DAY), EVENING - 60, False),
    "the evening before": (NEXT, checked(EVENING - DAY), EVENING, True),
    "that evening's check was made": (NEXT, checked(EVENING + 60), EVENING + 3600, False),
    "the file has changed": (
        taught(TOMORROW, profile="p100"),
        checked(EVENING + 60),
        EVENING + 3600,
        True,
    ),
    "the roster has changed": (replace(NEXT, people=("t1",)), checked(EVENING + 60), EVENING + 3600, True),
    "the session is under way": (NEXT, checked(EVENING + 60), BEGINS + 60, False),
    "the next one is more than a week away": (NEXT, checked(EVENING + 60), BEGINS - DAY + 8 * DAY - 7.5 * DAY, False),
    "the last check was of another session": (NEXT, checked(EVENING, session=1), EVENING + 60, True),
    "there is no further session": (NEXT, None, BEGINS + 9 * DAY, False),
    "nobody is on the roster": (replace(NEXT, people=()), None, EVENING, False),
}


@pytest.mark.parametrize(("course", "last", "now", "due"), DUE.values(), ids=DUE.keys())
def test_when_the_hub_checks_the_next_session(
    course: HubCourse, last: SessionCheck | None, now: float, *, due: bool
) -> None:
    """Once it is near, the evening before, and after a change."""
    assert is_due(course, last, now) is due


async def test_how_the_count_of_the_next_session_stands() -> None:
    """An instructor who asks for it waits; a check that fails says so until the next one."""
    app: Any = SimpleNamespace(tornado_settings=None, db=SimpleNamespace(rollback=lambda: None))
    checks = CourseChecks(app, SimpleNamespace(courses=lambda: (NEXT,)))  # type: ignore[arg-type]
    nobody, over = replace(NEXT, people=()), replace(NEXT, sessions=())

    before = [checks.status(course)[0] for course in (NEXT, nobody, over)]
    checks.want(NEXT)
    wanted = checks.status(NEXT)
    await checks.check_due()

    assert (before, wanted, checks.status(NEXT)) == (["never", "", ""], ("now", None), ("failed", None))


def test_instructors_are_told_the_evening_before_how_many_get_in() -> None:
    """The members of their groups, too; only what was counted that evening."""
    taught_by = replace(NEXT, instructors=("tea",), instructor_groups=("staff",))
    app: Any = SimpleNamespace(tornado_settings=None, db=None)
    book: Any = SimpleNamespace(
        courses=lambda: (taught_by,),
        people_of=lambda groups: HubPeople({group: {"ann", "tea"} for group in groups}),
    )
    state, checks = HubState(), CourseChecks(app, book)
    state.keep(checks)
    state.of(BookOfHub).book = book
    told = {}
    for at in (EVENING - 60, EVENING + 60):
        checks._checks[NEXT.slug] = checked(at, course=taught_by)
        told[at - EVENING] = list(letters({KEY: state}, EVENING + 120))

    day_of = NEXT.sessions[0].start
    about = f"evening {NEXT.slug} {BEGINS:.0f}"
    text = (
        f"{NEXT.title} begins at 09:00 on {day_of:%d %B}: 0 seats for 6 people. The course's page says what is wrong."
    )
    link = f"gpuspawner/course/{NEXT.slug}"
    assert told == {
        -60: [],
        60: [
            Letter(name, about, f"0 seats for 6 people: {NEXT.title}", text, until=BEGINS, link=link)
            for name in ("ann", "tea")
        ],
    }
