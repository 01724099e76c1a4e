"""A course in a running hub, as its page shows it: reads the hub's servers and its last snapshot of the cluster."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from jupyterhub_gpuspawner.courses.check import CourseInputs, check_course
from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.course import words
from jupyterhub_gpuspawner.hub.course.book import HubCourse
from jupyterhub_gpuspawner.hub.course.participants import Participant, State, since, totals
from jupyterhub_gpuspawner.hub.course.starts import RecentActions
from jupyterhub_gpuspawner.hub.course.tiles import Line, Tile, tile
from jupyterhub_gpuspawner.hub.course.upkeep import course_actions, course_book
from jupyterhub_gpuspawner.hub.site.database import roll_back
from jupyterhub_gpuspawner.hub.spawners.server import starts_slurm_jobs, with_profiles
from jupyterhub_gpuspawner.hub.start.build import site_defaults
from jupyterhub_gpuspawner.profiles.profile import Profile

# The page of a course as HTML, made once for all who look at it, with what has changed since the last time.
#
# Nothing is done while nobody looks.

# What the page of a course shows at one moment, the same for all who look at it.


INTERVAL = 2.0
"""Seconds for which a picture of the course is used."""


@dataclass(frozen=True)
class Snapshot:
    """The page at one moment."""

    view: CourseView
    head: str
    """HTML of what stands above the tiles."""
    tiles: Mapping[str, str]
    """HTML of each tile, by user, in order."""
    version: str
    before: str = ""
    """The version before this one."""
    changes: str = ""
    """An event with what has changed since then, as JSON."""

    @cached_property
    def full(self) -> str:
        """An event with everything, as JSON."""
        return _event(self.version, self.head, self.tiles, self.tiles)

    def event_since(self, version: str) -> str:
        """The event for a page that shows ``version``; empty where that is this one."""
        if version == self.version:
            return ""
        return self.changes if self.changes and version == self.before else self.full


class CourseFeed:
    """One course."""

    def __init__(
        self,
        read_view: Callable[[], Awaitable[CourseView]],
        *,
        head: Callable[[CourseView], str],
        tiles: Callable[[Sequence[Tile]], Sequence[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``head`` and ``tiles`` render HTML; they are called in a thread."""
        self._look = read_view
        self._head = head
        self._tiles = tiles
        self._clock = clock
        self._made_at = float("-inf")
        self._task: asyncio.Task[Snapshot] | None = None
        self._making = asyncio.Lock()
        self._last: Snapshot | None = None
        self._seen: dict[str, Tile] = {}

    async def recent(self, max_age: float = INTERVAL) -> Snapshot:
        """The page, at most ``max_age`` seconds old; whoever asks at the same time gets the same."""
        if self._task is None or (self._task.done() and self._clock() - self._made_at > max_age):
            self._made_at = self._clock()
            self._task = asyncio.ensure_future(self._make())
        return await asyncio.shield(self._task)

    def expire(self) -> None:
        """Make the next page anew, however old this one is: something was done."""
        self._task = None

    async def events(self, version: str, *, interval: float = INTERVAL) -> AsyncGenerator[str, None]:
        """An event for each change since ``version``, and an empty text after each look that found none; for ever."""
        while True:
            now = await self.recent(interval)
            yield now.event_since(version)
            version = now.version
            await asyncio.sleep(interval)

    async def _make(self) -> Snapshot:
        async with self._making:  # the one before may have expired before it was done
            view = await self._look()
            self._last = await asyncio.to_thread(self._rendered, view, self._last)
            return self._last

    def _rendered(self, view: CourseView, last: Snapshot | None) -> Snapshot:
        """The time left is in the HTML of the page, but no event tells it: the page's script counts it down."""
        earlier = self._seen
        anew = [tile for tile in view.tiles if earlier.get(tile.user) != tile]
        rendered = {
            **(last.tiles if last is not None else {}),
            **dict(zip((t.user for t in anew), self._tiles(anew), strict=True)),
        }
        tiles = {tile.user: rendered[tile.user] for tile in view.tiles}
        version = f"{zlib.crc32(repr([view.version, *((t.user, t.version) for t in view.tiles)]).encode()):08x}"
        self._seen = {tile.user: tile for tile in view.tiles}
        if last is not None and last.version == version:
            return replace(last, view=view, tiles=tiles)
        head = self._head(view)
        changed = [t.user for t in anew if t.user not in earlier or earlier[t.user].version != t.version]
        return Snapshot(
            view,
            head,
            tiles,
            version,
            before=last.version if last is not None else "",
            changes=_event(version, head, tiles, changed) if last is not None else "",
        )


def _event(version: str, head: str, tiles: Mapping[str, str], changed: Iterable[str]) -> str:
    parts = {user: tiles[user] for user in changed}
    return json.dumps({"version": version, "head": head, "order": list(tiles), "tiles": parts})


# What the page of a course shows at one moment, the same for all who look at it.

_WITHOUT_SERVER = (State.FAILED, State.ENDED, State.ABSENT)


@dataclass(frozen=True)
class CourseView:
    """One course."""

    slug: str
    title: str
    session: tuple[Line, ...]
    """The session under way, or the next one."""
    totals: str
    seats: str
    """How many more servers fit."""
    problems: tuple[str, ...]
    """What the check found for the next session."""
    faults: tuple[str, ...]
    """What is wrong with the course's file."""
    kept: str
    """What the hub does about these."""
    recent: tuple[Line, ...]
    """What instructors did, and what the hub did for them; the latest first."""
    tiles: tuple[Tile, ...]

    @property
    def version(self) -> str:
        """A checksum of everything but the tiles and the time left."""
        content = (self.session, self.totals, self.seats, self.problems, self.faults, self.kept, self.recent)
        return f"{zlib.crc32(repr(content).encode()):08x}"


def course_view(
    course: HubCourse,
    room: Sequence[Participant],
    *,
    now: float,
    seats: SeatsLeft | None = None,
    recent: Sequence[Line] = (),
) -> CourseView:
    """The page of a course; ``seats`` is None where the cluster or the profile is not known."""
    earliest = since(course, now)
    missing = sum(participant.state in _WITHOUT_SERVER for participant in room)
    waiting = sum(
        participant.state is State.WAITING or (participant.queued and participant.state is State.STARTING)
        for participant in room
    )
    seats_text = words.SEATS_UNKNOWN if seats is None else words.seats_left(max(0, seats.fit - waiting), missing)
    fault = course.file.fault
    faults = (*((str(fault),) if fault is not None else ()), *course.faults)
    return CourseView(
        slug=course.slug,
        title=course.title,
        session=tuple(_session(course, now)),
        totals=words.totals({state.value: number for state, number in totals(room).items()}) if room else "",
        seats=seats_text if room and course.course is not None else "",
        problems=seats.problems if seats is not None else (),
        faults=tuple(dict.fromkeys(faults)),
        kept="" if fault is None else words.LAST_VALID if course.course is not None else words.NEVER_VALID,
        recent=tuple(recent),
        tiles=tuple(tile(participant, now=now, since=earliest) for participant in room),
    )


def _session(course: HubCourse, now: float) -> Iterable[Line]:
    session = course.session_at(_moment(now))
    if session is not None:
        yield Line(words.SESSION_NOW, session.end.timestamp())
        return
    session = course.next_session(_moment(now))
    if session is None:
        yield Line(words.NO_SESSION)
        return
    yield Line(words.SESSION_NEXT, session.start.timestamp())
    yield Line(words.UNTIL, session.end.timestamp())
    ahead = course.course.start_ahead if course.course is not None else None
    if ahead:
        yield Line(words.AHEAD, session.start.timestamp() - ahead)


def _moment(now: float) -> datetime:
    return datetime.fromtimestamp(now, timezone.utc)


# How many more people of a course fit on the cluster, by the hub's last snapshot of it.


@dataclass(frozen=True)
class SeatsLeft:
    """How many more servers fit at the same time."""

    fit: int
    problems: tuple[str, ...] = ()
    """What is wrong with a session to come, in sentences."""


def seats_left(course: HubCourse, site: CourseInputs, *, now: float) -> SeatsLeft | None:
    """The seats that are free in the session under way, or at the beginning of the next one.

    The check counts what jobs leave free at the beginning of a session; of one that is under way, what is free now.
    None where there is neither, or where nothing could be counted. ``now`` in seconds since the epoch.
    """
    moment = datetime.fromtimestamp(now, timezone.utc)
    under_way = course.session_at(moment)
    session = under_way or course.next_session(moment)
    if session is None or not course.people:
        return None
    report = next(iter(check_course(course.file, site, only=session.name)), None)
    if report is None:
        return None
    problems = () if under_way is not None else tuple(problem.text for problem in report.problems)
    return SeatsLeft(report.seats.fit, problems)


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
        course = self._course()
        return self._of(course) if course is not None else ()

    def entry(self, course: HubCourse) -> CourseView:
        """The course in a list: its people only where a session is under way."""
        return course_view(course, self._of(course) if course.session_at() is not None else (), now=time.time())

    def note(self, sentences: Sequence[str]) -> None:
        """Show on the page what was done now; and after a restart of the hub, unless the database is away."""
        actions, now = self._recent_actions(), time.time()
        self._recent = (*(Line(text, now) for text in reversed(sentences)), *actions)[:RECENT]
        self.feed.expire()
        with self._database_may_be_away():
            self._actions.keep(self._slug, sentences, now)

    def _recent_actions(self) -> tuple[Line, ...]:
        if self._recent is None:
            with self._database_may_be_away():
                self._recent = tuple(Line(*action) for action in self._actions.latest(self._slug, RECENT))
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

    def _of(self, course: HubCourse) -> tuple[Participant, ...]:
        actions = course_actions(self._settings)
        try:
            return actions.participants(course, with_start=True)
        except SQLAlchemyError:  # the hub logs what it does while the database is away
            roll_back(self._settings["db"])
            return actions.participants_in_memory(course)

    async def _view(self) -> CourseView:
        course = self._course()
        if course is None:
            raise LookupError(self._slug)
        seats = await self._seats_left(course)
        room, recent, now = self._of(course), self._recent_actions(), time.time()
        return await asyncio.to_thread(course_view, course, room, now=now, seats=seats, recent=recent)

    async def _seats_left(self, course: HubCourse) -> SeatsLeft | None:
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
        self._seats = await asyncio.to_thread(seats_left, course, site, now=now) if site is not None else None
        self._seats_at = time.monotonic()
        return self._seats

    async def _site(self) -> CourseInputs | None:
        """What the course is checked against; None where there are no profiles, or Slurm does not respond."""
        spawner_class = self._settings["spawner_class"]
        if not starts_slurm_jobs(spawner_class):
            return None
        spawner = with_profiles(spawner_class(config=self._settings["config"], hub=self._settings["hub"]))
        if spawner is None:
            return None
        slurm = spawner.connection()
        snapshot = await slurm.cluster.recent(AGE)
        if snapshot is None or slurm.silent:
            return None
        offered = spawner.offered()
        return CourseInputs(offered, snapshot, site_defaults(spawner.site_settings()), groups=self._groups(offered))

    def _groups(self, offered: Sequence[Profile]) -> dict[str, Collection[str]]:
        """The groups that profiles are for and those on the roster, with their members."""
        book, course = course_book(self._settings), self._course()
        if book is None or course is None:
            return {}
        on_roster = course.course.roster.groups if course.course is not None else ()
        named = {*on_roster, *(group for profile in offered for group in profile.allow.groups)}
        members = book.directory.people(named).groups
        return {**members, course.group: course.people}

    def _rendered_head(self, view: CourseView) -> str:
        return str(self._head.render(view=view, gpuspawner=self._tools))

    def _rendered_tiles(self, tiles: Sequence[Tile]) -> list[str]:
        return [str(self._tile(tile)) for tile in tiles]


def room_of_course(slug: str, settings: dict[str, Any], template: Callable[..., Any], tools: Any) -> CourseRoom:
    """The one for this course and hub; made when it is first asked for."""
    rooms: dict[str, CourseRoom] = settings.setdefault(SETTING, {})
    if slug not in rooms:
        rooms[slug] = CourseRoom(slug, settings, template, tools)
    return rooms[slug]
