"""Why a job can never run on the cluster as configured: partition limits, node hardware, reservations. Pure.

Only slurm.conf and the reservations are considered; what is in use at the moment is up to :mod:`.availability`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from jupyterhub_gpuspawner.extensions.availability.model.capacity import capacity_of
from jupyterhub_gpuspawner.extensions.availability.model.fit import ANY, Need, NodeFit, NodeSet
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.gpu_model import gpu_model
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Partition, Reservation, SlurmConfig
from jupyterhub_gpuspawner.units import format_walltime, parse_memory
from jupyterhub_gpuspawner.words import counted, cpus, duration, in_unit, memory

_CLOSED = {"DOWN": "is closed", "DRAIN": "does not accept new jobs", "INACTIVE": "is inactive"}
_NO_GROUPS: Mapping[str, bool] = MappingProxyType({})


class FaultKind(str, Enum):
    """What is wrong with a field."""

    MISSING = "it names what is not there"
    CLOSED = "it names what is closed or over"
    FORBIDDEN = "it names what is for others"
    NEEDED = "it must be set"
    AMOUNT = "it is too much or too little"
    TOGETHER = "it is too much together with the other fields"


class Fault(NamedTuple):
    """A reason why the job can never run."""

    field: str
    """The field of a profile's ``slurm`` block."""
    clause: str
    """For a participant; without leading capital and final full stop."""
    kind: FaultKind = FaultKind.AMOUNT


def need_of(resources: Resources, partition: Partition, snapshot: ClusterSnapshot) -> Need:
    """What the job requests on each node of the partition, with slurm.conf's defaults for what it does not request.

    Source: slurm.conf(5), DefMemPerCPU, DefMemPerGPU, DefMemPerNode, DefCpuPerGPU, MaxMemPerCPU and OverSubscribe; what
    a job gets by them was compared with Slurm 22.05 and 24.11.
    """
    cpus, gpus = requested_cpus(resources, partition, snapshot), resources.gpus or 0
    per_node, per_cpu, per_gpu = _read_memory(resources) or _default_memory(gpus, partition, snapshot.config)
    _, most_per_cpu = most_memory(partition, snapshot.config)
    if per_cpu and most_per_cpu and per_cpu > most_per_cpu:
        times = -(-per_cpu // most_per_cpu)
        cpus, per_cpu = cpus * times, -(-per_cpu // times)
    if most_per_cpu:
        cpus = max(cpus, -(-((per_node or 0) + per_gpu * gpus) // most_per_cpu))
    return Need(
        gpus=gpus,
        gpu_type=resources.gpu_type or ANY,
        shards=resources.shards or 0,
        cpus=cpus,
        memory=(per_node or 0) + per_cpu * cpus + per_gpu * gpus,
        memory_per_cpu=per_cpu,
        memory_per_gpu=per_gpu,
        all_memory=per_node == 0 and snapshot.config.memory_is_allocated is not False,
        whole_cores=uses_one_thread(resources),
        exclusive=bool(resources.exclusive) or partition.exclusive,
    )


class _Memory(NamedTuple):
    """What a job requests of memory, in MiB: one of these, or what slurm.conf has for jobs that request none."""

    per_node: int | None = None
    """0: all of the node's; None: none, or so much for each CPU or GPU."""
    per_cpu: int = 0
    per_gpu: int = 0


MEMORY_OPTIONS = {"mem": "per_node", "mem-per-cpu": "per_cpu", "mem-per-gpu": "per_gpu"}
"""sbatch's, of which a job may have one."""


def requested_memory(resources: Resources) -> _Memory | None:
    """What the field or an option of ``extra`` requests; None where neither does.

    Raises ValueError for an amount that cannot be read, and for several.
    """
    options = [(name, value) for name, value in resources.extra_options if name in MEMORY_OPTIONS]
    if resources.memory is not None:
        options.append(("mem", str(resources.memory)))
    amounts = [_Memory(**{MEMORY_OPTIONS[name]: parse_memory(value)}) for name, value in options]
    if len(amounts) > 1:
        raise ValueError(f"{len(amounts)} amounts of memory are requested")
    return amounts[0] if amounts else None


def _read_memory(resources: Resources) -> _Memory | None:
    try:
        return requested_memory(resources)
    except ValueError:
        return _Memory()


def requested_cpus(resources: Resources, partition: Partition, snapshot: ClusterSnapshot) -> int:
    """CPUs per node that the job requests, or has for its GPUs by default, without those that its memory adds."""
    if resources.cpus is not None:
        return resources.cpus
    per_gpu = (partition.default_cpus_per_gpu, snapshot.config.default_cpus_per_gpu)
    return max(1, (resources.gpus or 0) * next((amount for amount in per_gpu if amount is not None), 0))


def uses_one_thread(resources: Resources) -> bool:
    """Whether the job uses one thread of each core, so that each of its CPUs is a core (sbatch(1), ``--hint``)."""
    options = [option for option in resources.extra_options if option[0] in ("hint", "threads-per-core")]
    return bool(options) and options[-1] in (("hint", "nomultithread"), ("threads-per-core", "1"))


def _default_memory(gpus: int, partition: Partition, config: SlurmConfig) -> _Memory:
    """That of a job which requests none."""
    if not config.memory_is_allocated:
        return _Memory()
    per_gpu = partition.default_memory_per_gpu_mib or config.default_memory_per_gpu_mib
    if gpus and per_gpu:
        return _Memory(per_gpu=per_gpu)
    for defaults in (partition, config):
        if defaults.default_memory_per_node_mib is not None:
            return _Memory(defaults.default_memory_per_node_mib)
        if defaults.default_memory_per_cpu_mib is not None:
            return _Memory(per_cpu=defaults.default_memory_per_cpu_mib)
    return _Memory(0)


def most_memory(partition: Partition, config: SlurmConfig) -> tuple[int | None, int | None]:
    """MaxMemPerNode and MaxMemPerCPU in MiB, of which one may be set: the partition's, else the cluster's."""
    of_partition = partition.max_memory_per_node_mib, partition.max_memory_per_cpu_mib
    return of_partition if any(of_partition) else (config.max_memory_per_node_mib, config.max_memory_per_cpu_mib)


class Preempted(str, Enum):
    """What happens to a job that is preempted."""

    ENDS = "ends"
    PAUSES = "pauses"


def preempted(resources: Resources, snapshot: ClusterSnapshot) -> Preempted | None:
    """What jobs with more right to the resources do to this one; None where there are none, or that is not known.

    These are jobs of a partition with a higher PriorityTier and some of its nodes, or of a QOS that preempts its own,
    if it names one. Of several partitions it may run in the worst one.
    """
    below = [
        snapshot.partition_by_name[name]
        for name in snapshot.partitions_of(resources.partition)
        if name in snapshot.partition_by_name and _is_preempted(resources, snapshot.partition_by_name[name], snapshot)
    ]
    if any(partition.preemptable for partition in below):
        return Preempted.ENDS
    return Preempted.PAUSES if any(partition.suspendable for partition in below) else None


def _is_preempted(resources: Resources, partition: Partition, snapshot: ClusterSnapshot) -> bool:
    if snapshot.config.preemption == "qos":
        qos = (resources.qos or "").lower()
        return any(qos in preempted_qos for preempted_qos in (snapshot.preempted_qos or {}).values())
    return snapshot.config.preemption == "partition" and any(
        other.priority_tier > partition.priority_tier and not set(other.nodes).isdisjoint(partition.nodes)
        for other in snapshot.partitions
    )


def cpus_per_core_of(resources: Resources | None, snapshot: ClusterSnapshot | None) -> int:
    """How many of the CPUs that a job requests a core has where it may run; 0 where that is not known or not the same.

    One where it uses one thread of each core; else as many as Slurm counts.
    """
    if resources is None or snapshot is None:
        return 0
    if uses_one_thread(resources):
        return 1
    capacity = capacity_of(snapshot)
    numbers = {capacity.nodes(name).cpus_per_core for name in snapshot.partitions_of(resources.partition)}
    return numbers.pop() if len(numbers) == 1 else 0


class Allocated(NamedTuple):
    """What Slurm gives a job on each node: every amount that it may be, by the nodes that may run it."""

    cpus: tuple[int, ...] = ()
    """Of those that a job requests: cores, where it uses one thread of each."""
    memory: tuple[int, ...] = ()
    """MiB; 0: all memory of a node. Empty where Slurm allocates none, or it is not known."""
    gpus: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    """By type, for a whole node, with which it gets all of them; empty else."""


def allocated(resources: Resources, snapshot: ClusterSnapshot) -> Allocated:
    """What Slurm gives the job, with that of a whole node, CPUs for memory (MaxMemPerCPU), and defaults."""
    cpus, memory, gpus = set[int](), set[int](), list[Mapping[str, int]]()
    for name in snapshot.partitions_of(resources.partition):
        partition = snapshot.partition_by_name.get(name)
        if partition is None:
            continue
        need, requested = need_of(resources, partition, snapshot), requested_cpus(resources, partition, snapshot)
        if "" < snapshot.config.version < "23":  # of those for memory, no part of what each task requests
            need = replace(need, cpus=max(requested, need.cpus // requested * requested))
        nodes = capacity_of(snapshot).nodes(
            name, constraint=resources.constraint or "", reservation=resources.reservation_name
        )
        for node in nodes.kinds:
            if node.offers(need):
                of_cpus, of_memory = node.used_by(need)
                cpus.add(of_cpus // (node.cpus_per_core if need.whole_cores else 1))
                memory.update([0] if need.all_memory else filter(None, [of_memory]))
                gpus.append(node.by_type if need.exclusive else {})
    types = dict.fromkeys(kind for of_node in gpus for kind in of_node)
    return Allocated(
        tuple(sorted(cpus)),
        tuple(sorted(memory)),
        {kind: tuple(sorted({of_node.get(kind, 0) for of_node in gpus})) for kind in types},
    )


def in_allowed_group(partition: Partition, groups: Mapping[str, bool]) -> bool | None:
    """Whether AllowGroups admits the user; None where that is not known.

    ``groups`` maps Unix groups to whether the user is a member; nothing is known of a group that is missing.
    """
    if not partition.allow_groups or any(groups.get(name) for name in partition.allow_groups):
        return True
    return False if all(name in groups for name in partition.allow_groups) else None


def may_be_of_others(own: Reservation, resources: Resources, groups: Mapping[str, bool]) -> bool:
    """Whether a reservation's accounts, groups, QOS or partitions may be others than the job's.

    Slurm wants all that a reservation names (scontrol(1)). A job that names no account has a default one, and an
    account may be below one that is listed.
    """
    allowed = tuple(name for name in own.accounts if not name.startswith("-"))
    denied = is_listed(own.accounts, f"-{resources.account}") or not resources.account
    account = not is_listed(allowed, resources.account) if allowed else own.accounts and denied
    members = [groups.get(name) for name in own.groups if not name.startswith("-")]
    partitions = set((resources.partition or "").split(",")) - {""}
    return bool(
        account
        or (members and not any(members))
        or (own.qos and not is_listed(own.qos, resources.qos))
        or (own.allowed_partitions and not partitions <= set(own.allowed_partitions))
    )


def may_be_refused_account(resources: Resources, partition: Partition) -> bool:
    """Whether AllowAccounts does not list the job's account. Newer versions then allow it if it is below one listed.

    Slurm 24.11 does so, 22.05 does not (slurm.conf(5)); a snapshot has neither the version nor the tree of accounts.
    """
    listed = partition.allow_accounts
    return bool(resources.account and listed) and not is_listed(listed, resources.account)


def fault_of(
    resources: Resources,
    snapshot: ClusterSnapshot,
    *,
    now: float,
    user: str = "",
    groups: Mapping[str, bool] = _NO_GROUPS,
) -> Fault | None:
    """Why the job can run in none of its partitions, or Slurm refuses it for one of them; None if it can run.

    Slurm refuses the whole list if a partition does not exist, and with EnforcePartLimits=ALL if the job is not within
    the limits of one that is open. ``now`` in seconds since the epoch; for ``groups`` see :func:`in_allowed_group`.
    """
    names = snapshot.partitions_of(resources.partition)
    if not names:
        return Fault("partition", "no partition requested, and the cluster has no default one", FaultKind.NEEDED)
    missing = [name for name in names if name not in snapshot.partition_by_name]
    if missing:
        names_in_words = ", ".join(sorted(partition.name for partition in snapshot.partitions if not partition.hidden))
        return Fault(
            "partition", f"there is no partition {missing[0]} (available: {names_in_words})", FaultKind.MISSING
        )
    of_reservation = next(_of_reservation(resources, snapshot, now, user), None)
    if of_reservation is not None:
        return of_reservation
    faults = [fault_in(resources, snapshot, name, groups=groups) for name in names]
    if all(faults):
        return next(iter(faults))
    return next(_of_each(resources, snapshot, names, groups), None) if snapshot.config.enforces_limits_of_all else None


def _of_each(
    resources: Resources, snapshot: ClusterSnapshot, names: Collection[str], groups: Mapping[str, bool]
) -> Iterator[Fault]:
    """What EnforcePartLimits=ALL applies to: neither closed partitions nor the nodes' hardware."""
    for name in names:
        partition = snapshot.partition_by_name[name]
        if partition.unread or partition.state in _CLOSED:
            continue
        yield from _of_access(resources, partition, groups)
        for fault in _of_sizes(resources, snapshot, partition):
            yield fault._replace(clause=f"{fault.clause} in partition {name}")


def fault_in(
    resources: Resources,
    snapshot: ClusterSnapshot,
    name: str,
    *,
    groups: Mapping[str, bool] = _NO_GROUPS,
) -> Fault | None:
    """Why the job cannot run in an existing partition; None also if Slurm's description of it was not understood."""
    partition = snapshot.partition_by_name[name]
    if partition.unread:
        return None  # an unknown limit is no reason to refuse
    own = snapshot.reservation_by_name.get(resources.reservation_name)
    return next(
        (
            fault
            for faults in (
                _of_partition(resources, snapshot, partition, groups),
                _of_nodes(resources, snapshot, partition, own),
            )
            for fault in faults
        ),
        None,
    )


def _of_reservation(resources: Resources, snapshot: ClusterSnapshot, now: float, user: str) -> Iterator[Fault]:
    name = resources.reservation_name
    if not name or "," in name:
        return
    own = snapshot.reservation_by_name.get(name)
    if own is None and any(record.kind == "reservation" for record in snapshot.unread):
        return  # it may be one whose record was not understood
    if own is None:
        yield Fault("reservation", f"there is no reservation {name}", FaultKind.MISSING)
        return
    if is_over(own, now):
        yield Fault("reservation", f"reservation {name} has ended", FaultKind.CLOSED)
    others = [user for user in own.users if not user.startswith("-")]
    if user and (f"-{user}" in own.users or (others and user not in others)):
        yield Fault("reservation", f"reservation {name} is for other users", FaultKind.FORBIDDEN)


def _of_partition(
    resources: Resources, snapshot: ClusterSnapshot, partition: Partition, groups: Mapping[str, bool]
) -> Iterator[Fault]:
    if partition.state in _CLOSED:
        closed = f"partition {partition.name} {_CLOSED[partition.state]} at the moment"
        yield Fault("partition", closed, FaultKind.CLOSED)
    yield from _of_access(resources, partition, groups)
    yield from _of_sizes(resources, snapshot, partition)


def _of_access(resources: Resources, partition: Partition, groups: Mapping[str, bool]) -> Iterator[Fault]:
    where = f"partition {partition.name}"
    if partition.needs_reservation and not resources.reservation_name:
        yield Fault("reservation", f"{where} requires a reservation", FaultKind.NEEDED)
    if in_allowed_group(partition, groups) is False:
        yield Fault(
            "partition",
            f"{where} is restricted to members of {' or '.join(partition.allow_groups)}",
            FaultKind.FORBIDDEN,
        )
    if is_listed(partition.deny_accounts, resources.account):
        yield Fault("account", f"{where} does not allow account {resources.account}", FaultKind.FORBIDDEN)
    unlisted = resources.qos and partition.allow_qos and not is_listed(partition.allow_qos, resources.qos)
    if unlisted or is_listed(partition.deny_qos, resources.qos):
        yield Fault("qos", f"{where} does not allow QOS {resources.qos}", FaultKind.FORBIDDEN)


def is_listed(listed: tuple[str, ...], name: str | None) -> bool:
    """Whether a list of accounts or QOS has this one: slurmctld looks both up without regard to case."""
    return (name or "").lower() in _lowered(listed)


@lru_cache(maxsize=8192)
def _lowered(listed: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name.lower() for name in listed)


def is_over(reservation: Reservation, now: float) -> bool:
    """Whether it has ended and does not begin again; ``now`` in seconds since the epoch."""
    return reservation.end is not None and reservation.end <= now and not reservation.is_repeated


def _of_sizes(resources: Resources, snapshot: ClusterSnapshot, partition: Partition) -> Iterator[Fault]:
    if resources.qos:  # it may lift the partition's limits
        return
    length, longest = partition.length_of(resources.time), partition.max_time
    if longest is not None and length == inf:
        yield Fault("time", f"a time limit is needed: at most {duration(longest)}", FaultKind.NEEDED)
    elif longest is not None and length > longest:
        requested, limit = distinct(int(length), longest, _as_requested(resources), format_walltime)
        yield Fault("time", f"{requested} is more than the limit of {limit}")
    if partition.max_nodes is not None and resources.node_count > partition.max_nodes:
        yield Fault("nodes", f"{count_is(resources.node_count, 'node')} more than the limit of {partition.max_nodes}")
    if resources.node_count < partition.min_nodes:
        yield Fault("nodes", f"{count_is(resources.node_count, 'node')} fewer than the {partition.min_nodes} required")
    if partition.max_cpus_per_node is not None and (resources.cpus or 1) > partition.max_cpus_per_node:
        requested = _cpus_text(resources.cpus or 1, capacity_of(snapshot).nodes(partition.name).cpus_per_core)
        yield Fault("cpus", f"{requested} more than the limit of {partition.max_cpus_per_node}")
    most, _ = most_memory(partition, snapshot.config)
    least = need_of(resources, partition, snapshot).memory
    if most and least > most:
        requested, limit = distinct(least, most, memory, _mib)
        by_default = " by default" if _read_memory(resources) is None else ""
        yield Fault("memory", f"{requested} of memory{by_default} is more than the limit of {limit}")


def runs_until_end_of(
    own: Reservation | None, partition: Partition, resources: Resources, *, now: float
) -> float | None:
    """For how many seconds a job runs that would outlast its reservation; None for one that would not.

    Slurm starts such a job, and ends it with the reservation, or ResvOverRun minutes after that (seen with 22.05, as
    with 24.11 and 26.05 the start). With FLEX it runs on, and one that is repeated is not judged.
    """
    if own is None or own.end is None or own.is_repeated or "FLEX" in own.flags:
        return None
    left = own.end - max(now, own.start or now)
    return left if partition.length_of(resources.time) > left else None


def _of_nodes(
    resources: Resources, snapshot: ClusterSnapshot, partition: Partition, own: Reservation | None
) -> Iterator[Fault]:
    if snapshot.hides_nodes_of(partition):
        return  # their hardware is unknown
    reservation, need = own.name if own is not None else "", need_of(resources, partition, snapshot)
    where = f"partition {partition.name}" + (f" and reservation {reservation}" if reservation else "")
    capacity = capacity_of(snapshot)
    nodes = capacity.nodes(partition.name, reservation=reservation)
    if resources.constraint:
        narrowed = capacity.nodes(partition.name, reservation=reservation, constraint=resources.constraint)
        if nodes.all and not narrowed.all:
            yield Fault("constraint", f"no node of {where} has the feature {resources.constraint}", FaultKind.MISSING)
            return
        nodes = narrowed
    yield from _of_kinds(need, nodes, where)
    if not resources.qos:
        default, most = requested_cpus(resources, partition, snapshot), partition.max_cpus_per_node
        if resources.cpus is None and most is not None and default > most:
            requested = _cpus_text(default, nodes.cpus_per_core)
            yield Fault("cpus", f"by default {requested} given with the GPUs, more than the limit of {most}")
        # --mem=0 is compared with the limits even where no memory is allocated; a default of all memory need not be
        whole = replace(need, all_memory=_read_memory(resources) == _Memory(0))
        yield from _of_whole_nodes(whole, nodes, partition, snapshot.config, capacity.nodes(partition.name).all[0])
    able = nodes.count_capable(need)
    if able < resources.node_count:
        yield Fault(
            "nodes", f"{count_is(resources.node_count, 'node')} more than the {able} of {where} with these resources"
        )


def _of_whole_nodes(
    need: Need, nodes: NodeSet, partition: Partition, config: SlurmConfig, first: NodeFit
) -> Iterator[Fault]:
    """Limits that no node is within of which a job gets all memory, or all CPUs.

    For all memory Slurm compares the ``first`` node of the partition alone, whichever the job may use.
    """
    per_node, per_cpu = (limit or inf for limit in most_memory(partition, config))
    if need.all_memory and first.memory > min(per_node, per_cpu * first.cpus):
        yield Fault("memory", f"all the memory of a node is more than partition {partition.name} allows")
    elif need.exclusive and need.memory_per_cpu and all(kind.used_by(need)[1] > per_node for kind in nodes.kinds):
        default = f"the default of {need.memory_per_cpu} MiB for each CPU of a whole node"
        yield Fault("memory", f"{default} is more than partition {partition.name} allows: name an amount")
    most = partition.max_cpus_per_node
    if need.exclusive and most is not None and all(kind.cpus > most for kind in nodes.kinds):
        yield Fault("exclusive", f"a whole node has more than the {most} CPUs that partition {partition.name} allows")


def _of_kinds(need: Need, nodes: NodeSet, where: str) -> Iterator[Fault]:
    """What no node has: each resource by itself, then all of them together."""
    kinds = nodes.kinds.keys()
    if not kinds:
        yield Fault("partition", f"{where} has no nodes", FaultKind.CLOSED)
        return
    most = max(kind.gpus.get(need.gpu_type, 0) for kind in kinds)
    if need.gpus and not most:
        types = ", ".join(filter(None, nodes.types))
        if need.gpu_type:
            available = f" (available: {types})" if types else ""
            yield Fault("gpu_type", f"{where} has no GPUs of type {need.gpu_type}{available}", FaultKind.MISSING)
        else:
            yield Fault("gpus", f"{where} has no GPUs", FaultKind.MISSING)
    elif need.gpus > most:
        model = gpu_model(need.gpu_type).name if need.gpu_type else "GPU"
        yield _too_many("gpus", count_is(need.gpus, model), str(most))
    shards, of_gpu = max(kind.shards for kind in kinds), max(kind.shards_of_gpu for kind in kinds)
    if need.shards and not shards:
        yield Fault("shards", f"{where} has no GPU shards", FaultKind.MISSING)
    elif need.shards > shards:
        yield _too_many("shards", count_is(need.shards, "GPU shard"), str(shards))
    elif need.shards > of_gpu:
        requested_text = count_is(need.shards, "GPU shard")
        yield Fault("shards", f"{requested_text} more than the {of_gpu} of a GPU, and a job gets those of one")
    most_cpus = max(kind.cpus // (kind.cpus_per_core if need.whole_cores else 1) for kind in kinds)
    if need.cpus > most_cpus:
        per_core = 1 if need.whole_cores else nodes.cpus_per_core
        yield _too_many("cpus", _cpus_text(need.cpus, per_core), str(most_cpus))
    largest = max(kind.memory for kind in kinds)
    if need.memory > largest:
        requested, has = distinct(need.memory, largest, memory, _mib)
        yield _too_many("memory", f"{requested} of memory is", has)
    yield from _together(need, kinds, where)


def _together(need: Need, kinds: Collection[NodeFit], where: str) -> Iterator[Fault]:
    """What no node has at the same time."""
    if need.exclusive and need.memory_per_cpu and all(kind.used_by(need)[1] > kind.memory for kind in kinds):
        default = f"the default of {need.memory_per_cpu} MiB for each CPU of a whole node is more memory than it has"
        yield Fault("memory", f"{default}: name an amount", FaultKind.TOGETHER)
    elif need.shards and need.exclusive and not any(kind.offers(need) for kind in kinds):
        yield Fault(
            "shards", f"a job of {where} with GPU shards cannot have a whole node of several GPUs", FaultKind.TOGETHER
        )
    elif not any(kind.offers(need) for kind in kinds):
        alone = replace(need, cpus=1, memory=0)
        field = "cpus" if any(kind.offers(replace(need, cpus=1)) for kind in kinds) else "memory"
        field = field if any(kind.offers(alone) for kind in kinds) else "gpus"
        yield Fault(field, f"no node of {where} has all the requested resources together", FaultKind.TOGETHER)


def _too_many(field: str, requested_text: str, most: str) -> Fault:
    return Fault(field, f"{requested_text} more than the {most} of a node")


def _cpus_text(number: int, per_core: int) -> str:
    """``8 cores are``; ``8 CPUs (4 cores) are`` where CPUs are hardware threads."""
    return f"{cpus(number, per_core=per_core)} {'is' if number == 1 else 'are'}"


def _as_requested(resources: Resources) -> Callable[[int], str]:
    """Durations in the unit in which the user gives the job's time."""
    return lambda seconds: in_unit(seconds, resources.time_unit)


def _mib(mib: int) -> str:
    return f"{mib} MiB"


def count_is(number: int, what: str) -> str:
    """``1 node is``, ``2 nodes are``."""
    return f"{counted(number, what)} {'is' if number == 1 else 'are'}"


def distinct(requested: int, limit: int, rounded: Callable[[int], str], exact: Callable[[int], str]) -> tuple[str, str]:
    """Both values in words; exactly where rounding would make them look equal."""
    words = rounded(requested), rounded(limit)
    return words if words[0] != words[1] else (exact(requested), exact(limit))
