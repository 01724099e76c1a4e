"""The documents of ``/hub/api/gpuspawner/courses``, and how they are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping  # noqa: TC003 - the reference reads the types of the fields
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyterhub_gpuspawner.courses.sessions import Session
    from jupyterhub_gpuspawner.errors import ConfigError
    from jupyterhub_gpuspawner.hub.courses.actions import Outcome
    from jupyterhub_gpuspawner.hub.courses.book import HubCourse
    from jupyterhub_gpuspawner.hub.courses.participants import Participant
    from jupyterhub_gpuspawner.hub.courses.starts import CourseStart

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

    def to_json(self) -> dict[str, Any]:
        """The document as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class CoursePerson:
    """One participant, with what the hub knows now of the server that every action is about.

    That is the default server, or a named one with the course's profile.
    """

    user: str
    state: str
    """``absent``, ``waiting`` (in Slurm's queue), ``starting``, ``running``, ``stopping``, ``failed`` (it did not
    start) or ``ended`` (it ran, and ended without anybody stopping it)."""
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

    def to_json(self) -> dict[str, Any]:
        """The document as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class ActionOutcome:
    """What became of an action for one person."""

    user: str
    result: str
    """``done`` (or under way), ``unchanged`` or ``refused``."""
    sentence: str


@dataclass(frozen=True)
class OutcomesDocument:
    """What became of an action, for each person."""

    version: int = VERSION
    outcomes: tuple[ActionOutcome, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The document as JSON."""
        return asdict(self)


def courses_document(
    courses: Iterable[HubCourse], *, now: datetime, fault: ConfigError | None = None
) -> CoursesDocument:
    """The document of these courses; ``fault`` is the folder's."""
    return CoursesDocument(
        courses=tuple(course_entry(course, now=now) for course in courses),
        faults=(str(fault),) if fault is not None else (),
    )


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
    of_user = {each.user: each for each in participants}
    people = tuple(
        _person(of_user[name], starts.get(name), activity.get(name), known=name not in course.unknown)
        for name in course.people
    )
    totals = Counter(person.state for person in people)
    return CourseDocument(VERSION, course_entry(course, now=now), dict(totals), people)


def outcomes_document(outcomes: Iterable[Outcome]) -> OutcomesDocument:
    """The document of these outcomes."""
    return OutcomesDocument(
        outcomes=tuple(ActionOutcome(each.user, each.result.value, each.sentence) for each in outcomes)
    )


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
        last_activity=_iso(active) if active is not None else None,
        stage=start.stage.value if start is not None else "",
        fault=participant.why,
    )


def _session(session: Session | None) -> CourseSession | None:
    if session is None:
        return None
    start, end = (moment.isoformat(timespec="seconds") for moment in (session.start, session.end))
    return CourseSession(session.name, start, end, session.reservation)


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
