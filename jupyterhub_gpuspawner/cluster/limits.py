"""Why a job could never run as the cluster is: bounds of partitions, kinds of nodes, reservations. Pure.

Everything here is what slurm.conf and reservations say; what is merely in use is :mod:`.availability`'s.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from jupyterhub_gpuspawner.cluster.node_fit import ANY, Need
from jupyterhub_gpuspawner.cluster.snapshot import DefaultMemory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jupyterhub_gpuspawner.cluster.capacity import Rooms
    from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot, Partition, Reservation
    from jupyterhub_gpuspawner.profiles.resolve import ResolvedResources

_CLOSED = {"DOWN": "is closed", "DRAIN": "takes no new jobs", "INACTIVE": "is switched off"}
_NOTHING_KNOWN: Mapping[str, bool] = MappingProxyType({})
_COMES_AGAIN = frozenset({"DAILY", "HOURLY", "WEEKDAY", "WEEKEND", "WEEKLY"})


class Fault(NamedTuple):
    """What stands in the way."""

    field: str
    """The field of a profile's ``slurm`` block."""
    clause: str
    """For a participant; no capital, no full stop."""


def need_of(resources: ResolvedResources, partition: Partition, memory: DefaultMemory | None = None) -> Need:
    """What the job asks of each node in that partition; ``memory`` is the cluster's for a job that asks for none.

    Source: slurm.conf(5), DefMemPerCPU, DefMemPerNode and MaxMemPerCPU.
    """
    cpus, asked = resources.cpus or 1, resources.memory
    if asked is None:
        asked = _default_memory(cpus, partition, memory)
    if asked and partition.max_memory_per_cpu_mib:
        cpus = max(cpus, -(-asked // partition.max_memory_per_cpu_mib))
    return Need(
        gpus=resources.gpus or 0,
        gpu_type=resources.gpu_type or ANY,
        shards=resources.shards or 0,
        cpus=cpus,
        memory=asked or 0,
        all_memory=asked == 0,
        exclusive=resources.exclusive,
    )


def _default_memory(cpus: int, partition: Partition, memory: DefaultMemory | None) -> int | None:
    """MiB a node of a job that asks for no memory; 0 is all of the node's, None is none that is counted."""
    of_cluster = memory or DefaultMemory(allocated=False)
    if not of_cluster.allocated:
        return None
    for a_node, a_cpu in (
        (partition.default_memory_per_node_mib, partition.default_memory_per_cpu_mib),
        (of_cluster.per_node_mib, of_cluster.per_cpu_mib),
    ):
        if a_node is not None:
            return a_node
        if a_cpu is not None:
            return a_cpu * cpus
    return 0


def length_of(resources: ResolvedResources, partition: Partition) -> float:
    """Seconds that Slurm would give the job; infinite without a limit."""
    if resources.time is None:
        return next((limit for limit in (partition.default_time, partition.max_time) if limit is not None), inf)
    return resources.time if isinstance(resources.time, int) else inf


def partitions_of(resources: ResolvedResources, snapshot: ClusterSnapshot) -> list[str]:
    """Names of the partitions that the job would go to: those asked for, else the default one."""
    if resources.partition:
        return resources.partition.split(",")
    return [partition.name for partition in snapshot.partitions if partition.default]


def in_allowed_group(partition: Partition, groups: Mapping[str, bool]) -> bool | None:
    """Whether AllowGroups lets the user in; None where that is not known.

    ``groups`` says of Unix groups whether the user is in them; one that is not there is not known.
    """
    if not partition.allow_groups or any(groups.get(name) for name in partition.allow_groups):
        return True
    return False if all(name in groups for name in partition.allow_groups) else None


def fault_of(
    resources: ResolvedResources,
    snapshot: ClusterSnapshot,
    *,
    now: float,
    user: str = "",
    groups: Mapping[str, bool] = _NOTHING_KNOWN,
) -> Fault | None:
    """Why the job can run in none of its partitions; None where it can in one of them.

    A name that is not there counts at once: Slurm refuses the whole list. ``now`` in seconds since the epoch; for
    ``groups`` see :func:`in_allowed_group`.
    """
    names = partitions_of(resources, snapshot)
    if not names:
        return Fault("partition", "it names no partition, and the cluster has no default one")
    missing = [name for name in names if name not in snapshot.partition_by_name]
    if missing:
        known = ", ".join(sorted(partition.name for partition in snapshot.partitions if not partition.hidden))
        return Fault("partition", f"there is no partition {missing[0]} (there are {known})")
    of_reservation = next(_of_reservation(resources, snapshot, now, user), None)
    if of_reservation is not None:
        return of_reservation
    found = [fault_in(resources, snapshot, name, now=now, groups=groups) for name in names]
    return next(iter(found)) if all(found) else None


def fault_in(
    resources: ResolvedResources,
    snapshot: ClusterSnapshot,
    name: str,
    *,
    now: float,
    groups: Mapping[str, bool] = _NOTHING_KNOWN,
) -> Fault | None:
    """Why the job cannot run in one partition that is there; None as well where the partition was not understood."""
    partition = snapshot.partition_by_name[name]
    if partition.unread:
        return None  # what is not known refuses nothing
    kept = snapshot.reservation_by_name.get(resources.reservation or "")
    return next(
        (
            fault
            for faults in (
                _of_partition(resources, partition, groups),
                _of_time_kept(resources, partition, kept, now),
                _of_nodes(resources, snapshot, partition, kept),
            )
            for fault in faults
        ),
        None,
    )


def _of_reservation(resources: ResolvedResources, snapshot: ClusterSnapshot, now: float, user: str) -> Iterator[Fault]:
    name = resources.reservation
    if not name or "," in name:
        return
    kept = snapshot.reservation_by_name.get(name)
    if kept is None and any(each.kind == "reservation" for each in snapshot.unread):
        return  # it may be the one that was not understood
    if kept is None:
        yield Fault("reservation", f"there is no reservation {name}")
        return
    if kept.end is not None and kept.end <= now and not kept.flags & _COMES_AGAIN:
        yield Fault("reservation", f"reservation {name} has ended")
    others = [each for each in kept.users if not each.startswith("-")]
    if user and (f"-{user}" in kept.users or (others and user not in others and not kept.accounts)):
        yield Fault("reservation", f"reservation {name} is for other users")


def _of_partition(resources: ResolvedResources, partition: Partition, groups: Mapping[str, bool]) -> Iterator[Fault]:
    where = f"partition {partition.name}"
    if partition.state in _CLOSED:
        yield Fault("partition", f"{where} {_CLOSED[partition.state]} at the moment")
    if partition.needs_reservation and not resources.reservation:
        yield Fault("reservation", f"{where} is only for jobs with a reservation")
    if in_allowed_group(partition, groups) is False:
        yield Fault("partition", f"{where} is only for members of {' or '.join(partition.allow_groups)}")
    for kind, said, allowed, denied in (
        ("account", resources.account, partition.allow_accounts, partition.deny_accounts),
        ("qos", resources.qos, partition.allow_qos, partition.deny_qos),
    ):
        if said and ((allowed and said not in allowed) or said in denied):
            yield Fault(kind, f"{where} is not for {'account' if kind == 'account' else 'QOS'} {said}")
    if not resources.qos:  # a QOS may lift a partition's bounds
        yield from _of_sizes(resources, partition, where)


def _of_sizes(resources: ResolvedResources, partition: Partition, where: str) -> Iterator[Fault]:
    length = length_of(resources, partition)
    if partition.max_time is not None and length > partition.max_time:
        asked = "no time limit" if length == inf else span(length)
        yield Fault("time", f"it asks for {asked}, and {where} allows {span(partition.max_time)}")
    if partition.max_nodes is not None and resources.nodes > partition.max_nodes:
        yield Fault("nodes", f"it asks for {resources.nodes} nodes, and {where} allows {partition.max_nodes}")
    if resources.nodes < partition.min_nodes:
        yield Fault("nodes", f"it asks for {nodes_in_words(resources.nodes)}, and {where} wants {partition.min_nodes}")
    if partition.max_cpus_per_node is not None and (resources.cpus or 1) > partition.max_cpus_per_node:
        yield Fault(
            "cpus", f"it asks for {resources.cpus} cores a node, and {where} allows {partition.max_cpus_per_node}"
        )
    if partition.max_memory_per_node_mib and (resources.memory or 0) > partition.max_memory_per_node_mib:
        asked, most = gib(resources.memory or 0), gib(partition.max_memory_per_node_mib)
        yield Fault("memory", f"it asks for {asked} of memory a node, and {where} allows {most}")


def _of_time_kept(
    resources: ResolvedResources, partition: Partition, kept: Reservation | None, now: float
) -> Iterator[Fault]:
    """Slurm starts no job in a reservation that would outlive it, unless it is a flexible one."""
    if kept is None or kept.end is None or kept.flags & ({"FLEX"} | _COMES_AGAIN):
        return
    left = kept.end - max(now, kept.start or now)
    length = length_of(resources, partition)
    if length > left:
        asked = "no time limit" if length == inf else span(length)
        yield Fault("time", f"it asks for {asked}, and reservation {kept.name} has {span(left)} left")


def _of_nodes(
    resources: ResolvedResources, snapshot: ClusterSnapshot, partition: Partition, kept: Reservation | None
) -> Iterator[Fault]:
    if len(snapshot.nodes_of(partition.name)) < len(partition.nodes):
        return  # Slurm hides nodes that are switched off; nobody knows what they have
    reservation, need = kept.name if kept is not None else "", need_of(resources, partition, snapshot.memory)
    where = f"partition {partition.name}" + (f" and reservation {reservation}" if reservation else "")
    rooms = snapshot.capacity.rooms(partition.name, reservation=reservation)
    if resources.constraint:
        narrowed = snapshot.capacity.rooms(partition.name, reservation=reservation, constraint=resources.constraint)
        if rooms.all and not narrowed.all:
            yield Fault("constraint", f"no node of {where} has the feature {resources.constraint}")
            return
        rooms = narrowed
    yield from _of_kinds(need, rooms, where)
    able = rooms.offering(need)
    if able < resources.nodes:
        yield Fault("nodes", f"it asks for {resources.nodes} nodes, and {where} has {able} of that kind")


def _of_kinds(need: Need, rooms: Rooms, where: str) -> Iterator[Fault]:
    """What no node has, one resource after the other, then all together."""
    kinds = rooms.kinds.keys()
    if not kinds:
        yield Fault("partition", f"{where} has no nodes")
        return
    most = max(kind.gpus.get(need.gpu_type, 0) for kind in kinds)
    named = need.gpu_type or "GPUs"
    if need.gpus and not most:
        types = ", ".join(filter(None, rooms.types))
        if need.gpu_type:
            yield Fault("gpu_type", f"{where} has no GPUs of type {named}" + (f" (there are {types})" if types else ""))
        else:
            yield Fault("gpus", f"{where} has no GPUs")
    elif need.gpus > most:
        yield Fault("gpus", f"it asks for {need.gpus} {named} a node, and a node of {where} has at most {most}")
    shards = max(kind.shards for kind in kinds)
    if need.shards > shards:
        has = f"a node of {where} has at most {shards}" if shards else f"{where} has none"
        yield Fault("shards", f"it asks for {need.shards} GPU shares a node, and {has}")
    cpus = max(kind.cpus for kind in kinds)
    if need.cpus > cpus:
        yield Fault("cpus", f"it asks for {need.cpus} cores a node, and a node of {where} has at most {cpus}")
    memory = max(kind.memory for kind in kinds)
    if need.memory > memory:
        has = f"a node of {where} has at most {gib(memory)}"
        yield Fault("memory", f"it asks for {gib(need.memory)} of memory a node, and {has}")
    if not any(kind.offers(need) for kind in kinds):
        alone = replace(need, cpus=1, memory=0)
        field = "cpus" if any(kind.offers(replace(need, cpus=1)) for kind in kinds) else "memory"
        field = field if any(kind.offers(alone) for kind in kinds) else "gpus"
        yield Fault(field, f"no node of {where} has all of what it asks for together")


def gib(mib: int) -> str:
    """``64 GiB``; MiB below one."""
    return f"{mib / 1024:.4g} GiB" if mib >= 1024 else f"{mib} MiB"


def nodes_in_words(count: int) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} node" if count == 1 else f"{count} nodes"


def span(seconds: float) -> str:
    """A length of time, roughly: ``12 min``, ``3 h``, ``2 days``."""
    minutes = max(1, round(seconds / 60))
    if minutes < 120:
        return f"{minutes} min"
    hours = round(minutes / 60)
    return f"{hours} h" if hours < 48 else f"{round(hours / 24)} days"
