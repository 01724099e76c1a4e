"""What a server has used in the last hour, as the process beside it reports it: in the hub's memory only.

It is advice. Whoever owns the server can end that process, or have it send something else; Slurm's accounting is the
record. So nothing is charged by it, it is never a reason to stop another server than the one that sent it, and what
is not known is not taken for idle.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from weakref import WeakSet

from jupyterhub.spawner import Spawner
from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from jupyterhub_gpuspawner.hub.report.reader import ReportError
from jupyterhub_gpuspawner.wire.documents import SAMPLES, PlacementDocument, UsageSummary

RETENTION_SECONDS = 3600.0
"""Seconds for which a summary is kept."""
SUMMARIES_AT_MOST = 120
"""Summaries of a server that are kept."""


LATE = 60.0
"""Seconds that a summary may be late."""


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
        """Whether no later summary should have come by ``now``."""
        return now - self.at <= SAMPLES * self.summary.interval + LATE


class ServerUsage:
    """The summaries of one spawner's server."""

    def __init__(
        self,
        spawner: Spawner,
        *,
        clock: Callable[[], float] = time.time,
        on_summary: Callable[[UsageSummary], None] = lambda _: None,
    ) -> None:
        """``taken`` is called with each summary that is kept. Those of another job are refused, and not shown."""
        self._spawner, self._clock, self._taken = spawner, clock, on_summary
        self._kept: deque[tuple[str, Use]] = deque(maxlen=SUMMARIES_AT_MOST)
        MEASURED.add(self)

    def forget(self) -> None:
        """Begin a new start."""
        self._kept.clear()

    def accept(self, summary: UsageSummary) -> None:
        """Keep a summary; of its GPUs those that the server has. Raises ReportError where no server has reported."""
        placement = self._spawner.placement
        job_id = self._spawner.job_id
        if placement is None or not job_id:
            raise ReportError("usage: this server has not reported its placement")
        if summary.job_id not in (None, job_id):
            raise ReportError(f"usage.job_id: must be {job_id}, the job of this server")
        own = {(gpu.index, gpu.uuid, gpu.mig) for gpu in placement.gpus}
        gpus = tuple(gpu for gpu in summary.gpus if (gpu.index, gpu.uuid, gpu.mig) in own)
        own_summary = replace(summary, gpus=gpus)
        self._kept.append((job_id, Use(self._clock(), own_summary)))
        self._taken(own_summary)

    def last_hour(self) -> tuple[Use, ...]:
        """The summaries of the last hour, oldest first."""
        since, job_id = self._clock() - RETENTION_SECONDS, self._spawner.job_id
        while self._kept and (self._kept[0][1].at < since or self._kept[0][0] != job_id):
            self._kept.popleft()
        return tuple(use for _, use in self._kept)

    def now(self) -> tuple[PlacementDocument, str, UsageSummary | None] | None:
        """Placement, profile and current summary, None where there is none; None where nothing runs."""
        placement = self._spawner.placement
        if placement is None or not self._spawner.job_id:
            return None
        last = self.last_hour()[-1:]
        summary = next((use.summary for use in last if use.is_current(self._clock())), None)
        return placement, self._spawner.child_profile, summary


MEASURED: WeakSet[ServerUsage] = WeakSet()
"""That of every spawner in memory."""

TRACKED_SERVERS, UNKNOWN = "known", "unknown"


class GpuUseCollector(Collector):
    """How much running servers use their GPUs, by profile and partition, counted at each scrape.

    Their mean use is ``gpuspawner_gpus_busy / ignoring(use) gpuspawner_gpus_measured{use="known"}``. Neither users nor
    GPUs are labels.
    """

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The metrics without values."""
        return self._families()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics of the servers that run now."""
        busy, measured = self._families()
        sums, counts = use_of_gpus(list(MEASURED))
        for labels, value in sorted(sums.items()):
            busy.add_metric(labels, value)
        for of, number in sorted(counts.items()):
            measured.add_metric(of, number)
        yield busy
        yield measured

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily(
                "gpuspawner_gpus_busy",
                "Sum of the utilisation (0 to 1) of the GPUs of running servers whose utilisation is known.",
                labels=["profile", "partition"],
            ),
            GaugeMetricFamily(
                "gpuspawner_gpus_measured",
                "GPUs (or MIG devices) of running servers whose utilisation is known, or unknown.",
                labels=["profile", "partition", "use"],
            ),
        )


def use_of_gpus(
    servers: Iterable[ServerUsage],
) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str, str], int]]:
    """The sum of what is known, and the numbers of GPUs of which it is known and unknown, by profile and partition."""
    sums: dict[tuple[str, str], float] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for server in servers:
        use = server.now()
        if use is None or not use[0].gpus:
            continue
        placement, profile, summary = use
        utilizations = (
            [gpu.utilization for gpu in summary.gpus if gpu.utilization is not None] if summary is not None else []
        )
        labels = (profile, placement.partition or "")
        if utilizations:
            sums[labels] = sums.get(labels, 0.0) + sum(utilizations) / 100
            counts[(*labels, TRACKED_SERVERS)] += len(utilizations)
        if len(utilizations) < len(placement.gpus):
            counts[(*labels, UNKNOWN)] += len(placement.gpus) - len(utilizations)
    return sums, dict(counts)


REGISTRY.register(GpuUseCollector())
