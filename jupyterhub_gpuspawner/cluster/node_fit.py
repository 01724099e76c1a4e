"""Whether a job fits on a node: its total and free resources, and what jobs that end on it release. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from jupyterhub_gpuspawner.cluster.node_state import free_gpus_of, gpus_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jupyterhub_gpuspawner.cluster.node_state import NodeState
    from jupyterhub_gpuspawner.units import Gres

ANY = ""
"""GPUs of any type; also the type of GPUs for which gres.conf names none."""
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
    """MiB for each CPU that the job is given, where it requests no memory by itself; :attr:`memory` is the least."""
    all_memory: bool = False
    exclusive: bool = False


class ReservedPeriod(NamedTuple):
    """A period in which a node is reserved for others; seconds since the epoch."""

    start: float
    end: float
    name: str
    maintenance: bool = False
    """It has the flag MAINT."""


class NodeFit:
    """One node's total and free resources. Plain attributes, since a page may examine thousands of nodes."""

    __slots__ = (
        "all_known",
        "cpus",
        "cpus_per_core",
        "features",
        "free_cpus",
        "free_gpus",
        "free_memory",
        "free_shards",
        "gpus",
        "idle",
        "jobs",
        "memory",
        "name",
        "powered_down",
        "reason",
        "reserved",
        "shards",
        "step",
        "usable",
    )

    def __init__(
        self,
        node: NodeState,
        jobs: tuple[int, ...],
        reserved: tuple[ReservedPeriod, ...],
        *,
        all_known: bool = True,
        cpu_unit: str = "core",
        oversubscribed: tuple[int, int] | None = None,
    ) -> None:
        """``jobs`` are positions in the snapshot's jobs; ``all_known``: they are every job on the node.

        ``cpu_unit``: see :attr:`CpuAllocation.unit`. ``oversubscribed``, in a partition where each CPU is given to
        several jobs (OverSubscribe=FORCE): to how many, and the CPUs of the jobs that are on the node.
        """
        self.all_known = all_known
        self.name = node.name
        self.reason = node.reason
        self.usable = node.usable
        self.powered_down = bool(node.states & _POWERED_DOWN)
        self.features = _features(node.features, node.other_features)
        self.reserved = reserved
        self.jobs = jobs
        self.cpus, self.free_cpus = node.cpus, node.cpus_free
        if oversubscribed is not None:
            jobs_per_cpu, held = oversubscribed
            self.free_cpus = max(0, node.cpus * jobs_per_cpu - held)
        self.cpus_per_core = node.cpus_per_core
        self.step = _step(node, cpu_unit) if cpu_unit != "core" else node.cpus_per_core
        self.memory, self.free_memory = node.memory_mib, node.memory_free_mib
        self.idle = node.cpus_allocated == 0 and not jobs
        self.gpus, self.free_gpus, self.shards, self.free_shards = _devices(node.gres, node.gres_used)

    def taken_by(self, need: Need) -> tuple[int, int]:
        """The CPUs and the memory that such a job gets here: Slurm gives out whole cores, not their threads."""
        cpus = need.cpus if self.step == 1 else -(-need.cpus // self.step) * self.step
        return cpus, max(need.memory, need.memory_per_cpu * cpus)

    def offers(self, need: Need) -> bool:
        """Whether the node could satisfy the request if it were empty."""
        cpus, memory = self.taken_by(need)
        return (
            self.gpus.get(need.gpu_type, 0) >= need.gpus
            and self.shards >= need.shards
            and self.cpus >= cpus
            and self.memory >= memory
        )

    def has(self, need: Need) -> bool:
        """Whether everything requested is free now."""
        cpus, memory = self.taken_by(need)
        return (
            self.free_gpus.get(need.gpu_type, 0) >= need.gpus
            and self.free_shards >= need.shards
            and self.free_cpus >= cpus
            and self.free_memory >= memory
            and (self.idle or not (need.exclusive or need.all_memory))
        )

    def has_after(self, need: Need, freed: Freed) -> bool:
        """Whether everything requested is free once the jobs counted in ``freed`` have ended."""
        if self.all_known and freed.jobs >= len(self.jobs):
            return self.offers(need)
        if need.exclusive or need.all_memory:
            return False
        cpus, memory = self.taken_by(need)
        return (
            self.free_gpus.get(need.gpu_type, 0) + freed.gpus[need.gpu_type] >= need.gpus
            and self.free_shards + freed.shards >= need.shards
            and self.free_cpus + freed.cpus >= cpus
            and self.free_memory + freed.memory >= memory
        )

    def open_at(self, moment: float, length: float) -> float:
        """The first moment from ``moment`` on at which ``length`` seconds overlap no reservation for others."""
        for period in self.reserved:  # sorted by start
            if moment < period.end and moment + length > period.start:
                moment = period.end
        return moment

    @property
    def only_type(self) -> str:
        """The type of its GPUs if all have the same; else :data:`ANY`."""
        types = [kind for kind in self.gpus if kind]
        return types[0] if len(types) == 1 and self.gpus[types[0]] == self.gpus[ANY] else ANY


def _step(node: NodeState, cpu_unit: str) -> int:
    """How many CPUs a job gets together."""
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


@lru_cache(maxsize=8192)
def _devices(gres: tuple[Gres, ...], used: tuple[Gres, ...]) -> _Devices:
    """The GPUs and shards of a node; thousands of nodes have the same ones, and share the answer."""
    gpus = gpus_of(gres)
    shards = sum(each.count for each in gres if each.name == "shard")
    return _Devices(
        _with_any(gpus) if gres else {},
        _with_any(free_gpus_of(gpus, used)) if gres else {},
        shards,
        _free_shards(gpus.total(), shards, used) if shards else 0,
    )


def _with_any(counts: Counter[str]) -> dict[str, int]:
    return {**counts, ANY: counts.total()}


def _free_shards(gpus: int, shards: int, used: tuple[Gres, ...]) -> int:
    count = {name: sum(gres.count for gres in used if gres.name == name) for name in ("shard", "gpu")}
    per_gpu = shards // gpus if gpus else 0
    return max(0, shards - count["shard"] - per_gpu * count["gpu"])


class Freed:
    """Resources that ended jobs have released on one node."""

    __slots__ = ("cpus", "gpus", "jobs", "memory", "shards")

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
