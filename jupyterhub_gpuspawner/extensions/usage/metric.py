"""How much the GPUs of running servers are used, for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from jupyterhub_gpuspawner.extensions.usage.use import ServerUsage
from jupyterhub_gpuspawner.hub.jupyterhub_compat import this_hub
from jupyterhub_gpuspawner.hub.spawners.server import kept_with

KNOWN, UNKNOWN = "known", "unknown"


class GpuUseCollector(Collector):
    """How much running servers use their GPUs, by cluster, profile and partition, counted at each scrape.

    They are those of this process's hub. Their mean use is ``gpuspawner_gpus_busy / ignoring(use)
    gpuspawner_gpus_measured{use="known"}``. Neither users nor GPUs are labels.
    """

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The metrics without values."""
        return self._families()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics of the servers that run now."""
        busy, measured = self._families()
        hub = this_hub()
        users = list(hub.users.values()) if hub is not None and hub.users is not None else []
        spawners = (spawner for user in users for spawner in list(user.spawners.values()))
        usages = (kept_with(spawner, ServerUsage) for spawner in spawners)
        sums, counts = use_of_gpus(usage for usage in usages if usage is not None)
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
                labels=["cluster", "profile", "partition"],
            ),
            GaugeMetricFamily(
                "gpuspawner_gpus_measured",
                "GPUs (or MIG devices) of running servers whose utilisation is known, or unknown.",
                labels=["cluster", "profile", "partition", "use"],
            ),
        )


def use_of_gpus(
    servers: Iterable[ServerUsage],
) -> tuple[dict[tuple[str, str, str], float], dict[tuple[str, str, str, str], int]]:
    """The sum of what is known, and how many GPUs it is and is not known of, by cluster, profile and partition."""
    sums: dict[tuple[str, str, str], float] = {}
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for server in servers:
        use = server.now()
        if use is None or not use[0].gpus:
            continue
        placement, profile, summary = use
        utilizations = (
            [gpu.utilization for gpu in summary.gpus if gpu.utilization is not None] if summary is not None else []
        )
        labels = (server.cluster, profile, placement.partition or "")
        if utilizations:
            sums[labels] = sums.get(labels, 0.0) + sum(utilizations) / 100
            counts[(*labels, KNOWN)] += len(utilizations)
        if len(utilizations) < len(placement.gpus):
            counts[(*labels, UNKNOWN)] += len(placement.gpus) - len(utilizations)
    return sums, dict(counts)


REGISTRY.register(GpuUseCollector())
