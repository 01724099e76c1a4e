"""Whether a job fits on nodes: their features, and their resources. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from jupyterhub_gpuspawner.slurm.snapshot import NodeState, SlurmConfig, free_gpus_of, gpus_of
from jupyterhub_gpuspawner.units import Gres

# Evaluates ``--constraint`` against the features of a node. Source: sbatch(1).

_TOKEN = re.compile(r"[A-Za-z0-9_.:+-]+|[&|()]")


@lru_cache(maxsize=4096)
def satisfies(constraint: str, features: frozenset[str]) -> bool | None:
    """Whether a node's features satisfy ``--constraint``; None for forms that relate nodes to one another.

    Supports names joined by ``&`` (or a comma) and ``|``, evaluated from left to right, and parentheses.
    """
    text = constraint.replace(",", "&")
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text or len(tokens) > 200:
        return None
    position = 0

    def term() -> bool:
        nonlocal position
        word = tokens[position]
        position += 1
        if word != "(":
            return word in features
        value = expression()
        if tokens[position] != ")":
            raise IndexError
        position += 1
        return value

    def expression() -> bool:
        nonlocal position
        value = term()
        while position < len(tokens) and tokens[position] in "&|":
            operator = tokens[position]
            position += 1
            other = term()
            value = value and other if operator == "&" else value or other
        return value

    try:
        result = expression()
    except IndexError:
        return None
    return result if position == len(tokens) else None


# A set of nodes, indexed so that requests can be checked against thousands of nodes within milliseconds.


class NodeSet:
    """A set of nodes, such as those of a partition, sorted by free resources."""

    def __init__(self, nodes: Iterable[NodeFit]) -> None:
        self.all = tuple(nodes)
        self.usable = tuple(node for node in self.all if node.usable)

    @cached_property
    def kinds(self) -> Mapping[NodeFit, int]:
        """One node of each hardware configuration, and the number of such nodes."""
        return _kinds(self.all)

    @cached_property
    def places(self) -> Mapping[Place, NodeFit]:
        """One node in service of each :attr:`NodeFit.place`."""
        return {node.place: node for node in self.usable}

    @cached_property
    def usable_kinds(self) -> Mapping[NodeFit, int]:
        """The same for nodes in service."""
        return _kinds(self.usable)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The GPU types of the set; includes :data:`ANY` if some GPUs have no type."""
        types = {kind for node in self.kinds for kind in node.gpus if kind}
        untyped = any(sum(node.gpus.values()) < 2 * node.gpus.get(ANY, 0) for node in self.kinds)
        return tuple(sorted(types | ({ANY} if untyped else set())))

    @cached_property
    def cpus_per_core(self) -> int:
        """How many of Slurm's CPUs a core of these nodes has; 0 where that differs, and without nodes."""
        numbers = {node.cpus_per_core for node in self.kinds}
        return numbers.pop() if len(numbers) == 1 else 0

    def count_capable(self, need: Need, *, usable: bool = False) -> int:
        """Number of nodes that could satisfy the request if empty: all of them, or only those in service."""
        kinds = self.usable_kinds if usable else self.kinds
        return sum(count for kind, count in kinds.items() if kind.offers(need))

    def fitting(self, need: Need) -> Iterator[NodeFit]:
        """Usable nodes on which the request fits now, reservations not considered."""
        nodes, counts, least = self._sorted(need)
        return (node for node in islice(nodes, bisect_left(counts, least), None) if node.has(need))

    def _sorted(self, need: Need) -> tuple[Sequence[NodeFit], Sequence[int], int]:
        if need.gpus:
            nodes, counts = self._by_gpus.get(need.gpu_type, ((), ()))
            return nodes, counts, need.gpus
        if need.shards:
            return (*self._by_shards, need.shards)
        return (*self._by_cpus, need.cpus)

    @cached_property
    def _by_gpus(self) -> Mapping[str, tuple[Sequence[NodeFit], Sequence[int]]]:
        by_type: dict[str, list[NodeFit]] = {}
        for node in self.usable:
            for kind, count in node.free_gpus.items():
                if count:  # no request for GPUs fits on the others
                    by_type.setdefault(kind, []).append(node)
        return {kind: _ascending(fits, lambda fit, kind=kind: fit.free_gpus[kind]) for kind, fits in by_type.items()}  # type: ignore[misc]

    @cached_property
    def _by_shards(self) -> tuple[Sequence[NodeFit], Sequence[int]]:
        return _ascending((node for node in self.usable if node.free_shards), lambda node: node.free_shards)

    @cached_property
    def _by_cpus(self) -> tuple[Sequence[NodeFit], Sequence[int]]:
        return _ascending(self.usable, attrgetter("free_cpus"))

    @cached_property
    def _reserved(self) -> tuple[NodeFit, ...]:
        return tuple(node for node in self.usable if node.reserved)

    @cached_property
    def _totals(self) -> Mapping[str, tuple[int, int]]:
        return _totals(node for node in self.usable if not node.reserved)

    def count(self, what: str, moment: float, length: float) -> tuple[int, int]:
        """Free and total number of ``what`` on usable nodes that no reservation blocks in that period.

        ``what`` is ``gpu:TYPE``, ``shard``, ``cpu`` or ``node``.
        """
        free, of = self._totals.get(what, (0, 0))
        opened = _totals(node for node in self._reserved if node.open_at(moment, length) == moment)
        more = opened.get(what, (0, 0))
        return free + more[0], of + more[1]


def _kinds(nodes: Iterable[NodeFit]) -> dict[NodeFit, int]:
    kinds: dict[object, tuple[NodeFit, int]] = {}
    for node in nodes:
        first, count = kinds.get(node.hardware, (node, 0))
        kinds[node.hardware] = (first, count + 1)
    return dict(kinds.values())


def _ascending(nodes: Iterable[NodeFit], count: Callable[[NodeFit], int]) -> tuple[Sequence[NodeFit], Sequence[int]]:
    ordered = sorted(nodes, key=count)
    return ordered, list(map(count, ordered))


def _totals(nodes: Iterable[NodeFit]) -> dict[str, tuple[int, int]]:
    sums = list(nodes)
    free: Counter[str] = Counter()
    of: Counter[str] = Counter()
    for node in sums:
        for kind, count in node.gpus.items():
            of[f"gpu:{kind}"] += count
            free[f"gpu:{kind}"] += node.free_gpus.get(kind, 0)
    totals = {what: (free[what], count) for what, count in of.items()}
    if sums:
        totals["node"] = sum(node.idle for node in sums), len(sums)
        totals["cpu"] = sum(min(node.free_cpus, node.cpus) for node in sums), sum(node.cpus for node in sums)
        totals["shard"] = sum(node.free_shards for node in sums), sum(node.shards for node in sums)
    return totals


# Whether a job fits on a node: its total and free resources.

ANY = ""
"""GPUs of any type; also the type of GPUs for which gres.conf names none."""
_COME_BACK = frozenset({"POWERING_DOWN", "POWER_DOWN", "REBOOT_ISSUED"})
_STAY_OUT = frozenset({"DOWN", "DRAIN", "FAIL"})
_POWERED_DOWN = frozenset({"POWERED_DOWN", "POWERING_UP"})


@dataclass(frozen=True)
class Need:
    """What a job requests on each of its nodes."""

    gpus: int = 0
    gpu_type: str = ANY
    shards: int = 0
    cpus: int = 1
    memory: int = 0
    """MiB."""
    memory_per_cpu: int = 0
    """MiB for each CPU that the job is given, as requested or by default; :attr:`memory` is the least."""
    memory_per_gpu: int = 0
    """MiB for each GPU likewise."""
    whole_cores: bool = False
    """Each of :attr:`cpus` is a core, of which the job uses one thread and gets all (``--hint=nomultithread``)."""
    all_memory: bool = False
    exclusive: bool = False

    @property
    def what(self) -> str:
        """What it asks for first: ``gpu:TYPE``, ``shard`` or ``cpu``."""
        return f"gpu:{self.gpu_type}" if self.gpus else "shard" if self.shards else "cpu"


class ReservedPeriod(NamedTuple):
    """A period in which a node is reserved for others; seconds since the epoch."""

    start: float
    end: float
    name: str
    maintenance: bool = False
    """It has the flag MAINT."""


class Place(NamedTuple):
    """What decides which jobs could use a node: equal for the nodes that all jobs find alike."""

    partitions: frozenset[str]
    hardware: tuple[object, ...]


class NodeFit:
    """One node's total and free resources. Plain attributes, since a page may examine thousands of nodes."""

    def __init__(
        self,
        node: NodeState,
        jobs: tuple[int, ...],
        reserved: tuple[ReservedPeriod, ...],
        *,
        complete: bool = True,
        config: SlurmConfig,
        partitions: frozenset[str] = frozenset(),
        shards_held: int = 0,
        oversubscribed: tuple[int, Sequence[int]] | None = None,
    ) -> None:
        """``jobs`` are positions in the snapshot's jobs; ``complete``: they are every job on the node.

        ``partitions`` are those that have the node.

        ``shards_held``: of these jobs, where the node does not report how many of each GPU are in use.
        ``oversubscribed``, in a partition where each CPU is given to several jobs (OverSubscribe=FORCE): to how many,
        and the CPUs of each job of the partition that is on the node; what others like it hold there does not count.
        """
        self.complete = complete
        self.name = node.name
        self.reason = node.why_out
        self.usable = node.usable
        self.states = node.states
        self.powered_down = bool(node.states & _POWERED_DOWN)
        self.comes_back = bool(node.states & _COME_BACK) and not node.states & _STAY_OUT
        """It is being powered down or rebooted, and comes back by itself."""
        self.planned = "PLANNED" in node.states
        """Slurm keeps it for a pending job."""
        self.features = _features(node.features, node.other_features)
        self.reserved = reserved
        self.jobs = jobs
        self.cpus, self.free_cpus = node.cpus, node.cpus_free
        if oversubscribed is not None:
            self.free_cpus = _free_cpus_when_oversubscribed(node.cpus, *oversubscribed)
        self.cpus_per_core = node.cpus_per_core
        self.socket_cpus = node.cpus_per_core * node.socket_cores
        self.step = _step(node, config.cpu_unit)
        self.memory, self.free_memory = node.memory_mib, node.memory_free_mib
        self.idle = node.cpus_allocated == 0 and not jobs
        devices = _devices(node.gres, node.gres_used, shards_held)
        self.gpus, self.free_gpus, self.shards, self.free_shards, *of_one_gpu = devices
        self.shards_of_gpu, self.free_shards_of_gpu = of_one_gpu
        if config.shards_of_several_gpus:
            self.shards_of_gpu, self.free_shards_of_gpu = self.shards, self.free_shards
        self.hardware = _hardware(
            self.cpus, self.step, self.cpus_per_core, self.memory, self.shards, self.shards_of_gpu, *self.gpus.items()
        )
        """Equal for nodes that offer the same, empty."""
        self.place = _place(partitions, self.hardware)

    def used_by(self, need: Need) -> tuple[int, int]:
        """The CPUs and the memory that such a job gets here: Slurm gives out whole cores, not their threads.

        A job that has the node for itself gets all CPUs and GPUs, and the memory of each of them; one that uses one
        thread of each core, that of the cores.
        """
        threads = self.cpus_per_core if need.whole_cores else 1
        cpus = need.cpus * threads
        if self.step > 1:
            cpus = -(-cpus // self.step) * self.step
        if need.exclusive:
            cpus = max(cpus, self.cpus)
        gpus = self.gpus.get(ANY, 0) if need.exclusive else need.gpus
        return cpus, max(need.memory, need.memory_per_cpu * (cpus // threads), need.memory_per_gpu * gpus)

    def offers(self, need: Need) -> bool:
        """Whether the node could satisfy the request if it were empty.

        To a job that has the node for itself Slurm gives all shards, but not those of several GPUs.
        """
        cpus, memory = self.used_by(need)
        shards = self.shards if need.shards and need.exclusive else need.shards
        return (
            self.gpus.get(need.gpu_type, 0) >= need.gpus
            and self.shards_of_gpu >= max(need.shards, shards)
            and self.cpus >= cpus
            and self.memory >= memory
        )

    def has(self, need: Need) -> bool:
        """Whether everything requested is free now."""
        cpus, memory = self.used_by(need)
        return (
            self.free_gpus.get(need.gpu_type, 0) >= need.gpus
            and self.free_shards_of_gpu >= need.shards
            and self.free_cpus >= cpus
            and self.free_memory >= memory
            and (self.idle or not (need.exclusive or need.all_memory))
        )

    def open_at(self, moment: float, length: float) -> float:
        """The first moment from ``moment`` on at which ``length`` seconds overlap no reservation for others."""
        for period in self.reserved:  # sorted by start
            if moment < period.end and moment + length > period.start:
                moment = period.end
        return moment

    @property
    def by_type(self) -> dict[str, int]:
        """Its GPUs by type; :data:`ANY` are those that have none."""
        types = {kind: count for kind, count in self.gpus.items() if kind}
        untyped = self.gpus.get(ANY, 0) - sum(types.values())
        return {**types, ANY: untyped} if untyped else types

    @cached_property
    def only_type(self) -> str:
        """The type of its GPUs if all have the same; else :data:`ANY`."""
        types = [kind for kind in self.gpus if kind]
        return types[0] if len(types) == 1 and self.gpus[types[0]] == self.gpus[ANY] else ANY


def _free_cpus_when_oversubscribed(cpus: int, rows: int, jobs: Sequence[int]) -> int:
    """The most CPUs that are free for one job where each is given to as many jobs as there are rows.

    In a row each CPU is given to one job, and all CPUs of a job are in one row.
    """
    free = [cpus] * rows
    for held in sorted(jobs, reverse=True):
        row = next((number for number in range(rows) if free[number] >= held), None)
        if row is not None:
            free[row] -= held
    return max(free)


@lru_cache(maxsize=8192)
def _hardware(*parts: object) -> tuple[object, ...]:
    """The same object for nodes that are alike."""
    return parts


@lru_cache(maxsize=8192)
def _place(partitions: frozenset[str], hardware: tuple[object, ...]) -> Place:
    return Place(partitions, hardware)


def _step(node: NodeState, cpu_unit: str) -> int:
    """How many CPUs a job gets together."""
    if cpu_unit == "core":
        return node.cpus_per_core
    if cpu_unit == "socket":
        return max(1, node.cpus_per_core * node.socket_cores)
    return max(1, node.cpus) if cpu_unit == "node" else 1


@lru_cache(maxsize=8192)
def _features(active: tuple[str, ...], others: tuple[str, ...]) -> frozenset[str]:
    return frozenset((*active, *others))


class _Devices(NamedTuple):
    gpus: Mapping[str, int]
    free_gpus: Mapping[str, int]
    shards: int
    free_shards: int
    shards_of_gpu: int
    """Of the GPU that has most of them: a job gets shards of one GPU (slurm.conf(5), SelectTypeParameters)."""
    free_shards_of_gpu: int
    """The same of those that are free; at least, where the node does not report them for each GPU."""


@lru_cache(maxsize=8192)
def _devices(gres: tuple[Gres, ...], used: tuple[Gres, ...], shards_held: int) -> _Devices:
    """The GPUs and shards of a node; thousands of nodes have the same ones, and share the answer."""
    gpus = gpus_of(gres)
    shards = sum(device.count for device in gres if device.name == "shard")
    return _Devices(
        _with_any(gpus) if gres else {},
        _with_any(free_gpus_of(gpus, used)) if gres else {},
        shards,
        *(_shards(gpus.total(), shards, used, shards_held) if shards else (0, 0, 0)),
    )


def _with_any(counts: Counter[str]) -> dict[str, int]:
    return {**counts, ANY: counts.total()}


def _shards(gpus: int, shards: int, used: tuple[Gres, ...], held: int) -> tuple[int, int, int]:
    """How many shards are free, how many the GPU has that has most, and how many are free of one GPU.

    Slurm 22.05 reports the GPUs of which shards are in use, and their number as that of the shards.
    """
    whole = [gres for gres in used if gres.name == "gpu"]
    parts = [gres for gres in used if gres.name == "shard"]
    of_gpus = [share for gres in parts for share in gres.shares]
    if of_gpus and sum(of for _, of in of_gpus) == shards:
        whole_indices = {index for gres in whole for index in gres.indices}
        free = [0 if number in whole_indices else of - in_use for number, (in_use, of) in enumerate(of_gpus)]
        return sum(free), max(of for _, of in of_gpus), max(free)
    most, usual = (-(-shards // gpus), shards // gpus) if gpus else (shards, shards)
    whole_gpus, shared = sum(gres.count for gres in whole), sum(len(gres.indices) for gres in parts)
    in_use = max(held, sum(gres.count for gres in parts))
    free_of_all = max(0, shards - in_use - usual * whole_gpus)
    if not in_use and not whole_gpus:
        return free_of_all, most, most
    least = usual - in_use // shared if shared else free_of_all
    if gpus > whole_gpus + shared:  # of one GPU all shards are free
        least = usual
    return free_of_all, most, max(0, min(least, free_of_all))
