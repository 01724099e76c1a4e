"""Prometheus metrics on the hub's own page, ``/hub/metrics``; every name begins with ``gpuspawner_``.

Labels have few values: the admin's profiles, Slurm's commands and partitions, types of GPUs; never a user, a job or a
node. ``cluster`` is a name in ``clusters``. It is empty in a hub that names none, which is the same to Prometheus as a
metric without this label. Counters that may stay at zero for long are exported from the start, so that alerts can be
written for them.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakSet

from prometheus_client import REGISTRY, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from jupyterhub_gpuspawner.hub.jupyterhub_compat import this_hub
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

TYPES_AT_MOST = 20
"""GPU types on the page; further ones are ``other``, since nodes' reports could name any number of them."""
TYPE_LENGTH = 60
"""Characters of a GPU type that are kept."""

STAGES = Histogram(
    "gpuspawner_spawn_stage_seconds",
    "Seconds of a start: queue (until Slurm started the job), start (until its report), ready (until it responds).",
    ["cluster", "profile", "stage"],
    buckets=(0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 12 * 3600, 48 * 3600),
)
COMMANDS = Histogram(
    "gpuspawner_slurm_command_seconds",
    "Duration of Slurm commands in seconds; commands that timed out are counted only as failures.",
    ["cluster", "command"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
FAILURES = Counter(
    "gpuspawner_slurm_failures",
    "Slurm commands without an answer (silent) or with an exit status other than 0 (refused).",
    ["cluster", "command", "how"],
)
ADOPTED = Counter(
    "gpuspawner_servers_adopted",
    "Servers resumed by a restarted hub, by their state.",
    ["cluster", "state"],
)
UNREAD = Counter(
    "gpuspawner_slurm_unread_records",
    "Records of Slurm's answers with a field that was not understood, each counted once: jobs, nodes, partitions, "
    "reservations. The rest of the answer is used.",
    ["cluster", "kind"],
)
LOST = Counter(
    "gpuspawner_jobs_without_server",
    "Jobs without a server that were found and cancelled, by cause.",
    ["cluster", "how"],
)
FOREIGN = Counter(
    "gpuspawner_jobs_of_another_copy",
    "Jobs with this hub's mark and no start in its database, left running: another copy of this hub submitted them.",
    ["cluster"],
)
PORTS = Counter(
    "gpuspawner_ports_lost",
    "Servers whose port another process used: taken before the server listened, or moved after it had reported.",
    ["cluster", "when"],
)


def export_zeros(cluster: str) -> None:
    """Export the counters of a cluster that may stay at zero for long."""
    for kind in ("job", "node", "partition", "reservation"):
        UNREAD.labels(cluster, kind)
    for state in ("running", "starting"):
        ADOPTED.labels(cluster, state)
    for how in ("start given up", "sbatch unanswered", "orphan"):
        LOST.labels(cluster, how)
    for when in ("taken", "moved"):
        PORTS.labels(cluster, when)
    FOREIGN.labels(cluster)


export_zeros("")


class ServersWithJobs(WeakSet[Any]):
    """Every server of a hub that has watched a job."""


class _GPUsInUse(Collector):
    """Counts those of this process's hub at each scrape, so that nothing has to be decremented."""

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return [self._family()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family, hub = self._family(), this_hub()
        servers = state_of(hub.tornado_settings).of(ServersWithJobs) if hub is not None else ()
        for labels, count in sorted(gpus_in_use(list(servers)).items()):
            family.add_metric(labels, count)
        yield family

    @staticmethod
    def _family() -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "gpuspawner_gpus_in_use",
            "GPUs (or MIG devices) of running servers.",
            labels=["cluster", "partition", "type"],
        )


def gpus_in_use(servers: Iterable[Any]) -> dict[tuple[str, str, str], int]:
    """Count the GPUs of servers whose job runs, by cluster, partition (from Slurm) and type (from their reports)."""
    tally: Tally[tuple[str, str, str]] = Tally()
    for server in servers:
        partition, placement = _partition(server), server.report.placement
        if partition is None or placement is None:
            continue
        kinds = [gpu.mig or gpu.name for gpu in placement.gpus]
        kinds += [grant.gpu_type or "" for grant in placement.other_nodes for _ in grant.gpus]
        tally.update((server.cluster, partition, kind[:TYPE_LENGTH] or "GPU") for kind in kinds)
    types: Tally[str] = Tally()
    for (*_, kind), count in tally.items():
        types[kind] += count
    shown = {kind for kind, _ in types.most_common(TYPES_AT_MOST)}
    counts: Tally[tuple[str, str, str]] = Tally()
    for (cluster, partition, kind), count in tally.items():
        counts[cluster, partition, kind if kind in shown else "other"] += count
    return dict(counts)


def _partition(server: Any) -> str | None:
    """Return the partition in which the server's job runs, as Slurm names it; None unless it runs."""
    job: Job | None = server.watch.status
    placement: PlacementDocument | None = server.report.placement
    if job is not None and job.phase in (Phase.RUNNING, Phase.ENDING):
        return job.partition
    ended = job is not None and job.phase is Phase.ENDED
    # the start has asked Slurm where the job runs, and may know before the watcher does
    return placement.partition or "" if server.report.address and placement is not None and not ended else None


REGISTRY.register(_GPUsInUse())
