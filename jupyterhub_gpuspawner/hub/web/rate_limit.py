"""A rate limit for each caller: a burst, then a number per minute. Pure, except for the clock that it is given."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_KEPT = 1000
"""Callers remembered; beyond that, those with their full allowance are forgotten."""


@dataclass
class RateLimit:
    """A token bucket for each caller."""

    burst: int
    """Requests that are allowed at once."""
    per_minute: float
    """Requests per minute in the long run."""
    clock: Callable[[], float] = time.monotonic
    _left: dict[Hashable, tuple[float, float, int]] = field(default_factory=dict)
    """For each caller the allowance left, the time at which that was so, and what was added to its burst."""

    def wait(self, caller: Hashable, *, more: int = 0) -> float:
        """Seconds until ``caller`` may make the next request; 0.0: now, and this request is counted.

        ``more`` is added to the burst of this caller.
        """
        now = self.clock()
        left = self._allowance(caller, now, more)
        if left < 1.0:
            return (1.0 - left) * 60.0 / self.per_minute
        if len(self._left) >= _KEPT:
            self._left = {
                each: known
                for each, known in self._left.items()
                if self._allowance(each, now, known[2]) < self.burst + known[2]
            }
        self._left[caller] = (left - 1.0, now, more)
        return 0.0

    def _allowance(self, caller: Hashable, now: float, more: int) -> float:
        burst = float(self.burst + more)
        left, since, _ = self._left.get(caller, (burst, now, more))
        return min(burst, left + (now - since) * self.per_minute / 60.0)
