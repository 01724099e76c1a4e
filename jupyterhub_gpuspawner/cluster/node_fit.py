"""One node as a job sees it: what it offers, what is free on it, and what ended jobs give back. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.cluster.snapshot import ClusterJob, NodeState

ANY = ""
"""GPUs of any type; Slurm's type of GPUs for which gres.conf names none, too."""
_ASLEEP = frozenset({"POWERED_DOWN", "POWERING_UP"})


@dataclass(frozen=True)
class Need:
    """What a job asks of each of its nodes."""

    gpus: int = 0
    gpu_type: str = ANY
    shards: int = 0
    cpus: int = 1
    memory: int = 0
    """MiB."""
    all_memory: bool = False
    exclusive: bool = False


class Block(NamedTuple):
    """Somebody else's reservation of a node; seconds since the epoch."""

    start: float
    end: float
    name: str


class Room:
    """One node as a job sees it. Plain attributes: thousands are asked for each page."""

    __slots__ = (
        "all_known",
        "asleep",
        "blocks",
        "cpus",
        "features",
        "free_cpus",
        "free_gpus",
        "free_memory",
        "free_shards",
        "gpus",
        "held_by",
        "idle",
        "memory",
        "name",
        "reason",
        "shards",
        "usable",
    )

    def __init__(
        self, node: NodeState, held_by: tuple[ClusterJob, ...], blocks: tuple[Block, ...], *, all_known: bool = True
    ) -> None:
        """``all_known``: no other job than those of ``held_by`` is on the node."""
        self.all_known = all_known
        self.name = node.name
        self.reason = node.reason
        self.usable = node.usable
        self.asleep = bool(node.states & _ASLEEP)
        self.features = frozenset((*node.features, *node.other_features))
        self.blocks = blocks
        self.held_by = held_by
        self.cpus, self.free_cpus = node.cpus, node.cpus_free
        self.memory, self.free_memory = node.memory_mib, node.memory_free_mib
        self.idle = node.cpus_allocated == 0 and not held_by
        self.gpus = _with_any(node.gpus()) if node.gres else {}
        self.free_gpus = _with_any(node.gpus_free()) if node.gres else {}
        self.shards = sum(gres.count for gres in node.gres if gres.name == "shard")
        self.free_shards = _free_shards(node, self.shards) if self.shards else 0

    def offers(self, need: Need) -> bool:
        """An empty node of this kind has all of it."""
        return (
            self.gpus.get(need.gpu_type, 0) >= need.gpus
            and self.shards >= need.shards
            and self.cpus >= need.cpus
            and self.memory >= need.memory
        )

    def has(self, need: Need) -> bool:
        """All of it is free now."""
        return (
            self.free_gpus.get(need.gpu_type, 0) >= need.gpus
            and self.free_shards >= need.shards
            and self.free_cpus >= need.cpus
            and self.free_memory >= need.memory
            and (self.idle or not (need.exclusive or need.all_memory))
        )

    def has_after(self, need: Need, freed: Freed) -> bool:
        """All of it is free once these jobs have ended."""
        if self.all_known and freed.jobs >= len(self.held_by):
            return self.offers(need)
        if need.exclusive or need.all_memory:
            return False
        return (
            self.free_gpus.get(need.gpu_type, 0) + freed.gpus[need.gpu_type] >= need.gpus
            and self.free_shards + freed.shards >= need.shards
            and self.free_cpus + freed.cpus >= need.cpus
            and self.free_memory + freed.memory >= need.memory
        )

    def open_at(self, moment: float, length: float) -> float:
        """The first moment from ``moment`` on at which no other reservation is in the way of so long a job."""
        for block in self.blocks:  # in order of their start
            if moment < block.end and moment + length > block.start:
                moment = block.end
        return moment

    @property
    def only_type(self) -> str:
        """The type of its GPUs where they are of one type; else :data:`ANY`."""
        types = [kind for kind in self.gpus if kind]
        return types[0] if len(types) == 1 and self.gpus[types[0]] == self.gpus[ANY] else ANY


def _with_any(counts: Counter[str]) -> dict[str, int]:
    return {**counts, ANY: counts.total()}


def _free_shards(node: NodeState, shards: int) -> int:
    gpus = node.gpus().total()
    used = {name: sum(gres.count for gres in node.gres_used if gres.name == name) for name in ("shard", "gpu")}
    a_gpu = shards // gpus if gpus else 0
    return max(0, shards - used["shard"] - a_gpu * used["gpu"])


class Freed:
    """What ended jobs have given back on one node."""

    __slots__ = ("cpus", "gpus", "jobs", "memory", "shards")

    def __init__(self) -> None:
        self.jobs = self.cpus = self.memory = self.shards = 0
        self.gpus: Counter[str] = Counter()

    def add(self, job: ClusterJob, only_type: str) -> None:
        """Take in what the job has on a node, an even share of it all."""
        self.jobs += 1
        self.cpus += job.cpus // job.node_count
        self.memory += job.memory_mib // job.node_count
        for gres in job.gpus:
            if gres.name == "shard":
                self.shards += gres.count
            elif gres.name == "gpu":
                kind = gres.type or only_type
                self.gpus[ANY] += gres.count
                if kind:
                    self.gpus[kind] += gres.count
