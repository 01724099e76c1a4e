"""When a job is expected to start: one value with one form of words. Pure.

Slurm plans as if every job ran to its time limit and nobody came with a higher priority. How long waits really are may
be known better (:data:`Waits`); where it is not, the range is from now until Slurm's plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Any, NamedTuple, overload

from jupyterhub_gpuspawner.words import duration

MINUTE = 60.0


class Kind(str, Enum):
    """What is known of a start."""

    NOW = "now"
    EXPECTED = "expected"
    """Within a range, if nobody with a higher priority comes."""
    NOT_BEFORE = "not before"
    """At a set time or later, such as the begin of a reservation."""
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Estimate:
    """When a job is expected to start; times in seconds since the epoch, None where nothing is known."""

    kind: Kind = Kind.UNKNOWN
    earliest: float | None = None
    latest: float | None = None
    likely: float | None = None
    """Half of the waits that were like this one had ended by then."""
    planned: float | None = None
    """The start that Slurm planned, from which the range follows."""

    def words(self, now: float) -> str:
        """The clause that all pages use, such as ``in 40 min to 1 h 10 min, if nobody with a higher priority comes``.

        Rounded outwards, so that the words promise no more than the range does. Empty where nothing is known.
        """
        clause = self.span(now)
        return f"{clause}, if nobody with a higher priority comes" if self.is_conditional(now) else clause

    def is_conditional(self, now: float) -> bool:
        """Whether it holds only as long as nobody with a higher priority comes."""
        return self.kind is Kind.EXPECTED and self.latest is not None and self.latest >= now

    def span(self, now: float) -> str:
        """The same without its condition, such as ``in 40 min to 1 h 10 min``."""
        if self.kind is Kind.NOW:
            return "now"
        if self.earliest is None:
            return ""
        if self.kind is Kind.NOT_BEFORE or self.latest is None:
            return f"in {duration(_rounded(self.earliest - now, up=False))} at the earliest"
        if self.latest < now:
            return f"soon (it was expected {duration(now - self.latest)} ago)"
        return _span(_rounded(self.earliest - now, up=False), _rounded(self.latest - now, up=True))

    def holds(self, started: float, *, now: float) -> bool:
        """Whether a start at this time is what the words said at ``now``."""
        if self.kind is Kind.NOW:
            return started - now <= MINUTE
        if self.earliest is None or started < now + _rounded(self.earliest - now, up=False):
            return False
        return self.latest is None or started <= now + max(MINUTE, _rounded(self.latest - now, up=True))

    def document(self, now: float) -> dict[str, Any]:
        """Its JSON form: times in ISO 8601, UTC."""
        return {
            "kind": self.kind.value,
            "earliest": utc(self.earliest),
            "likely": utc(self.likely),
            "latest": utc(self.latest),
            "words": self.words(now),
            "span": self.span(now),
        }


UNKNOWN = Estimate()


def starts_now(likely: float | None = None) -> Estimate:
    """The estimate of a job for which everything is free; ``likely`` where Slurm has named a time."""
    return Estimate(Kind.NOW, likely=likely)


def not_before(moment: float) -> Estimate:
    """The estimate of a job that cannot start before a set time."""
    return Estimate(Kind.NOT_BEFORE, earliest=moment, likely=moment)


class Span(NamedTuple):
    """How long a wait will be, in seconds."""

    earliest: float
    likely: float
    latest: float


Waits = Callable[[str, float], Span | None]
"""How long waits in the partition of this name are, for which Slurm plans so many seconds; None where it is unknown."""


def as_planned(_partition: str, _planned: float) -> None:
    """Nothing is known of waits but what Slurm plans."""


def expected(slurm: float, *, now: float, partition: str = "", waits: Waits = as_planned) -> Estimate:
    """The estimate where Slurm plans a start in this partition at ``slurm``."""
    if slurm <= now:
        return Estimate(Kind.EXPECTED, slurm, slurm, slurm, slurm)
    span = waits(partition, slurm - now)
    if span is None:
        return Estimate(Kind.EXPECTED, now, slurm, slurm, slurm)
    return Estimate(Kind.EXPECTED, now + span.earliest, now + span.latest, now + span.likely, slurm)


def _span(low: float, high: float) -> str:
    """``within 20 min``, ``in 20 to 25 min``, ``in 40 min to 1 h 10 min``."""
    if low < MINUTE:
        return f"within {duration(max(high, MINUTE))}"
    first, last = duration(low), duration(high)
    if first == last:
        return f"in {first}"
    number, _, unit = first.partition(" ")
    return f"in {number if last.partition(' ')[2] == unit else first} to {last}"


_STEPS = ((10 * 60, 60), (3 * 3600, 300), (12 * 3600, 900), (48 * 3600, 3600))
"""Up to how many seconds to round to how many."""


def _rounded(seconds: float, *, up: bool) -> float:
    """Seconds in full minutes, the more of them the longer it is."""
    seconds = max(seconds, 0.0)
    step = next((step for limit, step in _STEPS if seconds <= limit), 6 * 3600)
    return step * (math.ceil(seconds / step) if up else seconds // step)


class Chance(str, Enum):
    """When a job would start if it were submitted now."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Room:
    """How much is free where a job may run, by Slurm's last answer."""

    free: int
    all: int
    unit: str = ""
    """``cores``, ``CPUs``, ``nodes``; empty: GPUs, whose model stands beside it."""

    @property
    def what(self) -> str:
        """What follows ``3 of 8``."""
        return f"{self.unit} free".strip()

    def document(self) -> dict[str, Any]:
        """Its JSON form."""
        return {"free": self.free, "all": self.all, "words": f"{self.free} of {self.all} {self.what}"}


@dataclass(frozen=True)
class Availability:
    """When a job would start if it were submitted now; times in seconds since the epoch."""

    chance: Chance
    sentence: str
    """For a participant; without leading capital and final full stop. A page puts the earliest start for ``{time}``."""
    estimate: Estimate = UNKNOWN
    """When it would start; NOW where the chance is, and UNKNOWN where it is neither NOW nor LATER."""
    taken_at: float | None = None
    """The time of the snapshot."""
    field: str = ""
    """The profile field at fault, such as ``slurm.time``; empty where there is none."""
    partition: str = ""
    """The partition this applies to; empty where it applies to all that were requested."""
    out_of_service: str = ""
    """Which nodes it would need are out of service, as a clause; empty where that is not what it waits for."""
    nodes: tuple[str, ...] = ()
    """The nodes on which it would start, where Slurm itself was asked."""
    room: Room | None = None


@dataclass(frozen=True)
class QueuePosition:
    """A pending job's position in the queue of one partition."""

    position: int
    """1 is next."""
    of: int
    """Jobs in the queue, this one included."""
    partition: str
    people: int = 0
    """Other people with jobs ahead of it."""
    starts_at: float | None = None
    """Slurm's estimate, seconds since the epoch; None until it has made one."""


@overload
def utc(moment: float) -> str: ...
@overload
def utc(moment: float | None) -> str | None: ...
def utc(moment: float | None) -> str | None:
    """Seconds since the epoch as documents have times: ISO 8601, UTC, in full seconds."""
    return None if moment is None else datetime.fromtimestamp(round(moment), timezone.utc).isoformat()
