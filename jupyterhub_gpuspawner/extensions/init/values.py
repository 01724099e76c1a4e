"""What a profile requests of its partition: CPUs, memory and time, each with its reason as a sentence. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from jupyterhub_gpuspawner.extensions.init.devices import Kind, Share
from jupyterhub_gpuspawner.extensions.init.places import HOUR, LONGEST_TIME, NORMAL, USUAL_TIME, Place
from jupyterhub_gpuspawner.slurm.snapshot import NodeState, Partition, SlurmConfig, gpus_of
from jupyterhub_gpuspawner.words import counted, duration, memory, some

SHORTEST_TIME = HOUR
"""Seconds below which a partition's DefaultTime is not meant for a notebook."""
CPU_CORES = 4
"""Of a server without a GPU."""
LEAST_MEMORY_MIB = 2048
"""That a notebook with its kernels needs."""
WHOLE_GIB_FROM = 8192
"""MiB from which memory is given in whole GiB."""


def partition_reason(place: Place, others: Sequence[Place], kind: Kind, *, preempted: bool) -> str:
    """Why a profile uses this partition and none of the others that have the kind."""
    partition, nodes = place.partition, place.nodes
    limited = partition.allow_groups or partition.allow_accounts or partition.allow_qos
    text = f"{'Not open' if limited else 'Open'} to everybody"
    if not kind.gres and any(gpus_of(node.gres) for node in nodes):
        return f"{text}. No open partition has nodes without GPUs, so such a server takes cores beside them."
    has = f"{'has' if len(nodes) == 1 else 'have'} {'this kind of GPU' if kind.gres else 'no GPU'}"
    also = [f"{other.partition.name} ({_longest(other.partition)})" for other in others]
    more = f" Other partitions with {'it' if kind.gres else 'such nodes'}: {some(also, at_most=4)}." if also else ""
    ended = " Jobs of other partitions may end its servers (PreemptMode)." if preempted else ""
    return f"{text}; {len(nodes)} of its nodes {has}.{ended}{more}"


def charges_of(partition: Partition, account: str) -> Iterator[tuple[str, str, str]]:
    """The account and the QOS without which jobs may not use a partition, each by its field, with the reason.

    ``account`` is the default one of all who use the hub, where it is one person's.
    """
    if partition.allow_accounts and account not in partition.allow_accounts:
        yield "account", *_first_of(partition.allow_accounts, "AllowAccounts")
    if partition.allow_qos and NORMAL not in partition.allow_qos:
        yield "qos", *_first_of(partition.allow_qos, "AllowQos")


def _first_of(names: Sequence[str], parameter: str) -> tuple[str, str]:
    others = f" Others that it admits: {some(names[1:])}." if len(names) > 1 else ""
    return names[0], f"The partition admits only jobs with it ({parameter}).{others}"


def _longest(partition: Partition) -> str:
    return "no time limit" if partition.max_time is None else f"at most {duration(partition.max_time)}"


def _allows(partition: Partition) -> str:
    return f"{'has' if partition.max_time is None else 'allows'} {_longest(partition)}"


def _divided(
    kind: Kind,
    pairs: Sequence[tuple[NodeState, Share]],
    amount: Callable[[Share], int],
    what: Callable[[NodeState], str],
) -> str:
    """How one of a kind comes to the least ``amount`` of these nodes, each of which has ``what``."""
    node, share = min(pairs, key=lambda pair: amount(pair[1]))
    which = f"The smallest of its nodes, {node.name}," if len({amount(of) for _, of in pairs}) > 1 else "A node"
    text = f"{which} has {what(node)} and {counted(share.gpus, 'GPU')}"
    if kind.is_slice:
        return f"{text}. Each GPU gets an equal part, and each slice its part of that."
    if kind.gres == "shard":
        return f"{text}. Each GPU gets an equal part, and each shard an equal part of that."
    return f"{text}: an equal part for each." if share.gpus > 1 else f"{text}."


def cpus_of(kind: Kind, place: Place, config: SlurmConfig, *, whole: bool) -> tuple[int, str]:
    """CPUs, and why."""
    partition, share, per_core = place.partition, place.least, place.cpus_per_core
    least = min(node.cpus for node in place.nodes)
    threads = f" Slurm counts {per_core} CPUs for each core." if per_core > 1 else ""
    if whole:
        return least, f"A job gets whole nodes here, so all CPUs of one.{threads}"
    if not kind.gres:
        number = min(share.cpus, CPU_CORES * per_core)
        return number, f"Enough to read data and draw plots; its nodes have {share.cpus} CPUs or more.{threads}"
    own = partition.default_cpus_per_gpu or config.default_cpus_per_gpu
    if own and kind.gres == "gpu" and not kind.is_slice and own < share.cpus:
        number = -(-own // per_core) * per_core
        return number, f"DefCpuPerGPU is {own}. An equal part of the node would be {share.cpus} CPUs.{threads}"
    limit = partition.max_cpus_per_node

    def of_node(node: NodeState) -> str:
        return f"{limit} CPUs for jobs (MaxCPUsPerNode)" if limit and limit < node.cpus else counted(node.cpus, "CPU")

    pairs = list(zip(place.nodes, place.shares, strict=True))
    return share.cpus, f"{_divided(kind, pairs, lambda share: share.cpus, of_node)}{threads}"


def memory_of(kind: Kind, place: Place, config: SlurmConfig, number: int, *, whole: bool) -> tuple[int, str] | None:
    """MiB for so many CPUs, a round number, and why; None where Slurm does not know the memory of any node.

    There nothing can be requested: no node has so much, and a request of 0 is one for all of a node.
    """
    partition, share, pairs = place.partition, place.least, place.of_known_memory
    if not pairs:
        return None
    node_mib = min(node.memory_mib for node, _ in pairs)
    per_cpu = partition.default_memory_per_cpu_mib or config.default_memory_per_cpu_mib
    per_gpu = partition.default_memory_per_gpu_mib or config.default_memory_per_gpu_mib
    if whole:
        mib, why = node_mib, f"A job gets whole nodes here; the smallest has {memory(node_mib)}."
    elif not kind.gres:
        cpus_of_node = min(node.cpus for node, _ in pairs)
        mib = node_mib * number // cpus_of_node
        why = f"An equal part of the node's memory for {counted(number, 'CPU')}."
        if per_cpu and per_cpu * number < mib:
            mib = max(per_cpu * number, min(mib, LEAST_MEMORY_MIB))
            why = f"DefMemPerCPU gives {counted(number, 'CPU')} {memory(per_cpu * number)}"
            why += ", and a notebook needs more." if mib > per_cpu * number else "."
    else:
        mib = share.memory_mib
        why = _divided(kind, pairs, lambda share: share.memory_mib, lambda node: memory(node.memory_mib))
        if per_gpu and kind.gres == "gpu" and not kind.is_slice and per_gpu < mib:
            mib, why = per_gpu, f"DefMemPerGPU is {per_gpu} MiB. An equal part of the node would be {memory(mib)}."
    limits = {
        "MaxMemPerNode": partition.max_memory_per_node_mib or config.max_memory_per_node_mib,
        "MaxMemPerCPU": (partition.max_memory_per_cpu_mib or config.max_memory_per_cpu_mib or 0) * number,
    }
    for name, limit in limits.items():
        if limit and limit < mib:
            mib, why = limit, f"{name} allows {memory(limit)}; an equal part of the node would be more."
    unit = 1024 if mib >= WHOLE_GIB_FROM else 100
    return max(mib // unit * unit, min(mib, LEAST_MEMORY_MIB)), why


def time_of(partition: Partition) -> tuple[int, int, str]:
    """Seconds, the most hours that people may choose (0: no choice), and why."""
    longest = min(partition.max_time or LONGEST_TIME, LONGEST_TIME)
    default = partition.default_time
    if default is not None and SHORTEST_TIME <= default <= longest:
        seconds, why = default, f"DefaultTime of the partition, which {_allows(partition)}."
    elif longest >= USUAL_TIME:
        seconds, why = USUAL_TIME, f"A working day; the partition {_allows(partition)}."
    else:
        seconds, why = longest, f"The partition {_allows(partition)} (MaxTime)."
    hours = longest // HOUR
    if hours < 2 or seconds % HOUR:
        return seconds, 0, why
    return seconds, hours, why
