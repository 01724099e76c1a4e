"""Starts the servers of a course before each session, stops those that nobody opens, and goes on with starts by hand.

:func:`next_step` decides for one person, :class:`StartsAhead` does it. Each start is
recorded in the database first, so that a hub that is restarted goes on where the last one was.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

from jupyterhub.app import JupyterHub
from tornado.httpclient import HTTPError
from traitlets.log import get_logger

from jupyterhub_gpuspawner.extensions.courses.actions import CourseActions, ServiceAccount, session_name
from jupyterhub_gpuspawner.extensions.courses.additions import drop_additions_of_others
from jupyterhub_gpuspawner.extensions.courses.book import BookOfHub, CourseBook, HubCourse
from jupyterhub_gpuspawner.extensions.courses.course_profile import opens_at
from jupyterhub_gpuspawner.extensions.courses.evening import CHECK_SECONDS, CourseChecks
from jupyterhub_gpuspawner.extensions.courses.offers import faults_of
from jupyterhub_gpuspawner.extensions.courses.participants import CourseStart, ServerKey, Stage, State
from jupyterhub_gpuspawner.extensions.courses.rights import (
    GPUCourses,
    files_of_courses,
    on_changes,
    people_of_hub,
    update_rights,
)
from jupyterhub_gpuspawner.hub.job.cause import Kind
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import first_line
from jupyterhub_gpuspawner.hub.site.background import DAY_SECONDS, Failures, every
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.spawners.server import Server, server_of, site_of, stop_record
from jupyterhub_gpuspawner.slurm.reason import Words

POLL_SECONDS = 5.0
"""Seconds between two looks at the sessions."""

TRIES = 3
"""How often a start that fails is tried."""
PAUSE = 60.0
"""Seconds between two tries."""
WANTED_FOR = 3600.0
"""Seconds after which a start by hand that has not been made is not wanted any more: the hub was away for long."""
SLACK = 15.0
"""Seconds around a server's readiness, and around the hub's start, in which activity is no sign of a visit.

A server reports its own start as activity, and a proxy that was restarted that of its routes.
"""


class Step(Enum):
    """What is to be done for one person, beside writing down what is seen."""

    NOTHING = "nothing"
    START = "start"
    STOP_UNVISITED = "stop unvisited"


@dataclass(frozen=True)
class Window:
    """One session of a course, and what is to be done for it; times in seconds since the epoch."""

    session: str
    deadline: float | None = None
    """When servers that nobody has opened are stopped, and nothing is started any more; None without ``start_ahead``:
    only what instructors have asked for is started."""
    opens: float = 0.0
    """When servers are started ahead; what was asked for before, such as a trial on the evening before, is over."""


def window(course: HubCourse, now: float) -> Window:
    """The session that is prepared or under way at ``now``; where there is none, or no ``start_ahead``, by hand."""
    document = course.course
    if document is not None and document.start_ahead is not None:
        for session in course.sessions:
            opens, ends = opens_at(document, session).timestamp(), session.end.timestamp()
            if opens <= now < ends:
                return Window(session.name, min(session.start.timestamp() + document.unvisited_after, ends), opens)
    return Window(session_name(course))


def next_step(
    start: CourseStart | None,
    server: Server,
    times: Window,
    now: float,
    *,
    since: float = 0.0,
    last_activity: float | None = None,
) -> Step | CourseStart:
    """What to do for a person with this record and this server, and with nothing under way for them; or a new record.

    A start by hand that fails is not tried again. ``since``: when the hub was started, in seconds since the epoch;
    ``last_activity``: of the server, or of its user in the hub; None: never.
    """
    late = times.deadline is not None and now >= times.deadline
    if start is None:
        if times.deadline is None or (late and not server.active):
            return Step.NOTHING
        return CourseStart(server.user, Stage.LEFT, asked_at=now) if server.active else Step.START
    if start.asked_at < times.opens and not (server.active or late):
        return CourseStart(server.user, Stage.ASKED, asked_at=now)
    if start.stage in _FINAL or (times.deadline is None and start.stage is not Stage.ASKED):
        return Step.NOTHING
    if server.ready:
        return _of_ready(start, now, since, last_activity, late=late)
    if server.active:  # once Slurm has accepted the job, a hub that is restarted goes on with it
        has_begun = start.stage is Stage.ASKED and server.job_id
        return replace(start, stage=Stage.STARTED) if has_begun else Step.NOTHING
    return Step.NOTHING if late else _of_inactive(start, server, now, by_hand=times.deadline is None)


_FINAL = (Stage.LEFT, Stage.VISITED, Stage.UNVISITED)


def _of_ready(
    start: CourseStart, now: float, since: float, last_activity: float | None, *, late: bool
) -> Step | CourseStart:
    if not start.ready_at:
        return replace(start, stage=Stage.STARTED, ready_at=now, fault="")
    if last_activity is not None and last_activity > start.ready_at + SLACK and abs(last_activity - since) > SLACK:
        return replace(start, stage=Stage.VISITED)
    return Step.STOP_UNVISITED if late else Step.NOTHING


def _of_inactive(start: CourseStart, server: Server, now: float, *, by_hand: bool) -> Step | CourseStart:
    failure = failure_of(server, start.asked_at)
    failed = replace(start, stage=Stage.FAILED, asked_at=now, fault=failure or "")
    if start.stage is Stage.STARTED:
        # without a failure it has ended, or a person has stopped it
        return failed if failure is not None and not start.ready_at else Step.NOTHING
    ended_at = (server.ending.at or 0.0) if server.ending is not None and not server.ending.failed else 0.0
    if ended_at >= start.asked_at or (by_hand and now >= start.asked_at + WANTED_FOR):
        return CourseStart(start.user, Stage.LEFT, asked_at=now)
    if start.stage is Stage.ASKED and start.tries >= (1 if by_hand else TRIES) and failure is not None:
        return failed
    # the first try is one that a hub before this one did not make
    is_due = not start.tries or (start.tries < TRIES and now >= start.asked_at + PAUSE)
    return Step.START if is_due else Step.NOTHING


def failure_of(server: Server, asked_at: float) -> str | None:
    """Why the last start of a server that is not active failed; None where it did not, or before ``asked_at``."""
    ending = server.ending
    if ending is not None:
        is_new = ending.failed and (ending.at is None or ending.at >= asked_at)
        return server.end_words(to_user=False).sentence if is_new else None
    return (first_line(server.failure) or "The server did not start.") if server.failure is not None else None


class StartsAhead:
    """Looks every few seconds at the sessions that are near, and starts and stops servers through the actions."""

    def __init__(self, app: JupyterHub, book: CourseBook, actions: CourseActions) -> None:
        self._app = app
        self._book = book
        self._actions = actions
        self._failures = Failures(app.db)
        self._since = time.time()

    async def start_all_due(self) -> None:
        """Do the next step for everybody in all courses; a fault of one course is logged, and the others go on."""
        for course in self._book.courses():
            with self._failures.of(f"The start ahead of course {course.slug}"):
                await self.start_due(course)

    async def start_due(self, course: HubCourse) -> None:
        """Do the next step for everybody in a course; raises SQLAlchemyError."""
        actions, times = self._actions, window(course, time.time())
        starts = actions.starts.find(course.slug, times.session)
        requested = {name for name, start in starts.items() if start.stage is Stage.ASKED}
        wanted = requested if times.deadline is None else course.people
        people = [name for name in course.people if name in wanted and name not in course.unknown]
        people = [name for name in people if actions.pace.kind(course.slug, name) is None]
        participants = actions.participants(course, people) if people else ()
        ready = [person.key for person in participants if person.user in starts and starts[person.user].ready_at]
        activity = actions.last_activity(ready)
        changed, unvisited = list[CourseStart](), dict[ServerKey, CourseStart]()
        for participant in participants:
            start, server = starts.get(participant.user), participant.server
            if participant.state is State.ELSEWHERE:
                if start is None:
                    changed.append(CourseStart(participant.user, Stage.LEFT, asked_at=time.time()))
                continue
            step = self._step(start, server, times, activity.get(participant.user))
            if isinstance(step, CourseStart):
                changed.append(step)
            elif step is Step.START:
                actions.put_start(course, participant.key)
            elif step is Step.STOP_UNVISITED and start is not None:
                unvisited[participant.key] = start
        actions.starts.keep(course.slug, times.session, *changed)
        if unvisited:
            await self._stop_unvisited(course, times, unvisited)

    def _step(
        self, start: CourseStart | None, server: Server, times: Window, last_activity: float | None
    ) -> Step | CourseStart:
        return next_step(start, server, times, time.time(), since=self._since, last_activity=last_activity)

    async def _stop_unvisited(self, course: HubCourse, times: Window, starts: dict[ServerKey, CourseStart]) -> None:
        """Stop those servers that are unvisited by the proxy's latest knowledge, too."""
        try:
            await self._app.update_last_activity()
        except (OSError, HTTPError) as error:
            get_logger().warning("Unvisited servers are stopped later, since the proxy did not answer: %s", error)
            return
        activity = self._actions.last_activity(starts)
        for key, start in starts.items():
            spawner = self._actions.spawner(key)
            if spawner is None:
                continue
            server = server_of(spawner, with_start=False)
            if self._step(start, server, times, activity.get(key.user)) is Step.STOP_UNVISITED:
                self._actions.put_stop(course, spawner, partial(self._unvisited, course, times, start))

    def _unvisited(self, course: HubCourse, times: Window, start: CourseStart, server: Server) -> Ending | None:
        """Record that an unvisited server is stopped now, and return what its card says; None where it was visited.

        Its turn may come minutes after the look: what was recorded at the look would be lost in a hub that is killed
        meanwhile, and somebody may have come. Raises SQLAlchemyError; then the next look finds the server again.
        """
        name = start.user
        activity = self._actions.last_activity([ServerKey(name, server.name)])
        if self._step(start, server, times, activity.get(name)) is not Step.STOP_UNVISITED:
            return None
        get_logger().info("Course %s: nobody has opened the server of %s; stopping it", course.slug, name)
        self._actions.starts.keep(course.slug, times.session, replace(start, stage=Stage.UNVISITED))
        return unvisited_record(course, server, at=time.time())


def unvisited_record(course: HubCourse, server: Server, *, at: float) -> Ending:
    """What the card says of a server that was stopped since nobody had opened it; what became of its job follows."""
    sentence = f"Nobody opened this server after {course.title} had begun, so it was stopped at {{time}}"
    return replace(stop_record(server, at=at, stopper=Kind.CULLED), quoted=Words(sentence))


# The courses of a running hub are read every minute; their rights are updated then, and when a login changes them.

RETRY_SECONDS = 60.0
"""Seconds between two readings."""
PAUSE_AT_MOST = 5.0
"""Seconds after an update that took long."""


async def update_courses(app: JupyterHub, book: CourseBook, account: ServiceAccount) -> None:
    """Read the courses and update groups, roles and the account's rights; raises SQLAlchemyError.

    While the folder cannot be read, groups and roles stay as they are: which courses there are is not known.
    """
    read_before = book.read_at
    if not await book.refresh(RETRY_SECONDS - 1.0) or not book.readable:
        return
    if book.read_at == read_before:  # a reading resolves them, too
        book.resolve()
    if book.take(await update_rights(app, book.courses())):
        book.take(await update_rights(app, book.courses()))
    account.update([course.group for course in book.courses() if course.people])


def begin_courses(app: JupyterHub) -> None:
    """Read the courses from now on; in a hub without ``courses_dir`` there are none."""
    site: Any = site_of(app.tornado_settings)
    if site is None or not site.courses_dir:
        return
    owners = dict[str, str]()
    with Failures(app.db).of("Reading which files the courses had"):
        owners = files_of_courses(app.db)
    settings = GPUCourses(config=app.config)
    changed = asyncio.Event()
    on_changes(changed.set)
    book = CourseBook(
        site.courses_dir,
        partial(people_of_hub, app, settings),
        partial(faults_of, site),
        owners=owners,
        on_read=changed.set,
    )
    account = ServiceAccount(app, settings.at_once)
    actions = CourseActions(app, settings, account)
    checks = CourseChecks(app, book)
    state = state_of(app.tornado_settings)
    state.of(BookOfHub).book = book
    state.keep(actions)
    state.keep(checks)

    async def update() -> None:
        """Update, and pause for ten times as long: with manage_groups each login changes groups.

        What is changed here wakes the next update, too, which changes nothing.
        """
        begun = time.monotonic()
        await update_courses(app, book, account)
        await asyncio.sleep(min(10 * (time.monotonic() - begun), PAUSE_AT_MOST))

    missed: set[str] = set()

    def forget_additions() -> None:
        nonlocal missed
        if book.readable:
            missed = drop_additions_of_others(app.db, [course.slug for course in book.courses()], missed)

    every(app, RETRY_SECONDS, update, "The update of courses", wake=changed)
    starts_ahead = StartsAhead(app, book, actions)
    every(app, POLL_SECONDS, starts_ahead.start_all_due, "Looking for courses that are to be started")
    every(app, CHECK_SECONDS, checks.check_due, "The check of courses", wake=checks.wake)
    every(app, DAY_SECONDS, actions.starts.forget_old, "The deletion of old starts of courses")
    every(app, DAY_SECONDS, forget_additions, "The deletion of people of courses that are gone")
