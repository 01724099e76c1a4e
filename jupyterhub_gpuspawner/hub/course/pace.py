"""Does work for many people one after the other, at a rate that neither hub nor slurmctld feels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from traitlets.log import get_logger


class WorkKind(Enum):
    """What is done."""

    START = "start"
    STOP = "stop"


class Queue(NamedTuple):
    """Work that waits for its turn behind other work of the same queue, and of no other."""

    course: str
    """The course's slug."""
    kind: WorkKind


@dataclass(frozen=True)
class _Item:
    work: Callable[[], Awaitable[None]]
    every: float


class Pace:
    """Queues with one piece of work for each person; a new one takes the place of one that has not begun.

    Each course has a queue for starts and one for stops: no course waits for another, and no stop for starts.
    """

    def __init__(self, every: float, concurrency: int) -> None:
        """``every``: seconds between two pieces of a queue; ``at_once``: how many of a kind may be under way."""
        self._every = every
        self._free = {kind: asyncio.Semaphore(concurrency) for kind in WorkKind}
        self._queued: dict[Queue, dict[str, _Item]] = {}
        self._busy: dict[str, tuple[WorkKind, asyncio.Task[None]]] = {}
        self._runners: dict[Queue, asyncio.Task[None]] = {}

    def put(self, queue: Queue, person: str, work: Callable[[], Awaitable[None]], *, every: float = 0.0) -> None:
        """Do ``work`` when its turn comes; ``every`` asks for a longer pause than usual after it."""
        self.drop(person)
        self._queued.setdefault(queue, {})[person] = _Item(work, max(every, self._every))
        if queue not in self._runners:
            self._runners[queue] = asyncio.ensure_future(self._run(queue))

    def drop(self, person: str) -> bool:
        """Forget what is queued for this person and has not begun; return whether there was anything."""
        return any(items.pop(person, None) is not None for items in self._queued.values())

    def kind(self, person: str) -> WorkKind | None:
        """What is queued for this person, or else under way; None where nothing is."""
        queued = next((queue.kind for queue, items in self._queued.items() if person in items), None)
        return queued or (self._busy[person][0] if person in self._busy else None)

    def __contains__(self, person: str) -> bool:
        """Whether something is queued or under way for this person."""
        return self.kind(person) is not None

    async def _run(self, queue: Queue) -> None:
        items, free = self._queued[queue], self._free[queue.kind]
        while items:
            await free.acquire()
            person = next((name for name in items if name not in self._busy), None)
            if person is None:
                free.release()
                await asyncio.sleep(self._every)
                continue
            item = items.pop(person)
            task = asyncio.ensure_future(item.work())
            self._busy[person] = (queue.kind, task)
            task.add_done_callback(lambda done, name=person: self._done(queue.kind, name, done))  # type: ignore[misc]
            await asyncio.sleep(item.every)
        del self._queued[queue], self._runners[queue]

    def _done(self, kind: WorkKind, person: str, task: asyncio.Task[None]) -> None:
        self._free[kind].release()
        del self._busy[person]
        if not task.cancelled() and task.exception() is not None:
            get_logger().error("Work for %s in a course failed", person, exc_info=task.exception())
