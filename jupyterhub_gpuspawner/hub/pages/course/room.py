"""A course in a running hub, as its page shows it: reads the hub's servers and its last snapshot of the cluster."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from jupyterhub_gpuspawner.courses.check import Site
from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.courses.recent_actions import RecentActions
from jupyterhub_gpuspawner.hub.courses.upkeep import course_actions, course_book
from jupyterhub_gpuspawner.hub.pages.course.feed import CourseFeed
from jupyterhub_gpuspawner.hub.pages.course.seats_left import seats_left
from jupyterhub_gpuspawner.hub.pages.course.tiles import Line
from jupyterhub_gpuspawner.hub.pages.course.view import course_view
from jupyterhub_gpuspawner.hub.site.database import roll_back
from jupyterhub_gpuspawner.hub.spawners.server import starts_slurm_jobs, with_profiles
from jupyterhub_gpuspawner.hub.start.build import site_defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from jupyterhub_gpuspawner.hub.courses.book import HubCourse
    from jupyterhub_gpuspawner.hub.courses.participants import Participant
    from jupyterhub_gpuspawner.hub.pages.course.seats_left import SeatsLeft
    from jupyterhub_gpuspawner.hub.pages.course.tiles import Tile
    from jupyterhub_gpuspawner.hub.pages.course.view import CourseView
    from jupyterhub_gpuspawner.profiles.profile import Profile

SETTING = "gpuspawner_course_rooms"
AGE = 15.0
"""Seconds for which one answer of Slurm, and the seats counted in it, are used."""
RECENT = 6
"""Actions that the page shows."""


class CourseRoom:
    """One course of a hub, for all who look at its page."""

    def __init__(self, slug: str, settings: Mapping[str, Any], template: Callable[..., Any], tools: Any) -> None:
        """``settings`` are the hub's, ``template`` finds its templates, and ``tools`` are what ours use."""
        self._slug = slug
        self._settings = settings
        self._tools = tools
        self._head = template("course_head.html", sync=True)
        self._tile = template("course_tiles.html", sync=True).make_module({"gpuspawner": tools}).tile
        self._actions = RecentActions(settings["db"])
        self._recent: tuple[Line, ...] | None = None
        """Newest first; None before they are read from the database."""
        self._seats: SeatsLeft | None = None
        self._seats_at = 0.0
        self.feed = CourseFeed(self._view, head=self._rendered_head, tiles=self._rendered_tiles)

    def participants(self) -> tuple[Participant, ...]:
        """Everybody on the course, as the hub knows them now."""
        found = self._course()
        return self._of(found) if found is not None else ()

    def entry(self, found: HubCourse) -> CourseView:
        """The course in a list: its people only where a session is under way."""
        return course_view(found, self._of(found) if found.session_at() is not None else (), now=time.time())

    def note(self, sentences: Sequence[str]) -> None:
        """Show on the page what was done now; and after a restart of the hub, unless the database is away."""
        known, now = self._known_actions(), time.time()
        self._recent = (*(Line(text, now) for text in reversed(sentences)), *known)[:RECENT]
        self.feed.expire()
        with self._database_may_be_away():
            self._actions.keep(self._slug, sentences, now)

    def _known_actions(self) -> tuple[Line, ...]:
        if self._recent is None:
            with self._database_may_be_away():
                self._recent = tuple(Line(*found) for found in self._actions.latest(self._slug, RECENT))
        return self._recent or ()

    @contextmanager
    def _database_may_be_away(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError:  # the hub logs what it does while the database is away
            roll_back(self._settings["db"])

    def _course(self) -> HubCourse | None:
        book = course_book(self._settings)
        return book.get(self._slug) if book is not None else None

    def _of(self, found: HubCourse) -> tuple[Participant, ...]:
        actions = course_actions(self._settings)
        try:
            return actions.participants(found, with_start=True)
        except SQLAlchemyError:  # the hub logs what it does while the database is away
            roll_back(self._settings["db"])
            return actions.participants_in_memory(found)

    async def _view(self) -> CourseView:
        found = self._course()
        if found is None:
            raise LookupError(self._slug)
        seats = await self._seats_left(found)
        room, recent, now = self._of(found), self._known_actions(), time.time()
        return await asyncio.to_thread(course_view, found, room, now=now, seats=seats, recent=recent)

    async def _seats_left(self, found: HubCourse) -> SeatsLeft | None:
        if time.monotonic() - self._seats_at < AGE and self._seats_at:
            return self._seats
        try:
            site = await self._site()
        except GPUSpawnerError:  # logged where settings and profiles are read
            site = None
        except SQLAlchemyError:
            roll_back(self._settings["db"])
            site = None
        now = time.time()
        self._seats = await asyncio.to_thread(seats_left, found, site, now=now) if site is not None else None
        self._seats_at = time.monotonic()
        return self._seats

    async def _site(self) -> Site | None:
        """What the course is checked against; None where there are no profiles, or Slurm does not respond."""
        spawner_class = self._settings["spawner_class"]
        if not starts_slurm_jobs(spawner_class):
            return None
        spawner = with_profiles(spawner_class(config=self._settings["config"], hub=self._settings["hub"]))
        if spawner is None:
            return None
        site = spawner.slurm_site()
        slurm = site.connection()
        snapshot = await slurm.cluster.recent(AGE)
        if snapshot is None or slurm.silent:
            return None
        offered = spawner.offered()
        return Site(offered, snapshot, site_defaults(site), groups=self._groups(offered))

    def _groups(self, offered: Sequence[Profile]) -> dict[str, Collection[str]]:
        """The groups that profiles are for and those on the roster, with their members."""
        book, found = course_book(self._settings), self._course()
        if book is None or found is None:
            return {}
        on_roster = found.course.roster.groups if found.course is not None else ()
        named = {*on_roster, *(group for profile in offered for group in profile.allow.groups)}
        members = book.directory.people(named).groups
        return {**members, found.group: found.people}

    def _rendered_head(self, view: CourseView) -> str:
        return str(self._head.render(view=view, gpuspawner=self._tools))

    def _rendered_tiles(self, tiles: Sequence[Tile]) -> list[str]:
        return [str(self._tile(each)) for each in tiles]


def room_of_course(slug: str, settings: dict[str, Any], template: Callable[..., Any], tools: Any) -> CourseRoom:
    """The one for this course and hub; made when it is first asked for."""
    rooms: dict[str, CourseRoom] = settings.setdefault(SETTING, {})
    if slug not in rooms:
        rooms[slug] = CourseRoom(slug, settings, template, tools)
    return rooms[slug]
