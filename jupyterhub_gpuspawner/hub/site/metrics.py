"""What Prometheus finds of us on the hub's own page, ``/hub/metrics``; every name begins with ``gpuspawner_``.

Labels hold few values: profiles of the admin, Slurm's commands and partitions, kinds of GPUs; never a user, a job or a
node. The counts that may stand at zero for long are there from the start, so that an alert can be written for them.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from prometheus_client import REGISTRY, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jupyterhub_gpuspawner.jobs.status import JobStatus
    from jupyterhub_gpuspawner.wire.documents import PlacementDocument

TYPES_AT_MOST = 20
"""Kinds of GPUs on the page: a node's report names them, so there could be any number; further ones are ``other``."""
TYPE_LENGTH = 60
"""Characters."""

_STAGES = Histogram(
    "gpuspawner_spawn_stage_seconds",
    "Seconds of a start: queue (until Slurm started the job), start (until its report), ready (until it answers).",
    ["profile", "stage"],
    buckets=(0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600),
)
_COMMANDS = Histogram(
    "gpuspawner_slurm_command_seconds",
    "Seconds that a Slurm command took; those that were given up are counted as failures alone.",
    ["command"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
_FAILURES = Counter(
    "gpuspawner_slurm_failures",
    "Slurm commands without an answer (silent) or with an exit status other than 0 (refused).",
    ["command", "how"],
)
_ADOPTED = Counter(
    "gpuspawner_servers_adopted",
    "Servers taken up by a hub that was restarted, by what they were doing.",
    ["state"],
)
_UNREAD = Counter(
    "gpuspawner_slurm_unread_records",
    "Records of Slurm's answers with a field that was not understood, each counted once: jobs, nodes, partitions, "
    "reservations. The rest of the answer counts.",
    ["kind"],
)
_LOST = Counter(
    "gpuspawner_jobs_without_server",
    "Jobs that no server belonged to, found and cancelled, by what had parted them.",
    ["how"],
)

_FOREIGN = Counter(
    "gpuspawner_jobs_of_another_copy",
    "Jobs with this hub's mark whose start its database does not know, left alone: a copy of this hub made them.",
)

_PORTS = Counter(
    "gpuspawner_ports_lost",
    "Servers whose port another process had: taken before the server listened there, or moved after the hub had it.",
    ["when"],
)

for _kind in ("job", "node", "partition", "reservation"):
    _UNREAD.labels(_kind)
for _state in ("running", "starting"):
    _ADOPTED.labels(_state)
for _how in ("start given up", "sbatch unanswered", "orphan"):
    _LOST.labels(_how)

for _when in ("taken", "moved"):
    _PORTS.labels(_when)


class CountedServer(Protocol):
    """What is counted of a server: all of it may change until it is."""

    @property
    def placement(self) -> PlacementDocument | None:
        """Where it runs and what it got, as far as is known."""

    @property
    def job(self) -> JobStatus | None:
        """As the watcher knows it."""

    @property
    def address(self) -> str:
        """Of its node, confirmed by Slurm; empty until then."""


SERVERS: WeakSet[CountedServer] = WeakSet()
"""Every server that has watched a job."""
_RESTORED: WeakSet[object] = WeakSet()
"""Servers that were read from the database and are not yet known to be there."""


class StartTimes:
    """When one start of a server reached each stage; what was not reached is not counted."""

    def __init__(self, profile: str) -> None:
        """The job of ``profile`` was submitted just now."""
        self._profile = profile
        self._submitted = time.time()
        self._started: float | None = None
        self._reported: float | None = None

    def started(self, when: float | None) -> None:
        """Slurm started the job then (seconds since the epoch, by slurmctld's clock)."""
        self._started = when

    def reported(self) -> None:
        """The launcher's report is here."""
        self._reported = time.time()

    def ready(self) -> None:
        """The server answers: count the stages."""
        now = time.time()
        if self._started is None or self._reported is None:
            return
        # Slurm tells whole seconds, and its clock may be another
        began = min(max(self._started, self._submitted), self._reported)
        for stage, seconds in (
            ("queue", began - self._submitted),
            ("start", self._reported - began),
            ("ready", now - self._reported),
        ):
            _STAGES.labels(self._profile, stage).observe(max(seconds, 0.0))


def slurm_command(command: str, seconds: float, status: int | None) -> None:
    """A Slurm command ended with this exit status; None: it was given up after so many seconds."""
    if status is not None:
        _COMMANDS.labels(command).observe(seconds)
    if status != 0:
        _FAILURES.labels(command, "silent" if status is None else "refused").inc()


def unread_record(kind: str) -> None:
    """A record of this kind was not understood, and was not told of before."""
    _UNREAD.labels(kind).inc()


def restored(server: object) -> None:
    """A server was read from the database by a hub that has just started."""
    _RESTORED.add(server)


def adopted(server: object, state: str) -> None:
    """A restored server is there, ``running`` or ``starting``; counts once, and no other servers."""
    if server in _RESTORED:
        _RESTORED.discard(server)
        _ADOPTED.labels(state).inc()


def lost_job(how: str) -> None:
    """A job without a server was found and is being cancelled."""
    _LOST.labels(how).inc()


def foreign_job() -> None:
    """A job was found that a copy of this hub has made."""
    _FOREIGN.inc()


def port_lost(when: str) -> None:
    """Another process had a server's port: it was ``taken`` in a start, or the server ``moved`` after the hub knew."""
    _PORTS.labels(when).inc()


class _GPUsInUse(Collector):
    """Counts when it is asked, so that nothing has to be taken back."""

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return [self._family()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = self._family()
        for labels, count in sorted(gpus_in_use(list(SERVERS)).items()):
            family.add_metric(labels, count)
        yield family

    @staticmethod
    def _family() -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "gpuspawner_gpus_in_use", "GPUs (or MIG devices) of running servers.", labels=["partition", "type"]
        )


def gpus_in_use(servers: Iterable[CountedServer]) -> dict[tuple[str, str], int]:
    """GPUs of the servers whose job runs, by partition (Slurm's word) and type (the launcher's, or Slurm's)."""
    found: Tally[tuple[str, str]] = Tally()
    for server in servers:
        partition, placement = _partition(server), server.placement
        if partition is None or placement is None:
            continue
        kinds = [gpu.mig or gpu.name for gpu in placement.gpus]
        kinds += [grant.gpu_type or "" for grant in placement.other_nodes for _ in grant.gpus]
        found.update((partition, kind[:TYPE_LENGTH] or "GPU") for kind in kinds)
    types: Tally[str] = Tally()
    for (_, kind), count in found.items():
        types[kind] += count
    shown = {kind for kind, _ in types.most_common(TYPES_AT_MOST)}
    counts: Tally[tuple[str, str]] = Tally()
    for (partition, kind), count in found.items():
        counts[partition, kind if kind in shown else "other"] += count
    return dict(counts)


def _partition(server: CountedServer) -> str | None:
    """Where its job runs, by Slurm's word; None unless it runs."""
    job, placement = server.job, server.placement
    if job is not None and job.phase in (Phase.RUNNING, Phase.ENDING):
        return job.partition
    ended = job is not None and job.phase is Phase.ENDED
    # the watcher may know less than the start, which has asked where the job runs
    return placement.partition or "" if server.address and placement is not None and not ended else None


REGISTRY.register(_GPUsInUse())
