"""Builds the map of a cluster: the state of every GPU, who uses it, and why nodes are out of service. Pure.

The GPUs of a job are known from Slurm's indices (positions in gres.conf), not from a server's report, which could name
any. The report is used only for jobs without indices, whose GPUs Slurm does not allocate.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cluster.cluster_map import (
    ClusterMap,
    GpuUse,
    Holder,
    MapGpu,
    MapNode,
    MapPartition,
    NodeUse,
    totals,
)
from jupyterhub_gpuspawner.units import GPU_GRES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jupyterhub_gpuspawner.cluster.cluster_map import ServedJob
    from jupyterhub_gpuspawner.cluster.node_state import NodeState
    from jupyterhub_gpuspawner.cluster.snapshot import ClusterJob, ClusterSnapshot, Partition
    from jupyterhub_gpuspawner.jobs.status import NodeAllocation

    Allocations = Mapping[str, Sequence[NodeAllocation]]

GPUS_AT_MOST = 1024
"""Maximum number of GPUs of one node; more is a configuration error."""
_SIGNED = re.compile(r"(?P<words>.*?) *\[(?P<by>[^\s@\[\]]+)@(?P<at>\d{9,11})\]", re.DOTALL | re.ASCII)
"""A node's reason as scontrol prints it with ``SLURM_TIME_FORMAT=%s``."""


def survey(snapshot: ClusterSnapshot, allocations: Allocations, servers: Iterable[ServedJob] = ()) -> ClusterMap:
    """The map of a snapshot. ``allocations``: what each job holds on its nodes, by job id; ``servers``: this hub's."""
    served = {server.job_id: server for server in servers}
    on_node: dict[str, dict[str, NodeAllocation]] = {}
    for job_id, parts in allocations.items():
        for part in parts:
            on_node.setdefault(part.node, {})[job_id] = part
    now = snapshot.taken_at
    kept = {node: each.name for each in snapshot.reservations if each.active(now) for node in each.nodes}
    nodes = []
    for node in snapshot.nodes:
        jobs = {job.job_id: _holder(job, served) for job in snapshot.jobs_by_node.get(node.name, ())}
        held = _held(node.name, jobs, on_node.get(node.name, {}), served)
        nodes.append(_map_node(node, jobs, held, kept.get(node.name, "")))
    known = {node.name: node for node in nodes}
    waiting = snapshot.waiting_by_partition
    return ClusterMap(
        partitions=tuple(
            _map_partition(each, snapshot, known, waiting.get(each.name, ())) for each in snapshot.partitions
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
        indices = {index for each in gres if each.name in GPU_GRES for index in each.indices}
        if not indices and job_id in served and served[job_id].node == name:
            indices = set(served[job_id].gpus)
        for index in indices:
            held.setdefault(index, []).append(holder)
    return held


def _map_node(
    node: NodeState, jobs: Mapping[str, Holder], held: Mapping[int, Sequence[Holder]], reservation: str
) -> MapNode:
    gpus = tuple(_gpus(node, held))
    signed = _SIGNED.fullmatch(node.reason)
    use = _use(node, jobs, gpus)
    return MapNode(
        name=node.name,
        use=use,
        state=state_in_words(node, use, busy=bool(jobs) or node.cpus_allocated > 0),
        reason=signed["words"] if signed else node.reason,
        reason_by=signed["by"] if signed else "",
        reason_at=float(signed["at"]) if signed else None,
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
    used = {index for each in node.gres_used if each.name in GPU_GRES for index in each.indices}
    used.update(index for index in held if index < len(types))
    counted = Counter[str]()  # GPUs in use for which Slurm gives no index
    for each in node.gres_used:
        if each.name == "gpu" and not each.indices:
            counted[each.type or ""] += each.count
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
    devices = (each.type or "" for each in node.gres if each.name == "gpu" for _ in range(each.count))
    types = list(islice(devices, GPUS_AT_MOST))
    for each in node.gres_used:
        for index in each.indices if each.name == "gpu" else ():
            kind = each.type or ""
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
    known = snapshot.node_table.column("name")
    names = tuple(known[at] for at in snapshot.nodes_by_partition.positions.get(partition.name, ()))
    return MapPartition(partition.name, partition.state, names, totals([nodes[name] for name in names]), queue)
