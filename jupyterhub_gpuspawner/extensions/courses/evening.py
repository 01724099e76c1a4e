"""The hub's own check of each course's next session: within a week of it, the evening before, and when asked for.

Slurm's scheduler is asked beside the hub's event loop, in processes of its own, about one course after the other. The
last answer is kept in memory, with its time; a hub that was restarted checks again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.errors import SlurmUnavailable
from jupyterhub_gpuspawner.extensions.courses.book import CourseBook, HubCourse, course_book
from jupyterhub_gpuspawner.extensions.courses.check import CourseInputs, plans
from jupyterhub_gpuspawner.extensions.courses.course import CourseDate
from jupyterhub_gpuspawner.extensions.courses.rehearsal import rehearsal_beside
from jupyterhub_gpuspawner.extensions.courses.report import SessionReport
from jupyterhub_gpuspawner.hub.extension import Letter
from jupyterhub_gpuspawner.hub.site.background import Failures
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import site_of, with_profiles
from jupyterhub_gpuspawner.tasks import timeout

CHECK_SECONDS = 60.0
"""Seconds between two looks at which checks are due."""
DEADLINE = 300.0
"""Seconds after which a check is given up."""
EARLY = timedelta(days=7)
"""How long before a session it is checked first."""
EVENING = 18
"""The hour, in the course's time zone, from which a session of the next day is checked once more."""


@dataclass(frozen=True)
class SessionCheck:
    """What a check found."""

    course: HubCourse
    """The course as it was then."""
    report: SessionReport
    at: float
    """When the session was checked, in seconds since the epoch."""


def is_due(course: HubCourse, last: SessionCheck | None, now: float) -> bool:
    """Whether the next session of a course is to be checked at ``now``, in seconds since the epoch."""
    moment = datetime.fromtimestamp(now, timezone.utc)
    session = course.next_session(moment)
    if session is None or not course.people or course.session_at(moment) is not None or session.start - moment > EARLY:
        return False
    if last is None or last.report.session != session:
        return True
    changed = (last.course.file, last.course.people) != (course.file, course.people)
    return changed or last.at < evening_before(session) <= now


def evening_before(session: CourseDate) -> float:
    """When a session is checked once more, in seconds since the epoch."""
    day = session.start - timedelta(days=1)
    return day.replace(hour=EVENING, minute=0, second=0, microsecond=0).timestamp()


class CourseChecks:
    """Checks the next session of each course of a hub when that is due."""

    def __init__(self, app: JupyterHub, book: CourseBook) -> None:
        self.wake = asyncio.Event()
        """Set when somebody asks for a check."""
        self._settings = app.tornado_settings
        self._book = book
        self._failures = Failures(app.db)
        self._checks: dict[str, SessionCheck] = {}
        self._wanted: set[str] = set()
        self._failed: set[str] = set()

    def status(self, course: HubCourse) -> tuple[str, SessionCheck | None]:
        """How the count of the next session's seats stands, and the last check of it; None where there was none.

        The former is ``counted``, ``never``, ``failed`` (nothing came of the latest attempt) or ``now``; empty where
        there is nothing to count.
        """
        check, session = self._checks.get(course.slug), course.next_session()
        last = check if check is not None and check.report.session == session else None
        if not course.people or (session is None and course.slug not in self._wanted):
            return "", last
        if course.slug in self._wanted:
            return "now", last
        return "failed" if course.slug in self._failed else "counted" if last is not None else "never", last

    def want(self, course: HubCourse) -> None:
        """Check the course's next session as soon as possible."""
        self._wanted.add(course.slug)
        self.wake.set()

    async def check_due(self) -> None:
        """Check what is due, one course after the other; a fault of one is logged, and the others go on."""
        for course in self._book.courses():
            if course.slug in self._wanted or is_due(course, self._checks.get(course.slug), time.time()):
                self._failed.discard(course.slug)
                completed = False
                with self._failures.of(f"The check of course {course.slug}"):
                    await self._check(course)
                    completed = True
                if not completed:
                    self._failed.add(course.slug)
                self._wanted.discard(course.slug)

    async def _check(self, course: HubCourse) -> None:
        """Raises GPUSpawnerError and SQLAlchemyError."""
        spawner, session = profiles_spawner(self._settings), course.next_session()
        if spawner is None or session is None:
            return
        began = time.time()
        try:
            async with timeout(DEADLINE):
                inputs = await inputs_of(course, spawner, self._settings)
                if inputs is None:
                    raise SlurmUnavailable("Slurm does not answer.")
                files = [other.file for other in self._book.courses()]
                (plan,) = plans(course.file, inputs, only=session.name)
                if silent := next((remark.text for remark in plan.remarks if remark.kind == "silent"), ""):
                    raise SlurmUnavailable(silent)
                rehearsal = await rehearsal_beside(spawner, [plan], files, inputs)
                (report,) = await rehearsal.reports([plan])
        except asyncio.TimeoutError:
            raise SlurmUnavailable(f"It took more than {DEADLINE:.0f} s.") from None
        self._checks[course.slug] = SessionCheck(course, report, began)


def course_checks(settings: Mapping[str, Any]) -> CourseChecks:
    """The checks in a hub that has a :func:`course_book`."""
    return state_of(settings).of(CourseChecks)


def letters(settings: Mapping[str, Any], now: float) -> Iterator[Letter]:
    """How many people will get in, to instructors the evening before a session. Raises SQLAlchemyError."""
    state, book = state_of(settings), course_book(settings)
    for course in book.courses() if book is not None and CourseChecks in state else ():
        _, check = state.of(CourseChecks).status(course)
        if check is None or not check.at >= evening_before(check.report.session) or book is None:
            continue
        report, session = check.report, check.report.session
        seats = f"{report.fit}{' or more' if report.more else ''} seats for {report.wanted} people"
        enough = "" if report.fits else " The course's page says what is wrong."
        members = book.people_of(course.instructor_groups).groups.values()
        for name in sorted({*course.instructors, *(name for group in members for name in group)}):
            yield Letter(
                name,
                f"evening {course.slug} {session.start.timestamp():.0f}",
                subject=f"{seats}: {course.title}",
                text=f"{course.title} begins at {session.start:%H:%M} on {session.start:%d %B}: "
                f"{seats}{report.provisos}.{enough}",
                until=max(now, session.start.timestamp()),
                link=f"gpuspawner/course/{course.slug}",
            )


def profiles_spawner(settings: Mapping[str, Any]) -> GPUProfilesSpawner | None:
    """The site's settings in the hub with these; None where there are no profiles of Slurm jobs."""
    return with_profiles(site_of(settings))


async def inputs_of(
    course: HubCourse, spawner: GPUProfilesSpawner, settings: Mapping[str, Any], *, max_age: float = 15.0
) -> CourseInputs | None:
    """What a course of the hub is checked against; None while no cluster responds. Raises SQLAlchemyError.

    What is known of a cluster is at most ``max_age`` seconds old.
    """
    clusters, book = spawner.connections(), course_book(settings)
    latest = await asyncio.gather(*(slurm.view.recent(max_age) for slurm in clusters.values()))
    snapshots = {
        name: snapshot
        for (name, slurm), snapshot in zip(clusters.items(), latest, strict=True)
        if snapshot is not None and not slurm.silent
    }
    if not snapshots or book is None:
        return None
    offered = spawner.offered()
    named = {*course.instructor_groups, *(group for profile in offered for group in profile.allow.groups)}
    courses = (*book.courses(), course)
    groups = {**book.people_of(named).groups, **{other.group: other.people for other in courses}}
    people = {other.slug: other.people for other in courses}
    return CourseInputs(offered, snapshots, spawner.defaults(), groups, people)
