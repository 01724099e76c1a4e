"""What instructors do for the people of a course: start, stop, message and extend.

The REST API, the course's page and the start ahead of a session use the same functions. Servers are started and stopped
one after the other in the background, so an action returns at once, with an :class:`Outcome` for each person.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from datetime import timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from jupyterhub import orm
from sqlalchemy import select
from traitlets.log import get_logger

from jupyterhub_gpuspawner.courses.course_profile import slug_of
from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.courses.pace import Pace
from jupyterhub_gpuspawner.hub.courses.service_account import BUSY, READY
from jupyterhub_gpuspawner.hub.courses.starts import CourseStart, CourseStarts, Stage
from jupyterhub_gpuspawner.hub.messages.message import Audience, Kind, Message, clean_text
from jupyterhub_gpuspawner.hub.messages.store import messages_of
from jupyterhub_gpuspawner.hub.spawners.server import extend_server, server_of
from jupyterhub_gpuspawner.hub.spawners.stop_record import cancel_start, keep_stop, stop_record
from jupyterhub_gpuspawner.hub.text import course_actions as text
from jupyterhub_gpuspawner.sessions.cause import Stopper
from jupyterhub_gpuspawner.words import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from jupyterhub.app import JupyterHub

    from jupyterhub_gpuspawner.hub.courses.book import HubCourse
    from jupyterhub_gpuspawner.hub.courses.service_account import Answer, ServiceAccount
    from jupyterhub_gpuspawner.hub.courses.settings import GPUCourses
    from jupyterhub_gpuspawner.hub.ending.record import Ending
    from jupyterhub_gpuspawner.hub.spawners.server import Server

Only: TypeAlias = "Collection[str] | None"
"""The users whom an action is for; None: everybody in the course."""
BUSY_TRIES = 30
"""How often a start is asked for again that ``concurrent_spawn_limit`` refuses; each time JupyterHub says when."""
EXTENDED_AT_ONCE = 4
"""How many servers are given more time at the same time: Slurm is asked for each."""
NO_SESSION = "-"
"""The session of a start by hand in a course without a session to come."""
WITHOUT_SESSION = 86400.0
"""Seconds that a message is shown where the course has no session to come."""
_AT_ONCE = 200


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
        self.messages = messages_of(app.db)

    # --- what is there --------------------------------------------------------------------------

    def spawners(self, people: Collection[str]) -> dict[str, Any]:
        """The default servers of these people that the hub has in memory; others are not active."""
        wanted, found = sorted(people), dict[str, Any]()
        for at in range(0, len(wanted), _AT_ONCE):
            asked = select(orm.User.id, orm.User.name).where(orm.User.name.in_(wanted[at : at + _AT_ONCE]))
            for user_id, name in self._app.db.execute(asked):
                user = self._app.users.get(user_id)
                if user is not None and "" in user.spawners:
                    found[name] = user.spawners[""]
        return found

    def servers(self, people: Collection[str]) -> dict[str, Server]:
        """The default servers of these people, as far as the hub has them in memory."""
        return {name: server_of(spawner, with_start=False) for name, spawner in self.spawners(people).items()}

    def last_activity(self, people: Collection[str]) -> dict[str, float]:
        """When each of these people or their default servers were last active, in seconds since the epoch."""
        wanted, found = sorted(people), dict[str, float]()
        for at in range(0, len(wanted), _AT_ONCE):
            asked = (
                select(orm.User.name, orm.User.last_activity, orm.Spawner.last_activity)
                .outerjoin(orm.Spawner, (orm.Spawner.user_id == orm.User.id) & (orm.Spawner.name == ""))
                .where(orm.User.name.in_(wanted[at : at + _AT_ONCE]))
            )
            for name, *times in self._app.db.execute(asked):
                known = [_timestamp(moment) for moment in times if moment is not None]
                if known:
                    found[name] = max(known)
        return found

    # --- the actions ----------------------------------------------------------------------------

    def start(self, course: HubCourse, only: Only = None, *, every: float = 0.0) -> tuple[Outcome, ...]:
        """Start servers; ``every``: seconds between two, at least the setting's.

        Raises SQLAlchemyError.
        """
        servers = self.servers(course.people)

        def start(user: str) -> Outcome:
            if user in course.unknown:
                return Outcome(user, Result.REFUSED, text.NOT_KNOWN.format(user=user))
            if user in servers and servers[user].active:
                return Outcome(user, Result.UNCHANGED, text.RUNS)
            self.put_start(course, user, every=every)
            return Outcome(user, Result.DONE, text.STARTS)

        return _for_each(course, only, start)

    def stop(self, course: HubCourse, only: Only = None, *, by: str) -> tuple[Outcome, ...]:
        """Stop default servers; their cards name ``by``.

        Raises SQLAlchemyError.
        """
        spawners = self.spawners(course.people)
        session = session_name(course)
        starts = self.starts.find(course.slug, session)

        def stop(user: str) -> Outcome:
            dropped = self.pace.drop(user)
            server = server_of(spawners[user], with_start=False) if user in spawners else None
            if server is None or not server.active:
                if dropped or (user in starts and starts[user].stage in (Stage.ASKED, Stage.FAILED)):
                    self.starts.keep(course.slug, session, CourseStart(user, Stage.LEFT, asked_at=time.time()))
                told = text.NOT_STARTED_YET if dropped else text.NOTHING_RUNS
                return Outcome(user, Result.DONE if dropped else Result.UNCHANGED, told)
            if server.pending == "stop":
                return Outcome(user, Result.UNCHANGED, text.STOPS_ALREADY)
            self.put_stop(
                spawners[user], lambda found: stop_record(found, at=time.time(), by=by, stopper=Stopper.INSTRUCTOR)
            )
            return Outcome(user, Result.DONE, text.STOPS)

        return _for_each(course, only, stop)

    def message(self, course: HubCourse, said: str, only: Only = None, *, by: str) -> tuple[Outcome, ...]:
        """Show a message; an empty one is refused. Raises SQLAlchemyError."""
        shown = clean_text(said)
        now = time.time()

        def written(user: str) -> Message:
            to = Audience(Kind.COURSE, course.slug, user)
            return Message(to, by, shown, at=now, until=shown_until(course, now))

        if not shown:
            return tuple(Outcome(user, Result.REFUSED, text.EMPTY_MESSAGE) for user in _wanted(course, only))
        if only is None:
            self.messages.keep([written("")])
        else:
            self.messages.keep(written(user) for user in _wanted(course, only) if user in course.people)
        return _for_each(course, only, lambda user: Outcome(user, Result.DONE, text.TOLD))

    async def extend(
        self, course: HubCourse, minutes: int | None = None, only: Only = None, *, by: str
    ) -> tuple[Outcome, ...]:
        """Give running default servers more time: by default as much as their profile says. Raises SQLAlchemyError."""
        spawners = self.spawners(course.people)
        free = asyncio.Semaphore(EXTENDED_AT_ONCE)

        async def extend(user: str) -> Outcome:
            if user not in spawners or not spawners[user].ready:
                return Outcome(user, Result.UNCHANGED, text.NOTHING_RUNS)
            try:
                async with free:
                    done = await extend_server(spawners[user], minutes, by=by)
            except GPUSpawnerError as error:
                return Outcome(user, Result.REFUSED, error.told)
            return Outcome(user, Result.DONE, text.EXTENDED.format(time=duration(done.seconds)))

        people = _for_each(course, only, lambda user: Outcome(user, Result.DONE))
        return tuple(
            await asyncio.gather(
                *(extend(each.user) if each.result is Result.DONE else _as_it_is(each) for each in people)
            )
        )

    # --- work in the background -----------------------------------------------------------------

    def put_start(self, course: HubCourse, user: str, *, every: float = 0.0) -> None:
        """Start a person's server when its turn comes."""
        name = session_name(course)
        self.pace.put(user, lambda: self._start(course, name, user), every=every)

    def put_stop(self, spawner: Any, record: Callable[[Server], Ending | None]) -> None:
        """Stop a server when its turn comes; its card shows ``record``. None: it is not to be stopped any more."""
        self.pace.put(spawner.user.name, lambda: self._stop(spawner, record))

    async def _start(self, course: HubCourse, session: str, user: str) -> None:
        """Start a server and record what came of it. Raises SQLAlchemyError; then nothing has been started."""
        before = self.starts.get(course.slug, session, user)
        server = self.servers([user]).get(user)
        if server is not None and server.active:
            if before is None:
                self.starts.keep(course.slug, session, CourseStart(user, Stage.LEFT, asked_at=time.time()))
            return
        asked = CourseStart(user, Stage.ASKED, (before.tries if before is not None else 0) + 1, time.time())
        self.starts.keep(course.slug, session, asked)
        for _ in range(BUSY_TRIES):
            answer = await self._account.start(user, user_options(course))
            if answer.status != BUSY or answer.retry_after is None:
                break
            await asyncio.sleep(answer.retry_after)
            now = self.starts.get(course.slug, session, user)
            if now is not None and now.stage is not Stage.ASKED:
                return  # an instructor does not want it any more
        stage = _stage(answer, self.servers([user]).get(user), asked.asked_at)
        kept = replace(asked, stage=stage)
        if stage is Stage.FAILED:
            get_logger().warning("Course %s: %s's server did not start: %s", course.slug, user, answer.message)
            kept = replace(kept, asked_at=time.time(), fault=answer.message)
        self.starts.keep(course.slug, session, kept)

    async def _stop(self, spawner: Any, record: Callable[[Server], Ending | None]) -> None:
        server = server_of(spawner, with_start=False)
        ending = record(server)
        if ending is None:
            return
        keep_stop(spawner, ending)
        if server.pending == "spawn":
            await cancel_start(spawner)
            if not spawner.active:
                return
        answer = await self._account.stop(server.user)
        if not answer.good:
            keep_stop(spawner, None)
            get_logger().warning("The server of %s was not stopped: %s", server.user, answer.message)


def _stage(answer: Answer, server: Server | None, asked_at: float) -> Stage:
    """How far a start is, by JupyterHub's answer and by what is known of the server then."""
    if server is not None and server.stopped_at >= asked_at:
        return Stage.LEFT
    if answer.status == READY or (server is not None and server.active and server.job_id):
        return Stage.STARTED
    if answer.good or (server is not None and server.active):
        return Stage.ASKED  # the job is not submitted yet, and would be lost with the hub
    return Stage.FAILED


def _wanted(course: HubCourse, only: Only) -> tuple[str, ...]:
    """The users whom an action is for, each once."""
    return course.people if only is None else tuple(dict.fromkeys(only))


def _for_each(course: HubCourse, only: Only, act: Callable[[str], Outcome]) -> tuple[Outcome, ...]:
    """The outcome for everybody whom an action is for; those who are not in the course are refused."""
    people = frozenset(course.people)
    return tuple(
        act(user) if user in people else Outcome(user, Result.REFUSED, text.NOT_IN_COURSE.format(user=user))
        for user in _wanted(course, only)
    )


async def _as_it_is(outcome: Outcome) -> Outcome:
    return outcome


def _timestamp(moment: datetime) -> float:
    """JupyterHub's times are in UTC, and do not say so."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
