"""How many people of a session can have a server at the same time: what Slurm is asked, and its answer in words. Pure.

Slurm's own scheduler counts. :func:`estimate` counts by hand, for where it cannot be asked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from jupyterhub_gpuspawner.extensions.availability.model.capacity import capacity_of
from jupyterhub_gpuspawner.extensions.availability.model.fit import ANY, Need, NodeFit
from jupyterhub_gpuspawner.extensions.availability.model.limits import fault_in, need_of, uses_one_thread
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.reason import meaning
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.units import Gres, format_memory, parse_memory
from jupyterhub_gpuspawner.words import cpus, memory, sentence

CPUS, MEMORY = "cpus-per-task", "mem"
"""Options of sbatch of which a course can request less."""
PARTS = 6
"""Smaller values that are tried of one option, of all profiles of a session together."""
MOST_ON_A_NODE = 64
"""Jobs without GPUs on a node, for which such values are looked for."""
_GIB = 1024
_SHORT_OF = frozenset({"Resources", "Priority"})
"""Slurm's reasons for a job that waits behind another, or for what that one waits for."""


@dataclass(frozen=True)
class Smaller:
    """A smaller request with which more servers start."""

    option: str
    """:data:`CPUS` or :data:`MEMORY`."""
    value: int
    """CPUs, or MiB, for each person."""
    fit: int
    """How many people's servers start with it."""
    rank: int = 0
    """Which of several profiles requests less, from 0."""


@dataclass(frozen=True)
class SeatCount:
    """How many servers of a session start at the same time."""

    wanted: int
    """People on the roster."""
    tried: int
    """How many jobs were tried: more than the roster has people."""
    fit: int
    """How many of them start."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """How many people's jobs wait, by Slurm's reason."""
    refusal: str = ""
    """Why sbatch refuses the job: a clause; empty where it does not."""
    with_gpu: int = 0
    """How many people's jobs have GPUs whose cores are known."""
    beside: int = 0
    """How many of these have each core beside one of their GPUs, and each GPU beside one of their cores."""
    by_profile: Mapping[str, int] = field(default_factory=dict)
    """How many people start each of several profiles, by its slug, and cluster if there are several; empty for one."""
    smaller: Smaller | None = None
    """None where everybody's server starts, and where neither fewer cores nor less memory would help."""
    notes: tuple[str, ...] = ()
    """What Slurm's scheduler was asked without, in sentences."""
    not_counted: tuple[str, ...] = ()
    """Sentences: what may keep people from starting that was not considered."""
    estimate: str = ""
    """Why this was counted by hand: sentences; empty where Slurm has counted."""


def tries(people: int) -> int:
    """How many jobs are tried: one and a half times the roster, to tell how many more would fit."""
    return math.ceil(1.5 * people)


def smaller_values(
    options: Mapping[str, str], resources: Resources, snapshot: ClusterSnapshot, *, limit: int = PARTS
) -> tuple[tuple[str, int], ...]:
    """Smaller requests that are worth a try, the largest first: the option, and CPUs or MiB.

    They are the parts of a node, or of a socket, at which one more job finds room: at most ``limit`` for each
    option, and none where no node is in service. ``options`` are sbatch's by their long names.
    """
    requested = {CPUS: _number(options.get(CPUS, "")), MEMORY: _mib(options.get(MEMORY, ""))}
    parts: dict[str, set[int]] = {CPUS: set(), MEMORY: set()}
    where = {"constraint": resources.constraint or "", "reservation": resources.reservation_name}
    kinds = {
        kind
        for name in snapshot.partitions_of(resources.partition)
        for kind in capacity_of(snapshot).nodes(name, **where).usable_kinds
    }
    step = _GIB if requested[MEMORY] > _GIB else 1
    for kind in kinds:
        most = MOST_ON_A_NODE
        if resources.gpus:
            most = kind.gpus.get(resources.gpu_type or ANY, 0) // resources.gpus
        threads = kind.cpus_per_core if uses_one_thread(resources) else 1
        for jobs in range(1, most + 1):
            parts[CPUS] |= {kind.cpus // threads // jobs, kind.socket_cpus // threads // jobs}
            parts[MEMORY].add(kind.memory // jobs // step * step)
    tried = []
    for option, values in parts.items():
        smaller = sorted((value for value in values if 0 < value < requested[option]), reverse=True)
        tried += [(option, value) for value in smaller[:: max(1, -(-len(smaller) // limit))]]
    return tuple(tried)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _mib(text: str) -> int:
    try:
        return parse_memory(text)
    except ValueError:
        return 0


def with_value(options: Mapping[str, str], option: str, value: int) -> dict[str, str]:
    """The options with a smaller value, of :func:`smaller_values`."""
    return {**options, option: format_memory(value) if option == MEMORY else str(value)}


def in_words(count: SeatCount, *, cpus_per_core: int, profile: str = "") -> str:
    """``48 of 50 start; 2 wait: Resources. With 5 cores each: all 50.``; for ``cpus_per_core`` see :func:`words.cpus`.

    ``profile`` is the slug of that which would request less, of several. Empty where everybody's server starts.
    """
    if count.refusal and not count.fit:
        return sentence(f"Slurm refuses every job: {count.refusal}")
    if count.fit >= count.wanted:
        return ""
    missing = sum(count.waiting.values())
    reasons = [f"{reason}{_explained(reason)}" for reason in count.waiting]
    if len(reasons) > 1:
        reasons = [f"{text} ({number})" for text, number in zip(reasons, count.waiting.values(), strict=True)]
    waits = f"; {missing} wait{'s' * (missing == 1)}: {', '.join(reasons)}" if reasons else ""
    if count.refusal:
        waits += f"; Slurm refuses the jobs of others: {count.refusal}"
    text = f"{'By estimate ' if count.estimate else ''}{count.fit} of {count.wanted} start{waits}."
    if (smaller := count.smaller) is not None:
        requested = f"{memory(smaller.value)} of memory" if smaller.option == MEMORY else ""
        requested = requested or cpus(smaller.value, per_core=cpus_per_core)
        many = f"all {count.wanted}" if smaller.fit >= count.wanted else f"{smaller.fit}"
        text += f" With {requested} each{f' in profile {profile}' if profile else ''}: {many}."
    return text


def _explained(reason: str) -> str:
    """What it means where jobs with this reason never start."""
    explanation = meaning(reason)
    return f" ({explanation.sentence.rstrip('.')})" if not explanation.clears and reason not in _SHORT_OF else ""


def seats_left(counts: Sequence[int], waiting: Mapping[int, int]) -> list[int]:
    """How many servers more start with each of several requests, of which ``counts`` start, by :func:`estimate`.

    ``waiting``: how many servers have been asked for with each of them, by its place, and hold nothing yet. Whoever
    waits for one request takes no seat of another.
    """
    return [max(0, count - waiting.get(rank, 0)) for rank, count in enumerate(counts)]


def estimate(
    requests: Sequence[Resources],
    snapshots: Mapping[str, ClusterSnapshot],
    people: int,
    *,
    at: float,
    own_jobs: Mapping[str, Collection[str]] = MappingProxyType({}),
    before: Sequence[tuple[Sequence[Resources], int]] = (),
) -> list[int]:
    """How many servers start with each of these requests, of what those with the requests before it leave free.

    ``before``: the requests of others who are served first, and how many people they are.

    Node by node, what jobs leave free that still run ``at`` (seconds since the epoch) is divided by a request. It knows
    GPUs by type, shards, CPUs, memory and the reservations of nodes, and little else of what Slurm considers. The jobs
    ``own_jobs`` do not count. The sum is at most :func:`tries`. Snapshots and jobs are by cluster; on a cluster without
    a snapshot nothing starts.
    """
    taken = dict[tuple[str, str], list[tuple[Need, int]]]()
    for of_others, number in before:
        _fill(of_others, snapshots, number, taken, at=at, own_jobs=own_jobs)
    return _fill(requests, snapshots, tries(people), taken, at=at, own_jobs=own_jobs)


def _fill(
    requests: Sequence[Resources],
    snapshots: Mapping[str, ClusterSnapshot],
    left: int,
    taken: dict[tuple[str, str], list[tuple[Need, int]]],
    *,
    at: float,
    own_jobs: Mapping[str, Collection[str]],
) -> list[int]:
    """How many of ``left`` servers start with each of these requests; what they hold, by node, goes into ``taken``."""
    counts = list[int]()
    for resources in requests:
        cluster = resources.cluster or ""
        snapshot, own = snapshots.get(cluster), own_jobs.get(cluster, ())
        if snapshot is None:
            counts.append(0)
            continue
        capacity, jobs = capacity_of(snapshot), snapshot.job_table
        best = dict[str, tuple[int, Need]]()
        for name in snapshot.partitions_of(resources.partition):
            partition = snapshot.partition_by_name.get(name)
            if partition is None or fault_in(resources, snapshot, name) is not None:
                continue
            need, length = need_of(resources, partition, snapshot), partition.length_of(resources.time)
            nodes = capacity.nodes(name, constraint=resources.constraint or "", reservation=resources.reservation_name)
            for node in nodes.usable:
                freed = _Freed()
                for job in (jobs[position] for position in node.jobs):
                    if job.job_id in own or (job.ends_at is not None and job.ends_at <= at):
                        share = job.node_count
                        freed.add(job.cpus // share, job.memory_mib // share, job.gpus, node.only_type)
                if node.open_at(at, length) == at:
                    count = _count_after(node, need, freed, taken.get((cluster, node.name), ()))
                    best[node.name] = max(best.get(node.name, (0, need)), (count, need), key=lambda pair: pair[0])
        counts.append(min(left, sum(count for count, _ in best.values()) // resources.node_count))
        left -= counts[-1]
        shares = counts[-1] * resources.node_count
        for name, (count, need) in best.items():
            taken.setdefault((cluster, name), []).append((need, min(count, shares)))
            shares -= min(count, shares)
    return counts


def _count_after(node: NodeFit, need: Need, freed: _Freed, taken: Sequence[tuple[Need, int]]) -> int:
    """How many such jobs fit on the node at the same time once the jobs counted in ``freed`` have ended.

    And once so many jobs with each need of ``taken`` have begun here.
    """
    empty = node.complete and freed.jobs >= len(node.jobs)
    begun = [(other, number) for other, number in taken if number]
    if need.exclusive or need.all_memory:
        return int(empty and not begun and node.offers(need))
    cpus, memory = node.used_by(need)
    if empty:
        gpus, shards = node.gpus.get(need.gpu_type, 0), node.shards
        free_cpus, free_memory = node.cpus, node.memory
    else:
        gpus = node.free_gpus.get(need.gpu_type, 0) + freed.gpus[need.gpu_type]
        shards = node.free_shards + freed.shards
        free_cpus, free_memory = node.free_cpus + freed.cpus, node.free_memory + freed.memory
    for other, number in begun:
        other_cpus, other_memory = node.used_by(other)
        if other.all_memory:
            return 0
        if ANY in (need.gpu_type, other.gpu_type) or need.gpu_type == other.gpu_type:
            gpus -= number * other.gpus
        shards -= number * other.shards
        free_cpus, free_memory = free_cpus - number * other_cpus, free_memory - number * other_memory
    amounts = (gpus, need.gpus), (shards, need.shards), (free_cpus, cpus), (free_memory, memory)
    return max(0, min((free // requested for free, requested in amounts if requested), default=0))


class _Freed:
    """Resources that ended jobs have released on one node."""

    def __init__(self) -> None:
        self.jobs = self.cpus = self.memory = self.shards = 0
        self.gpus: Counter[str] = Counter()

    def add(self, cpus: int, memory: int, gpus: Iterable[Gres], only_type: str) -> None:
        """Count a job's share on one node."""
        self.jobs += 1
        self.cpus += cpus
        self.memory += memory
        for gres in gpus:
            if gres.name == "shard":
                self.shards += gres.count
            elif gres.name == "gpu":
                kind = gres.type or only_type
                self.gpus[ANY] += gres.count
                if kind:
                    self.gpus[kind] += gres.count
