"""How long waits really were, as a part of what Slurm had planned, and what that says of others. Pure.

It is learned from past waits of the same partition for which Slurm had planned about as long (:data:`SIMILAR`): of
these ratios one in twenty is below :attr:`Share.low` and one in twenty above :attr:`Share.high`. Where few are known
the range is from now until the longest of them or Slurm's plan; where next to none are, nothing is learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jupyterhub_gpuspawner.slurm.estimate import MINUTE, Span

SIMILAR = 3.0
"""A past wait counts for a plan if its own plan was at most so many times as long, and at least that part of it."""
SIMILAR_WAITS = 100
"""Of these the latest count, and so many of them."""
ENOUGH = 20
"""Similar waits from which both ends of a range are learned."""
FEW = 5
"""Similar waits from which its end is learned."""
TAIL = 0.05
"""The part of similar waits that was shorter than the range, and the part that was longer."""
LATEST_WAITS = 400
"""Past waits of a partition that count, the latest ones."""


class PastWait(NamedTuple):
    """A wait that is over, or has already been longer than was said; in seconds."""

    planned: float
    """As Slurm had planned it."""
    actual: float

    @property
    def ratio(self) -> float:
        """The actual wait as a part of the planned one: 0.5 means half as long."""
        return (max(self.actual, 0.0) + MINUTE) / (max(self.planned, 0.0) + MINUTE)  # or the shortest would decide it


class Share(NamedTuple):
    """Which part of a planned wait is to be expected."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class PastWaits:
    """The latest waits of one partition, the oldest first."""

    waits: tuple[PastWait, ...]

    def span(self, planned: float) -> Span | None:
        """How long a wait will be for which Slurm plans so many seconds; None where too few are known."""
        share = self.share(planned)
        if share is None:
            return None
        return Span(*(max(0.0, (planned + MINUTE) * ratio - MINUTE) for ratio in share))

    def share(self, planned: float) -> Share | None:
        """Which part of ``planned`` seconds similar waits were; None where fewer than :data:`FEW` are known."""
        length = planned + MINUTE
        similar = [
            wait.ratio for wait in self.waits if length / SIMILAR <= max(wait.planned, 0.0) + MINUTE <= length * SIMILAR
        ]
        ordered = sorted(similar[-SIMILAR_WAITS:])
        number = len(ordered)
        if number < FEW:
            return None
        middle = ordered[number // 2]
        if number < ENOUGH:
            return Share(0.0, middle, max(ordered[-1], 1.0))
        # of n waits the next one exceeds the k-th smallest with a probability of 1 - k / (n + 1)
        below, above = math.floor(TAIL * (number + 1)), math.ceil((1 - TAIL) * (number + 1))
        return Share(ordered[max(below - 1, 0)], middle, ordered[min(above, number) - 1])


def past_waits(waits: Sequence[PastWait]) -> PastWaits:
    """The latest of these waits, the oldest first."""
    return PastWaits(tuple(waits[-LATEST_WAITS:]))
