"""The map of the cluster for admins: its data, filters, and JSON document. Pure.

:func:`survey` builds it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from functools import cached_property
from itertools import islice
from typing import Any

from jupyterhub_gpuspawner.slurm.reason import node_reason
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot, NodeState, Partition, rank
from jupyterhub_gpuspawner.units import GPU_GRES, Gres, NodeAllocation

Allocations = Mapping[str, Sequence[NodeAllocation]]


VERSION = 1
NOT_IN_DOCUMENT = {"in_document": False}
"""Marks fields that the JSON document does not have."""
WAITING_AT_MOST = 50
"""Pending jobs of a partition in the document, at most."""


class GpuUse(str, Enum):
    """Whether jobs use a GPU."""

    FREE = "free"
    USED = "used"
    OUT = "out"


class NodeUse(str, Enum):
    """How much of a node jobs use: nothing, part, all, or it is out of service."""

    IDLE = "idle"
    MIXED = "mixed"
    FULL = "full"
    OUT = "out"


@dataclass(frozen=True)
class ServedJob:
    """A job of this hub, with its server's user and the GPUs that the server reported."""

    job_id: str
    user: str
    server: str = ""
    """The server's name; empty for the default server."""
    node: str = ""
    gpus: tuple[int, ...] = ()
    """NVML indices on :attr:`node`."""


@dataclass(frozen=True)
class Holder:
    """A job that holds resources on a node."""

    job_id: str
    user: str = ""
    server: str | None = None
    """The name of this hub's server, empty for a default server; None for other jobs."""
    ends_at: float | None = None
    """When its time limit ends, in seconds since the epoch; None for a job without one."""


@dataclass(frozen=True)
class WaitingJob:
    """A pending job and what it asks for; times in seconds since the epoch."""

    job_id: str
    user: str = ""
    server: str | None = None
    """The name of this hub's server, empty for a default server; None for other jobs."""
    nodes: int = 1
    cpus: int = 0
    """Total over all nodes."""
    memory_mib: int = 0
    """Total over all nodes."""
    gpus: tuple[Gres, ...] = ()
    """GPUs and shards on each node."""
    time_limit: int | None = None
    """Seconds; None for a job without a limit."""
    submitted_at: float | None = None
    starts_at: float | None = None
    """Slurm's estimate; None until it has made one."""
    reason: str = ""
    """Slurm's word for why it waits, such as ``Resources``."""

    def to_json(self) -> dict[str, Any]:
        """The job as a document, with its GPUs as ``--gres`` takes them."""
        return {**vars(self), "gpus": list(map(str, self.gpus))}


@dataclass(frozen=True)
class MapGpu:
    """One GPU or MIG device of a node."""

    index: int | None
    """Slurm's index on its node; None where Slurm only counts GPUs."""
    type: str = ""
    """Slurm's type, such as ``a100``; empty where it has none."""
    use: GpuUse = GpuUse.FREE
    """``free``, ``used``, or ``out`` with its node."""
    holders: tuple[Holder, ...] = ()
    """Several if it is shared; none for a used GPU if Slurm does not report by whom."""


@dataclass(frozen=True)
class MapNode:
    """One node."""

    name: str
    use: NodeUse
    """``idle``, ``mixed``, ``full`` (no GPU or no CPU is free) or ``out`` of service."""
    state: str
    """Slurm's state in words."""
    reason: str = ""
    """Why it is out of service, as entered by an admin or by Slurm."""
    reason_by: str = ""
    """Who set the reason; empty where Slurm does not report it."""
    reason_at: float | None = None
    """When it was set, in seconds since the epoch; None where Slurm does not report it."""
    cpus: int = 0
    cpus_used: int = 0
    memory_mib: int = 0
    memory_used_mib: int = 0
    gpus: tuple[MapGpu, ...] = ()
    jobs: tuple[Holder, ...] = ()
    """Every job on it, in Slurm's order."""
    partitions: tuple[str, ...] = ()
    reservation: str = ""
    """An active reservation that includes the node."""

    def words(self) -> str:
        """The text that a filter searches, in lower case."""
        holders = " ".join(f"{job.user} {job.server or ''} {job.job_id}" for job in self.jobs)
        types = " ".join(sorted({gpu.type for gpu in self.gpus}))
        parts = (self.name, self.state, self.reason, self.reservation, *self.partitions, types, holders)
        return " ".join(filter(None, parts)).casefold()


@dataclass(frozen=True)
class Totals:
    """Totals over some nodes."""

    nodes: int = 0
    nodes_out: int = 0
    gpus: int = 0
    gpus_free: int = 0
    """On nodes in service."""
    gpus_used: int = 0
    gpus_out: int = 0
    cpus: int = 0
    cpus_used: int = 0
    memory_mib: int = 0
    memory_used_mib: int = 0
    cpus_out: int = 0
    """On nodes out of service, and not in use."""
    memory_out_mib: int = 0
    """On nodes out of service, and not in use."""


@dataclass(frozen=True)
class MapPartition:
    """One partition, with its nodes' names."""

    name: str
    state: str = "UP"
    """Slurm's word: ``UP``, ``DOWN``, ``DRAIN`` or ``INACTIVE``."""
    nodes: tuple[str, ...] = ()
    totals: Totals = field(default_factory=Totals)
    queue: tuple[ClusterJob, ...] = field(default=(), metadata=NOT_IN_DOCUMENT)
    """Every pending job, in no order; :meth:`ClusterMap.waiting` has the first."""

    @property
    def waiting(self) -> int:
        """The number of pending jobs."""
        return len(self.queue)


@dataclass(frozen=True)
class ClusterMap:
    """All partitions and nodes at one moment."""

    partitions: tuple[MapPartition, ...] = ()
    nodes: tuple[MapNode, ...] = ()
    """Each node once, even if it is in several partitions."""
    taken_at: float = 0.0
    """Seconds since the epoch."""
    served: Mapping[str, ServedJob] = field(default_factory=dict, metadata=NOT_IN_DOCUMENT)
    """The jobs of this hub, by id."""

    @cached_property
    def node_by_name(self) -> Mapping[str, MapNode]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def types_beside(self) -> Mapping[str, frozenset[str]]:
        """For each type of GPU, those of the nodes that have it."""
        on_nodes = {frozenset(gpu.type for gpu in node.gpus if gpu.type) for node in self.nodes}
        beside: dict[str, frozenset[str]] = {}
        for types in on_nodes:
            for kind in types:
                beside[kind] = beside.get(kind, frozenset()) | types
        return beside

    @property
    def totals(self) -> Totals:
        """Totals over all nodes."""
        return totals(self.nodes)

    def nodes_of(self, partition: MapPartition) -> tuple[MapNode, ...]:
        """The nodes of a partition."""
        return tuple(self.node_by_name[name] for name in partition.nodes)

    def line(self, at_most: int) -> tuple[tuple[WaitingJob, str], ...]:
        """The pending jobs that start first, each once, with a partition: by Slurm's plan, and then by its rank."""
        jobs = {job.job_id: (job, partition.name) for partition in self.partitions for job in partition.queue}
        first = heapq.nsmallest(at_most, jobs.values(), key=lambda pair: (_planned(pair[0]), *_ranked(pair[0])))
        return tuple((self._waiting_job(job), partition) for job, partition in first)

    @cached_property
    def waiting_ids(self) -> frozenset[str]:
        """The pending jobs."""
        return frozenset(job.job_id for partition in self.partitions for job in partition.queue)

    def waiting(self, partition: MapPartition, at_most: int) -> tuple[WaitingJob, ...]:
        """The pending jobs of a partition that Slurm considers first."""
        return tuple(map(self._waiting_job, first_in_line(partition.queue, at_most)))

    def _waiting_job(self, job: ClusterJob) -> WaitingJob:
        server = self.served.get(job.job_id)
        return WaitingJob(
            job_id=job.job_id,
            user=server.user if server else job.user,
            server=server.server if server else None,
            nodes=job.node_count,
            cpus=job.cpus,
            memory_mib=job.memory_mib,
            gpus=job.gpus,
            time_limit=job.time_limit,
            submitted_at=job.submitted_at,
            starts_at=job.starts_at,
            reason=job.reason,
        )

    def only(self, *, text: str = "", partition: str = "", use: str = "") -> ClusterMap:
        """The nodes that match every word of ``text``, of one partition, in one use (or ``with-free-gpus``).

        Pending jobs are on no node: they match by their own words, and none is left where a use is asked for.
        """
        words = text.casefold().split()

        def matches(node: MapNode) -> bool:
            if use == "with-free-gpus":
                if not any(gpu.use is GpuUse.FREE for gpu in node.gpus):
                    return False
            elif use and node.use.value != use:
                return False
            text = node.words() if words else ""
            return all(word in text for word in words)

        def in_line(part: MapPartition) -> tuple[ClusterJob, ...]:
            if use or not words:
                return () if use else part.queue
            jobs_in_words = ((job, self._words_of(job, part)) for job in part.queue)
            return tuple(job for job, text in jobs_in_words if all(word in text for word in words))

        parts = tuple(map_partition for map_partition in self.partitions if partition in ("", map_partition.name))
        members = {name for part in parts for name in part.nodes}
        nodes = tuple(node for node in self.nodes if (not partition or node.name in members) and matches(node))
        left = {node.name: node for node in nodes}
        shown = []
        for map_part in parts:
            names = tuple(name for name in map_part.nodes if name in left)
            queue = in_line(map_part)
            if names or queue or not (words or use):
                shown.append(replace(map_part, nodes=names, totals=totals([left[name] for name in names]), queue=queue))
        return replace(self, partitions=tuple(shown), nodes=nodes)

    def _words_of(self, job: ClusterJob, partition: MapPartition) -> str:
        """The text of a pending job that a filter searches, in lower case."""
        server = self.served.get(job.job_id)
        owner = (server.user, server.server) if server else (job.user,)
        kinds = (gres.type or "" for gres in job.gpus)
        return " ".join((job.job_id, *owner, partition.name, job.reason, *kinds)).casefold()

    def to_json(self) -> dict[str, Any]:
        """The map as a document, version 1; with the :attr:`totals`."""
        return {
            "version": VERSION,
            "taken_at": self.taken_at,
            "totals": asdict(self.totals),
            "partitions": [self._partition_document(partition) for partition in self.partitions],
            "nodes": [_node_document(node) for node in self.nodes],
        }

    def _partition_document(self, partition: MapPartition) -> dict[str, Any]:
        first = self.waiting(partition, WAITING_AT_MOST)
        return {
            "name": partition.name,
            "state": partition.state,
            "nodes": partition.nodes,
            "totals": asdict(partition.totals),
            "waiting": partition.waiting,
            "queue": [job.to_json() for job in first],
        }


def _node_document(node: MapNode) -> dict[str, Any]:
    # asdict copies deeply: ten times slower for a thousand nodes
    gpus = [{**vars(gpu), "use": gpu.use.value, "holders": list(map(vars, gpu.holders))} for gpu in node.gpus]
    return {**vars(node), "use": node.use.value, "gpus": gpus, "jobs": list(map(vars, node.jobs))}


def totals(nodes: Sequence[MapNode]) -> Totals:
    """Totals over ``nodes``."""
    uses = Counter(gpu.use for node in nodes for gpu in node.gpus)
    out = [node for node in nodes if node.use is NodeUse.OUT]
    return Totals(
        nodes=len(nodes),
        nodes_out=len(out),
        gpus=uses.total(),
        gpus_free=uses[GpuUse.FREE],
        gpus_used=uses[GpuUse.USED],
        gpus_out=uses[GpuUse.OUT],
        cpus=sum(node.cpus for node in nodes),
        cpus_used=sum(node.cpus_used for node in nodes),
        cpus_out=sum(node.cpus - node.cpus_used for node in out),
        memory_mib=sum(node.memory_mib for node in nodes),
        memory_used_mib=sum(node.memory_used_mib for node in nodes),
        memory_out_mib=sum(node.memory_mib - node.memory_used_mib for node in out),
    )


# Builds the map of a cluster: the state of every GPU, who uses it, and why nodes are out of service.
#
# The GPUs of a job are known from Slurm's indices (positions in gres.conf), not from a server's report, which could
# name any. The report is used only for jobs without indices, whose GPUs Slurm does not allocate.

GPUS_AT_MOST = 1024
"""Maximum number of GPUs of one node; more is a configuration error."""


def survey(snapshot: ClusterSnapshot, allocations: Allocations, servers: Iterable[ServedJob] = ()) -> ClusterMap:
    """The map of a snapshot. ``allocations``: what each job holds on its nodes, by job id; ``servers``: this hub's."""
    served = {server.job_id: server for server in servers}
    on_node: dict[str, dict[str, NodeAllocation]] = {}
    for job_id, parts in allocations.items():
        for part in parts:
            on_node.setdefault(part.node, {})[job_id] = part
    now = snapshot.taken_at
    reserved = {
        node: reservation.name
        for reservation in snapshot.reservations
        if reservation.active(now)
        for node in reservation.nodes
    }
    nodes = []
    for node in snapshot.nodes:
        jobs = {job.job_id: _holder(job, served) for job in snapshot.jobs_by_node.get(node.name, ())}
        held = _held(node.name, jobs, on_node.get(node.name, {}), served)
        nodes.append(_map_node(node, jobs, held, reserved.get(node.name, "")))
    node_by_name = {node.name: node for node in nodes}
    waiting = snapshot.waiting_by_partition
    return ClusterMap(
        partitions=tuple(
            _map_partition(partition, snapshot, node_by_name, waiting.get(partition.name, ()))
            for partition in snapshot.partitions
        ),
        nodes=tuple(nodes),
        taken_at=now,
        served=served,
    )


def _holder(job: ClusterJob, served: Mapping[str, ServedJob]) -> Holder:
    server = served.get(job.job_id)
    # Slurm's owner of the job, or the server's user where all jobs run as the hub's account
    user, name = (job.user, None) if server is None else (server.user, server.server)
    return Holder(job.job_id, user, name, job.ends_at)


def _held(
    name: str, jobs: Mapping[str, Holder], parts: Mapping[str, NodeAllocation], served: Mapping[str, ServedJob]
) -> dict[int, list[Holder]]:
    """The jobs that hold each index of a node; jobs that are not in the snapshot are ignored."""
    held: dict[int, list[Holder]] = {}
    for job_id, holder in jobs.items():
        gres = parts[job_id].gres if job_id in parts else ()
        indices = {index for device in gres if device.name in GPU_GRES for index in device.indices}
        if not indices and job_id in served and served[job_id].node == name:
            indices = set(served[job_id].gpus)
        for index in indices:
            held.setdefault(index, []).append(holder)
    return held


def _map_node(
    node: NodeState, jobs: Mapping[str, Holder], held: Mapping[int, Sequence[Holder]], reservation: str
) -> MapNode:
    gpus = tuple(_gpus(node, held))
    reason = node_reason(node.reason)
    use = _use(node, jobs, gpus)
    return MapNode(
        name=node.name,
        use=use,
        state=state_in_words(node, use, busy=bool(jobs) or node.cpus_allocated > 0),
        reason=reason.text,
        reason_by=reason.by,
        reason_at=reason.at,
        cpus=node.cpus,
        cpus_used=node.cpus_allocated,
        memory_mib=node.memory_mib,
        memory_used_mib=node.memory_allocated_mib,
        gpus=gpus,
        jobs=tuple(jobs.values()),
        partitions=node.partitions,
        reservation=reservation,
    )


def _gpus(node: NodeState, held: Mapping[int, Sequence[Holder]]) -> Iterator[MapGpu]:
    types = _types(node)
    used = {index for gres in node.gres_used if gres.name in GPU_GRES for index in gres.indices}
    used.update(index for index in held if index < len(types))
    counted = Counter[str]()  # GPUs in use for which Slurm gives no index
    for gres in node.gres_used:
        if gres.name == "gpu" and not gres.indices:
            counted[gres.type or ""] += gres.count
    nameless = {kind for kind, count in counted.items() if count}
    for index, kind in enumerate(types):
        if index in used:
            use = GpuUse.USED
        elif counted[kind] > 0:
            counted[kind] -= 1
            use = GpuUse.USED
        else:
            use = GpuUse.FREE if node.usable else GpuUse.OUT
        yield MapGpu(None if kind in nameless else index, kind, use, tuple(held.get(index, ())))


def _types(node: NodeState) -> list[str]:
    """The type at each of Slurm's indices: in the order of Gres, corrected by the indices in GresUsed."""
    devices = (gres.type or "" for gres in node.gres if gres.name == "gpu" for _ in range(gres.count))
    types = list(islice(devices, GPUS_AT_MOST))
    for gres in node.gres_used:
        for index in gres.indices if gres.name == "gpu" else ():
            kind = gres.type or ""
            if index < len(types) and types[index] != kind and kind in types:
                other = len(types) - 1 - types[::-1].index(kind)
                types[index], types[other] = types[other], types[index]
    return types


def _use(node: NodeState, jobs: Mapping[str, Holder], gpus: Sequence[MapGpu]) -> NodeUse:
    if not node.usable:
        return NodeUse.OUT
    if not jobs and not node.cpus_allocated and not any(gpu.use is GpuUse.USED for gpu in gpus):
        return NodeUse.IDLE
    full = not node.cpus_free or (gpus and not any(gpu.use is GpuUse.FREE for gpu in gpus))
    return NodeUse.FULL if full else NodeUse.MIXED


_WORDS = {
    "DYNAMIC_FUTURE": "not part of the cluster yet",
    "FUTURE": "not part of the cluster yet",
    "INVALID": "registered with hardware that differs from the configuration",
    "INVALID_REG": "registered with hardware that differs from the configuration",
    "POWERING_DOWN": "powering down",
    "POWER_DOWN": "powering down",
    "REBOOT_ISSUED": "rebooting",
    "MAINTENANCE": "in maintenance",
    "FAIL": "failing: does not accept new jobs",
    "BLOCKED": "blocked by a job that uses its network switch exclusively",
    "PERFCTRS": "in use by network performance counters",
}
"""sinfo(1), NODE STATE CODES; the first that applies is shown."""
_USES = {NodeUse.IDLE: "free", NodeUse.MIXED: "partly used", NodeUse.FULL: "full", NodeUse.OUT: "out of service"}
_BESIDE = {
    "POWERED_DOWN": "powered down until it is needed",
    "POWERING_UP": "starting up",
    "REBOOT_REQUESTED": "reboot requested",
    "PLANNED": "reserved for a job that starts soon",
    "COMPLETING": "a job is ending",
}


def state_in_words(node: NodeState, use: NodeUse, *, busy: bool) -> str:
    """The state of a node in a few words; ``busy``: jobs run on it."""
    states = node.states
    if use is not NodeUse.OUT:
        return ", ".join([_USES[use], *(words for state, words in _BESIDE.items() if state in states)])
    if "DOWN" in states:
        return "down: not responding" if "NOT_RESPONDING" in states else "down"
    for state, words in _WORDS.items():
        if state in states:
            return words
    if "DRAIN" in states:
        return "draining: does not accept new jobs" if busy else "drained: does not accept jobs"
    return "not responding" if "NOT_RESPONDING" in states else "in an unknown state"


def _map_partition(
    partition: Partition, snapshot: ClusterSnapshot, nodes: Mapping[str, MapNode], queue: tuple[ClusterJob, ...]
) -> MapPartition:
    node_names = snapshot.node_table.column("name")
    names = tuple(node_names[at] for at in snapshot.nodes_by_partition.positions.get(partition.name, ()))
    return MapPartition(partition.name, partition.state, names, totals([nodes[name] for name in names]), queue)


def first_in_line(jobs: Iterable[ClusterJob], at_most: int) -> list[ClusterJob]:
    """The pending jobs that are considered first; those that are held or wait for something else come last."""
    return heapq.nsmallest(at_most, jobs, key=_ranked)


def _ranked(job: ClusterJob) -> tuple[Any, ...]:
    return (not job.in_queue, *rank(job.priority, job.job_id))


def _planned(job: ClusterJob) -> float:
    return math.inf if job.starts_at is None else job.starts_at
