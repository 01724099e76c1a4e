"""Which profiles fit a cluster: one for each kind of GPU, MIG device and shard, and one without. Pure.

Each requests what belongs to one of its kind on every node that has it, from the partition that suits people best, with
what slurm.conf says of cores, memory and time. Every value has its reason with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, count

from jupyterhub_gpuspawner.init.ask import Cluster
from jupyterhub_gpuspawner.init.devices import NO_GPU, Kind, Share, model_of, shares_of, with_vendor
from jupyterhub_gpuspawner.slurm.gpu_model import GpuModel
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState, Partition, SlurmConfig, gpus_of
from jupyterhub_gpuspawner.units import format_walltime
from jupyterhub_gpuspawner.words import counted, cpus, duration, memory, some

HOUR = 3600
USUAL_TIME, LONGEST_TIME = 8 * HOUR, 24 * HOUR
"""Seconds that a server has where the partition allows them, and at most."""
SHORTEST_TIME = HOUR
"""Seconds below which a partition's DefaultTime is not meant for a notebook."""
CPU_CORES = 4
"""Of a server without a GPU."""
LEAST_MEMORY_MIB = 2048
"""That a notebook with its kernels needs."""
WHOLE_GIB_FROM = 8192
"""MiB from which memory is given in whole GiB."""
NORMAL = "normal"
"""The QOS that jobs have where nobody has set another one (sacctmgr(1))."""
_FRACTIONS = {
    Fraction(1, parts): words
    for parts, words in {2: "Half", 3: "A third", 4: "A quarter", 5: "A fifth", 6: "A sixth", 8: "An eighth"}.items()
}


@dataclass(frozen=True)
class PlannedProfile:
    """A profile to be written."""

    kind: Kind
    slug: str
    display_name: str
    description: str
    partition: str
    request: Mapping[str, str | int]
    """Fields of ``slurm``, in their order, with their values as they are written."""
    hours: int
    """The most hours that people may choose; 0: they cannot choose."""
    why: Mapping[str, str]
    """Why each field has its value, in sentences."""


@dataclass(frozen=True)
class Plan:
    """What is written for a cluster, and what is left out of it."""

    profiles: tuple[PlannedProfile, ...]
    closed: Mapping[str, str] = field(default_factory=dict)
    """Why people cannot use a partition, by its name: a clause."""
    notes: tuple[str, ...] = ()
    """What an admin should know or decide, in sentences."""


@dataclass(frozen=True)
class _Place:
    """A kind in a partition."""

    partition: Partition
    nodes: tuple[NodeState, ...]
    """Those that have it."""
    shares: tuple[Share, ...]

    @property
    def least(self) -> Share:
        """What all of its nodes have of it, and for one of it."""
        numbers, of_cpus, of_memory, gpus, parts = zip(*self.shares, strict=True)
        return Share(min(numbers), min(of_cpus), min(of_memory), max(gpus), min(parts))

    @property
    def cpus_per_core(self) -> int:
        """That of most of its nodes."""
        return Counter(node.cpus_per_core for node in self.nodes).most_common(1)[0][0]


def plan(cluster: Cluster, wanted: Collection[str] = ()) -> Plan:
    """The plan for a cluster; of the partitions ``wanted`` alone where some are named, whoever may use them."""
    snapshot = cluster.snapshot
    closed = {
        partition.name: reason
        for partition in snapshot.partitions
        if (reason := _not_wanted(partition, wanted) if wanted else why_closed(partition, snapshot))
    }
    places = _places(snapshot, closed, cluster.config)
    kinds = sorted(places, key=lambda kind: _order(kind, places[kind]))
    slugs = set[str]()
    profiles = tuple(_profile(kind, places[kind], cluster.config, slugs) for kind in kinds)
    return Plan(profiles, closed, tuple(_notes(cluster, profiles, places, closed)))


def why_closed(partition: Partition, snapshot: ClusterSnapshot) -> str:
    """Why people in general cannot use a partition, in a few words; empty if they can."""
    limits = {
        "groups": partition.allow_groups,
        "accounts": partition.allow_accounts,
        "QOS": partition.allow_qos if NORMAL not in partition.allow_qos else (),
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
    if partition.min_nodes > 1:
        return f"jobs of {partition.min_nodes} nodes"
    if not snapshot.nodes_of(partition.name):
        return "nodes not shown" if partition.nodes else "no nodes"
    return ""


def _not_wanted(partition: Partition, wanted: Collection[str]) -> str:
    return "" if partition.name in wanted else "not asked for"


def _places(snapshot: ClusterSnapshot, closed: Collection[str], config: SlurmConfig) -> dict[Kind, tuple[_Place, ...]]:
    """Where each kind is in partitions that are not closed, the best place first."""
    found: dict[Kind, list[_Place]] = {}
    for partition in snapshot.partitions:
        if partition.name in closed:
            continue
        by_kind: dict[Kind, list[tuple[NodeState, Share]]] = {}
        for node in snapshot.nodes_of(partition.name):
            limits = {
                "cpus": min(node.cpus, partition.max_cpus_per_node or node.cpus),
                "memory_mib": node.memory_mib,
            }
            for kind, share in shares_of(node, **limits).items():
                by_kind.setdefault(kind, []).append((node, share))
        for kind, pairs in by_kind.items():
            nodes, shares = zip(*pairs, strict=True)
            found.setdefault(kind, []).append(_Place(partition, nodes, shares))
    if NO_GPU not in found and found:  # no node without GPUs: such a server is beside them
        found[NO_GPU] = [
            _Place(place.partition, place.nodes, tuple(Share(1, node.cpus, node.memory_mib) for node in place.nodes))
            for place in {place.partition.name: place for places in found.values() for place in places}.values()
        ]
    return {kind: tuple(sorted(places, key=lambda place: _preference(place, config))) for kind, places in found.items()}


def _preference(place: _Place, config: SlurmConfig) -> tuple[object, ...]:
    """The lower, the better a partition suits people's servers of a kind; equal ones in Slurm's order."""
    partition = place.partition
    preempted = bool(config.preemption) and (partition.preemptable or partition.suspendable)
    return (
        (partition.max_time or LONGEST_TIME) < min(USUAL_TIME, LONGEST_TIME) // 2,
        preempted and config.preemption == "partition" and partition.priority_tier <= 1,
        _whole_nodes(partition, config),
        not partition.default,
        -len(place.nodes),
    )


def _whole_nodes(partition: Partition, config: SlurmConfig) -> bool:
    """Whether each job gets whole nodes there."""
    return partition.exclusive or config.cpu_unit == "node"


def _order(kind: Kind, places: Sequence[_Place]) -> tuple[object, ...]:
    """Of profiles: whole GPUs, of which there are most, before parts of one; the one without a GPU is last."""
    part = ("gpu" if not kind.is_slice else "mig") if kind.gres != "shard" else "shard"
    rank = {"gpu": 0, "mig": 1, "shard": 2}[part] if kind.gres else 3
    return rank, -sum(share.number for share in places[0].shares), kind.type, kind.feature


# One profile.


def _profile(
    kind: Kind,
    places: Sequence[_Place],
    config: SlurmConfig,
    slugs: set[str],
) -> PlannedProfile:
    place = places[0]
    partition, share = place.partition, place.least
    model = _model(kind, place)
    whole = _whole_nodes(partition, config)
    request: dict[str, str | int] = {"partition": partition.name}
    why = {"partition": _why_partition(place, places[1:], kind)}
    number = share.number if whole and kind.gres == "gpu" else 1
    if kind.gres:
        request["gpus" if kind.gres == "gpu" else "shards"] = number
        if kind.type:
            request["gpu_type"] = kind.type
            why["gpu_type"] = f"Slurm's name of the kind (Gres={kind.of_slurm}:{share.number} of a node)."
        elif kind.feature:
            request["constraint"] = kind.feature
            why["constraint"] = "gres.conf gives these GPUs no type, so the nodes' feature tells them apart."
        else:
            why["gpus"] = "gres.conf gives these GPUs no type, so any GPU of the partition may be given."
    request["cpus"], why["cpus"] = _cpus(kind, place, config, whole=whole)
    mib, why["memory"] = _memory(kind, place, config, int(request["cpus"]), whole=whole)
    request["memory"] = f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"
    seconds, hours, why["time"] = _time(partition)
    request["time"] = format_walltime(seconds)
    cores = cpus(int(request["cpus"]), per_core=place.cpus_per_core)
    longest = f"up to {duration(hours * HOUR)}" if hours else duration(seconds)
    kept = "at least " if whole else ""
    described = f"{kept}{cores} and {memory(mib)} of memory, for {longest}"
    return PlannedProfile(
        kind,
        _slug(kind, model, slugs),
        _name(kind, model, share, cores, number=number, whole=whole),
        f"{described[0].upper()}{described[1:]}.{_of_kind(kind)}",
        partition.name,
        request,
        hours,
        why,
    )


def _model(kind: Kind, place: _Place) -> GpuModel:
    beside = {other for node in place.nodes for other in gpus_of(node.gres)} - {kind.type}
    shared = set.intersection(*(set(node.features) for node in place.nodes))
    return model_of(kind, sorted(beside), sorted(shared))


def _name(kind: Kind, model: GpuModel, share: Share, cores: str, *, number: int, whole: bool) -> str:
    """As people understand it: ``One NVIDIA A100 (40 GB)``, ``A slice of an H100: 1g.10gb``."""
    if not kind.gres:
        return f"A whole node without a GPU, {cores}" if whole else f"No GPU, {cores}"
    size = f" ({model.memory_gb} GB)" if model.memory_gb else ""
    if kind.gres == "shard":
        return f"{_FRACTIONS.get(share.of_gpu, 'A part')} of {_article(model.name)}{size}, shared"
    if kind.is_slice:
        of = model.name.removesuffix(" slice")
        return f"A slice of {_article(of)}: {_mig_profile(kind)}"
    known = with_vendor(model.name)
    if whole and number > 1:
        return f"A whole node with {number} {known}{'s' if model.name == 'GPU' else ''}{size}"
    return f"One {known}{size}"


def _article(name: str) -> str:
    """With its article, as it is spoken: ``an A100``, ``a K80``, ``an RTX 3090``."""
    return f"{'an' if re.match('[AFHILMNORSX]', name) else 'a'} {name}"


def _of_kind(kind: Kind) -> str:
    if kind.gres == "shard":
        return " Others use the same GPU at the same time, and Slurm does not divide its memory."
    return " It is a part of a GPU with memory of its own." if kind.is_slice else ""


def _slug(kind: Kind, model: GpuModel, taken: set[str]) -> str:
    """Short, from the model: ``a100``, ``h100-1g-10gb``, ``t4-shared``; with a number where another has it."""
    words = [model.name.removesuffix(" slice"), _mig_profile(kind), "shared" if kind.gres == "shard" else ""]
    text = re.sub(r"[^a-z0-9]+", "-", " ".join(filter(None, words)).lower()).strip("-") if kind.gres else "cpu"
    sized = [f"{text}-{model.memory_gb}gb"] if model.memory_gb else []
    slugs = chain([text, *sized], (f"{text}-{number}" for number in count(2)))
    slug = next(slug for slug in slugs if slug not in taken)
    taken.add(slug)
    return slug


def _mig_profile(kind: Kind) -> str:
    """``1g.10gb`` of ``nvidia_h100_1g.10gb``; empty of what is no MIG device."""
    return re.sub(r"^.*?(?=\d+g\.)", "", kind.type) if kind.is_slice else ""


# Why each value is as it is.


def _why_partition(place: _Place, others: Sequence[_Place], kind: Kind) -> str:
    partition, nodes = place.partition, place.nodes
    limited = partition.allow_groups or partition.allow_accounts or partition.allow_qos
    text = f"{'Not open' if limited else 'Open'} to everybody"
    if not kind.gres and any(gpus_of(node.gres) for node in nodes):
        return f"{text}. No open partition has nodes without GPUs, so such a server takes cores beside them."
    has = f"{'has' if len(nodes) == 1 else 'have'} {'this kind' if kind.gres else 'no GPU'}"
    also = [f"{other.partition.name} ({_longest(other.partition)})" for other in others]
    such = "this kind" if kind.gres else "such nodes"
    more = f" Other partitions with {such}: {some(also, at_most=4)}." if also else ""
    return f"{text}; {len(nodes)} of its nodes {has}.{more}"


def _longest(partition: Partition) -> str:
    return "no time limit" if partition.max_time is None else f"at most {duration(partition.max_time)}"


def _allows(partition: Partition) -> str:
    return f"{'has' if partition.max_time is None else 'allows'} {_longest(partition)}"


def _divided(kind: Kind, place: _Place, what: str) -> str:
    """How one of a kind comes to its share of ``what`` a node has."""
    share = place.least
    node = "The smallest of its nodes" if len({*place.shares}) > 1 else "A node"
    text = f"{node} has {what} and {counted(share.gpus, 'GPU')}"
    if kind.is_slice:
        return f"{text}. Each GPU gets an equal part, and each slice its part of that."
    if kind.gres == "shard":
        return f"{text}. Each GPU gets an equal part, and each shard an equal part of that."
    return f"{text}: an equal part for each." if share.gpus > 1 else f"{text}."


def _cpus(kind: Kind, place: _Place, config: SlurmConfig, *, whole: bool) -> tuple[int, str]:
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
    what = f"{limit} CPUs for jobs (MaxCPUsPerNode)" if limit and limit < least else counted(least, "CPU")
    return share.cpus, f"{_divided(kind, place, what)}{threads}"


def _memory(kind: Kind, place: _Place, config: SlurmConfig, number: int, *, whole: bool) -> tuple[int, str]:
    """MiB for so many CPUs, a round number, and why."""
    partition, share = place.partition, place.least
    node_mib = min(node.memory_mib for node in place.nodes)
    per_cpu = partition.default_memory_per_cpu_mib or config.default_memory_per_cpu_mib
    per_gpu = partition.default_memory_per_gpu_mib or config.default_memory_per_gpu_mib
    if whole:
        mib, why = node_mib, f"A job gets whole nodes here; the smallest has {memory(node_mib)}."
    elif not kind.gres:
        cpus_of_node = min(node.cpus for node in place.nodes)
        mib = node_mib * number // cpus_of_node
        why = f"An equal part of the node's memory for {counted(number, 'CPU')}."
        if per_cpu and per_cpu * number < mib:
            mib = max(per_cpu * number, min(mib, LEAST_MEMORY_MIB))
            why = f"DefMemPerCPU gives {counted(number, 'CPU')} {memory(per_cpu * number)}"
            why += ", and a notebook needs more." if mib > per_cpu * number else "."
    else:
        mib, why = share.memory_mib, _divided(kind, place, memory(node_mib))
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


def _time(partition: Partition) -> tuple[int, int, str]:
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


# What the plan leaves open.


def _notes(
    cluster: Cluster,
    profiles: Sequence[PlannedProfile],
    places: Mapping[Kind, Sequence[_Place]],
    closed: Mapping[str, str],
) -> Iterator[str]:
    snapshot, config = cluster.snapshot, cluster.config
    offered = {kind.of_slurm for kind in places}
    lost: dict[str, dict[str, None]] = {}
    for name, reason in closed.items():
        for node in snapshot.nodes_of(name):
            for kind in shares_of(node, cpus=node.cpus, memory_mib=node.memory_mib):
                if kind.gres and kind.of_slurm not in offered:
                    lost.setdefault(kind.of_slurm, {})[f"{name} ({reason})"] = None
    for kind_name, names in sorted(lost.items()):
        yield (
            f"There is no profile for {kind_name}, which is only in {some([*names])}. --partition NAME makes profiles "
            "for a partition, whoever may use it."
        )
    if not any(gpus_of(node.gres) for node in snapshot.nodes):
        yield (
            "Slurm knows of no GPU. If nodes have some, slurm.conf needs GresTypes=gpu and Gres= for them, and "
            "gres.conf a line for each."
        )
    untyped = {
        node.name: None
        for kind in places
        if kind.gres and not kind.type
        for place in places[kind]
        for node in place.nodes
    }
    if untyped:
        yield (
            f"GPUs of {some([*untyped])} have no type in gres.conf, so Slurm cannot tell models apart. With Type= in "
            'its lines, each model gets a profile of its own: see the guide "Inspect a node, and write gres.conf" '
            "(docs/howto/gres-conf.md)."
        )
    away = [
        profile.display_name for profile in profiles if not any(node.usable for node in places[profile.kind][0].nodes)
    ]
    if away:
        yield f"None of the nodes of these profiles can be used now: {'; '.join(away)}. Servers wait until one is back."
    if "associations" in config.accounting_enforced:
        yield "Jobs need an account in slurmdbd (AccountingStorageEnforce): each person uses the default one of theirs."
    if cluster.by_sinfo:
        yield (
            "This account cannot run scontrol, so limits of memory and who may use a partition by account or QOS are "
            "not known. `gpuspawner check --user NAME` asks Slurm itself."
        )
    for record in snapshot.unread:
        yield f"Slurm's {record.field or 'record'} of {record.kind} {record.name} was not understood, and is left out."
