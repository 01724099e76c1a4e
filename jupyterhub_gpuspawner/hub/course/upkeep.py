"""The courses of a running hub are read every minute; their rights are updated then, and when a login changes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.hub.course import ahead
from jupyterhub_gpuspawner.hub.course.actions import CourseActions
from jupyterhub_gpuspawner.hub.course.ahead import StartsAhead
from jupyterhub_gpuspawner.hub.course.book import CourseBook
from jupyterhub_gpuspawner.hub.course.rights import (
    CourseRights,
    GPUCourses,
    HubDirectory,
    files_of_courses,
    on_changes,
)
from jupyterhub_gpuspawner.hub.course.service_account import ServiceAccount
from jupyterhub_gpuspawner.hub.messages.store import Audience, Kind
from jupyterhub_gpuspawner.hub.site.tasks import DAY_SECONDS, Failures, every
from jupyterhub_gpuspawner.hub.spawners.offers import SETTING, faults_of

ACTIONS = "gpuspawner_course_actions"
"""Where the hub's tornado settings hold the actions."""
RETRY_SECONDS = 60.0
"""Seconds between two readings."""
PAUSE_AT_MOST = 5.0
"""Seconds after an update that took long."""


def course_book(settings: Mapping[str, Any]) -> CourseBook | None:
    """The courses of the hub with these tornado settings (``handler.settings``, ``user.settings``).

    None in a hub without ``courses_dir``.
    """
    book: CourseBook | None = settings.get(SETTING)
    return book


def course_actions(settings: Mapping[str, Any]) -> CourseActions:
    """The actions in a hub that has a :func:`course_book`."""
    actions: CourseActions = settings[ACTIONS]
    return actions


def course_audiences(settings: Mapping[str, Any], user_name: str) -> tuple[Audience, ...]:
    """The audiences of instructors' messages to which this user belongs: everybody in their courses, and they alone."""
    book = course_book(settings)
    courses = book.courses_of(user_name) if book is not None else ()
    return tuple(Audience(Kind.COURSE, course.slug, to) for course in courses for to in ("", user_name))


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
        ahead.POLL_SECONDS,
        StartsAhead(app, book, actions).start_all_due,
        "Looking for courses that are to be started",
    )
    every(app, DAY_SECONDS, actions.starts.forget_old, "The deletion of old starts of courses")
