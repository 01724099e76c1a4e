"""One node as slurmctld reports it. Pure.

Source: scontrol(1), ``show node -d``; states from sinfo(1), "NODE STATE CODES".
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyterhub_gpuspawner.units import Gres

_UP = frozenset({"IDLE", "MIXED", "ALLOCATED", "COMPLETING"})
_OUT = frozenset(
    {
        "BLOCKED",
        "DOWN",
        "DRAIN",
        "DYNAMIC_FUTURE",
        "FAIL",
        "FUTURE",
        "INVALID",
        "INVALID_REG",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "PERFCTRS",
        "POWERING_DOWN",
        "POWER_DOWN",
        "REBOOT_ISSUED",
        "UNKNOWN",
    }
)


class NodeState(NamedTuple):
    """One node as slurmctld reports it."""

    name: str
    """Slurm's NodeName."""
    address: str = ""
    """NodeAddr: the address at which Slurm, and therefore the hub, reaches it; not necessarily a DNS name."""
    states: frozenset[str] = frozenset()
    """State words, such as ``{"MIXED", "DRAIN"}``."""
    cpus: int = 0
    """CPUs available to jobs (CPUEfctv) as Slurm counts them: hardware threads if it is configured with them."""
    cpus_allocated: int = 0
    memory_mib: int = 0
    """Memory for jobs: RealMemory without MemSpecLimit."""
    memory_allocated_mib: int = 0
    gres: tuple[Gres, ...] = ()
    """Generic resources of the node."""
    gres_used: tuple[Gres, ...] = ()
    """Generic resources in use, with Slurm's indices."""
    features: tuple[str, ...] = ()
    """Active features, for ``--constraint``."""
    other_features: tuple[str, ...] = ()
    """Features available after a reboot, as some plugins offer."""
    partitions: tuple[str, ...] = ()
    reason: str = ""
    """The admin's reason for its state; empty where none is given."""
    cpus_per_core: int = 1
    """How many of Slurm's CPUs a core has: its hardware threads, or 1 where only cores are given out (slurm.conf(5),
    ``CPUs``)."""
    socket_cores: int = 0
    """CoresPerSocket; 0 where it is not reported."""

    @property
    def usable(self) -> bool:
        """Whether Slurm may start a job here: up, responding, neither draining nor in maintenance.

        Reserved nodes (``RESERVED``) and cloud nodes that are powered down count as usable.
        """
        return bool(self.states & _UP) and not self.states & _OUT

    @property
    def cpus_free(self) -> int:
        """CPUs not allocated to jobs."""
        return max(0, self.cpus - self.cpus_allocated)

    @property
    def memory_free_mib(self) -> int:
        """MiB not allocated to jobs; unlike the kernel's free memory."""
        return max(0, self.memory_mib - self.memory_allocated_mib)

    def gpus(self) -> Counter[str]:
        """GPUs and MIG devices by type; the empty type if gres.conf gives none."""
        return gpus_of(self.gres)

    def gpus_free(self) -> Counter[str]:
        """GPUs by type that no job uses, neither whole nor in part (shard, MPS)."""
        return free_gpus_of(self.gpus(), self.gres_used)


def gpus_of(gres: Iterable[Gres]) -> Counter[str]:
    """The GPUs and MIG devices among generic resources, by type."""
    return Counter({each.type or "": each.count for each in gres if each.name == "gpu" and each.count})


def free_gpus_of(gpus: Counter[str], used: Iterable[Gres]) -> Counter[str]:
    """Those of a node's GPUs that are not in use."""
    free = gpus.copy()
    only_type = next(iter(free)) if len(free) == 1 else ""  # shards may be untyped where the GPUs are typed
    for each in used:
        if each.name == "gpu":
            free[each.type or ""] -= each.count
        elif each.name in ("shard", "mps"):
            free[each.type or only_type] -= len(each.indices)
    return +free
