"""The courses of a running hub are read every minute; their rights are updated then, and when a login changes them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError
from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.courses.actions import CourseActions
from jupyterhub_gpuspawner.hub.courses.ahead import StartsAhead
from jupyterhub_gpuspawner.hub.courses.book import CourseBook
from jupyterhub_gpuspawner.hub.courses.rights import CourseRights, HubDirectory, on_changes
from jupyterhub_gpuspawner.hub.courses.service_account import ServiceAccount
from jupyterhub_gpuspawner.hub.courses.settings import GPUCourses
from jupyterhub_gpuspawner.hub.courses.starts import CourseStarts
from jupyterhub_gpuspawner.hub.messages.message import Audience, Kind
from jupyterhub_gpuspawner.hub.site.database import fault, roll_back
from jupyterhub_gpuspawner.hub.spawners.course_offers import SETTING, faults_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from jupyterhub.app import JupyterHub


ACTIONS = "gpuspawner_course_actions"
"""Where the hub's tornado settings hold the actions."""
LOOK = 0.5
"""Seconds between two checks of whether the hub has started."""
AGAIN = 60.0
"""Seconds between two readings."""
SWEEP = 86400.0
"""Seconds between two deletions of what is too old."""
AFTER_FAULT = 5.0
"""Seconds until the next update after one that failed, and at most after one that took long."""


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
        self._changed = asyncio.Event()
        self._swept_at = 0.0

    async def run(self) -> None:
        """Update now, after each minute, and when groups or roles of users have changed; until cancelled.

        What is changed here counts, too: the update after that changes nothing.
        """
        on_changes(self._changed.set)
        self._book.on_read = self._changed.set
        while True:
            self._changed.clear()
            begun = time.monotonic()
            try:
                await self.update()
            except SQLAlchemyError as error:
                get_logger().warning("Courses are updated later, since the database failed: %s", fault(error))
                roll_back(self._app.db)
                await asyncio.sleep(AFTER_FAULT)
            except Exception:  # noqa: BLE001 - whatever is wrong now, the courses are looked at again
                get_logger().exception("The courses could not be updated")
                await asyncio.sleep(AFTER_FAULT)
            # with manage_groups each login changes groups: a rush of them must not occupy the hub
            await asyncio.sleep(min(10 * (time.monotonic() - begun), AFTER_FAULT))
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), AGAIN)

    async def update(self) -> None:
        """Read the courses and update groups and roles; raises SQLAlchemyError.

        While the folder cannot be read, groups and roles stay as they are: which courses there are is not known.
        """
        if abs(time.time() - self._swept_at) > SWEEP:
            CourseStarts(self._app.db).forget_old()
            self._swept_at = time.time()
        if not await self._book.refresh(AGAIN - 1.0) or not self._book.readable:
            return
        self._book.resolve()
        if self._book.take(await self._rights.update(self._book.courses())):
            self._book.take(await self._rights.update(self._book.courses()))
        self._account.update([course.group for course in self._book.courses() if course.people])


def register_courses(app: JupyterHub) -> None:
    """Read the courses once the hub has started; in a hub without ``courses_dir`` there are none."""
    held: set[asyncio.Task[None]] = set()

    def begin(_change: object) -> None:
        spawner = app.spawner_class(config=app.config) if hasattr(app.spawner_class, "courses_dir") else None
        if held or spawner is None or not spawner.courses_dir:
            return
        settings = GPUCourses(config=app.config)
        book = CourseBook(spawner.courses_dir, HubDirectory(app, settings), partial(faults_of, spawner))
        account = ServiceAccount(app)
        actions = CourseActions(app, settings, account)
        app.tornado_settings.update({SETTING: book, ACTIONS: actions})
        for work in (CourseUpkeep(app, book, account).run, StartsAhead(app, book, actions).run):
            task = asyncio.get_running_loop().create_task(_when_started(app, work))
            held.add(task)
            task.add_done_callback(_ended)

    app.observe(begin, "handlers")


async def _when_started(app: JupyterHub, work: Callable[[], Awaitable[None]]) -> None:
    while app.http_server is None:  # noqa: ASYNC110 - JupyterHub has no event for it
        await asyncio.sleep(LOOK)
    await work()


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        get_logger().error("The courses are no longer kept up to date", exc_info=task.exception())
