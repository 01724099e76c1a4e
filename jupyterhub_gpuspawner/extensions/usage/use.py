"""What a server has used in the last hour, as the process beside it reports it: in the hub's memory only.

It is advice. Whoever owns the server can end that process, or have it send something else; Slurm's accounting is the
record. So nothing is charged by it, it is never a reason to stop another server than the one that sent it, and what
is not known is not taken for idle.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from jupyterhub_gpuspawner.errors import ReportError
from jupyterhub_gpuspawner.extensions.usage.node.summary import SAMPLES, USAGE_VERSION, GpuUse, UsageSummary
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.hub.job.session import Usage
from jupyterhub_gpuspawner.hub.report.server_report import read_document
from jupyterhub_gpuspawner.hub.spawners.server import kept_with
from jupyterhub_gpuspawner.units import NodeAllocation
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

RETENTION_SECONDS = 3600.0
"""Seconds for which a summary is kept."""
SUMMARIES_AT_MOST = 120
"""Summaries of a server that are kept."""


LATE = 60.0
"""Seconds that a summary may be late."""


def mean_use(usage: Iterable[Use]) -> float | None:
    """The mean use of a server's GPUs in these summaries, in per cent; None where that is not known."""
    mean = mean_of([gpu for use in usage for gpu in use.summary.gpus])
    return None if mean is None else round(mean, 1)


def mean_of(gpus: Iterable[GpuUse]) -> float | None:
    """The mean of all samples of these GPUs, in per cent; None where none is known."""
    measured = [(gpu.utilization_mean, gpu.utilization_samples) for gpu in gpus if gpu.utilization_mean is not None]
    samples = sum(number for _, number in measured)
    return sum(mean * number for mean, number in measured) / samples if samples else None


@dataclass(frozen=True)
class Use:
    """A summary, and when the hub got it: by the hub's own clock, since a node's may be wrong."""

    at: float
    """Seconds since the epoch."""
    summary: UsageSummary

    @property
    def since(self) -> float:
        """When the time begins that the summary is about."""
        return self.at - self.summary.seconds

    def is_current(self, now: float) -> bool:
        """False once the next summary is overdue, at ``now`` in seconds since the epoch."""
        return now - self.at <= SAMPLES * self.summary.interval + LATE


class ServerUsage(WithServer):
    """The summaries of one server; those of another job are refused, and not shown."""

    def __init__(self, spawner: Any, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(spawner)
        self._clock = clock
        self._kept: deque[tuple[str, Use]] = deque(maxlen=SUMMARIES_AT_MOST)
        self.used_at: float | None = None
        """When the last summary came; before that, when the hub knew where the server runs."""

    def placed(self, placement: PlacementDocument, allocations: Sequence[NodeAllocation]) -> PlacementDocument:  # noqa: ARG002
        """Summaries are of the time from now on."""
        if self.used_at is None:
            self.used_at = self._clock()
        return placement

    def to_state(self) -> Mapping[str, Any]:
        """Since when a summary can be about."""
        return {} if self.used_at is None else {"used_at": self.used_at}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on with that time."""
        used_at = state.get("used_at")
        self.used_at = used_at if isinstance(used_at, float) else None

    def forget(self) -> None:
        """The server has ended."""
        self.used_at = None

    def accept(self, summary: UsageSummary) -> None:
        """Keep a summary; of its GPUs those that the server has. Raises ReportError where no server has reported."""
        placement = self.spawner.report.placement
        job_id = self.spawner.job_id
        if placement is None or not job_id:
            raise ReportError("usage: this server has not reported its placement")
        if summary.job_id not in (None, job_id):
            raise ReportError(f"usage.job_id: must be {job_id}, the job of this server")
        own = {(gpu.index, gpu.uuid, gpu.mig) for gpu in placement.gpus}
        gpus = tuple(gpu for gpu in summary.gpus if (gpu.index, gpu.uuid, gpu.mig) in own)
        own_summary = replace(summary, gpus=gpus)
        now = self._clock()
        self._kept.append((job_id, Use(now, own_summary)))
        since = self.used_at if self.used_at is not None else now
        self.used_at = now
        self.spawner.life.tell(Usage, **figures(own_summary, at_most=now - since))

    def last_hour(self) -> tuple[Use, ...]:
        """The summaries of the last hour, oldest first."""
        since, job_id = self._clock() - RETENTION_SECONDS, self.spawner.job_id
        while self._kept and (self._kept[0][1].at < since or self._kept[0][0] != job_id):
            self._kept.popleft()
        return tuple(use for _, use in self._kept)

    @property
    def cluster(self) -> str:
        """The name of the server's cluster; empty in a hub that names none."""
        return str(self.spawner.cluster)

    def now(self) -> tuple[PlacementDocument, str, UsageSummary | None] | None:
        """Placement, profile and current summary, None where there is none; None where nothing runs."""
        placement = self.spawner.report.placement
        if placement is None or not self.spawner.job_id:
            return None
        last = self.last_hour()[-1:]
        summary = next((use.summary for use in last if use.is_current(self._clock())), None)
        return placement, self.spawner.child_profile, summary


def figures(summary: UsageSummary, *, at_most: float) -> dict[str, Any]:
    """The fields of the event :class:`~.Usage` of a summary, which is about ``at_most`` seconds at most.

    Whoever owns the server can send what they like, but no more time than has passed.
    """
    seconds = max(min(summary.seconds, at_most), 0.0)
    part = seconds / summary.seconds if summary.seconds else 0.0
    measured = [
        (seconds * min(gpu.utilization_samples / summary.samples, 1.0), gpu.utilization_mean)
        for gpu in summary.gpus
        if gpu.utilization_mean is not None and summary.samples
    ]
    energies = [gpu.energy_joules for gpu in summary.gpus if gpu.energy_joules is not None]
    memories = [gpu.memory_used_max_mib for gpu in summary.gpus if gpu.memory_used_max_mib is not None]
    return {
        "seconds": seconds,
        "gpu_seconds_measured": sum(length for length, _ in measured),
        "gpu_seconds_busy": sum(length * mean / 100 for length, mean in measured),
        "gpu_memory_max_mib": max(memories, default=None),
        "memory_max_mib": summary.memory_max_mib,
        "joules": sum(energies) * part if energies else None,
        "simulated": summary.simulated,
    }


_SUMMARY = TypeAdapter(UsageSummary)


def parse_usage(body: bytes) -> UsageSummary:
    """Read a summary of a server's use; raises :class:`ReportError` naming the first field at fault."""
    return read_document(_SUMMARY, body, "usage", USAGE_VERSION)


def usage_of(spawner: Any) -> tuple[Use, ...]:
    """What the server of this spawner used in the last hour, oldest first; empty where nothing is known."""
    usage = kept_with(spawner, ServerUsage)
    return usage.last_hour() if usage is not None else ()


def usage_taker(spawner: Any) -> Callable[[UsageSummary], None] | None:
    """What takes a summary of this server's use; None for a spawner that takes none, and where nothing runs."""
    usage = kept_with(spawner, ServerUsage)
    return usage.accept if usage is not None and spawner.active else None
