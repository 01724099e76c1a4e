"""The people of a course with their servers: who runs, starts, waits, could not start, or has no server.

:func:`participants_of` is pure. :func:`servers_of` reads the spawners that the hub has in memory, and
:func:`ended_servers` the rows that are left of the others in its database; nothing asks Slurm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

from jupyterhub import orm
from sqlalchemy import Column, Integer, MetaData, String, Table, Unicode, bindparam, delete, insert, select
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.extensions.courses.book import HubCourse
from jupyterhub_gpuspawner.extensions.courses.course_profile import slug_of
from jupyterhub_gpuspawner.hub.job.ending import stored_ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import first_line
from jupyterhub_gpuspawner.hub.site.database import NOT_CACHED, transaction
from jupyterhub_gpuspawner.hub.site.tables import SECONDS, delete_older, in_batches
from jupyterhub_gpuspawner.hub.spawners.server import Server, ServerState, server_of
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN
from jupyterhub_gpuspawner.slurm.reason import never_clears

# The starts that courses have asked for, in a table of our own in the hub's database.
#
# A start is recorded before JupyterHub is asked for it, so that no hub, however often it is restarted, asks twice for
# the same person and session.

RETENTION_SECONDS = 30 * 86400.0
"""Seconds that a record is kept."""
FAULT_LIMIT = 1000
"""Characters of a fault that are kept."""

TABLE = Table(
    "gpuspawner_course_starts",
    MetaData(),
    Column("course", String(64), primary_key=True),
    Column("session", String(32), primary_key=True),
    Column("user", Unicode(255), primary_key=True),
    Column("stage", String(16), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("asked_at", SECONDS, nullable=False),
    Column("ready_at", SECONDS, nullable=False),
    Column("fault", Unicode(FAULT_LIMIT), nullable=False),
)


class Stage(str, Enum):
    """How far a start for a course is."""

    LEFT = "left"
    """Nothing is started: the server was active already, or a person stopped it before it had been started."""
    ASKED = "asked"
    """Its turn has not come (no tries yet), or JupyterHub was asked and Slurm has not accepted a job yet: a hub that is
    restarted has to ask again."""
    STARTED = "started"
    """Slurm has accepted the job, or the server is ready."""
    VISITED = "visited"
    """The server became ready, and somebody has opened it since."""
    FAILED = "failed"
    UNVISITED = "unvisited"
    """The server was stopped, since nobody had opened it."""


@dataclass(frozen=True)
class CourseStart:
    """A start for one person and session."""

    user: str
    stage: Stage
    tries: int = 0
    """How often JupyterHub was asked."""
    asked_at: float = 0.0
    """Seconds since the epoch, as all times here."""
    ready_at: float = 0.0
    """When the server was first seen ready; 0 until then."""
    fault: str = ""
    """Why the last try failed, in JupyterHub's or Slurm's words; escape it."""


class CourseStarts:
    """The table, through JupyterHub's session.

    Every method blocks for as long as the database takes, and may raise SQLAlchemyError.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, course: str, session: str, user: str | None = None) -> dict[str, CourseStart]:
        """The starts of a session, by user; or that of one user."""
        query = select(TABLE).filter_by(course=course, session=session)
        rows = self._session.execute(query if user is None else query.filter_by(user=user))
        return {
            row.user: CourseStart(row.user, Stage(row.stage), row.tries, row.asked_at, row.ready_at, row.fault)
            for row in rows
        }

    def keep(self, course: str, session: str, *starts: CourseStart) -> None:
        """Write starts of one session, all or none, in the place of those for the same people."""
        key = {"course": course, "session": session}
        rows = [
            {**key, **asdict(start), "stage": start.stage.value, "fault": start.fault[:FAULT_LIMIT]} for start in starts
        ]
        if not rows:
            return
        old = delete(TABLE).filter_by(**key).where(TABLE.c.user == bindparam("person"))
        with transaction(self._session):
            self._session.execute(old, [{"person": row["user"]} for row in rows])
            self._session.execute(insert(TABLE), rows)

    def forget_old(self) -> None:
        """Delete records older than :data:`RETENTION_SECONDS`."""
        delete_older(self._session, TABLE.c.asked_at, RETENTION_SECONDS)


EARLIER = 3600.0
"""Seconds before the beginning of a session from which an ending counts as one of that session."""
WITHOUT_SESSION = 12 * 3600.0
"""Seconds for which an ending is told where there is no session."""


class State(Enum):
    """What a participant's server does; in the order in which totals are told."""

    RUNNING = "running"
    STARTING = "starting"
    WAITING = "waiting"
    """Its job is pending."""
    STOPPING = "stopping"
    FAILED = "failed"
    """It did not start."""
    ENDED = "ended"
    """It ran, and ended without anybody stopping it."""
    OVER = "over"
    """It ran until the session was over."""
    ABSENT = "absent"
    """There is none, or a person stopped it."""
    ELSEWHERE = "elsewhere"
    """There is none, and none can be started: the default server runs something else than the course."""


class ServerKey(NamedTuple):
    """A server of a participant."""

    user: str
    name: str = ""
    """Empty for the default server."""

    @property
    def title(self) -> str:
        """As an instructor reads it."""
        return f"{self.user} ({self.name})" if self.name else self.user

    @property
    def field(self) -> str:
        """``USER/SERVER`` in a form: percent-encoded, so that nothing in a name ends a line or is stripped."""
        return f"{quote(self.user, safe='')}/{quote(self.name, safe='')}"

    def __str__(self) -> str:
        """``USER/SERVER``, as in JupyterHub's scopes; neither name may contain a slash."""
        return f"{self.user}/{self.name}"


NO_SERVER = Server()
NO_STARTS: Mapping[str, CourseStart] = MappingProxyType({})
NO_QUEUE: Mapping[str, State] = MappingProxyType({})


@dataclass(frozen=True)
class Participant:
    """One person of a course."""

    user: str
    state: State = State.ABSENT
    server: Server = NO_SERVER
    """The course's server, which every action is about; with an empty user name where there is none."""
    stuck: bool = False
    """Its job waits for something that does not pass by itself."""
    too_late: bool = False
    """Its job is expected to start after the session's end."""
    queued: bool = False
    """The hub starts or stops it when its turn comes."""
    fault: str = ""
    """Why JupyterHub refused to start it, in its words; escape it."""

    @property
    def key(self) -> ServerKey:
        """The server that every action is about; the default one where there is none."""
        return ServerKey(self.user, self.server.name)

    @property
    def needs_help(self) -> bool:
        """Nothing happens for this person unless somebody does something."""
        return self.stuck or self.too_late or self.state in (State.FAILED, State.ENDED)

    @property
    def why(self) -> str:
        """Why the server did not start, or ended; empty for other states, and if it is not known. Escape it."""
        if self.state not in (State.FAILED, State.ENDED):
            return ""
        server = self.server
        if server.ending is not None:
            return server.end_words(to_user=False).sentence
        return self.fault or (first_line(server.failure) if server.failure is not None else "")


def participants_of(
    course: HubCourse,
    servers: Iterable[Server],
    *,
    now: float,
    starts: Mapping[str, CourseStart] = NO_STARTS,
    queued: Mapping[str, State] = NO_QUEUE,
) -> tuple[Participant, ...]:
    """Everybody on the course as of ``now``, in the roster's order.

    Only servers of the course count: of several the one that is active, then one that failed or ended. What else these
    people run is not told, except that it is in the way of the course's server. An ending of an earlier session does
    not count. ``starts`` are those of the session that the course asked for, by user; ``queued`` are people whose
    server the hub is about to start (STARTING) or to stop (STOPPING).
    """
    earliest, moment = since(course, now), datetime.fromtimestamp(now, timezone.utc)
    session = course.session_at(moment) or course.next_session(moment)
    by_name: dict[str, list[Participant]] = {name: [] for name in course.people}
    elsewhere = set()
    for server in servers:
        if server.user in by_name and is_of(course, server):
            by_name[server.user].append(participant(server, since=earliest))
        elif server.active and not server.name:
            elsewhere.add(server.user)

    def weight(person: Participant) -> tuple[bool, bool, bool]:
        return person.server.active, person.state is not State.ABSENT, not person.server.name

    def best(name: str, candidates: Sequence[Participant]) -> Participant:
        person = max(candidates, key=weight, default=Participant(name))
        if name in elsewhere and not person.server.active and not person.server.name:
            return Participant(name, State.ELSEWHERE)
        until = session.end.timestamp() if session is not None else inf
        return replace(person, too_late=expected_after(person.server, until, now))

    everybody = (best(name, candidates) for name, candidates in by_name.items())
    return tuple(
        _with_start(person, starts.get(person.user), earliest, queued.get(person.user)) for person in everybody
    )


def is_of(course: HubCourse, server: Server) -> bool:
    """Whether a server is, or was, one of this course; a person may have others."""
    return (server.profile or server.last_profile) == slug_of(course.slug)


def expected_after(server: Server, until: float, now: float) -> bool:
    """Whether a job that waits is expected to start after ``until``; in seconds since the epoch."""
    estimate = server.start.estimate(now) if server.start is not None else UNKNOWN
    expected = next((at for at in (estimate.likely, estimate.planned, estimate.earliest) if at is not None), None)
    return expected is not None and expected >= until


def since(course: HubCourse, now: float) -> float:
    """From when on endings are told: since before the session under way; else for some hours, and not of a session."""
    session = course.session_at(datetime.fromtimestamp(now, timezone.utc))
    if session is not None:
        return session.start.timestamp() - EARLIER
    ends = [session.end.timestamp() for session in course.sessions]
    return max([now - WITHOUT_SESSION, *(end for end in ends if end <= now)])


def participant(server: Server, *, since: float = 0.0) -> Participant:
    """The owner of one server."""
    ending = server.ending
    earlier = not server.active and ending is not None and ending.at is not None and ending.at < since
    state = State.ABSENT if earlier or server.state is ServerState.STOPPED else State(server.state.value)
    stuck = state is State.WAITING and server.job is not None and never_clears(server.job.reason)
    return Participant(server.user, state, server, stuck)


def _with_start(participant: Participant, start: CourseStart | None, since: float, queued: State | None) -> Participant:
    if participant.server.active:
        stops = queued is State.STOPPING and participant.state is not State.STOPPING
        return replace(participant, state=State.STOPPING, queued=True) if stops else participant
    if participant.state is State.ELSEWHERE:
        return participant
    if queued is State.STARTING:
        return Participant(participant.user, State.STARTING, queued=True)
    earlier = max(since, stopped_at(participant.server))  # who has worked since was not kept from it
    refused = start is not None and start.stage is Stage.FAILED and start.asked_at >= earlier
    if participant.state is State.ABSENT and start is not None and refused:
        return replace(participant, state=State.FAILED, fault=start.fault)
    return participant


def totals(room: Iterable[Participant]) -> Mapping[State, int]:
    """How many are in each state, without states that nobody is in."""
    counts = Counter(participant.state for participant in room)
    return {state: counts[state] for state in State if counts[state]}


def servers_of(users: Iterable[Any], people: Collection[str], *, with_start: bool = False) -> Iterator[Server]:
    """The servers of these people that the hub has in memory.

    ``with_start``: with :attr:`Server.start` of those that start; a job's place in the queue is looked up for that.
    """
    for user in users:
        if user.name in people:
            for spawner in list(user.spawners.values()):
                yield server_of(spawner, with_start=with_start and spawner.pending == "spawn")


def ended_servers(session: Session, course: HubCourse, without: Collection[ServerKey] = ()) -> Iterator[Server]:
    """How servers of a course ended, or were stopped, except those in ``without``; active ones are left out.

    JupyterHub forgets a spawner once it has stopped, and when the hub is restarted. Raises SQLAlchemyError.
    """
    for names in in_batches(course.people):
        # columns: rows as objects would take a quarter of a second for two hundred people
        query = (
            select(orm.User.name, orm.Spawner.name, orm.Spawner.state)
            .join(orm.Spawner.user)
            .where(orm.User.name.in_(names), orm.Spawner.server_id.is_(None))
        )
        for user, name, state in session.execute(query, execution_options=NOT_CACHED):
            ending = stored_ending(state) if state and (user, name) not in without else None
            if ending is not None and ending.slug == slug_of(course.slug):
                yield Server(user, name, last_profile=ending.slug, ending=ending)


def stopped_at(server: Server) -> float:
    """When a person stopped the last server, in seconds since the epoch; 0 where nobody has, or it is not known."""
    return (server.ending.at or 0.0) if server.ending is not None and server.ending.stopped else 0.0
