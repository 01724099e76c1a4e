"""Where a cluster has each kind of GPU: in partitions that people can use, the best one first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from jupyterhub_gpuspawner.extensions.init.ask import Asker
from jupyterhub_gpuspawner.extensions.init.devices import NO_GPU, Kind, Share, shares_of
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState, Partition, SlurmConfig
from jupyterhub_gpuspawner.slurm.text import nodes
from jupyterhub_gpuspawner.words import some

HOUR = 3600
USUAL_TIME, LONGEST_TIME = 8 * HOUR, 24 * HOUR
"""Seconds that a server has where the partition allows them, and at most."""
UNKNOWN_MIB = 1
"""The memory of a node for which slurm.conf has no RealMemory."""
NOT_SHOWN = "nodes not shown"
"""Why a partition is closed whose nodes Slurm hides while they are switched off."""
NORMAL = "normal"
"""The QOS that jobs have where nobody has set another one (sacctmgr(1))."""


@dataclass(frozen=True)
class Place:
    """A kind in a partition."""

    partition: Partition
    nodes: tuple[NodeState, ...]
    """Those that have it."""
    shares: tuple[Share, ...]

    @property
    def least(self) -> Share:
        """What all of its nodes have of it, and for one of it."""
        numbers, of_cpus, _, gpus, parts = zip(*self.shares, strict=True)
        of_memory = [share.memory_mib for node, share in self.of_known_memory]
        return Share(min(numbers), min(of_cpus), min(of_memory, default=0), max(gpus), min(parts))

    @property
    def of_known_memory(self) -> list[tuple[NodeState, Share]]:
        """Its nodes of which Slurm knows the memory, each with its share."""
        pairs = zip(self.nodes, self.shares, strict=True)
        return [(node, share) for node, share in pairs if node.memory_mib > UNKNOWN_MIB]

    @property
    def cpus_per_core(self) -> int:
        """That of most of its nodes."""
        return Counter(node.cpus_per_core for node in self.nodes).most_common(1)[0][0]


def why_closed(partition: Partition, snapshot: ClusterSnapshot, who: Asker) -> str:
    """Why people cannot use a partition, in a few words; empty if they can.

    They submit their jobs from the host of ``who``, and have its groups and default account, or none in common.
    """
    hosts = partition.parameters.get("AllocNodes", "ALL")
    is_allowed = hosts == "ALL" or not who.host or who.host in nodes("AllocNodes", hosts)
    limits = {
        "groups": () if who.groups.intersection(partition.allow_groups) else partition.allow_groups,
        "accounts": () if who.account in partition.allow_accounts else partition.allow_accounts,
        "QOS": partition.allow_qos if NORMAL not in partition.allow_qos else (),
        "jobs from": () if is_allowed else (hosts,),
    }
    if partition.state != "UP":
        return f"nobody: {partition.state}"
    if partition.hidden:
        return "hidden"
    if partition.parameters.get("RootOnly", "").upper() == "YES":
        return "root alone"
    if partition.needs_reservation:
        return "reservations"
    for what, names in limits.items():
        if names:
            return f"{what}: {some(names, at_most=2)}"
    if NORMAL in partition.deny_qos:
        return "not QOS normal"
    if who.account in partition.deny_accounts:
        return f"not account {who.account}"
    if partition.min_nodes > 1:
        return f"jobs of {partition.min_nodes} nodes"
    if not snapshot.nodes_of(partition.name):
        return NOT_SHOWN if partition.nodes else "no nodes"
    return ""


def places_of(snapshot: ClusterSnapshot, closed: Collection[str]) -> dict[Kind, tuple[Place, ...]]:
    """Where each kind is in partitions that are not closed, the best place first."""
    candidates: dict[Kind, list[Place]] = {}
    for partition in snapshot.partitions:
        if partition.name in closed:
            continue
        by_kind: dict[Kind, list[tuple[NodeState, Share]]] = {}
        for node in snapshot.nodes_of(partition.name):
            shares = shares_of(node, cpus=_cpus(node, partition), memory_mib=node.memory_mib)
            for kind, share in shares.items():
                by_kind.setdefault(kind, []).append((node, share))
        for kind, pairs in by_kind.items():
            candidates.setdefault(kind, []).append(Place(partition, *map(tuple, zip(*pairs, strict=True))))
    if NO_GPU not in candidates:  # no node without GPUs is open: such a server is beside them
        of_partition = {place.partition.name: place for places in candidates.values() for place in places}
        candidates[NO_GPU] = [
            Place(
                place.partition,
                place.nodes,
                tuple(Share(1, _cpus(node, place.partition), node.memory_mib) for node in place.nodes),
            )
            for place in of_partition.values()
        ]
    return {
        kind: tuple(sorted(places, key=lambda place: _preference(place, snapshot)))
        for kind, places in candidates.items()
        if places
    }


def _cpus(node: NodeState, partition: Partition) -> int:
    """Those of a node that jobs of a partition may have together."""
    return min(node.cpus, partition.max_cpus_per_node or node.cpus)


def _preference(place: Place, snapshot: ClusterSnapshot) -> tuple[object, ...]:
    """The lower, the better a partition suits people's servers of a kind; equal ones in Slurm's order."""
    partition = place.partition
    return (
        (partition.max_time or LONGEST_TIME) < USUAL_TIME // 2,
        is_preempted(partition, snapshot),
        gives_whole_nodes(partition, snapshot.config),
        not partition.default,
        -len(place.nodes),
    )


def is_preempted(partition: Partition, snapshot: ClusterSnapshot) -> bool:
    """Whether jobs of other partitions may end or suspend those of this one (PreemptType=preempt/partition_prio)."""
    return (
        snapshot.config.preemption == "partition"
        and (partition.preemptable or partition.suspendable)
        and any(other.priority_tier > partition.priority_tier for other in snapshot.partitions)
    )


def gives_whole_nodes(partition: Partition, config: SlurmConfig) -> bool:
    """Whether each job gets whole nodes there."""
    return partition.exclusive or config.cpu_unit == "node"
