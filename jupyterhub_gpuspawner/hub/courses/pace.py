"""Does work for many people one after the other, at a rate that neither hub nor slurmctld feels."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from traitlets.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@dataclass(frozen=True)
class _Item:
    work: Callable[[], Awaitable[None]]
    every: float


class Pace:
    """A queue with one piece of work for each person; a new one takes the place of one that has not begun."""

    def __init__(self, every: float, at_once: int) -> None:
        """``every``: seconds between two pieces; ``at_once``: how many may be under way."""
        self._every = every
        self._free = asyncio.Semaphore(at_once)
        self._queued: dict[str, _Item] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._runner: asyncio.Task[None] | None = None

    def put(self, person: str, work: Callable[[], Awaitable[None]], *, every: float = 0.0) -> None:
        """Do ``work`` when its turn comes; ``every`` asks for a longer pause than usual after it."""
        self._queued.pop(person, None)
        self._queued[person] = _Item(work, max(every, self._every))
        if self._runner is None or self._runner.done():
            self._runner = asyncio.ensure_future(self._run())

    def drop(self, person: str) -> bool:
        """Forget what is queued for this person and has not begun; return whether there was anything."""
        return self._queued.pop(person, None) is not None

    def __contains__(self, person: str) -> bool:
        """Whether something is queued or under way for this person."""
        return person in self._queued or person in self._busy

    async def _run(self) -> None:
        while self._queued:
            await self._free.acquire()
            person = next((name for name in self._queued if name not in self._busy), None)
            if person is None:
                self._free.release()
                await asyncio.sleep(self._every)
                continue
            item = self._queued.pop(person)
            task = asyncio.ensure_future(item.work())
            self._busy[person] = task
            task.add_done_callback(lambda done, name=person: self._done(name, done))  # type: ignore[misc]
            await asyncio.sleep(item.every)

    def _done(self, person: str, task: asyncio.Task[None]) -> None:
        self._free.release()
        del self._busy[person]
        if not task.cancelled() and task.exception() is not None:
            get_logger().error("Work for %s in a course failed", person, exc_info=task.exception())
