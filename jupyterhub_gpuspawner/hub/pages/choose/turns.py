"""Starts that are asked for at the same moment begin a few at a time, in the order of the clicks.

Until its job is submitted a start computes in the hub's event loop: rows and tokens in the database, the profile, the
batch script. If five hundred did so side by side, any other request would wait for a step of each of them, which took
17 seconds. Slurm gets the jobs at the same rate, since only some commands run at the same time anyway.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LIMIT = 8
"""Starts that begin at the same time."""
LONGEST = 2.0
"""Seconds that a turn lasts at most: a start without a job, or while Slurm is silent, must not keep others waiting."""
_LOOK = 0.05
"""Seconds between two looks whether a start has begun."""


class Turns:
    """Limits how many starts are between the click and the submission of their job."""

    def __init__(self, limit: int = LIMIT, longest: float = LONGEST) -> None:
        self._free = asyncio.Semaphore(limit)
        self._longest = longest

    async def begin(self, start: Callable[[], Awaitable[None]], begun: Callable[[], bool]) -> None:
        """Wait for a turn and then for ``start()``; the turn ends as soon as ``begun()``, or after some time."""
        async with self._free:
            running, until = asyncio.ensure_future(start()), time.monotonic() + self._longest
            try:
                while not (running.done() or begun() or time.monotonic() > until):
                    await asyncio.wait({running}, timeout=_LOOK)
            except BaseException:
                running.cancel()
                raise
        await running
