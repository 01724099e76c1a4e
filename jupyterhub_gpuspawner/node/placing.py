"""Placing one server on its node: observe, get the grant, choose GPUs and CPUs, bind, set the environment."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.node import bind, grant
from jupyterhub_gpuspawner.placement.affinity import aligned, choose_cpus, memory_nodes
from jupyterhub_gpuspawner.placement.topology import NodeTopology
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacedGpu, PlacementDocument

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence
    from typing import TypeVar

    T = TypeVar("T")

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Set to the number of cores unless already set: some libraries start a thread for every CPU of the node."""
THREADS_SET = "GPUSPAWNER_THREADS"
"""Records the number that was set; tasks started by the server find it in their environment."""


@dataclass(frozen=True)
class Gpus:
    """The server's GPUs, in the order of ``CUDA_VISIBLE_DEVICES``."""

    placed: tuple[PlacedGpu, ...] = ()
    positions: tuple[int, ...] = ()
    """Indices into the topology's GPUs; empty if they are not known there."""
    visible: str | None = None
    """Value of ``CUDA_VISIBLE_DEVICES``; None leaves it unchanged."""
    weakest_link: str | None = None
    numa_nodes: tuple[int, ...] = ()
    why: str = ""


class Placing:
    """One launch: its plan, its environment, and the problems so far. :meth:`place` runs all steps.

    ``look`` returns the topology of ``node``.
    """

    def __init__(
        self, plan: LaunchPlan, environ: MutableMapping[str, str], node: str, observe_node: Callable[[], NodeTopology]
    ) -> None:
        self.plan = plan
        self.environ = environ
        self.node = node
        self.problems: list[str] = []
        self._look = observe_node
        self._job: grant.GrantedJob | None = None

    without_choice = Gpus()
    """What the server gets if choosing GPUs fails: the GPUs as Slurm set them."""

    def attempt(self, doing: str, work: Callable[[], T], otherwise: T) -> T:
        """Return what ``work`` returns; if it raises, add a problem that names ``doing`` and return ``otherwise``."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the notebook always starts
            self.problems.append(f"{doing} failed: {type(error).__name__}: {error}")
            return otherwise

    def with_problems(self, document: PlacementDocument) -> PlacementDocument:
        """The document with all problems so far, without duplicates."""
        return replace(document, problems=tuple(dict.fromkeys(self.problems)))

    def place(self) -> tuple[PlacementDocument, NodeTopology]:
        """Observe, choose, bind, and set the environment; returns the placement and the topology it is based on."""
        topology = self.attempt("Reading the hardware", self._look, NodeTopology(hostname=self.node))
        self.problems.extend(topology.problems)
        nothing: tuple[int, ...] = ()
        allowed = self.attempt("Reading the CPU affinity", bind.allowed_cpus, nothing)
        cpus = self.attempt("Reading the granted CPUs", lambda: self._granted_cpus(topology, allowed), allowed)
        gpus = self.attempt("Choosing GPUs", lambda: self._gpus(topology, cpus), self.without_choice)
        cpus = self.attempt("Choosing CPUs", lambda: self._cpus(topology, cpus, gpus), cpus)
        memory = "none"
        if not topology.simulated:  # whose numbers are not those of the real machine
            wanted = cpus
            cpus = self.attempt("Binding CPUs", lambda: self._bind_cpus(wanted), allowed)
            memory = self.attempt("Binding memory", lambda: self._bind_memory(topology, cpus, gpus), "none")
        self.attempt("Setting the environment", lambda: self._export(topology, cpus, gpus), None)
        document = PlacementDocument(
            job_id=self.environ.get("SLURM_JOB_ID"),
            node=self.node,
            partition=self.environ.get("SLURM_JOB_PARTITION"),
            simulated=topology.simulated,
            gpus=gpus.placed,
            cpus=format_cpulist(cpus),
            numa_nodes=_numa_nodes(topology, cpus) or gpus.numa_nodes,
            memory_policy=memory,
            policy=self.plan.policy,
            aligned=self.attempt("Checking the alignment", lambda: self._aligned(topology, gpus, cpus, memory), None),
            weakest_link=gpus.weakest_link,
            why=gpus.why,
            started_at=utc(time.time()),
            ends_at=self.attempt("Reading the job's end", self._ends_at, None),
        )
        return self.with_problems(document), topology

    def job(self) -> grant.GrantedJob:
        """What slurmctld says about this job; it is asked at most once."""
        if self._job is None:
            self._job = self.attempt(
                "Asking scontrol for the job", lambda: grant.show_job(self.environ), grant.GrantedJob()
            )
        return self._job

    def hands_out_gpus(self) -> bool | None:
        """Whether Slurm manages this node's GPUs at all; None if that cannot be known."""
        return self.attempt("Asking scontrol for the node", lambda: grant.show_node_gpus(self.environ), None)

    def _granted_cpus(self, topology: NodeTopology, allowed: tuple[int, ...]) -> tuple[int, ...]:
        granted, problems = grant.cpus(self.environ, topology, allowed, self)
        self.problems.extend(problems)
        return granted

    def _grant(self, topology: NodeTopology, cpus: tuple[int, ...]) -> grant.GpuGrant:  # noqa: ARG002 - for subclasses
        """The GPUs from which this server's are chosen; ``cpus`` are the CPUs granted to it."""
        return grant.gpus(self.environ, topology, self)

    def _gpus(self, topology: NodeTopology, cpus: tuple[int, ...]) -> Gpus:
        promised = self.plan.gpus or 0
        if not promised and not grant.in_job(self.environ):
            return Gpus()
        granted = self._grant(topology, cpus)
        self.problems.extend(granted.problems)
        if promised > len(granted.names) and granted.positions is not None:
            self.problems.append(
                f"The profile promises {_gpus_in_words(promised)}; only {len(granted.names)} available."
            )
        if not granted.names:
            return self._no_gpus(topology, granted)
        count = promised or len(granted.names)
        if granted.positions is None:
            names = granted.names[:count]
            return Gpus(placed=tuple(_placement(name) for name in names), visible=",".join(names))
        from jupyterhub_gpuspawner.placement.choice import choose

        choice = choose(topology, granted=granted.positions, count=count, cpus=cpus, policy=self.plan.policy)
        named = dict(zip(granted.positions, granted.names))
        return Gpus(
            placed=tuple(_placement(named[position], topology, position) for position in choice.gpus),
            positions=choice.gpus,
            visible=",".join(named[position] for position in choice.gpus),
            weakest_link=choice.weakest_link,
            numa_nodes=choice.numa_nodes,
            why=choice.why + _in_slurms_words(granted, choice.gpus, topology),
        )

    def _no_gpus(self, topology: NodeTopology, granted: grant.GpuGrant) -> Gpus:
        """Hide the node's GPUs from a job that has none; change nothing if the job has GPUs that were not found."""
        if granted.positions is None or not topology.gpus or not grant.in_job(self.environ):
            return Gpus()
        return Gpus(visible="", why="This job has no GPU; the node's GPUs are hidden from it.")

    def _cpus(self, topology: NodeTopology, granted: tuple[int, ...], gpus: Gpus) -> tuple[int, ...]:
        promised = self.plan.cpus or len(granted)
        if promised > len(granted):
            self.problems.append(f"The profile promises {promised} CPUs; only {len(granted)} available.")
        if promised >= len(granted) or self.plan.policy == "none":
            return granted
        return choose_cpus(topology, granted=granted, count=promised, gpus=gpus.positions)

    def _bind_cpus(self, cpus: tuple[int, ...]) -> tuple[int, ...]:
        bound, problems = bind.bind_cpus(cpus)
        self.problems.extend(problems)
        return bound

    def _bind_memory(self, topology: NodeTopology, cpus: tuple[int, ...], gpus: Gpus) -> str:
        nodes = memory_nodes(topology, cpus, gpus.positions)
        policy, problems = bind.bind_memory(self.plan.memory_policy, nodes, _numa_nodes(topology, cpus))
        self.problems.extend(problems)
        return policy

    def _aligned(self, topology: NodeTopology, gpus: Gpus, cpus: tuple[int, ...], memory: str) -> bool | None:
        near = aligned(topology, gpus.positions, cpus)
        nodes = _numa_nodes(topology, cpus)
        if near is not True or topology.simulated or not nodes or memory == "none":
            return near
        return bind.memory_is_on(memory, nodes)

    def _export(self, topology: NodeTopology, cpus: tuple[int, ...], gpus: Gpus) -> None:
        if gpus.visible is not None:
            self.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            self.environ["CUDA_VISIBLE_DEVICES"] = gpus.visible
            self.environ["GPUSPAWNER_GPUS"] = gpus.visible
        self.environ["GPUSPAWNER_CPUS"] = format_cpulist(cpus)
        self.environ["GPUSPAWNER_NUMA_NODES"] = format_cpulist(_numa_nodes(topology, cpus))
        if self.plan.set_threads and cpus:
            for name in (*THREADS, THREADS_SET):
                self.environ.setdefault(name, str(self._threads(topology, cpus)))

    def _threads(self, topology: NodeTopology, cpus: tuple[int, ...]) -> int:
        return _cores(topology, cpus)

    def _ends_at(self) -> str | None:
        end = self.environ.get("SLURM_JOB_END_TIME", "")
        return utc(int(end)) if end else None


def _placement(name: str, topology: NodeTopology | None = None, position: int = 0) -> PlacedGpu:
    """A GPU for the report; its index is the number in ``CUDA_VISIBLE_DEVICES``, if that contains numbers."""
    number = int(name) if name.isdigit() else None
    if topology is None:
        return PlacedGpu(index=number or 0, uuid="" if number is not None else name)
    gpu = topology.gpus[position]
    return PlacedGpu(
        index=gpu.index if number is None else number,
        uuid=gpu.uuid,
        pci=gpu.pci,
        name=gpu.name,
        memory_mib=gpu.memory_mib,
        numa_node=gpu.numa_node,
        mig=gpu.mig,
        mig_device=topology.mig_device(position),
    )


def _gpus_in_words(count: int) -> str:
    return f"{count} GPU{'s' if count != 1 else ''}"


def _in_slurms_words(granted: grant.GpuGrant, chosen: Sequence[int], topology: NodeTopology) -> str:
    """Slurm's own indices, if the driver counts differently: in a device cgroup, or with MIG devices."""
    indices = dict(zip(granted.positions or (), granted.slurm))
    if not indices or all(topology.gpus[position].index == indices[position] for position in chosen):
        return ""
    numbers = format_cpulist(indices[position] for position in chosen)
    return f" To Slurm {'these count_is GPUs' if len(chosen) > 1 else 'this is GPU'} {numbers}."


def _numa_nodes(topology: NodeTopology, cpus: Sequence[int]) -> tuple[int, ...]:
    nodes = {topology.numa_node_of_cpu(cpu) for cpu in cpus}
    return tuple(sorted(node for node in nodes if node is not None))


def _cores(topology: NodeTopology, cpus: Sequence[int]) -> int:
    """The number of physical cores of these CPUs."""
    core_of = {cpu: core[0] for core in topology.siblings for cpu in core}
    return len({core_of.get(cpu, cpu) for cpu in cpus})


def utc(seconds: float) -> str:
    """ISO 8601 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
