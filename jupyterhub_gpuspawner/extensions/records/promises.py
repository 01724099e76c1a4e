"""What the hub said of a start, and what came: kept with each session, to measure it and to learn from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from pydantic import TypeAdapter

from jupyterhub_gpuspawner.extensions.records.waits import PastWait, PastWaits, past_waits
from jupyterhub_gpuspawner.slurm.estimate import MINUTE, Estimate, Kind


class PromiseMoment(str, Enum):
    """When a start was promised."""

    CLICK = "click"
    """When the server was asked for, by what the form says."""
    QUEUED = "queued"
    """When its job began to wait."""
    HALF = "half"
    """When half of the wait that was left had passed."""


@dataclass(frozen=True)
class Promise:
    """What the hub said of a start at one moment."""

    at: float
    """Seconds since the epoch."""
    moment: PromiseMoment
    estimate: Estimate
    partition: str = ""


PROMISES = TypeAdapter(tuple[Promise, ...])


@dataclass
class Wait:
    """What is promised of the start of one job, for as long as it is pending."""

    _half_at: float | None = None
    """When half of the wait will have passed that was left when a promise was kept last; None before the first."""

    def follow(self, estimate: Estimate, partition: str, *, now: float) -> Promise | None:
        """What is said now, where it is a promise to keep."""
        if estimate.likely is None or estimate.likely <= now:
            return None
        if self._half_at is not None and now < self._half_at:
            return None
        moment = PromiseMoment.QUEUED if self._half_at is None else PromiseMoment.HALF
        self._half_at = now + max(estimate.likely - now, MINUTE) / 2
        return Promise(now, moment, estimate, partition)


class Outcome(NamedTuple):
    """A promise and what came."""

    promise: Promise
    started: float
    """When Slurm started the job; when a person gave it up who had waited for longer than was promised."""

    @property
    def result(self) -> str:
        """``within`` the range as its words said it, ``early`` or ``late``."""
        estimate, at = self.promise.estimate, self.promise.at
        if estimate.holds(self.started, now=at):
            return "within"
        return "early" if estimate.earliest is not None and self.started < estimate.earliest else "late"

    @property
    def error(self) -> float:
        """Seconds between the likely start and what came."""
        return abs(self.started - (self.promise.estimate.likely or self.promise.at))

    @property
    def slurm_error(self) -> float | None:
        """The same of Slurm's own plan; None where nothing had to be planned."""
        planned = self.promise.estimate.planned
        return None if planned is None else abs(self.started - planned)


def outcomes(promises: Iterable[Promise], started: float | None, ended: float | None) -> Iterator[Outcome]:
    """What came of these; ``started`` is the job's start, ``ended`` the end of a session whose job never started.

    Of one that was given up within the range nothing is known. Nor is it of a wait that goes on, for which ``ended`` is
    the present: only that it has been longer than the range, once it has.
    """
    for promise in promises:
        if started is not None:
            yield Outcome(promise, max(started, promise.at))
        elif ended is not None:
            outcome = Outcome(promise, ended)
            if outcome.result == "late":
                yield outcome


@dataclass(frozen=True)
class Accuracy:
    """How well promises were kept; times in seconds."""

    number: int
    within: float
    """The share that was within the range."""
    error: float | None
    """The median distance of the likely start from what came, of starts that Slurm had planned; None without any."""
    slurm_error: float | None
    """The same of Slurm's own plans."""


def accuracy(of: Sequence[Outcome]) -> Accuracy | None:
    """How well these were kept; None for none."""
    if not of:
        return None
    errors = [(outcome.error, slurm) for outcome in of if (slurm := outcome.slurm_error) is not None]
    return Accuracy(
        len(of),
        sum(outcome.result == "within" for outcome in of) / len(of),
        median(error for error, _ in errors) if errors else None,
        median(slurm for _, slurm in errors) if errors else None,
    )


class Learned(NamedTuple):
    """Past waits on one cluster, by partition."""

    asked: Mapping[str, PastWaits] = MappingProxyType({})
    """Of what was said before a job was submitted."""
    queued: Mapping[str, PastWaits] = MappingProxyType({})
    """Of what Slurm said while a job was pending."""


def learned(of: Iterable[Outcome]) -> Learned:
    """What these, of one cluster, teach, the oldest first."""
    waits: tuple[dict[str, list[PastWait]], ...] = {}, {}
    for promise, started in of:
        planned = promise.estimate.planned
        if promise.estimate.kind is Kind.EXPECTED and planned is not None:
            by_partition = waits[promise.moment is not PromiseMoment.CLICK]
            wait = PastWait(planned - promise.at, started - promise.at)
            by_partition.setdefault(promise.partition, []).append(wait)
    return Learned(*({name: past_waits(values) for name, values in partition.items()} for partition in waits))
