"""Starts the servers of a course before each session, stops those that nobody opens, and goes on with starts by hand.

:func:`next_step` and :func:`next_step_by_hand` decide for one person, :class:`StartsAhead` does it. Each start is
recorded in the database first, so that a hub that is restarted goes on where the last one was.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from jupyterhub.app import JupyterHub
from tornado.httpclient import HTTPError
from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.course import words
from jupyterhub_gpuspawner.hub.course.actions import ACTIONS, CourseActions, ServiceAccount, session_name
from jupyterhub_gpuspawner.hub.course.book import CourseBook, HubCourse
from jupyterhub_gpuspawner.hub.course.participants import CourseStart, ServerKey, Stage
from jupyterhub_gpuspawner.hub.course.rights import (
    CourseRights,
    GPUCourses,
    HubDirectory,
    files_of_courses,
    on_changes,
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
    """The times of one session of a course with ``start_ahead``; seconds since the epoch."""

    session: str
    opens: float
    """When servers are started."""
    starts: float
    deadline: float
    """When servers that nobody has opened are stopped, and nothing is started any more."""
    ends: float


def window(course: HubCourse, now: float) -> Window | None:
    """The session that is prepared or under way at ``now``; None where there is none, or without ``start_ahead``."""
    document = course.course
    if document is None or document.start_ahead is None:
        return None
    for session in course.sessions:
        starts, ends = session.start.timestamp(), session.end.timestamp()
        if starts - document.start_ahead <= now < ends:
            deadline = starts + document.unvisited_after
            return Window(session.name, starts - document.start_ahead, starts, min(deadline, ends), ends)
    return None


def next_step(start: CourseStart | None, state: ServerFacts, times: Window, now: float, *, since: float = 0.0) -> Step:
    """What to do for a person with this record and this server, and with nothing under way for them.

    ``since``: when the hub was started, in seconds since the epoch.
    """
    if start is None:
        return Step.LEAVE if state.active else Step.START if now < times.deadline else Step.NOTHING
    if start.stage in _FINAL:
        return Step.NOTHING
    if state.ready:
        return _of_ready(start, state, times, now, since)
    if state.active:
        return Step.NOTE_SUBMITTED if start.stage is Stage.ASKED and state.has_job else Step.NOTHING
    if now >= times.deadline:
        return Step.NOTHING
    return _of_inactive(start, state, now)


_FINAL = (Stage.LEFT, Stage.VISITED, Stage.UNVISITED)


def _of_ready(start: CourseStart, state: ServerFacts, times: Window, now: float, since: float) -> Step:
    if not start.ready_at:
        return Step.NOTE_READY
    last = state.last_activity
    if last is not None and last > start.ready_at + SLACK and abs(last - since) > SLACK:
        return Step.NOTE_VISIT
    return Step.STOP_UNVISITED if now >= times.deadline else Step.NOTHING


def _of_inactive(start: CourseStart, state: ServerFacts, now: float) -> Step:
    if start.stage is Stage.STARTED:
        # without a failure it has ended, or a person has stopped it
        return Step.NOTE_FAILURE if state.failure and not start.ready_at else Step.NOTHING
    if state.stopped_at >= start.asked_at:
        return Step.LEAVE
    if start.stage is Stage.ASKED and start.tries >= TRIES and state.failure:
        return Step.NOTE_FAILURE
    return Step.START if _is_due(start, now) else Step.NOTHING


def _is_due(start: CourseStart, now: float) -> bool:
    """Whether it is time for the next try, or for the first one, which a hub before this one did not make."""
    return not start.tries or (start.tries < TRIES and now >= start.asked_at + PAUSE)


def next_step_by_hand(start: CourseStart, state: ServerFacts, now: float) -> Step:
    """What to do about a start that an instructor asked for, with nothing under way for the person.

    One that fails is not tried again.
    """
    if state.ready:
        return Step.NOTE_READY
    if state.active:
        return Step.NOTE_SUBMITTED if state.has_job else Step.NOTHING
    if state.stopped_at >= start.asked_at or now >= start.asked_at + WANTED_FOR:
        return Step.LEAVE
    if start.tries and state.failure:
        return Step.NOTE_FAILURE
    return Step.START if _is_due(start, now) else Step.NOTHING


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
                self.follow_starts_by_hand(course)

    async def start_due(self, course: HubCourse) -> None:
        """Do the next step for everybody in a course; raises SQLAlchemyError."""
        now = time.time()
        times = window(course, now)
        if times is None:
            return
        people = [name for name in course.people if name not in course.unknown and name not in self._actions.pace]
        starts = self._actions.starts.find(course.slug, times.session)
        participants = self._actions.participants(course, people)
        activity = self._actions.last_activity(
            [
                participant.key
                for participant in participants
                if participant.user in starts and starts[participant.user].ready_at
            ]
        )
        changed, unvisited = list[CourseStart](), dict[ServerKey, CourseStart]()
        for participant in participants:
            name = participant.user
            start = starts.get(name)
            asked_at = start.asked_at if start is not None else 0.0
            state = facts_of(participant.server, activity.get(name), asked_at=asked_at)
            step = next_step(start, state, times, now, since=self._since)
            if step is Step.START:
                self._actions.put_start(course, participant.key)
            elif step is Step.STOP_UNVISITED and start is not None:
                unvisited[participant.key] = start
            elif (stored := _after(step, name, start, state, now)) is not None:
                changed.append(stored)
        self._actions.starts.keep_all(course.slug, times.session, changed)
        if unvisited:
            await self._stop_unvisited(course, times, unvisited)

    def follow_starts_by_hand(self, course: HubCourse) -> None:
        """Go on with the starts that instructors asked for; raises SQLAlchemyError."""
        now = time.time()
        session = session_name(course)
        if window(course, now) is not None or (course.slug, session) not in self._actions.starts.under_way():
            return
        starts = self._actions.starts.find(course.slug, session)
        people = [
            name
            for name in course.people
            if name in starts and starts[name].stage is Stage.ASKED and name not in self._actions.pace
        ]
        changed = list[CourseStart]()
        for participant in self._actions.participants(course, people):
            start = starts[participant.user]
            state = facts_of(participant.server, asked_at=start.asked_at)
            step = next_step_by_hand(start, state, now)
            if step is Step.START:
                self._actions.put_start(course, participant.key)
            elif (stored := _after(step, participant.user, start, state, now)) is not None:
                changed.append(stored)
        self._actions.starts.keep_all(course.slug, session, changed)

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
    if step is Step.NOTE_SUBMITTED and start is not None:
        return replace(start, stage=Stage.STARTED)
    if step is Step.NOTE_READY and start is not None:
        return replace(start, stage=Stage.STARTED, ready_at=now, fault="")
    if step is Step.NOTE_VISIT and start is not None:
        return replace(start, stage=Stage.VISITED)
    if step is Step.NOTE_FAILURE and start is not None:
        return replace(start, stage=Stage.FAILED, asked_at=now, fault=state.failure)
    return None


# The courses of a running hub are read every minute; their rights are updated then, and when a login changes them.

RETRY_SECONDS = 60.0
"""Seconds between two readings."""
PAUSE_AT_MOST = 5.0
"""Seconds after an update that took long."""


class CourseUpkeep:
    """Reads the courses and updates their rights, as long as the hub runs."""

    def __init__(self, app: JupyterHub, book: CourseBook, account: ServiceAccount) -> None:
        self._app = app
        self._book = book
        self._account = account
        self._rights = CourseRights(app)

    async def run_once(self) -> None:
        """Update, and pause for ten times as long: with manage_groups each login changes groups.

        What is changed here wakes the next update, too, which changes nothing.
        """
        begun = time.monotonic()
        await self.update()
        await asyncio.sleep(min(10 * (time.monotonic() - begun), PAUSE_AT_MOST))

    async def update(self) -> None:
        """Read the courses and update groups and roles; raises SQLAlchemyError.

        While the folder cannot be read, groups and roles stay as they are: which courses there are is not known.
        """
        read_before = self._book.read_at
        if not await self._book.refresh(RETRY_SECONDS - 1.0) or not self._book.readable:
            return
        if self._book.read_at == read_before:  # a reading resolves them, too
            self._book.resolve()
        if self._book.take(await self._rights.update(self._book.courses())):
            self._book.take(await self._rights.update(self._book.courses()))
        self._account.update([course.group for course in self._book.courses() if course.people])


def begin_courses(app: JupyterHub) -> None:
    """Read the courses from now on; in a hub without ``courses_dir`` there are none."""
    spawner = app.spawner_class(config=app.config) if hasattr(app.spawner_class, "courses_dir") else None
    if spawner is None or not spawner.courses_dir:
        return
    owners = dict[str, str]()
    with Failures(app.db).of("Reading which files the courses had"):
        owners = files_of_courses(app.db)
    settings = GPUCourses(config=app.config)
    directory = HubDirectory(app, settings)
    book = CourseBook(spawner.courses_dir, directory, partial(faults_of, spawner), owners=owners)
    account = ServiceAccount(app, settings.at_once)
    actions = CourseActions(app, settings, account)
    app.tornado_settings.update({SETTING: book, ACTIONS: actions})
    changed = asyncio.Event()
    on_changes(changed.set)
    book.on_read = changed.set
    every(app, RETRY_SECONDS, CourseUpkeep(app, book, account).run_once, "The update of courses", wake=changed)
    every(
        app,
        POLL_SECONDS,
        StartsAhead(app, book, actions).start_all_due,
        "Looking for courses that are to be started",
    )
    every(app, DAY_SECONDS, actions.starts.forget_old, "The deletion of old starts of courses")
