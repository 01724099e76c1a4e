"""The page of a course as HTML, made once for all who look at it, with what has changed since the last time.

Nothing is done while nobody looks.
"""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence

    from jupyterhub_gpuspawner.hub.pages.course.tiles import Tile
    from jupyterhub_gpuspawner.hub.pages.course.view import CourseView

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
        look: Callable[[], Awaitable[CourseView]],
        *,
        head: Callable[[CourseView], str],
        tiles: Callable[[Sequence[Tile]], Sequence[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``head`` and ``tiles`` render HTML; they are called in a thread."""
        self._look = look
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
        seen = self._seen
        anew = [each for each in view.tiles if seen.get(each.user) != each]
        known = {
            **(last.tiles if last is not None else {}),
            **dict(zip((t.user for t in anew), self._tiles(anew), strict=True)),
        }
        tiles = {each.user: known[each.user] for each in view.tiles}
        version = f"{zlib.crc32(repr([view.version, *((t.user, t.version) for t in view.tiles)]).encode()):08x}"
        self._seen = {each.user: each for each in view.tiles}
        if last is not None and last.version == version:
            return replace(last, view=view, tiles=tiles)
        head = self._head(view)
        changed = [t.user for t in anew if t.user not in seen or seen[t.user].version != t.version]
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
