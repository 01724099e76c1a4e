"""What instructors do for the people of a course: start, stop, message and extend.

Each action is about the server with which the participant is shown.

The REST API, the course's page and the start ahead of a session use the same functions. Servers are started and stopped
one after the other in the background, so an action returns at once, with an :class:`Outcome` for each person.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from typing import Any, TypeAlias

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from sqlalchemy import select
from traitlets.log import get_logger

from jupyterhub_gpuspawner.courses.course_profile import slug_of
from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.course import words
from jupyterhub_gpuspawner.hub.course.book import HubCourse
from jupyterhub_gpuspawner.hub.course.pace import Pace, Queue, WorkKind
from jupyterhub_gpuspawner.hub.course.participants import (
    NO_STARTS,
    Participant,
    ServerKey,
    State,
    ended_servers,
    participants_of,
    servers_of,
)
from jupyterhub_gpuspawner.hub.course.rights import GPUCourses
from jupyterhub_gpuspawner.hub.course.service_account import BUSY, READY, Answer, ServiceAccount
from jupyterhub_gpuspawner.hub.course.starts import CourseStart, CourseStarts, Stage
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.messages.store import Audience, Kind, Message, clean_text, messages_of
from jupyterhub_gpuspawner.hub.site.tasks import in_background
from jupyterhub_gpuspawner.hub.spawners.server import Server, extend_server, server_of, stop_record, stop_server
from jupyterhub_gpuspawner.records.record import Stopper
from jupyterhub_gpuspawner.words import duration

# What instructors did on a course's page, in a table of our own in the hub's database.


# Does work for many people one after the other, at a rate that neither hub nor slurmctld feels.


Only: TypeAlias = "Collection[str] | None"
"""Whom an action is for: users, or servers as ``USER/SERVER``; None: everybody in the course."""
BUSY_TRIES = 30
"""How often a start is asked for again that ``concurrent_spawn_limit`` refuses; each time JupyterHub says when."""
CONCURRENT_EXTENSIONS = 4
"""How many servers are given more time at the same time: Slurm is asked for each."""
EXTEND_PATIENCE = 5.0
"""Seconds that whoever extends servers waits; Slurm takes a quarter of a second for each."""
NO_SESSION = "-"
"""The session of a start by hand in a course without a session to come."""
WITHOUT_SESSION = 86400.0
"""Seconds that a message is shown where the course has no session to come."""
_WAIT_SECONDS = 200


class Result(str, Enum):
    """What became of an action for one person."""

    DONE = "done"
    """It was done, or is under way."""
    UNCHANGED = "unchanged"
    """There was nothing to do."""
    REFUSED = "refused"
    """It cannot be done; the sentence says why."""


@dataclass(frozen=True)
class Outcome:
    """What became of an action for one person."""

    user: str
    result: Result
    sentence: str = ""
    """For the instructor; it may contain the user's name and must be escaped."""


def user_options(course: HubCourse) -> dict[str, Any]:
    """The user options with which a participant's server of this course is started."""
    return {"profile": slug_of(course.slug)}


def session_name(course: HubCourse) -> str:
    """The session to which a start of now belongs: the one under way, or else the next."""
    session = course.session_at() or course.next_session()
    return session.name if session is not None else NO_SESSION


def shown_until(course: HubCourse, now: float) -> float:
    """When a message of now expires: with the session under way, else with the next one."""
    ends = (session.end.timestamp() for session in course.sessions)
    return next((end for end in ends if end > now), now + WITHOUT_SESSION)


class CourseActions:
    """The actions of one hub; its methods run in the hub's event loop."""

    def __init__(self, app: JupyterHub, settings: GPUCourses, account: ServiceAccount) -> None:
        self._app = app
        self._account = account
        self.pace = Pace(settings.every, settings.at_once)
        self.starts = CourseStarts(app.db)
        self._extending: dict[ServerKey, asyncio.Task[Outcome]] = {}
        self._free_to_extend = asyncio.Semaphore(CONCURRENT_EXTENSIONS)
        self.messages = messages_of(app.db)

    # --- what is there --------------------------------------------------------------------------

    def participants(
        self, course: HubCourse, people: Collection[str] | None = None, *, with_start: bool = False
    ) -> tuple[Participant, ...]:
        """Everybody on a course, or these of them, each with the server that an action is about.

        ``with_start`` is that of :func:`servers_of`. Raises SQLAlchemyError.
        """
        course = course if people is None else replace(course, people=tuple(people))
        servers = self._in_memory(course, with_start=with_start)
        without = frozenset(course.people) - {server.user for server in servers if not server.name}
        starts = self.starts.find(course.slug, session_name(course))
        return self._participants(course, [*servers, *ended_servers(self._app.db, without)], starts)

    def participants_in_memory(self, course: HubCourse) -> tuple[Participant, ...]:
        """As :meth:`participants`, without what only the database knows."""
        return self._participants(course, self._in_memory(course, with_start=True), NO_STARTS)

    def _in_memory(self, course: HubCourse, *, with_start: bool) -> list[Server]:
        return list(servers_of(self._app.users.values(), frozenset(course.people), with_start=with_start))

    def _participants(
        self, course: HubCourse, servers: Iterable[Server], starts: Mapping[str, CourseStart]
    ) -> tuple[Participant, ...]:
        queued = {user: kind for user in course.people if (kind := self.pace.kind(user)) is not None}
        return participants_of(course, servers, now=time.time(), starts=starts, queued=queued)

    def spawner(self, key: ServerKey) -> Any:
        """The spawner of a server; None where the hub does not have it in memory, so that it is not active."""
        user_id = self._app.db.scalar(select(orm.User.id).where(orm.User.name == key.user))
        user = self._app.users.get(user_id) if user_id is not None else None
        return user.spawners[key.name] if user is not None and key.name in user.spawners else None

    def last_activity(self, servers: Collection[ServerKey]) -> dict[str, float]:
        """When each of these servers or their users were last active, by user, in seconds since the epoch."""
        names = {user: name for user, name in servers}  # noqa: C416 - servers may be a mapping
        wanted, activity = sorted(names), dict[str, float]()
        for at in range(0, len(wanted), _WAIT_SECONDS):
            rows = (
                select(orm.User.name, orm.User.last_activity, orm.Spawner.name, orm.Spawner.last_activity)
                .outerjoin(orm.Spawner, orm.Spawner.user_id == orm.User.id)
                .where(orm.User.name.in_(wanted[at : at + _WAIT_SECONDS]))
            )
            for user, of_user, name, of_server in self._app.db.execute(rows):
                times = (of_user, of_server if name == names[user] else None)
                moments = [_timestamp(moment) for moment in times if moment is not None]
                if moments:
                    activity[user] = max(*moments, activity.get(user, 0.0))
        return activity

    # --- the actions ----------------------------------------------------------------------------

    def start(self, course: HubCourse, only: Only = None, *, every: float = 0.0) -> tuple[Outcome, ...]:
        """Start servers; ``every``: seconds between two, at least the setting's.

        All are recorded first, so that a hub that is restarted goes on with them. Raises SQLAlchemyError; then nothing
        is started.
        """
        wanted, now = self._wanted(course, only), time.time()

        def outcome(participant: Participant) -> Outcome:
            user = participant.user
            if user in course.unknown:
                return Outcome(user, Result.REFUSED, words.NOT_SIGNED_IN.format(user=user))
            if participant.server.active:
                return Outcome(user, Result.UNCHANGED, words.RUNS)
            return Outcome(user, Result.DONE, words.STARTS)

        outcomes = tuple(person if isinstance(person, Outcome) else outcome(person) for person in wanted)
        keys = {person.user: person.key for person in wanted if isinstance(person, Participant)}
        starting = [keys[outcome.user] for outcome in outcomes if outcome.result is Result.DONE]
        self.starts.keep_all(
            course.slug, session_name(course), [CourseStart(key.user, Stage.ASKED, asked_at=now) for key in starting]
        )
        for key in starting:
            self.put_start(course, key, every=every)
        return outcomes

    def stop(self, course: HubCourse, only: Only = None, *, by: str) -> tuple[Outcome, ...]:
        """Stop servers; their cards name ``by``.

        Raises SQLAlchemyError.
        """
        session = session_name(course)
        starts = self.starts.find(course.slug, session)

        def stop(participant: Participant) -> Outcome:
            user, server = participant.user, participant.server
            if participant.state is State.STOPPING:
                return Outcome(user, Result.UNCHANGED, words.STOPS_ALREADY)
            dropped = self.pace.drop(user)
            if not server.active:
                if dropped or (user in starts and starts[user].stage in (Stage.ASKED, Stage.FAILED)):
                    self.starts.keep(course.slug, session, CourseStart(user, Stage.LEFT, asked_at=time.time()))
                sentence = words.NOT_STARTED_YET if dropped else words.NOTHING_RUNS
                return Outcome(user, Result.DONE if dropped else Result.UNCHANGED, sentence)
            spawner = self.spawner(participant.key)
            if spawner is None:
                return Outcome(user, Result.UNCHANGED, words.NOTHING_RUNS)
            self.put_stop(
                course, spawner, lambda server: stop_record(server, at=time.time(), by=by, stopper=Stopper.INSTRUCTOR)
            )
            return Outcome(user, Result.DONE, words.STOPS)

        return self._outcomes(course, only, stop)

    def message(self, course: HubCourse, text: str, only: Only = None, *, by: str) -> tuple[Outcome, ...]:
        """Show a message; an empty one is refused. Raises SQLAlchemyError."""
        shown = clean_text(text)
        now = time.time()

        def written(user: str) -> Message:
            to = Audience(Kind.COURSE, course.slug, user)
            return Message(to, by, shown, at=now, until=shown_until(course, now))

        if not shown:
            return tuple(Outcome(user, Result.REFUSED, words.EMPTY_MESSAGE) for user in _users(course, only))
        if only is None:
            self.messages.keep([written("")])
        else:
            self.messages.keep(written(user) for user in _users(course, only) if user in course.people)
        return tuple(
            Outcome(user, Result.DONE, words.MESSAGE_SENT) if user in course.people else _not_in_course(user)
            for user in _users(course, only)
        )

    async def extend(
        self,
        course: HubCourse,
        minutes: int | None = None,
        only: Only = None,
        *,
        by: str,
        on_late: Callable[[tuple[Outcome, ...]], None] = lambda _outcomes: None,
    ) -> tuple[Outcome, ...]:
        """Give running servers more time: by default as much as their profile says. Raises SQLAlchemyError.

        Returns after :data:`EXTEND_PATIENCE` seconds at most. What takes longer goes on, as done, and ``on_late`` is
        called with what became of it. A server that is being given more time is not given some twice.
        """

        def begin(participant: Participant) -> asyncio.Task[Outcome] | Outcome:
            key = participant.key
            if key in self._extending:
                return Outcome(key.user, Result.UNCHANGED, words.EXTENDS_ALREADY)
            spawner = self.spawner(key) if participant.server.ready else None
            if spawner is None:
                return Outcome(key.user, Result.UNCHANGED, words.NOTHING_RUNS)
            # whoever extends their own server is its user, whatever they teach
            task = asyncio.ensure_future(self._extend(spawner, minutes, by=by if by != key.user else ""))
            self._extending[key] = task
            task.add_done_callback(lambda _task: self._extending.pop(key))
            return task

        begun = {
            person.user: person if isinstance(person, Outcome) else begin(person)
            for person in self._wanted(course, only)
        }
        tasks = [task for task in begun.values() if isinstance(task, asyncio.Task)]
        late = (await asyncio.wait(tasks, timeout=EXTEND_PATIENCE))[1] if tasks else set()
        if late:
            in_background(_record_late(late, on_late))
        outcomes = list[Outcome]()
        for user, extension in begun.items():
            if isinstance(extension, Outcome):
                outcomes.append(extension)
            else:
                outcomes.append(Outcome(user, Result.DONE, words.EXTENDS) if extension in late else extension.result())
        return tuple(outcomes)

    async def _extend(self, spawner: Any, minutes: int | None, *, by: str) -> Outcome:
        user: str = spawner.user.name
        try:
            async with self._free_to_extend:
                done = await extend_server(spawner, minutes, by=by)
        except GPUSpawnerError as error:
            return Outcome(user, Result.REFUSED, error.for_user)
        return Outcome(user, Result.DONE, words.EXTENDED.format(time=duration(done.seconds)))

    def _outcomes(self, course: HubCourse, only: Only, act: Callable[[Participant], Outcome]) -> tuple[Outcome, ...]:
        return tuple(user if isinstance(user, Outcome) else act(user) for user in self._wanted(course, only))

    def _wanted(self, course: HubCourse, only: Only) -> list[Participant | Outcome]:
        """The participants whom an action is for, or why it is refused; raises SQLAlchemyError.

        A server that is no longer the one that its participant is shown with is refused: what was asked for is not
        done to another one.
        """
        users = _users(course, only)
        by_key = {
            participant.user: participant
            for participant in self.participants(course, [user for user in users if user in course.people])
        }
        servers = {user: name for user, slash, name in (name.partition("/") for name in only or ()) if slash}
        wanted = list[Participant | Outcome]()
        for user in users:
            if user not in by_key:
                wanted.append(_not_in_course(user))
            elif servers.get(user, by_key[user].key.name) != by_key[user].key.name:
                wanted.append(Outcome(user, Result.REFUSED, words.OTHER_SERVER.format(user=user)))
            else:
                wanted.append(by_key[user])
        return wanted

    # --- work in the background -----------------------------------------------------------------

    def put_start(self, course: HubCourse, server: ServerKey, *, every: float = 0.0) -> None:
        """Start a participant's server when its turn comes."""
        name = session_name(course)
        queue = Queue(course.slug, WorkKind.START)
        self.pace.put(queue, server.user, lambda: self._start(course, name, server), every=every)

    def put_stop(self, course: HubCourse, spawner: Any, record: Callable[[Server], Ending | None]) -> None:
        """Stop a server when its turn comes; its card shows ``record``. None: it is not to be stopped any more."""
        self.pace.put(Queue(course.slug, WorkKind.STOP), spawner.user.name, lambda: self._stop(spawner, record))

    async def _start(self, course: HubCourse, session: str, key: ServerKey) -> None:
        """Start a server and record what came of it. Raises SQLAlchemyError; then nothing has been started."""
        user = key.user
        before = self.starts.get(course.slug, session, user)
        (participant,) = self.participants(course, [user])
        if participant.server.active:
            if before is None or not before.tries:
                self.starts.keep(course.slug, session, CourseStart(user, Stage.LEFT, asked_at=time.time()))
            return
        start = CourseStart(user, Stage.ASKED, (before.tries if before is not None else 0) + 1, time.time())
        self.starts.keep(course.slug, session, start)
        for _ in range(BUSY_TRIES):
            answer = await self._account.start(key, user_options(course))
            if answer.status != BUSY or answer.retry_after is None:
                break
            await asyncio.sleep(answer.retry_after)
            now = self.starts.get(course.slug, session, user)
            if now is not None and now.stage is not Stage.ASKED:
                return  # an instructor does not want it any more
        spawner = self.spawner(key)
        server = server_of(spawner, with_start=False) if spawner is not None else None
        stage = _stage(answer, server, start.asked_at)
        stored = replace(start, stage=stage)
        if stage is Stage.FAILED:
            get_logger().warning("Course %s: %s's server did not start: %s", course.slug, user, answer.message)
            stored = replace(stored, asked_at=time.time(), fault=answer.message)
        self.starts.keep(course.slug, session, stored)

    async def _stop(self, spawner: Any, record: Callable[[Server], Ending | None]) -> None:
        server = server_of(spawner, with_start=False)
        ending = record(server)
        if ending is None:
            return

        async def stop() -> bool:
            answer = await self._account.stop(ServerKey(server.user, server.name))
            if not answer.is_success:
                get_logger().warning("The server of %s was not stopped: %s", server.user, answer.message)
            return answer.is_success

        await stop_server(spawner, ending, stop)


def _stage(answer: Answer, server: Server | None, asked_at: float) -> Stage:
    """How far a start is, by JupyterHub's answer and by what is known of the server then."""
    if server is not None and server.stopped_at >= asked_at:
        return Stage.LEFT
    if answer.status == READY or (server is not None and server.active and server.job_id):
        return Stage.STARTED
    if answer.is_success or (server is not None and server.active):
        return Stage.ASKED  # the job is not submitted yet, and would be lost with the hub
    return Stage.FAILED


async def _record_late(
    extending: Collection[asyncio.Task[Outcome]], record: Callable[[tuple[Outcome, ...]], None]
) -> None:
    """Tell what became of servers that were given more time after the answer to the request."""
    await asyncio.wait(extending)
    for task in extending:
        if task.exception() is not None:
            get_logger().error("A server of a course was not extended", exc_info=task.exception())
    record(tuple(task.result() for task in extending if task.exception() is None))


def _users(course: HubCourse, only: Only) -> tuple[str, ...]:
    """The users whom an action is for, each once."""
    return course.people if only is None else tuple(dict.fromkeys(name.partition("/")[0] for name in only))


def _not_in_course(user: str) -> Outcome:
    return Outcome(user, Result.REFUSED, words.NOT_IN_COURSE.format(user=user))


def _timestamp(moment: datetime) -> float:
    """JupyterHub's times are in UTC, and do not say so."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
