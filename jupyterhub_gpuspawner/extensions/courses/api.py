"""``/hub/api/gpuspawner/courses``: for instructors, and for the command line.

A course that the caller may not see is answered like one that does not exist.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from tornado import web

from jupyterhub_gpuspawner.extensions.courses.actions import Outcome, course_actions, session_name
from jupyterhub_gpuspawner.extensions.courses.book import HubCourse, course_book
from jupyterhub_gpuspawner.extensions.courses.course import CourseDate
from jupyterhub_gpuspawner.extensions.courses.participants import CourseStart, Participant
from jupyterhub_gpuspawner.extensions.courses.rights import READING, STARTING, STOPPING, course_taught, courses_taught
from jupyterhub_gpuspawner.hub.extension import MINUTES_AT_MOST
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_admin
from jupyterhub_gpuspawner.hub.web.handlers import RESTHandler
from jupyterhub_gpuspawner.slurm.estimate import utc

# The documents of ``/hub/api/gpuspawner/courses``, and how they are made.

VERSION = 1


@dataclass(frozen=True)
class CourseSession:
    """One session of a course."""

    name: str
    """Its date; with its time where a day has several sessions."""
    start: str
    """ISO 8601, with the course's zone."""
    end: str
    reservation: str | None = None
    """Slurm's reservation; null: that of the profile."""


@dataclass(frozen=True)
class CourseEntry:
    """A course, without its people."""

    slug: str
    """Its name in URLs and on the command line."""
    name: str
    """Its title."""
    people: int
    """How many are on its roster."""
    session_now: CourseSession | None = None
    """The session under way."""
    session_next: CourseSession | None = None
    """The next one to begin."""
    faults: tuple[str, ...] = ()
    """What is wrong with the course's file, roster or group."""


@dataclass(frozen=True)
class CoursesDocument:
    """The courses that the caller teaches; an administrator's are all."""

    version: int = VERSION
    courses: tuple[CourseEntry, ...] = ()
    faults: tuple[str, ...] = ()
    """What is wrong with the folder of courses; for administrators."""


@dataclass(frozen=True)
class CoursePerson:
    """One participant, with what the hub knows now of the course's server, which every action is about."""

    user: str
    state: str
    """``absent``, ``waiting`` (in Slurm's queue), ``starting``, ``running``, ``stopping``, ``failed`` (it did not
    start), ``ended`` (it ran, and ended without anybody stopping it), ``over`` (it ran until the session was over) or
    ``elsewhere`` (their default server runs something else, so that the course's cannot be started)."""
    server: str = ""
    """The server's name; empty for the default server."""
    known: bool = True
    """False where JupyterHub does not know this person yet, so that nothing can be started."""
    profile: str = ""
    job_id: str = ""
    node: str = ""
    started_at: str | None = None
    """ISO 8601, UTC; null where the server does not run or has not reported."""
    ends_at: str | None = None
    last_activity: str | None = None
    """When the person or their server was last active: ISO 8601, UTC; null: never."""
    stage: str = ""
    """How far the hub's own start for this session is: ``left`` (nothing is started: the server was active already, or
    a person stopped it first), ``asked``, ``started`` (Slurm has accepted the job), ``visited`` (the server has been
    opened since), ``failed`` or ``unvisited`` (stopped, since nobody had opened it); empty where there was none."""
    fault: str = ""
    """Why the server did not start, or why it ended."""


@dataclass(frozen=True)
class CourseDocument:
    """A course and its people now."""

    version: int
    course: CourseEntry
    totals: Mapping[str, int]
    """How many people are in each state; states that nobody is in are left out."""
    people: tuple[CoursePerson, ...] = ()
    """In the order of the roster."""


@dataclass(frozen=True)
class OutcomesDocument:
    """What became of an action, for each person."""

    version: int = VERSION
    outcomes: tuple[Outcome, ...] = ()


def course_entry(course: HubCourse, *, now: datetime) -> CourseEntry:
    """A course without its people."""
    return CourseEntry(
        slug=course.slug,
        name=course.title,
        people=len(course.people),
        session_now=_session(course.session_at(now)),
        session_next=_session(course.next_session(now)),
        faults=course.faults,
    )


def course_document(
    course: HubCourse,
    participants: Iterable[Participant],
    starts: Mapping[str, CourseStart],
    activity: Mapping[str, float],
    *,
    now: datetime,
) -> CourseDocument:
    """The document of a course; ``starts`` and ``activity`` are by user."""
    of_user = {participant.user: participant for participant in participants}
    people = tuple(
        _person(of_user[name], starts.get(name), activity.get(name), known=name not in course.unknown)
        for name in course.people
    )
    totals = Counter(person.state for person in people)
    return CourseDocument(VERSION, course_entry(course, now=now), dict(totals), people)


def _person(participant: Participant, start: CourseStart | None, active: float | None, *, known: bool) -> CoursePerson:
    server = participant.server
    placement = server.placement if server.active else None
    return CoursePerson(
        participant.user,
        participant.state.value,
        server.name,
        known,
        profile=server.profile if server.active else "",
        job_id=server.job_id if server.active else "",
        node=placement.node if placement is not None else "",
        started_at=placement.started_at if placement is not None else None,
        ends_at=placement.ends_at if placement is not None else None,
        last_activity=utc(active),
        stage=start.stage.value if start is not None else "",
        fault=participant.why,
    )


def _session(session: CourseDate | None) -> CourseSession | None:
    if session is None:
        return None
    start, end = (moment.isoformat(timespec="seconds") for moment in (session.start, session.end))
    return CourseSession(session.name, start, end, session.reservation)


LONGEST_PAUSE = 60.0
"""Seconds between two starts that a request may ask for."""


class OfCourses(RESTHandler):
    """A handler for those who teach."""

    async def course(self, slug: str, scopes: Sequence[str]) -> HubCourse:
        """The course of this name; raises 404 where there is none for which the caller has these scopes."""
        self.require_credentials()
        return await course_taught(self, slug, scopes, unknown="There is no such course.")

    def require_credentials(self) -> None:
        """Raise 403 for a request without."""
        if self.current_user is None:
            raise web.HTTPError(403, "Missing or invalid credentials.")


class CoursesHandler(OfCourses):
    """The courses that the caller teaches."""

    async def get(self) -> None:
        """The courses document, version 1. Needs the scopes `list:users` and `read:servers` for a course's group.

        `custom:gpuspawner:teach` for the group is enough, too.
        """
        self.require_credentials()
        courses = await courses_taught(self, READING)
        book = course_book(self.settings)
        fault = book.fault if book is not None and is_admin(self.parsed_scopes) else None
        entries = tuple(course_entry(course, now=datetime.now(timezone.utc)) for course in courses)
        document = CoursesDocument(courses=entries, faults=(str(fault),) if fault is not None else ())
        self.write(json.dumps(asdict(document)))


class CourseHandler(OfCourses):
    """A course with its people."""

    async def get(self, course_name: str) -> None:
        """The course document, version 1. Needs the scopes `list:users` and `read:servers` for the course's group.

        `custom:gpuspawner:teach` for the group is enough, too.
        """
        course = await self.course(course_name, READING)
        actions = course_actions(self.settings)
        participants = actions.participants(course)
        document = course_document(
            course,
            participants,
            actions.starts.find(course.slug, session_name(course)),
            actions.last_activity([participant.key for participant in participants]),
            now=datetime.now(timezone.utc),
        )
        self.write(json.dumps(asdict(document)))


@dataclass(frozen=True)
class ActionRequest:
    """The body of an action."""

    only: tuple[str, ...] | None = None
    """User names, or servers as ``USER/SERVER``; None: everybody in the course."""
    every: float = 0.0
    """Start: seconds between two starts."""
    text: str = ""
    """Message: its text."""
    minutes: int | None = None
    """Extend: how much longer the servers may run; None: as their profile says."""


_FIELDS = {"start": {"only", "every"}, "stop": {"only"}, "message": {"only", "message"}, "extend": {"only", "minutes"}}
_SCOPES = {"start": STARTING, "stop": STOPPING, "message": STARTING, "extend": STARTING}


class CourseActionHandler(OfCourses):
    """Start or stop the servers of a course's people, show them a message, or give their servers more time."""

    async def post(self, course_name: str, action: str) -> None:
        """The outcomes document, version 1; 400 names the field. It is about the course's servers alone.

        Needs `custom:gpuspawner:teach` for the course's group, or JupyterHub's scopes for all servers of its people.

        The body is a JSON object: `only`, a list of user names, or of servers as `USER/SERVER`, which are refused where
        the participant has another server now (default: everybody in the course); for `start` also
        `every`, seconds between two starts; for `message` the text `message`; for `extend` the number
        `minutes` (default: as the profile says).
        """
        course = await self.course(course_name, _SCOPES[action])
        try:
            request = parse_action(self.limited_body(), action)
        except ValueError as error:
            raise web.HTTPError(400, "%s", error) from error
        outcomes = await course_actions(self.settings).do(
            action, course, by=str(self.current_user.name), **vars(request)
        )
        self.write(json.dumps(asdict(OutcomesDocument(outcomes=outcomes))))


def parse_action(body: object, action: str) -> ActionRequest:
    """The body of an action; None stands for an empty one. Raises ValueError, which names the field."""
    document: Mapping[str, Any] = body if isinstance(body, dict) else {}
    if body is not None and not isinstance(body, dict):
        raise ValueError("The body must be a JSON object.")
    strange = sorted(map(str, set(document) - _FIELDS[action]))
    if strange:
        raise ValueError(f"{strange[0]}: there is no such field; {action} has {', '.join(sorted(_FIELDS[action]))}.")
    only = document.get("only")
    if only is not None and not (isinstance(only, list) and all(isinstance(name, str) for name in only)):
        raise ValueError("only: must be a list of user names.")
    every, minutes = document.get("every", 0), document.get("minutes")
    if isinstance(every, bool) or not isinstance(every, (int, float)) or not 0 <= every <= LONGEST_PAUSE:
        raise ValueError(f"every: must be a number of seconds, at most {LONGEST_PAUSE:g}.")
    if minutes is not None and (type(minutes) is not int or not 1 <= minutes <= MINUTES_AT_MOST):
        raise ValueError(f"minutes: must be a whole number from 1 to {MINUTES_AT_MOST}.")
    message = document.get("message", "")
    if action == "message" and (not isinstance(message, str) or not message.strip()):
        raise ValueError("message: must be a text.")
    return ActionRequest(None if only is None else tuple(only), float(every), str(message), minutes)


HANDLERS = [
    (r"/api/gpuspawner/courses", CoursesHandler),
    (r"/api/gpuspawner/courses/([^/]+)", CourseHandler),
    (r"/api/gpuspawner/courses/([^/]+)/(start|stop|message|extend)", CourseActionHandler),
]
