"""``/hub/gpuspawner/courses`` and ``/hub/gpuspawner/course/NAME``: the courses that somebody teaches."""

from __future__ import annotations

import asyncio
import json
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any
from urllib.parse import urlunparse

from jupyterhub.handlers.base import BaseHandler
from markupsafe import Markup
from sqlalchemy import Column, Integer, MetaData, String, Table, UnicodeText, insert, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from tornado import web

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.extensions.courses.actions import NOT_IN_COURSE, Outcome, Result, course_actions
from jupyterhub_gpuspawner.extensions.courses.additions import drop_additions, keep_additions, may_sign_in, refusal_of
from jupyterhub_gpuspawner.extensions.courses.book import CourseBook, HubCourse, as_users, course_book
from jupyterhub_gpuspawner.extensions.courses.course_profile import participants_link
from jupyterhub_gpuspawner.extensions.courses.evening import course_checks, inputs_of, profiles_spawner
from jupyterhub_gpuspawner.extensions.courses.participants import RETENTION_SECONDS, Participant
from jupyterhub_gpuspawner.extensions.courses.rights import course_taught, courses_taught, teaches
from jupyterhub_gpuspawner.extensions.courses.view import (
    ACTIONS,
    EXTEND,
    MESSAGE,
    START,
    CourseView,
    FreeSeats,
    Line,
    PendingAction,
    Tile,
    course_view,
    free_seats,
    result_line,
    servers_in,
    wish_of,
)
from jupyterhub_gpuspawner.extensions.live_pages.streams import EventStream, LivePage
from jupyterhub_gpuspawner.extensions.messages.store import TEXT_LIMIT, clean_text
from jupyterhub_gpuspawner.hub.extension import MINUTES_AT_MOST
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_admin
from jupyterhub_gpuspawner.hub.site.database import AWAY_MESSAGE, roll_back, transaction
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.site.tables import SECONDS, delete_older
from jupyterhub_gpuspawner.hub.web.handlers import OpenStreams

# What instructors did on a course's page, in a table of our own in the hub's database.


RECENT_ACTIONS_TABLE = Table(
    "gpuspawner_course_actions",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("course", String(64), nullable=False, index=True),
    Column("at", SECONDS, nullable=False),
    Column("text", UnicodeText, nullable=False),
)


def latest_actions(session: Session, course: str) -> tuple[Line, ...]:
    """The last actions, newest first; raises SQLAlchemyError."""
    by_course = select(RECENT_ACTIONS_TABLE).where(RECENT_ACTIONS_TABLE.c.course == course)
    query = by_course.order_by(RECENT_ACTIONS_TABLE.c.id.desc()).limit(RECENT)
    return tuple(Line(row.text, row.at) for row in session.execute(query))


def keep_actions(session: Session, course: str, sentences: Iterable[str], at: float) -> None:
    """Write what was done at one time, and delete what is older than :data:`RETENTION_SECONDS`.

    Raises SQLAlchemyError.
    """
    delete_older(session, RECENT_ACTIONS_TABLE.c.at, RETENTION_SECONDS)
    with transaction(session):
        for text in sentences:
            session.execute(insert(RECENT_ACTIONS_TABLE).values(course=course, at=at, text=text))


NO_SUCH_COURSE = "There is no such course, or you do not teach it."


@dataclass(frozen=True)
class CourseSnapshot:
    """The page at one moment."""

    view: CourseView
    head: str
    """HTML of what stands above the tiles."""
    tiles: Mapping[str, str]
    """HTML of each tile, by user, in order."""

    @cached_property
    def version(self) -> str:
        """A checksum of everything but the time left: the page's script counts it down."""
        versions = [self.view.version, *((tile.user, tile.version) for tile in self.view.tiles)]
        return f"{zlib.crc32(repr(versions).encode()):08x}"

    def event_since(self, last: CourseSnapshot | None) -> str:
        """An event with what has changed since ``last``, or with everything, as JSON."""
        before = {tile.user: tile.version for tile in last.view.tiles} if last is not None else {}
        changed = [tile.user for tile in self.view.tiles if before.get(tile.user) != tile.version]
        tiles = {user: self.tiles[user] for user in changed}
        return json.dumps({"version": self.version, "head": self.head, "order": list(self.tiles), "tiles": tiles})


AGE = 15.0
"""Seconds for which one answer of Slurm, and the seats counted in it, are used."""
AGE_AFTER_END = 5.0
"""The same for as long as that after one of the course's servers has ended: its seat is free before long."""
RECENT = 6
"""Actions that the page shows."""


class SeatsAge:
    """How old a count of a course's free seats may be."""

    def __init__(self) -> None:
        self._active: frozenset[str] = frozenset()
        self._ended_at = float("-inf")

    def at_most(self, active: frozenset[str], now: float) -> float:
        """In seconds, while these people have servers at ``now``, in seconds of any clock."""
        if self._active - active:
            self._ended_at = now
        self._active = active
        return AGE_AFTER_END if now - self._ended_at < AGE else AGE


class CoursePageState(LivePage[CourseSnapshot]):
    """The page of one course of a hub, made once for all who look at it."""

    def __init__(
        self,
        slug: str,
        settings: Mapping[str, Any],
        template: Callable[..., Any],
        tools: Any,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``settings`` are the hub's, ``template`` finds its templates, and ``tools`` are what ours use."""
        super().__init__(clock)
        self._slug = slug
        self._settings = settings
        self._tools = tools
        self._head = template("course_head.html", sync=True)
        self._tile = template("course_tiles.html", sync=True).make_module({"gpuspawner": tools}).tile
        self._actions: tuple[Line, ...] | None = None
        """Newest first; None before they are read from the database."""
        self._seats: tuple[FreeSeats, ...] | None = None
        self._seats_at = float("-inf")
        self._seats_age = SeatsAge()
        self._html: dict[Tile, str] = {}

    async def event(self, now: CourseSnapshot, last: CourseSnapshot | None) -> str:
        """The tiles that have changed."""
        return now.event_since(last)

    async def make(self) -> CourseSnapshot:
        """The page now; raises LookupError once the course has gone."""
        return await asyncio.to_thread(self._rendered, await self.view())

    def _rendered(self, view: CourseView) -> CourseSnapshot:
        before = self._html  # another page may be made at the same time
        self._html = html = {tile: before.get(tile) or self.rendered_tile(tile) for tile in view.tiles}
        return CourseSnapshot(view, self.rendered_head(view), {tile.user: text for tile, text in html.items()})

    def participants(self) -> tuple[Participant, ...]:
        """Everybody on the course, as the hub knows them now."""
        course = self._course()
        return self._of(course) if course is not None else ()

    def entry(self, course: HubCourse) -> CourseView:
        """The course in a list: its people only where a session is under way."""
        return course_view(course, self._of(course) if course.session_at() is not None else (), now=time.time())

    def note(self, sentences: Sequence[str]) -> None:
        """Show on the page what was done now; and after a restart of the hub, unless the database is away."""
        actions, now = self._latest_actions(), time.time()
        self._actions = (*(Line(text, now) for text in reversed(sentences)), *actions)[:RECENT]
        self.expire()
        with self._database_may_be_away():
            keep_actions(self._settings["db"], self._slug, sentences, now)

    def _latest_actions(self) -> tuple[Line, ...]:
        if self._actions is None:
            with self._database_may_be_away():
                self._actions = latest_actions(self._settings["db"], self._slug)
        return self._actions or ()

    @contextmanager
    def _database_may_be_away(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError:  # the hub logs what it does while the database is away
            roll_back(self._settings["db"])

    def _course(self) -> HubCourse | None:
        book = course_book(self._settings)
        return book.get(self._slug) if book is not None else None

    def _of(self, course: HubCourse) -> tuple[Participant, ...]:
        actions = course_actions(self._settings)
        try:
            return actions.participants(course, with_start=True)
        except SQLAlchemyError:  # the hub logs what it does while the database is away
            roll_back(self._settings["db"])
            return actions.participants(course, with_start=True, in_memory=True)

    async def view(self) -> CourseView:
        """What the page shows now; raises LookupError once the course has gone."""
        course = self._course()
        if course is None:
            raise LookupError(self._slug)
        seats = await self._free_seats(course, self._of(course))
        room, recent, now = self._of(course), self._latest_actions(), time.time()
        counting, check = course_checks(self._settings).status(course)
        return await asyncio.to_thread(
            course_view,
            course,
            room,
            now=now,
            seats=seats,
            recent=recent,
            counting=counting,
            check=check,
        )

    async def _free_seats(self, course: HubCourse, people: Iterable[Participant]) -> tuple[FreeSeats, ...] | None:
        active = frozenset(participant.user for participant in people if participant.server.active)
        max_age = self._seats_age.at_most(active, self._clock())
        if self._clock() - self._seats_at < max_age:
            return self._seats
        inputs = None
        with self._database_may_be_away(), suppress(GPUSpawnerError):  # logged where settings and profiles are read
            spawner = profiles_spawner(self._settings)
            inputs = await inputs_of(course, spawner, self._settings, max_age=max_age) if spawner is not None else None
        self._seats = await asyncio.to_thread(free_seats, course, inputs, now=time.time()) if inputs else None
        self._seats_at = self._clock()
        return self._seats

    def rendered_head(self, view: CourseView) -> str:
        """The HTML of what stands above the tiles."""
        return str(self._head.render(view=view, gpuspawner=self._tools))

    def rendered_tile(self, tile: Tile) -> str:
        """The HTML of a tile."""
        return str(self._tile(tile))


class CourseRooms(dict[str, CoursePageState]):
    """Those of a hub, by the slugs of their courses."""


def room_of_course(slug: str, settings: Mapping[str, Any], template: Callable[..., Any], tools: Any) -> CoursePageState:
    """The one for this course and hub; made when it is first asked for."""
    rooms = state_of(settings).of(CourseRooms)
    if slug not in rooms:
        rooms[slug] = CoursePageState(slug, settings, template, tools)
    return rooms[slug]


class CourseStreams(OpenStreams):
    """The streams that each instructor has open about one course."""

    limit = 6


def teaches_any(parsed_scopes: Mapping[str, Any], user: Any) -> bool:
    """Whether the page's reader teaches a course of this hub; for a link in the navigation bar."""
    book = course_book(user.settings) if user is not None else None
    return book is not None and any(teaches(parsed_scopes, course.slug) for course in book.courses())


class _OfCourses(BaseHandler):
    """What the handlers of these pages share."""

    async def taught(self, slug: str) -> HubCourse:
        """A course that the reader teaches; 404 for any other, whether it exists or not."""
        return await course_taught(self, slug, unknown=NO_SUCH_COURSE)

    @property
    def _user_name(self) -> str:
        user: Any = self.current_user
        return str(user.name)

    def _address(self, slug: str) -> str:
        return f"{self.hub.base_url}gpuspawner/course/{slug}"

    def room(self, course: HubCourse) -> CoursePageState:
        """The participants of a course, as all its viewers see them."""
        return room_of_course(course.slug, self.settings, self.get_template, self.template_namespace["gpuspawner"])


class CoursesPage(_OfCourses):
    """The courses that somebody teaches, each with its session and, in a session, how many are in which state."""

    @web.authenticated
    async def get(self) -> None:
        """404 in a hub without courses."""
        book = course_book(self.settings)
        if book is None:
            raise web.HTTPError(404, NO_SUCH_COURSE)
        entries = [self.room(course).entry(course) for course in await courses_taught(self)]
        fault = str(book.fault) if book.fault is not None and (entries or is_admin(self.parsed_scopes)) else ""
        self.finish(await self.render_template("courses.html", courses=entries, folder_fault=fault))


class CoursePage(_OfCourses):
    """The participants of a course, and what their instructor can do for them."""

    @web.authenticated
    async def get(self, slug: str) -> None:
        """404 for everybody who does not teach the course."""
        course = await self.taught(slug)
        self.finish(await self._page(course, await self.room(course).recent()))

    @web.authenticated
    async def post(self, slug: str) -> None:
        """Ask, or do what was confirmed and go back to the page (303).

        The action is in ``these`` (with a line for each server, ``USER/SERVER``), ``selected`` (with servers in
        ``user``) or ``everybody``. The start of one of ``these`` alone is done without a question.
        """
        course = await self.taught(slug)
        action, chosen = self._wish()
        room = self.room(course)
        wish = wish_of(action, room.participants(), chosen)
        single_start = action == START and len(chosen or ()) == 1 and "these" in self.request.body_arguments
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
        room.note(result_line(action, self._user_name, outcomes))
        self.redirect(self._address(slug), status=HTTPStatus.SEE_OTHER)

    def _wish(self) -> tuple[str, frozenset[str] | None]:
        """The action, and for whom; None for everybody. Raises 400."""
        these, *fields = self.get_body_argument("these", "").split() or [""]
        selected, everybody = (self.get_body_argument(name, "") for name in ("selected", "everybody"))
        action = these or selected or everybody
        if action not in ACTIONS:
            raise web.HTTPError(400, "There is no such action.")
        if these:
            return action, servers_in(fields)
        return action, servers_in(self.get_body_arguments("user")) if selected else None

    async def _ask(self, course: HubCourse, wish: PendingAction, typed: str, fault: str = "") -> None:
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

    async def _do(
        self, course: HubCourse, wish: PendingAction, typed: str, room: CoursePageState
    ) -> tuple[Outcome, ...]:
        """Raises SQLAlchemyError."""

        def note_refusals(outcomes: tuple[Outcome, ...]) -> None:
            refused = [outcome for outcome in outcomes if outcome.result is Result.REFUSED]
            if refused:
                room.note(result_line(EXTEND, self._user_name, refused))

        return await course_actions(self.settings).do(
            wish.action,
            course,
            None if wish.everybody else tuple(map(str, wish.servers)),
            by=self._user_name,
            text=typed,
            minutes=int(typed) if wish.action == EXTEND and typed else None,
            on_late=note_refusals,
        )

    async def _page(self, course: HubCourse, now: CourseSnapshot, *, typed: str = "", fault: str = "") -> str:
        """``typed``: the name of somebody who could not be added, with the reason in ``fault``."""
        html: str = await self.render_template(
            "course.html",
            view=now.view,
            version=now.version,
            head=Markup(now.head),  # noqa: S704 - templates have escaped their texts
            tiles=Markup("\n").join(map(Markup, now.tiles.values())),
            link=self._link(course),
            takes_additions=course.takes_additions and course.course is not None,
            typed=typed,
            fault=fault,
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


class CoursePeoplePage(CoursePage):
    """``.../people``: add people to the course, or take off again those who were added here."""

    @web.authenticated
    async def post(self, slug: str) -> None:
        """Do it for the names in ``add``, or for the one in ``remove``, and go back to the page (303).

        Where somebody cannot be added, nobody is, and the page says why (400).
        """
        course = await self.taught(slug)
        removed, typed = self.get_body_argument("remove", ""), self.get_body_argument("add", "")
        status = HTTPStatus.BAD_REQUEST
        try:
            sentence = self._remove(course, removed) if removed else self._add(course, typed)
        except ValueError as error:
            fault = str(error)
        except SQLAlchemyError:
            roll_back(self.db)
            fault, status = AWAY_MESSAGE, HTTPStatus.SERVICE_UNAVAILABLE
        else:
            self.room(course).note([sentence])
            self.redirect(self._address(slug), status=HTTPStatus.SEE_OTHER)
            return
        self.set_status(status)
        self.finish(await self._page(course, await self.room(course).recent(), typed=typed, fault=fault))

    def _remove(self, course: HubCourse, name: str) -> str:
        """Take somebody off, and return what was done; raises ValueError with why not, and SQLAlchemyError."""
        if name not in course.added:
            raise ValueError(NOT_IN_COURSE.format(user=name))
        drop_additions(self.db, course.slug, [name])
        self._book.people_changed()
        return f"{self._user_name} removed {name}."

    def _add(self, course: HubCourse, typed: str) -> str:
        """Add people, and return what was done; raises ValueError with why not, and SQLAlchemyError."""
        hub = self._book.people_of(())
        names, strange = as_users(typed.replace(",", " ").split(), hub)
        new = [name for name in names if name not in course.people]
        refusals = (
            refusal_of(name, course, hub, may_sign_in=may_sign_in(self.db, self.authenticator, name), number=number)
            for number, name in enumerate(new, 1)
        )
        faults = [
            *(f"{name} cannot be the name of a user of this hub." for name in strange),
            *dict.fromkeys(filter(None, refusals)),
        ]
        if not faults and not new:
            faults = [f"{name} is on the course already." for name in names] or ["Enter a user name."]
        if faults:
            raise ValueError(" ".join(faults))
        keep_additions(self.db, course.slug, new, by=self._user_name)
        self._book.people_changed()
        return f"{self._user_name} added {', '.join(new)}."

    @property
    def _book(self) -> CourseBook:
        book = course_book(self.settings)
        assert book is not None
        return book


class CourseCheckPage(_OfCourses):
    """``.../check``: count the seats of the next session now."""

    @web.authenticated
    async def post(self, slug: str) -> None:
        """Ask for it and go back to the page (303), which shows the answer when it is there."""
        course = await self.taught(slug)
        course_checks(self.settings).want(course)
        self.room(course).expire()
        self.redirect(self._address(slug), status=HTTPStatus.SEE_OTHER)


def _fault(action: str, typed: str) -> str:
    """What is wrong with what was typed for an action; empty for what is right."""
    if action == MESSAGE and not clean_text(typed):
        return "Write a message."
    if action == EXTEND and typed and not (re.fullmatch("[0-9]{1,6}", typed) and 1 <= int(typed) <= MINUTES_AT_MOST):
        return f"Enter a whole number of minutes from 1 to {MINUTES_AT_MOST}."
    return ""


class CourseEvents(_OfCourses, EventStream):
    """``.../events``: an event for each change of a course's page, made once for all who look."""

    @web.authenticated
    async def get(self, slug: str) -> None:
        """The events since ``version``, as JSON in the browser's format for server-sent events."""
        course = await self.taught(slug)
        events = self.room(course).events(self.get_argument("version", ""))
        with suppress(LookupError):  # the course has gone
            await self.send_events(CourseStreams, (self._user_name, slug), events)
