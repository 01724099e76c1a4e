"""``/hub/gpuspawner/courses`` and ``/hub/gpuspawner/course/NAME``: the courses that somebody teaches."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any
from urllib.parse import urlunparse

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import Scope
from markupsafe import Markup
from sqlalchemy.exc import SQLAlchemyError
from tornado import web
from tornado.iostream import StreamClosedError

from jupyterhub_gpuspawner.courses.course_profile import participants_link
from jupyterhub_gpuspawner.hub.course import words
from jupyterhub_gpuspawner.hub.course.actions import Outcome, Result
from jupyterhub_gpuspawner.hub.course.book import CourseBook, HubCourse
from jupyterhub_gpuspawner.hub.course.rights import STARTING, STOPPING, teaches
from jupyterhub_gpuspawner.hub.course.room import CourseRoom, Snapshot, room_of_course
from jupyterhub_gpuspawner.hub.course.tiles import ACTIONS, EXTEND, MESSAGE, START, STOP, Wish, result_line, wish_of
from jupyterhub_gpuspawner.hub.course.upkeep import course_actions, course_book
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_admin
from jupyterhub_gpuspawner.hub.messages.store import TEXT_LIMIT, clean_text
from jupyterhub_gpuspawner.hub.server.waiting import OpenStreams
from jupyterhub_gpuspawner.hub.site.database import AWAY_MESSAGE, roll_back
from jupyterhub_gpuspawner.slurm.time_limit import MINUTES_AT_MOST

REST = 10.0
"""Seconds after which a stream without news says that it is alive."""
LONGEST = 300.0
"""Seconds after which a stream ends. The browser opens another one, for which the rights are checked again."""
STREAMS = OpenStreams(6)
FRESH = 5.0
"""Seconds for which the courses' files are not read again when somebody opens a page."""


def teaches_any(parsed_scopes: Mapping[str, Any], user: Any) -> bool:
    """Whether the page's reader teaches a course of this hub; for a link in the navigation bar."""
    book = course_book(user.settings) if user is not None else None
    return book is not None and any(_covers(parsed_scopes, course.group) for course in book.courses())


def _covers(parsed_scopes: Mapping[str, Any], group: str) -> bool:
    scopes = [parsed_scopes.get(scope) for scope in {*STARTING, *STOPPING}]
    return all(scope is Scope.ALL or (scope is not None and group in scope.get("group", ())) for scope in scopes)


class _OfCourses(BaseHandler):
    """What the handlers of these pages share."""

    def book(self) -> CourseBook:
        """The hub's courses; raises 404 in a hub that has none."""
        book = course_book(self.settings)
        if book is None:
            raise web.HTTPError(404, words.NO_SUCH_COURSE)
        return book

    async def taught(self, slug: str) -> HubCourse:
        """A course that the reader teaches; 404 for any other, whether it exists or not."""
        book = self.book()
        await book.refresh(FRESH)
        course = book.get(slug) if teaches(self, slug) else None
        if course is None:
            raise web.HTTPError(404, words.NO_SUCH_COURSE)
        return course

    def room(self, course: HubCourse) -> CourseRoom:
        """The participants of a course, as all its viewers see them."""
        return room_of_course(course.slug, self.settings, self.get_template, self.template_namespace["gpuspawner"])


class CoursesPage(_OfCourses):
    """The courses that somebody teaches, each with its session and, in a session, how many are in which state."""

    @web.authenticated
    async def get(self) -> None:
        """404 in a hub without courses."""
        book = self.book()
        await book.refresh(FRESH)
        taught = [course for course in book.courses() if teaches(self, course.slug)]
        entries = [self.room(course).entry(course) for course in taught]
        fault = str(book.fault) if book.fault is not None and is_admin(self.parsed_scopes) else ""
        self.finish(await self.render_template("courses.html", courses=entries, folder_fault=fault))


class CoursePage(_OfCourses):
    """The participants of a course, and what their instructor can do for them."""

    @web.authenticated
    async def get(self, slug: str) -> None:
        """404 for everybody who does not teach the course."""
        course = await self.taught(slug)
        self.finish(await self._page(course, await self.room(course).feed.recent()))

    @web.authenticated
    async def post(self, slug: str) -> None:
        """Ask, or do what was confirmed and go back to the page (303).

        The action is in ``one`` (with a server as ``USER/SERVER``), ``selected`` (with servers in ``user``) or
        ``everybody``. A single start is done without a question.
        """
        course = await self.taught(slug)
        action, chosen = self._wish()
        room = self.room(course)
        wish = wish_of(action, room.participants(), chosen)
        single_start = action == START and "one" in self.request.body_arguments
        if not wish.servers or not (single_start or self.get_body_argument("confirmed", "")):
            await self._ask(course, wish, "")
            return
        typed = self.get_body_argument({MESSAGE: "text", EXTEND: "minutes"}.get(action, ""), "")
        fault = _fault(action, typed)
        if fault:
            self.set_status(HTTPStatus.BAD_REQUEST)
            await self._ask(course, wish, typed, fault)
            return
        try:
            outcomes = await self._do(course, wish, typed, room)
        except SQLAlchemyError:
            roll_back(self.db)
            self.set_status(HTTPStatus.SERVICE_UNAVAILABLE)
            await self._ask(course, wish, typed, AWAY_MESSAGE)
            return
        user: Any = self.current_user
        room.note(result_line(action, user.name, outcomes))
        self.redirect(self._address(slug), status=HTTPStatus.SEE_OTHER)

    def _wish(self) -> tuple[str, frozenset[str] | None]:
        """The action, and for whom; None for everybody. Raises 400."""
        one, _, server = self.get_body_argument("one", "").partition(" ")
        selected, everybody = (self.get_body_argument(name, "") for name in ("selected", "everybody"))
        action = one or selected or everybody
        if action not in ACTIONS:
            raise web.HTTPError(400, words.NO_ACTION)
        if one:
            return action, frozenset({server})
        return action, frozenset(self.get_body_arguments("user")) if selected else None

    async def _ask(self, course: HubCourse, wish: Wish, typed: str, fault: str = "") -> None:
        html = await self.render_template(
            "course_question.html",
            slug=course.slug,
            title=course.title,
            wish=wish,
            typed=typed,
            fault=fault,
            limit=TEXT_LIMIT if wish.action == MESSAGE else MINUTES_AT_MOST,
        )
        self.finish(html)

    async def _do(self, course: HubCourse, wish: Wish, typed: str, room: CourseRoom) -> tuple[Outcome, ...]:
        """Raises SQLAlchemyError."""
        actions = course_actions(self.settings)
        only = None if wish.everybody else tuple(map(str, wish.servers))
        user: Any = self.current_user
        if wish.action == START:
            return actions.start(course, only)
        if wish.action == STOP:
            return actions.stop(course, only, by=user.name)
        if wish.action == MESSAGE:
            return actions.message(course, typed, only, by=user.name)

        def note_refusals(outcomes: tuple[Outcome, ...]) -> None:
            refused = [outcome for outcome in outcomes if outcome.result is Result.REFUSED]
            if refused:
                room.note(result_line(EXTEND, user.name, refused))

        return await actions.extend(course, int(typed) if typed else None, only, by=user.name, on_late=note_refusals)

    def _address(self, slug: str) -> str:
        return f"{self.hub.base_url}gpuspawner/course/{slug}"

    async def _page(self, course: HubCourse, now: Snapshot) -> str:
        html: str = await self.render_template(
            "course.html",
            view=now.view,
            version=now.version,
            head=Markup(now.head),  # noqa: S704 - templates have escaped their texts
            tiles=Markup("\n").join(map(Markup, now.tiles.values())),
            link=self._link(course),
        )
        return html

    def _link(self, course: HubCourse) -> str:
        """The address of the form with the course selected; empty for a course that is not offered."""
        if course.course is None:
            return ""
        public = self.settings.get("public_url")
        if public:
            base = urlunparse(public._replace(path=self.hub.base_url))
        else:
            base = f"{self.request.protocol}://{self.request.host}{self.hub.base_url}"
        return participants_link(course.slug, course.course, base)


def _fault(action: str, typed: str) -> str:
    """What is wrong with what was typed for an action; empty for what is right."""
    if action == MESSAGE and not clean_text(typed):
        return words.TEXT_MISSING
    if action == EXTEND and typed and not (re.fullmatch("[0-9]{1,6}", typed) and 1 <= int(typed) <= MINUTES_AT_MOST):
        return words.MINUTES_WRONG.format(limit=MINUTES_AT_MOST)
    return ""


class CourseEvents(_OfCourses):
    """``.../events``: an event for each change of a course's page, made once for all who look."""

    @web.authenticated
    async def get(self, slug: str) -> None:
        """The events since ``version``, as JSON in the browser's format for server-sent events."""
        course = await self.taught(slug)
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("Cache-Control", "no-cache")
        self.set_header("X-Accel-Buffering", "no")  # nginx would keep events back
        user: Any = self.current_user
        with STREAMS.one((user.name, slug)) as over:
            await self._send(course, over)

    async def _send(self, course: HubCourse, over: asyncio.Future[None]) -> None:
        began = sent_at = time.monotonic()
        version = self.get_argument("version", "")
        try:
            await self._write(": \n\n")
            async with aclosing(self.room(course).feed.events(version)) as events:
                async for event in events:
                    now = time.monotonic()
                    if over.done():
                        await self._write("event: elsewhere\ndata: {}\n\n")
                        return
                    if self._finished or now - began > LONGEST:
                        return
                    if event or now - sent_at > REST:
                        await self._write(f"data: {event}\n\n" if event else ": \n\n")
                        sent_at = now
        except (StreamClosedError, LookupError):  # the page was closed, or the course has gone
            return

    async def _write(self, text: str) -> None:
        self.write(text)
        await self.flush()
