"""What the page of a course shows at one moment, the same for all who look at it. Pure."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.courses.participants import State, since, totals
from jupyterhub_gpuspawner.hub.pages.course.tiles import Line, tile
from jupyterhub_gpuspawner.hub.text import course

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyterhub_gpuspawner.hub.courses.book import HubCourse
    from jupyterhub_gpuspawner.hub.courses.participants import Participant
    from jupyterhub_gpuspawner.hub.pages.course.seats_left import SeatsLeft
    from jupyterhub_gpuspawner.hub.pages.course.tiles import Tile

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
        told = (self.session, self.totals, self.seats, self.problems, self.faults, self.kept, self.recent)
        return f"{zlib.crc32(repr(told).encode()):08x}"


def course_view(
    found: HubCourse,
    room: Sequence[Participant],
    *,
    now: float,
    seats: SeatsLeft | None = None,
    recent: Sequence[Line] = (),
) -> CourseView:
    """The page of a course; ``seats`` is None where the cluster or the profile is not known."""
    earliest = since(found, now)
    missing = sum(each.state in _WITHOUT_SERVER for each in room)
    waiting = sum(each.state is State.WAITING or (each.queued and each.state is State.STARTING) for each in room)
    told = course.SEATS_UNKNOWN if seats is None else course.seats_left(max(0, seats.fit - waiting), missing)
    fault = found.file.fault
    faults = (*((str(fault),) if fault is not None else ()), *found.faults)
    return CourseView(
        slug=found.slug,
        title=found.title,
        session=tuple(_session(found, now)),
        totals=course.totals({state.value: number for state, number in totals(room).items()}) if room else "",
        seats=told if room and found.course is not None else "",
        problems=seats.problems if seats is not None else (),
        faults=tuple(dict.fromkeys(faults)),
        kept="" if fault is None else course.LAST_GOOD if found.course is not None else course.NEVER_GOOD,
        recent=tuple(recent),
        tiles=tuple(tile(each, now=now, since=earliest) for each in room),
    )


def _session(found: HubCourse, now: float) -> Iterable[Line]:
    session = found.session_at(_moment(now))
    if session is not None:
        yield Line(course.SESSION_NOW, session.end.timestamp())
        return
    session = found.next_session(_moment(now))
    if session is None:
        yield Line(course.NO_SESSION)
        return
    yield Line(course.SESSION_NEXT, session.start.timestamp())
    yield Line(course.UNTIL, session.end.timestamp())
    ahead = found.course.start_ahead if found.course is not None else None
    if ahead:
        yield Line(course.AHEAD, session.start.timestamp() - ahead)


def _moment(now: float) -> datetime:
    return datetime.fromtimestamp(now, timezone.utc)
