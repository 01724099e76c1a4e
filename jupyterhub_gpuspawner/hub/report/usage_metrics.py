"""How much running servers use their GPUs, by profile and partition, as Prometheus metrics.

Their mean use is ``gpuspawner_gpus_busy / ignoring(use) gpuspawner_gpus_measured{use="known"}``. Neither users nor GPUs
are labels.
"""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from jupyterhub_gpuspawner.hub.report.usage import MEASURED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jupyterhub_gpuspawner.hub.report.usage import ServerUsage

KNOWN, UNKNOWN = "known", "unknown"


class GpuUseCollector(Collector):
    """Counts at each scrape."""

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
    counts: Tally[tuple[str, str, str]] = Tally()
    for server in servers:
        found = server.now()
        if found is None or not found[0].gpus:
            continue
        placement, profile, summary = found
        known = [gpu.utilization for gpu in summary.gpus if gpu.utilization is not None] if summary is not None else []
        labels = (profile, placement.partition or "")
        if known:
            sums[labels] = sums.get(labels, 0.0) + sum(known) / 100
            counts[(*labels, KNOWN)] += len(known)
        if len(known) < len(placement.gpus):
            counts[(*labels, UNKNOWN)] += len(placement.gpus) - len(known)
    return sums, dict(counts)


REGISTRY.register(GpuUseCollector())
