"""What instructors do for the people of a course: start, stop, message and extend.

Each action is about the server with which the participant is shown.

The REST API, the course's page and the start ahead of a session use the same functions. Servers are started and stopped
one after the other in the background, so an action returns at once, with an :class:`Outcome` for each person.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, partial
from ssl import SSLContext
from typing import Any, TypeAlias
from urllib.parse import quote

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from jupyterhub.roles import create_role, grant_role
from jupyterhub.utils import make_ssl_context
from sqlalchemy import select
from tornado.httpclient import HTTPError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.extensions.courses.book import HubCourse
from jupyterhub_gpuspawner.extensions.courses.course_profile import slug_of
from jupyterhub_gpuspawner.extensions.courses.participants import (
    NO_STARTS,
    CourseStart,
    CourseStarts,
    Participant,
    ServerKey,
    Stage,
    State,
    ended_servers,
    is_of,
    participants_of,
    servers_of,
    stopped_at,
)
from jupyterhub_gpuspawner.extensions.courses.rights import SERVICE, GPUCourses
from jupyterhub_gpuspawner.extensions.messages.store import Audience, Kind, Message, clean_text, messages_of
from jupyterhub_gpuspawner.hub.job.cause import Kind as CauseKind
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import START_SERVERS, start_body
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.site.tables import in_batches, timestamp
from jupyterhub_gpuspawner.hub.spawners.server import Server, server_of, stop_record
from jupyterhub_gpuspawner.hub.spawners.stopping import stop_server
from jupyterhub_gpuspawner.tasks import in_background
from jupyterhub_gpuspawner.words import duration

# Does work for many people one after the other, at a rate that neither hub nor slurmctld feels.


class Pace:
    """Queues with one piece of work for each person of a course; a new one takes the place of one that has not begun.

    Each course has a queue for starts and one for stops: no course waits for another, and no stop for starts.
    """

    def __init__(self, every: float, concurrency: int) -> None:
        """``every``: seconds between two pieces of a queue; ``concurrency``: how many of a kind may be under way."""
        self._every = every
        self._free = {kind: asyncio.Semaphore(concurrency) for kind in (State.STARTING, State.STOPPING)}
        self._turns: dict[tuple[str, State], asyncio.Lock] = {}
        # by course and person: somebody may be in several courses, and no course decides for another
        self._queued: dict[tuple[str, str], tuple[State, asyncio.Task[None]]] = {}
        self._busy: dict[tuple[str, str], tuple[State, asyncio.Task[None]]] = {}

    def put(
        self, course: str, kind: State, person: str, work: Callable[[], Awaitable[None]], *, every: float = 0.0
    ) -> None:
        """Do ``work`` of this kind, STARTING or STOPPING, when its turn comes.

        ``every`` asks for a longer pause than usual after it.
        """
        self.drop(course, person)
        task = in_background(self._do(course, kind, person, work, max(every, self._every)))
        self._queued[course, person] = (kind, task)

    def drop(self, course: str, person: str) -> bool:
        """Forget what is queued for this person and has not begun; return whether there was anything."""
        queued = self._queued.pop((course, person), None)
        if queued is not None:
            queued[1].cancel()
        return queued is not None

    def kind(self, course: str, person: str) -> State | None:
        """What is queued for this person, or else under way; None where nothing is."""
        work = self._queued.get((course, person)) or self._busy.get((course, person))
        return work[0] if work is not None else None

    async def _do(
        self, course: str, kind: State, person: str, work: Callable[[], Awaitable[None]], pause: float
    ) -> None:
        key = (course, person)
        if key in self._busy:
            await asyncio.wait({self._busy[key][1]})
        turn = self._turns.setdefault((course, kind), asyncio.Lock())
        await turn.acquire()
        try:
            await self._free[kind].acquire()
        except asyncio.CancelledError:
            turn.release()
            raise
        asyncio.get_running_loop().call_later(pause, turn.release)
        self._busy[key] = self._queued.pop(key)
        try:
            await work()
        except Exception:  # noqa: BLE001 - the others' turns come all the same
            get_logger().exception("Work for %s in a course failed", person)
        finally:
            del self._busy[key]
            self._free[kind].release()


# The hub's own account for courses: a JupyterHub service that may start and stop the servers of courses' people.
#
# Servers are started and stopped through JupyterHub's REST API, so its limits, hooks, events and log apply. The service
# has no process and no URL. It is made when the hub has started and removed by JupyterHub at the next start, since it
# is not in the configuration; its token is known to this process alone.

TIME_LIMIT = 120.0
"""Seconds for one request; JupyterHub answers when a server is ready, or after ``slow_spawn_timeout``."""
UNSEEN = 404
"""JupyterHub's answer where the rights do not cover a user."""
RETRY_SECONDS = 6.0
"""Seconds until such a request is repeated once: a login with ``manage_groups`` has just taken the user out of the
course's group, and :mod:`.ahead` puts them back within five seconds."""
READY = 201
"""JupyterHub's answer where the server is ready; 202 where it is still starting."""
BUSY = 429
"""HTTP status where a limit of JupyterHub's is reached."""


@dataclass(frozen=True)
class Answer:
    """JupyterHub's answer to a request."""

    status: int
    """HTTP status; 599 where there was no answer."""
    message: str = ""
    """JupyterHub's sentence about an error."""
    retry_after: float | None = None
    """Seconds after which JupyterHub wants the request repeated."""

    @property
    def is_success(self) -> bool:
        """It was done, or is under way."""
        return self.status < 300


class ServiceAccount:
    """Starts and stops servers through JupyterHub's REST API."""

    def __init__(self, app: JupyterHub, concurrency: int) -> None:
        """``concurrency``: how many starts may be under way at the same time, and how many stops."""
        self._app = app
        self._at_once = concurrency
        self._token = ""

    @cached_property
    def _client(self) -> SimpleAsyncHTTPClient:
        """A client of its own: the ten requests at once of tornado's shared one are other people's, too."""
        return SimpleAsyncHTTPClient(force_instance=True, max_clients=2 * self._at_once)

    @cached_property
    def _certificates(self) -> SSLContext | None:
        """With ``internal_ssl`` the hub answers only those who have a certificate of its authority."""
        app = self._app
        if not app.internal_ssl:
            return None
        context: SSLContext = make_ssl_context(app.internal_ssl_key, app.internal_ssl_cert, app.internal_ssl_ca)
        return context

    def update(self, groups: Collection[str]) -> None:
        """Have the service's rights cover exactly the users in these groups; raises SQLAlchemyError."""
        db = self._app.db
        if not groups and not self._token:
            return
        scopes = [
            f"{scope}!group={group}"
            for group in sorted(groups)
            for scope in dict.fromkeys((START_SERVERS, "delete:servers"))
        ]
        role = orm.Role.find(db, SERVICE)
        if role is None or (role.scopes or []) != scopes:
            create_role(
                db, {"name": SERVICE, "description": "Starts and stops the servers of courses", "scopes": scopes}
            )
        service = orm.Service.find(db, SERVICE)
        if service is None:
            service = orm.Service(name=SERVICE, admin=False, from_config=True)
            db.add(service)
            db.commit()
        grant_role(db, service, rolename=SERVICE)
        if not self._token:
            self._token = service.new_api_token(note="Servers of courses; made when the hub started")

    async def start(self, server: ServerKey, options: Mapping[str, Any]) -> Answer:
        """Start a server."""
        return await self._ask("POST", server, json.dumps(start_body(options)))

    async def stop(self, server: ServerKey) -> Answer:
        """Stop a server."""
        return await self._ask("DELETE", server)

    async def _ask(self, method: str, server: ServerKey, body: str | None = None) -> Answer:
        if not self._token:  # the hub has just been started, and its courses are not read yet
            return Answer(BUSY, "The hub has just been started and is not ready for that yet.", RETRY_SECONDS)
        path = f"servers/{quote(server.name, safe='')}" if server.name else "server"
        request = HTTPRequest(
            f"{self._app.hub.api_url}/users/{quote(server.user, safe='@')}/{path}",
            method=method,
            headers={"Authorization": f"token {self._token}", "Content-Type": "application/json"},
            body=body,
            request_timeout=TIME_LIMIT,
            ssl_options=self._certificates,
        )
        try:
            answer = await self._client.fetch(request, raise_error=False)
            if answer.code == UNSEEN:
                await asyncio.sleep(RETRY_SECONDS)
                answer = await self._client.fetch(request, raise_error=False)
        except (OSError, HTTPError) as error:  # raise_error=False is for answers only, not for a time-out
            return Answer(599, str(error))
        if answer.code < 300:
            return Answer(answer.code)
        retry = answer.headers.get("Retry-After", "")
        return Answer(answer.code, _message(answer.body) or answer.reason, float(retry) if retry.isdigit() else None)


def _message(body: bytes) -> str:
    try:
        document = json.loads(body or b"null")
    except ValueError:
        return ""
    return str(document.get("message") or "") if isinstance(document, dict) else ""


Only: TypeAlias = "Collection[str] | None"
"""Whom an action is for: users, or servers as ``USER/SERVER``; None: everybody in the course."""
BUSY_TRIES = 30
"""How often a start is asked for again that ``concurrent_spawn_limit`` refuses; each time JupyterHub says when."""
CONCURRENT_EXTENSIONS = 4
"""How many servers are given more time at the same time: Slurm is asked for each."""
EXTEND_PATIENCE = 5.0
"""Seconds that whoever extends servers waits; Slurm takes a quarter of a second for each."""
RUNS_ELSEWHERE = (
    "{user} has another server, which is not of this course: they must stop it before the course's can be started."
)
NOTHING_RUNS = "No server is running."
NOT_IN_COURSE = "{user} is not on the roster of this course."
NO_SESSION = "-"
"""The session of a start by hand in a course without a session to come."""
WITHOUT_SESSION = 86400.0
"""Seconds that a message is shown where the course has no session to come."""


class Result(str, Enum):
    """What became of an action for one person."""

    DONE = "done"
    BEGUN = "begun"
    """It is under way; what becomes of it is on the course's page and in its report."""
    UNCHANGED = "unchanged"
    """There was nothing to do."""
    REFUSED = "refused"
    """It cannot be done; the sentence says why."""


@dataclass(frozen=True)
class Outcome:
    """What became of an action for one person."""

    user: str
    result: Result
    """``done``, ``begun`` (under way), ``unchanged`` or ``refused``."""
    sentence: str = ""
    """For the instructor; it may contain the user's name and must be escaped."""


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
        self,
        course: HubCourse,
        people: Collection[str] | None = None,
        *,
        with_start: bool = False,
        in_memory: bool = False,
    ) -> tuple[Participant, ...]:
        """Everybody on a course, or these of them, each with the server that an action is about.

        ``with_start`` is that of :func:`servers_of`; ``in_memory``: without what only the database knows. Raises
        SQLAlchemyError.
        """
        course = course if people is None else replace(course, people=tuple(people))
        servers = list(servers_of(self._app.users.values(), frozenset(course.people), with_start=with_start))
        starts = NO_STARTS
        if not in_memory:
            starts = self.starts.find(course.slug, session_name(course))
            servers += ended_servers(self._app.db, course, {ServerKey(one.user, one.name) for one in servers})
        queued = {user: kind for user in course.people if (kind := self.pace.kind(course.slug, user)) is not None}
        return participants_of(course, servers, now=time.time(), starts=starts, queued=queued)

    def spawner(self, key: ServerKey) -> Any:
        """The spawner of a server; None where the hub does not have it in memory, so that it is not active."""
        user_id = self._app.db.scalar(select(orm.User.id).where(orm.User.name == key.user))
        user = self._app.users.get(user_id) if user_id is not None else None
        return user.spawners[key.name] if user is not None and key.name in user.spawners else None

    def last_activity(self, servers: Iterable[ServerKey]) -> dict[str, float]:
        """When each of these servers or their users were last active, by user, in seconds since the epoch."""
        names, activity = {server.user: server.name for server in servers}, dict[str, float]()
        for users in in_batches(names):
            rows = (
                select(orm.User.name, orm.User.last_activity, orm.Spawner.name, orm.Spawner.last_activity)
                .outerjoin(orm.Spawner, orm.Spawner.user_id == orm.User.id)
                .where(orm.User.name.in_(users))
            )
            for user, of_user, name, of_server in self._app.db.execute(rows):
                for moment in (of_user, of_server if name == names[user] else None):
                    if moment is not None:
                        activity[user] = max(timestamp(moment), activity.get(user, 0.0))
        return activity

    # --- the actions ----------------------------------------------------------------------------

    async def do(
        self,
        action: str,
        course: HubCourse,
        only: Only = None,
        *,
        by: str,
        every: float = 0.0,
        text: str = "",
        minutes: int | None = None,
        on_late: Callable[[tuple[Outcome, ...]], None] = lambda _outcomes: None,
    ) -> tuple[Outcome, ...]:
        """Do the action of this name; what it does not use of the rest is ignored. Raises SQLAlchemyError."""
        if action == "start":
            return self.start(course, only, every=every)
        if action == "stop":
            return self.stop(course, only, by=by)
        if action == "message":
            return self.message(course, text, only, by=by)
        return await self.extend(course, minutes, only, by=by, on_late=on_late)

    def start(self, course: HubCourse, only: Only = None, *, every: float = 0.0) -> tuple[Outcome, ...]:
        """Start servers; ``every``: seconds between two, at least the setting's.

        All are recorded first, so that a hub that is restarted goes on with them. Raises SQLAlchemyError; then nothing
        is started.
        """
        starting, now = list[ServerKey](), time.time()

        def begin(participant: Participant) -> Outcome:
            user = participant.user
            if user in course.unknown:
                return Outcome(user, Result.REFUSED, f"JupyterHub does not know {user} yet: they must sign in once.")
            if participant.server.active:
                return Outcome(user, Result.UNCHANGED, "A server is running or starting already.")
            if participant.state is State.ELSEWHERE:
                return Outcome(user, Result.REFUSED, RUNS_ELSEWHERE.format(user=user))
            starting.append(participant.key)
            return Outcome(user, Result.BEGUN, "The server is being started.")

        outcomes = self._outcomes(course, only, begin)
        records = (CourseStart(key.user, Stage.ASKED, asked_at=now) for key in starting)
        self.starts.keep(course.slug, session_name(course), *records)
        for key in starting:
            self.put_start(course, key, every=every)
        return outcomes

    def stop(self, course: HubCourse, only: Only = None, *, by: str) -> tuple[Outcome, ...]:
        """Stop servers; their cards name ``by``.

        Raises SQLAlchemyError.
        """
        session = session_name(course)
        starts = self.starts.find(course.slug, session)

        def record(server: Server) -> Ending:
            return stop_record(server, at=time.time(), by=by, stopper=CauseKind.STOPPED_BY_INSTRUCTOR)

        def stop(participant: Participant) -> Outcome:
            user, server = participant.user, participant.server
            if participant.state is State.STOPPING:
                return Outcome(user, Result.UNCHANGED, "The server is being stopped already.")
            dropped = self.pace.drop(course.slug, user)
            spawner = self.spawner(participant.key) if server.active else None
            if spawner is not None:
                self.put_stop(course, spawner, record)
                return Outcome(user, Result.BEGUN, "The server is being stopped.")
            if dropped or (user in starts and starts[user].stage in (Stage.ASKED, Stage.FAILED)):
                self.starts.keep(course.slug, session, CourseStart(user, Stage.LEFT, asked_at=time.time()))
            if dropped:
                return Outcome(user, Result.DONE, "The start that was to come is cancelled.")
            return Outcome(user, Result.UNCHANGED, NOTHING_RUNS)

        return self._outcomes(course, only, stop)

    def message(self, course: HubCourse, text: str, only: Only = None, *, by: str) -> tuple[Outcome, ...]:
        """Show a message; an empty one is refused. Raises SQLAlchemyError."""
        shown, now, users = clean_text(text), time.time(), _users(course, only)
        if not shown:
            return tuple(Outcome(user, Result.REFUSED, "A message must have a text.") for user in users)
        readers = [""] if only is None else [user for user in users if user in course.people]
        until = shown_until(course, now)
        self.messages.keep(
            Message(Audience(Kind.COURSE, course.slug, user), by, shown, at=now, until=until) for user in readers
        )
        return tuple(
            Outcome(user, Result.DONE, "The message is shown.") if user in course.people else _not_in_course(user)
            for user in users
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

        Returns after :data:`EXTEND_PATIENCE` seconds at most. What takes longer goes on, as begun, and ``on_late`` is
        called with what became of it. A server that is being given more time is not given some twice.
        """
        tasks = dict[str, asyncio.Task[Outcome]]()

        def begin(participant: Participant) -> Outcome:
            key = participant.key
            if key in self._extending:
                return Outcome(key.user, Result.UNCHANGED, "The server is being given more time already.")
            spawner = self.spawner(key) if participant.server.ready else None
            if spawner is None:
                return Outcome(key.user, Result.UNCHANGED, NOTHING_RUNS)
            # whoever extends their own server is its user, whatever they teach
            tasks[key.user] = asyncio.ensure_future(self._extend(spawner, minutes, by=by if by != key.user else ""))
            self._extending[key] = tasks[key.user]
            tasks[key.user].add_done_callback(lambda _task: self._extending.pop(key))
            return Outcome(key.user, Result.BEGUN, "The server is being given more time.")

        outcomes = self._outcomes(course, only, begin)
        late = (await asyncio.wait(tasks.values(), timeout=EXTEND_PATIENCE))[1] if tasks else set()
        if late:
            in_background(_record_late(late, on_late))
        done = {user: task.result() for user, task in tasks.items() if task not in late}
        return tuple(done.get(outcome.user, outcome) for outcome in outcomes)

    async def _extend(self, spawner: Any, minutes: int | None, *, by: str) -> Outcome:
        user: str = spawner.user.name
        try:
            async with self._free_to_extend:
                seconds = await extend_server(spawner, minutes, by=by)
        except GPUSpawnerError as error:
            return Outcome(user, Result.REFUSED, error.for_user)
        return Outcome(user, Result.DONE, f"The server has {duration(seconds)} more.")

    def _outcomes(self, course: HubCourse, only: Only, act: Callable[[Participant], Outcome]) -> tuple[Outcome, ...]:
        """What became of each person whom an action is for; raises SQLAlchemyError.

        A server that is no longer the one that its participant is shown with is refused: what was asked for is not
        done to another one.
        """
        users = _users(course, only)
        participants = self.participants(course, [user for user in users if user in course.people])
        by_user = {participant.user: participant for participant in participants}
        servers = {user: name for user, slash, name in (name.partition("/") for name in only or ()) if slash}

        def outcome(user: str) -> Outcome:
            if user not in by_user:
                return _not_in_course(user)
            if servers.get(user, by_user[user].key.name) != by_user[user].key.name:
                return Outcome(user, Result.REFUSED, f"{user} has another server now: look at the course again.")
            return act(by_user[user])

        return tuple(map(outcome, users))

    # --- work in the background -----------------------------------------------------------------

    def put_start(self, course: HubCourse, server: ServerKey, *, every: float = 0.0) -> None:
        """Start a participant's server when its turn comes."""
        name = session_name(course)
        work = partial(self._start, course, name, server)
        self.pace.put(course.slug, State.STARTING, server.user, work, every=every)

    def put_stop(self, course: HubCourse, spawner: Any, record: Callable[[Server], Ending | None]) -> None:
        """Stop a server when its turn comes; its card shows ``record``. None: it is not to be stopped any more."""
        work = partial(self._stop, course, spawner, record)
        self.pace.put(course.slug, State.STOPPING, spawner.user.name, work)

    async def _start(self, course: HubCourse, session: str, key: ServerKey) -> None:
        """Start a server and record what came of it. Raises SQLAlchemyError; then nothing has been started."""
        user = key.user
        before = self.starts.find(course.slug, session, user).get(user)
        (participant,) = self.participants(course, [user])
        if participant.server.active or participant.state is State.ELSEWHERE:
            if before is None or not before.tries:
                self.starts.keep(course.slug, session, CourseStart(user, Stage.LEFT, asked_at=time.time()))
            return
        start = CourseStart(user, Stage.ASKED, (before.tries if before is not None else 0) + 1, time.time())
        self.starts.keep(course.slug, session, start)
        for _ in range(BUSY_TRIES):
            answer = await self._account.start(key, {"profile": slug_of(course.slug)})
            if answer.status != BUSY or answer.retry_after is None:
                break
            await asyncio.sleep(answer.retry_after)
            now = self.starts.find(course.slug, session, user).get(user)
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

    async def _stop(self, course: HubCourse, spawner: Any, record: Callable[[Server], Ending | None]) -> None:
        """Stop a server, unless it is not the course's any more: its turn may come after another choice of its user."""
        server = server_of(spawner, with_start=False)
        ending = record(server) if is_of(course, server) else None
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
    if server is not None and stopped_at(server) >= asked_at:
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
    return Outcome(user, Result.REFUSED, NOT_IN_COURSE.format(user=user))


def course_actions(settings: Mapping[str, Any]) -> CourseActions:
    """The actions in a hub that has a :func:`~.book.course_book`."""
    return state_of(settings).of(CourseActions)


async def extend_server(spawner: Any, minutes: int | None = None, *, by: str) -> int:
    """Give a running server more time, and return the seconds; ``by`` names the instructor or administrator who does.

    Raises GPUSpawnerError, and RequestError in a hub without an extension that can.
    """
    parts = server_of(spawner, with_start=False).parts
    extend = next((part.extend for part in parts if part.extend is not None), None)
    if extend is None:
        raise RequestError("Servers of this hub cannot be extended.", field="minutes")
    return await extend(minutes, by)
