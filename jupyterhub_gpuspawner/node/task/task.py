"""Placing one of several tasks that ``srun`` started on a node: it gets a share of the step's GPUs and CPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.placing import THREADS, THREADS_SET, Gpus, Placing
from jupyterhub_gpuspawner.node.task.rank import Rank, divide_cpus, has_own_cpus, has_own_gpus, shares
from jupyterhub_gpuspawner.placement import choice
from jupyterhub_gpuspawner.placement.choice import opened

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from jupyterhub_gpuspawner.node.allocation import GpuGrant
    from jupyterhub_gpuspawner.placement.topology import NodeTopology
    from jupyterhub_gpuspawner.wire.documents import LaunchPlan


class StepPlacing(Placing):
    """The launch of one task. Its share follows from what all tasks of the step on this node know."""

    def __init__(
        self,
        plan: LaunchPlan,
        environ: MutableMapping[str, str],
        node: str,
        observe_node: Callable[[], NodeTopology],
        *,
        rank: Rank,
    ) -> None:
        super().__init__(plan, environ, node, observe_node)
        self.rank = rank
        self.opened = False
        """Whether the ring of this node is part of one over several nodes."""
        self.in_order: tuple[str, ...] = ()
        """The visible names of the GPUs of all tasks on this node, in the order of the tasks."""
        self._beside: tuple[tuple[int, ...], ...] = ((),) * rank.count
        """The GPUs of each task, by position; empty if not known."""
        self.sharing = 1
        """Processes that have this task's CPUs."""

    def _whole_grant(self, topology: NodeTopology, cpus: tuple[int, ...]) -> GpuGrant:
        """The GPUs of all tasks on this node, or those of this task if Slurm has divided them."""
        return super()._grant(topology, cpus)

    def _grant(self, topology: NodeTopology, cpus: tuple[int, ...]) -> GpuGrant:
        granted = self._whole_grant(topology, cpus)
        if has_own_gpus(self.environ, len(granted.names)):
            self._beside = shares(_of_the_job(self.environ.get("SLURM_JOB_GPUS", ""), topology), self.rank.count)
            return granted
        order = list(range(len(granted.names)))
        if granted.positions:
            count = len(granted.positions)
            ring = choice.choose(topology, granted=granted.positions, count=count, policy=self.plan.policy).gpus
            ring = opened(topology, ring) if self.opened else ring
            order = [granted.positions.index(position) for position in ring]
            self._beside = shares(ring, self.rank.count)
        if 0 < len(order) < self.rank.count and self.rank.local == 0:
            self.problems.append(f"{self.rank.count} tasks share {len(order)} GPUs on this node.")
        self.in_order = tuple(granted.names[n] for n in order)
        mine = self.rank.share(order)
        return replace(
            granted,
            names=tuple(granted.names[n] for n in mine),
            positions=None if granted.positions is None else tuple(granted.positions[n] for n in mine),
            slurm=tuple(granted.slurm[n] for n in mine) if granted.slurm else (),
        )

    def _gpus(self, topology: NodeTopology, cpus: tuple[int, ...]) -> Gpus:
        gpus = super()._gpus(topology, cpus)
        return replace(gpus, why=f"Task {self.rank.local} of {self.rank.count} on this node. {gpus.why}".rstrip())

    def _cpus(self, topology: NodeTopology, granted: tuple[int, ...], gpus: Gpus) -> tuple[int, ...]:  # noqa: ARG002 - only what all tasks know counts
        if has_own_cpus(self.environ, len(granted)):
            return granted
        if self.plan.policy == "none":
            self.sharing *= self.rank.count
            return granted
        if 0 < len(granted) < self.rank.count and self.rank.local == 0:
            self.problems.append(f"{self.rank.count} tasks share {len(granted)} CPUs on this node.")
        per_task = self.plan.cpus or _number(self.environ.get("SLURM_CPUS_PER_TASK", ""))
        return divide_cpus(topology, granted, self._beside, per_task=per_task)[self.rank.local]

    def _export(self, topology: NodeTopology, cpus: tuple[int, ...], gpus: Gpus) -> None:
        # What was set for the server of the whole job does not hold for a part of it.
        whole = self.environ.pop(THREADS_SET, None)
        for name in [name for name in THREADS if self.environ.get(name, "") == whole]:
            del self.environ[name]
        super()._export(topology, cpus, gpus)

    def _threads(self, topology: NodeTopology, cpus: tuple[int, ...]) -> int:
        return max(1, super()._threads(topology, cpus) // self.sharing)


def _of_the_job(indices: str, topology: NodeTopology) -> tuple[int, ...]:
    """Positions of the GPUs that the whole job has on this node; empty if some of them cannot be seen."""
    positions = {str(gpu.index): n for n, gpu in enumerate(topology.gpus) if gpu.mig is None}
    words = indices.split(",")
    return tuple(positions[word] for word in words) if all(word in positions for word in words) else ()


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
