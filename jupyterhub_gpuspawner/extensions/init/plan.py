"""Which profiles fit a cluster: one for each kind of GPU, MIG device and shard, and one without. Pure.

Each requests what belongs to one of its kind on every node that has it, from the partition that suits people best, with
what slurm.conf says of cores, memory and time. Every value has its reason with it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, count

from jupyterhub_gpuspawner.extensions.init.ask import Cluster
from jupyterhub_gpuspawner.extensions.init.devices import Kind, Share, model_of, shares_of, with_vendor
from jupyterhub_gpuspawner.extensions.init.places import (
    HOUR,
    NOT_SHOWN,
    UNKNOWN_MIB,
    Place,
    gives_whole_nodes,
    is_preempted,
    places_of,
    why_closed,
)
from jupyterhub_gpuspawner.extensions.init.values import charges_of, cpus_of, memory_of, partition_reason, time_of
from jupyterhub_gpuspawner.slurm.gpu_model import GpuModel
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Partition, gpus_of
from jupyterhub_gpuspawner.units import format_walltime
from jupyterhub_gpuspawner.words import cpus, duration, memory, some

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


def plan(cluster: Cluster, wanted: Collection[str] = (), *, for_oneself: bool = False) -> Plan:
    """The plan for a cluster; of the partitions ``wanted`` alone where some are named, whoever may use them.

    ``for_oneself``: the hub is that of the account that asks, and so has its groups and its default account.
    """
    snapshot = cluster.snapshot
    who = replace(cluster.asker, groups=frozenset(), account="") if not for_oneself else cluster.asker
    closed = {
        partition.name: reason
        for partition in snapshot.partitions
        if (reason := _not_wanted(partition, wanted) if wanted else why_closed(partition, snapshot, who))
    }
    places = places_of(snapshot, closed)
    kinds = sorted(places, key=lambda kind: _order(kind, places[kind]))
    slugs = set[str]()
    profiles = tuple(_profile(kind, places[kind], snapshot, who.account, slugs) for kind in kinds)
    return Plan(profiles, closed, tuple(_notes(cluster, profiles, places, closed)))


def _not_wanted(partition: Partition, wanted: Collection[str]) -> str:
    return "" if partition.name in wanted else "not asked for"


def _order(kind: Kind, places: Sequence[Place]) -> tuple[object, ...]:
    """Of profiles: whole GPUs, those of which there are most first, then slices, then shards, then without a GPU."""
    rank = {"gpu": 1 if kind.is_slice else 0, "shard": 2, "": 3}[kind.gres]
    return rank, -sum(share.number for share in places[0].shares), kind.type, kind.feature


def _profile(
    kind: Kind, places: Sequence[Place], snapshot: ClusterSnapshot, account: str, slugs: set[str]
) -> PlannedProfile:
    place, config = places[0], snapshot.config
    partition, share = place.partition, place.least
    model = _model(kind, place)
    whole = gives_whole_nodes(partition, config)
    request: dict[str, str | int] = {"partition": partition.name}
    why = {"partition": partition_reason(place, places[1:], kind, preempted=is_preempted(partition, snapshot))}
    for name, value, reason in charges_of(partition, account):
        request[name], why[name] = value, reason
    number = share.number if whole and kind.gres == "gpu" else 1
    if kind.gres:
        request["gpus" if kind.gres == "gpu" else "shards"] = number
        if kind.type:
            request["gpu_type"] = kind.type
            why["gpu_type"] = f"Slurm's name for the kind: a node has Gres={kind.of_slurm}:{share.number}."
        elif kind.feature:
            request["constraint"] = kind.feature
            why["constraint"] = "gres.conf gives these GPUs no type, so the nodes' feature tells them apart."
        else:
            why["gpus"] = "gres.conf gives these GPUs no type, so any GPU of the partition may be given."
    request["cpus"], why["cpus"] = cpus_of(kind, place, config, whole=whole)
    of_memory = memory_of(kind, place, config, int(request["cpus"]), whole=whole)
    if of_memory is not None:
        mib, why["memory"] = of_memory
        request["memory"] = f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"
    seconds, hours, why["time"] = time_of(partition)
    request["time"] = format_walltime(seconds)
    cores = cpus(int(request["cpus"]), per_core=place.cpus_per_core)
    longest = f"up to {duration(hours * HOUR)}" if hours else duration(seconds)
    at_least = "at least " if whole else ""
    with_memory = f" and {memory(of_memory[0])} of memory" if of_memory is not None else ""
    described = f"{at_least}{cores}{with_memory}, for {longest}"
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


def _model(kind: Kind, place: Place) -> GpuModel:
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
        of = f"{_article(model.name.removesuffix(' slice'))}: {_mig_profile(kind)}"
        return f"A whole node with {number} slices of {of}" if whole and number > 1 else f"A slice of {of}"
    gpu = with_vendor(model.name)
    if whole and number > 1:
        return f"A whole node with {number} {gpu}{'s' if model.name == 'GPU' else ''}{size}"
    return f"One {gpu}{size}"


def _article(name: str) -> str:
    """With its article, as it is spoken: ``an A100``, ``a K80``, ``an RTX 3090``."""
    return f"{'an' if re.match('[AFHILMNORSX]', name) else 'a'} {name}"


def _of_kind(kind: Kind) -> str:
    if kind.gres == "shard":
        return " Others use the same GPU at the same time, and Slurm does not divide its memory."
    return " It is a part of a GPU with memory of its own." if kind.is_slice else ""


def _slug(kind: Kind, model: GpuModel, used: set[str]) -> str:
    """Short, from the model: ``a100``, ``h100-1g-10gb``, ``t4-shared``; with a number where another has it."""
    words = [model.name.removesuffix(" slice"), _mig_profile(kind), "shared" if kind.gres == "shard" else ""]
    text = re.sub(r"[^a-z0-9]+", "-", " ".join(filter(None, words)).lower()).strip("-") if kind.gres else "cpu"
    sized = [f"{text}-{model.memory_gb}gb"] if model.memory_gb else []
    slugs = chain([text, *sized], (f"{text}-{number}" for number in count(2)))
    slug = next(slug for slug in slugs if slug not in used)
    used.add(slug)
    return slug


def _mig_profile(kind: Kind) -> str:
    """``1g.10gb`` of ``nvidia_h100_1g.10gb``; empty of what is no MIG device."""
    return re.sub(r"^.*?(?=\d+g\.)", "", kind.type) if kind.is_slice else ""


def _notes(
    cluster: Cluster,
    profiles: Sequence[PlannedProfile],
    places: Mapping[Kind, Sequence[Place]],
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
            'its lines, each model gets a profile of its own: see the guide "Inspect a node, and write gres.conf".'
        )
    unmeasured = {
        node.name: None
        for placed in places.values()
        for place in placed
        for node in place.nodes
        if node.memory_mib <= UNKNOWN_MIB
    }
    if unmeasured:
        yield (
            f"Slurm does not know the memory of {some([*unmeasured])} (RealMemory in slurm.conf), so no job that "
            "requests some can run there. `slurmd -C` on a node prints it."
        )
    if config.memory_is_allocated is False and not cluster.by_sinfo:
        yield (
            "Slurm does not divide the memory of nodes among their jobs (SelectTypeParameters without _Memory): what a "
            "profile requests is not reserved for its servers."
        )
    unseen = [name for name, reason in closed.items() if reason == NOT_SHOWN]
    if unseen:
        yield (
            f"Slurm does not show the nodes of partition {some(unseen)} while they are switched off. Add cloud to "
            "PrivateData in slurm.conf, or start one of them, and run the command again."
        )
    away = [
        profile.display_name for profile in profiles if not any(node.usable for node in places[profile.kind][0].nodes)
    ]
    if away:
        yield f"None of the nodes of these profiles can be used now: {'; '.join(away)}. Servers wait until one is back."
    if "associations" in config.accounting_enforced:
        yield "Jobs need an account in slurmdbd (AccountingStorageEnforce): each person's jobs use their default one."
    if cluster.by_sinfo:
        yield (
            "This account cannot run scontrol, so limits of memory and who may use a partition by account or QOS are "
            "not known. `gpuspawner check --user NAME` asks Slurm itself."
        )
    for record in snapshot.unread:
        yield f"Slurm's {record.field or 'record'} of {record.kind} {record.name} was not understood, and is left out."
