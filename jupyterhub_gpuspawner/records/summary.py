"""What a report shows of many sessions: waits, use of GPUs, alignment and ends, as numbers. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import tzinfo

    from jupyterhub_gpuspawner.records.cause import Kind
    from jupyterhub_gpuspawner.records.record import SessionRecord

T = TypeVar("T")


@dataclass(frozen=True)
class Waits:
    """How long people waited, from the click until the server answered, in seconds."""

    label: str
    number: int
    """Starts that became ready."""
    median: float
    most: float
    """Nine of ten did not wait longer."""
    queue: float | None
    """The median time in Slurm's queue; None: not known of any of them."""


@dataclass(frozen=True)
class GpuHours:
    """GPU-hours of the sessions of one profile."""

    label: str
    held: float
    busy: float
    """Of these, in which a kernel ran, as far as that is known."""
    unknown: float
    """Of these, for which the use is not known."""

    @property
    def idle(self) -> float:
        """Of these, in which no kernel ran."""
        return max(self.held - self.busy - self.unknown, 0.0)


@dataclass(frozen=True)
class Alignment:
    """Sessions of one GPU model by whether GPUs, CPUs and memory were on the same NUMA nodes."""

    label: str
    aligned: int
    across: int
    unknown: int

    @property
    def number(self) -> int:
        """All of them."""
        return self.aligned + self.across + self.unknown


@dataclass(frozen=True)
class Summary:
    """Everything that a report shows."""

    sessions: int
    people: int
    first: float | None
    """When the first session began, in seconds since the epoch; None: there is none."""
    last: float | None
    simulated: int
    waits: tuple[Waits, ...]
    """By profile, the longest wait first."""
    hours: tuple[Waits | None, ...]
    """By the hour of the day at which a server was asked for, from 0 to 23; None: no server was."""
    use: tuple[GpuHours, ...]
    """By profile, the most GPU-hours first."""
    alignment: tuple[Alignment, ...]
    """By GPU model."""
    links: tuple[tuple[str, int], ...]
    """The slowest link of sessions with several GPUs, and their number."""
    causes: tuple[tuple[Kind, int], ...]
    faults: tuple[tuple[str, int], ...]
    """Classes of errors of starts that failed."""


def summary(records: Iterable[SessionRecord], zone: tzinfo | None = None) -> Summary:
    """The summary of sessions that are over; ``zone`` is that of the hours, by default this machine's."""
    over = [record for record in records if record.ended_at is not None]
    served = [record for record in over if record.wait_seconds is not None]
    by_hour = _grouped(served, lambda record: datetime.fromtimestamp(record.begun_at, zone).hour)
    causes = Counter(record.cause.kind for record in over if record.cause is not None)
    faults = Counter(record.cause.fault for record in over if record.cause is not None and record.cause.fault)
    placed = [record for record in over if record.gpus]
    return Summary(
        sessions=len(over),
        people=len({record.username for record in over}),
        first=min((record.begun_at for record in over), default=None),
        last=max((record.begun_at for record in over), default=None),
        simulated=sum(record.simulated for record in over),
        waits=tuple(
            sorted(
                (_waits(name or "(no profile)", some) for name, some in _grouped(served, _profile).items()),
                key=lambda each: (-each.median, each.label),
            )
        ),
        hours=tuple(_waits(str(hour), by_hour[hour]) if hour in by_hour else None for hour in range(24)),
        use=tuple(
            sorted(
                (_gpu_hours(name or "(no profile)", some) for name, some in _grouped(placed, _profile).items()),
                key=lambda each: (-each.held, each.label),
            )
        ),
        alignment=tuple(
            _alignment(model or "(not known)", some)
            for model, some in sorted(_grouped(placed, lambda record: record.gpu_model).items())
        ),
        links=tuple(Counter(record.weakest_link for record in placed if record.weakest_link).most_common()),
        causes=tuple(sorted(causes.items(), key=lambda each: (-each[1], each[0].value))),
        faults=tuple(sorted(faults.items(), key=lambda each: (-each[1], each[0]))),
    )


def _profile(record: SessionRecord) -> str:
    return record.profile


def _grouped(records: Iterable[SessionRecord], key: Callable[[SessionRecord], T]) -> dict[T, list[SessionRecord]]:
    found: dict[T, list[SessionRecord]] = defaultdict(list)
    for record in records:
        found[key(record)].append(record)
    return found


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest of the values that at least this part of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(part * len(ordered)) - 1, 0)]


def _waits(label: str, records: Sequence[SessionRecord]) -> Waits:
    waits = [record.wait_seconds for record in records if record.wait_seconds is not None]
    queue = [record.queue_seconds for record in records if record.queue_seconds is not None]
    return Waits(label, len(waits), quantile(waits, 0.5), quantile(waits, 0.9), quantile(queue, 0.5) if queue else None)


def _gpu_hours(label: str, records: Sequence[SessionRecord]) -> GpuHours:
    held = busy = unknown = 0.0
    for record in records:
        whole = record.gpu_seconds_held or 0.0
        measured = min(record.gpu_seconds_measured, whole)
        held += whole
        busy += min(record.gpu_seconds_busy, measured)
        unknown += whole - measured
    return GpuHours(label, held / 3600, busy / 3600, unknown / 3600)


def _alignment(label: str, records: Sequence[SessionRecord]) -> Alignment:
    found: Mapping[bool | None, int] = Counter(record.aligned for record in records)
    return Alignment(label, found.get(True, 0), found.get(False, 0), found.get(None, 0))
