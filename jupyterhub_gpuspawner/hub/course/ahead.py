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

from jupyterhub_gpuspawner.hub.course import words
from jupyterhub_gpuspawner.hub.course.actions import ACTIONS, CourseActions, ServiceAccount, session_name
from jupyterhub_gpuspawner.hub.course.book import CourseBook, HubCourse
from jupyterhub_gpuspawner.hub.course.participants import CourseStart, ServerKey, Stage
from jupyterhub_gpuspawner.hub.course.rights import (
    GPUCourses,
    files_of_courses,
    on_changes,
    people_of_hub,
    update_rights,
)
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import first_line
from jupyterhub_gpuspawner.hub.site.background import DAY_SECONDS, Failures, every
from jupyterhub_gpuspawner.hub.spawners.offers import SETTING, faults_of
from jupyterhub_gpuspawner.hub.spawners.server import Server, gpus_of, server_of
from jupyterhub_gpuspawner.records.record import Cause, Kind

# The starts that courses have asked for, in a table of our own in the hub's database.
#
# A start is recorded before JupyterHub is asked for it, so that no hub, however often it is restarted, asks twice for
# the same person and session.


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


@dataclass(frozen=True)
class ServerFacts:
    """What the hub knows of a participant's server now."""

    active: bool = False
    """It runs, starts or stops."""
    ready: bool = False
    has_job: bool = False
    """Slurm has accepted its job, so that a hub that is restarted goes on with it."""
    stopped_at: float = 0.0
    """When a person stopped the last one, or it ended after it had run, in seconds since the epoch; 0: neither."""
    failure: str = ""
    """Why its last start failed; empty where it did not."""
    last_activity: float | None = None
    """Seconds since the epoch: of the server, or of its user in the hub; None: never."""


class Step(Enum):
    """What is to be done for one person."""

    NOTHING = "nothing"
    LEAVE = "leave"
    """Record that the server was active already, or that a person has stopped it."""
    START = "start"
    NOTE_SUBMITTED = "note submitted"
    NOTE_READY = "note ready"
    NOTE_VISIT = "note visit"
    NOTE_FAILURE = "note failure"
    STOP_UNVISITED = "stop unvisited"


@dataclass(frozen=True)
class Window:
    """One session of a course, and what is to be done for it; times in seconds since the epoch."""

    session: str
    deadline: float | None = None
    """When servers that nobody has opened are stopped, and nothing is started any more; None without ``start_ahead``:
    only what instructors have asked for is started."""


def window(course: HubCourse, now: float) -> Window:
    """The session that is prepared or under way at ``now``; where there is none, or no ``start_ahead``, by hand."""
    document = course.course
    if document is not None and document.start_ahead is not None:
        for session in course.sessions:
            starts, ends = session.start.timestamp(), session.end.timestamp()
            if starts - document.start_ahead <= now < ends:
                return Window(session.name, min(starts + document.unvisited_after, ends))
    return Window(session_name(course))


def next_step(start: CourseStart | None, state: ServerFacts, times: Window, now: float, *, since: float = 0.0) -> Step:
    """What to do for a person with this record and this server, and with nothing under way for them.

    A start by hand that fails is not tried again. ``since``: when the hub was started, in seconds since the epoch.
    """
    deadline = times.deadline
    late = deadline is not None and now >= deadline
    if start is None:
        if deadline is None or (late and not state.active):
            return Step.NOTHING
        return Step.LEAVE if state.active else Step.START
    if start.stage in _FINAL or (deadline is None and start.stage is not Stage.ASKED):
        return Step.NOTHING
    if state.ready:
        return _of_ready(start, state, since, late=late)
    if state.active:
        return Step.NOTE_SUBMITTED if start.stage is Stage.ASKED and state.has_job else Step.NOTHING
    return Step.NOTHING if late else _of_inactive(start, state, now, by_hand=deadline is None)


_FINAL = (Stage.LEFT, Stage.VISITED, Stage.UNVISITED)


def _of_ready(start: CourseStart, state: ServerFacts, since: float, *, late: bool) -> Step:
    if not start.ready_at:
        return Step.NOTE_READY
    last = state.last_activity
    if last is not None and last > start.ready_at + SLACK and abs(last - since) > SLACK:
        return Step.NOTE_VISIT
    return Step.STOP_UNVISITED if late else Step.NOTHING


def _of_inactive(start: CourseStart, state: ServerFacts, now: float, *, by_hand: bool) -> Step:
    if start.stage is Stage.STARTED:
        # without a failure it has ended, or a person has stopped it
        return Step.NOTE_FAILURE if state.failure and not start.ready_at else Step.NOTHING
    if state.stopped_at >= start.asked_at or (by_hand and now >= start.asked_at + WANTED_FOR):
        return Step.LEAVE
    tries = 1 if by_hand else TRIES
    if start.stage is Stage.ASKED and start.tries >= tries and state.failure:
        return Step.NOTE_FAILURE
    # the first try is one that a hub before this one did not make
    is_due = not start.tries or (start.tries < TRIES and now >= start.asked_at + PAUSE)
    return Step.START if is_due else Step.NOTHING


def facts_of(server: Server, last_activity: float | None = None, *, asked_at: float = 0.0) -> ServerFacts:
    """What is known of a server; a failure before ``asked_at``, as far as its time is known, is none of this start."""
    failure, stopped_at = "", server.stopped_at
    if not server.active and server.stopped is None:
        ending = server.ending
        if ending is not None and ending.served:
            stopped_at = ending.at or 0.0
        elif ending is not None:
            failure = ending.what if ending.at is None or ending.at >= asked_at else ""
        elif server.failure is not None:
            failure = first_line(server.failure) or words.NOT_STARTED
    return ServerFacts(
        active=server.active,
        ready=server.ready,
        has_job=bool(server.job_id),
        stopped_at=stopped_at,
        failure=failure,
        last_activity=last_activity,
    )


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
        now, actions = time.time(), self._actions
        times = window(course, now)
        starts = actions.starts.find(course.slug, times.session)
        asked = {name for name, start in starts.items() if start.stage is Stage.ASKED}
        wanted = asked if times.deadline is None else course.people
        people = [name for name in course.people if name in wanted and name not in course.unknown]
        people = [name for name in people if actions.pace.kind(name) is None]
        participants = actions.participants(course, people) if people else ()
        ready = [person.key for person in participants if person.user in starts and starts[person.user].ready_at]
        activity = actions.last_activity(ready)
        changed, unvisited = list[CourseStart](), dict[ServerKey, CourseStart]()
        for participant in participants:
            name = participant.user
            start = starts.get(name)
            asked_at = start.asked_at if start is not None else 0.0
            state = facts_of(participant.server, activity.get(name), asked_at=asked_at)
            step = next_step(start, state, times, now, since=self._since)
            if step is Step.START:
                actions.put_start(course, participant.key)
            elif step is Step.STOP_UNVISITED and start is not None:
                unvisited[participant.key] = start
            elif (stored := _after(step, name, start, state, now)) is not None:
                changed.append(stored)
        actions.starts.keep(course.slug, times.session, *changed)
        if unvisited:
            await self._stop_unvisited(course, times, unvisited)

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
            state = facts_of(server_of(spawner, with_start=False), activity.get(key.user))
            if next_step(start, state, times, time.time(), since=self._since) is Step.STOP_UNVISITED:
                self._actions.put_stop(course, spawner, partial(self._unvisited, course, times, start))

    def _unvisited(self, course: HubCourse, times: Window, start: CourseStart, server: Server) -> Ending | None:
        """Record that an unvisited server is stopped now, and return what its card says; None where it was visited.

        Its turn may come minutes after the look: what was recorded at the look would be lost in a hub that is killed
        meanwhile, and somebody may have come. Raises SQLAlchemyError; then the next look finds the server again.
        """
        name, now = start.user, time.time()
        activity = self._actions.last_activity([ServerKey(name, server.name)])
        state = facts_of(server, activity.get(name))
        if next_step(start, state, times, now, since=self._since) is not Step.STOP_UNVISITED:
            return None
        get_logger().info("Course %s: nobody has opened the server of %s; stopping it", course.slug, name)
        self._actions.starts.keep(course.slug, times.session, replace(start, stage=Stage.UNVISITED))
        return unvisited_record(course, server, at=now)


def unvisited_record(course: HubCourse, server: Server, *, at: float) -> Ending:
    """What the card says of a server that was stopped since nobody had opened it."""
    text = words.unvisited(course.title, job_id=server.job_id, gpus=gpus_of(server))
    return Ending(text, job_id=server.job_id, at=at, stopped=True, cause=Cause(Kind.CULLED))


def _after(step: Step, name: str, start: CourseStart | None, state: ServerFacts, now: float) -> CourseStart | None:
    """The record after a step that only changes the record; None for any other step."""
    if step is Step.LEAVE:
        return CourseStart(name, Stage.LEFT, asked_at=now)
    if start is None:
        return None
    changes: dict[Step, dict[str, Any]] = {
        Step.NOTE_SUBMITTED: {"stage": Stage.STARTED},
        Step.NOTE_READY: {"stage": Stage.STARTED, "ready_at": now, "fault": ""},
        Step.NOTE_VISIT: {"stage": Stage.VISITED},
        Step.NOTE_FAILURE: {"stage": Stage.FAILED, "asked_at": now, "fault": state.failure},
    }
    return replace(start, **changes[step]) if step in changes else None


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
    spawner = app.spawner_class(config=app.config) if hasattr(app.spawner_class, "courses_dir") else None
    if spawner is None or not spawner.courses_dir:
        return
    owners = dict[str, str]()
    with Failures(app.db).of("Reading which files the courses had"):
        owners = files_of_courses(app.db)
    settings = GPUCourses(config=app.config)
    changed = asyncio.Event()
    on_changes(changed.set)
    book = CourseBook(
        spawner.courses_dir,
        partial(people_of_hub, app, settings),
        partial(faults_of, spawner),
        owners=owners,
        on_read=changed.set,
    )
    account = ServiceAccount(app, settings.at_once)
    actions = CourseActions(app, settings, account)
    app.tornado_settings.update({SETTING: book, ACTIONS: actions})

    async def update() -> None:
        """Update, and pause for ten times as long: with manage_groups each login changes groups.

        What is changed here wakes the next update, too, which changes nothing.
        """
        begun = time.monotonic()
        await update_courses(app, book, account)
        await asyncio.sleep(min(10 * (time.monotonic() - begun), PAUSE_AT_MOST))

    every(app, RETRY_SECONDS, update, "The update of courses", wake=changed)
    starts_ahead = StartsAhead(app, book, actions)
    every(app, POLL_SECONDS, starts_ahead.start_all_due, "Looking for courses that are to be started")
    every(app, DAY_SECONDS, actions.starts.forget_old, "The deletion of old starts of courses")
