"""The cluster as one snapshot: nodes, partitions, reservations, jobs, and plain questions about them. Pure.

Source: scontrol(1), ``show node``, ``show partition``, ``show reservation``; states from sinfo(1), "NODE STATE CODES";
jobs from squeue(1), ``--Format``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.cluster.node_state import NodeState
    from jupyterhub_gpuspawner.units import Gres


@dataclass(frozen=True)
class Partition:
    """One partition. Lists of who may use it are empty where Slurm says ALL."""

    name: str
    state: str = "UP"
    """``UP``, ``DOWN``, ``DRAIN`` or ``INACTIVE``."""
    default: bool = False
    hidden: bool = False
    nodes: tuple[str, ...] = ()
    max_time: int | None = None
    """Seconds; None for UNLIMITED."""
    default_time: int | None = None
    """Seconds; None where Slurm falls back to :attr:`max_time`."""
    min_nodes: int = 0
    max_nodes: int | None = None
    max_cpus_per_node: int | None = None
    max_memory_per_node_mib: int | None = None
    max_memory_per_cpu_mib: int | None = None
    """MaxMemPerCPU; a job that asks for more memory gets as many CPUs as that takes."""
    default_memory_per_cpu_mib: int | None = None
    """DefMemPerCPU of the partition; None where the cluster's counts."""
    default_memory_per_node_mib: int | None = None
    """DefMemPerNode likewise."""
    allow_groups: tuple[str, ...] = ()
    allow_accounts: tuple[str, ...] = ()
    deny_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    deny_qos: tuple[str, ...] = ()
    needs_reservation: bool = False
    """ReqResv: only jobs with a reservation."""
    unread: tuple[str, ...] = ()
    """Fields, by Slurm's names, that were not understood and stand at their defaults here."""


@dataclass(frozen=True)
class Reservation:
    """One reservation; times are seconds since the epoch."""

    name: str
    start: float | None = None
    end: float | None = None
    nodes: tuple[str, ...] = ()
    partition: str = ""
    flags: frozenset[str] = frozenset()
    users: tuple[str, ...] = ()
    """Who may use it; a name with ``-`` in front may not. Empty: see :attr:`accounts` and :attr:`groups`."""
    accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def active(self, now: float) -> bool:
        """It has begun and has not ended."""
        return (self.start is None or self.start <= now) and (self.end is None or now < self.end)


@dataclass(frozen=True)
class ClusterJob:
    """One job of anybody's that waits or holds nodes, as squeue tells it; times are seconds since the epoch."""

    job_id: str
    phase: Phase
    state: str = ""
    """Slurm's word, such as ``PENDING``."""
    reason: str = ""
    """Slurm's word, such as ``Resources``; empty for ``None``."""
    user: str = ""
    account: str = ""
    partitions: tuple[str, ...] = ()
    """The one it runs in, or those in which it waits."""
    priority: int = 0
    """Only its order means something: it begins near 2^32 in 22.05 and at 1 later. 0 is held."""
    nodes: tuple[str, ...] = ()
    """Where it is; none while it waits."""
    node_count: int = 1
    cpus: int = 0
    """CPUs on all its nodes together."""
    memory_mib: int = 0
    """MiB on all its nodes together."""
    gpus: tuple[Gres, ...] = ()
    """``gpu``, ``shard`` and ``mps`` on each node, as asked; an even share where they were asked for as a whole."""
    gpus_unknown: bool = False
    """What it asks for could not be read: it may want or hold GPUs of any type, and :attr:`gpus` is empty."""
    submitted_at: float | None = None
    starts_at: float | None = None
    """For one that waits Slurm's estimate, None until it has one."""
    ends_at: float | None = None
    """Its time limit; None for one without, and for one that waits."""
    time_limit: int | None = None
    """Seconds; None for UNLIMITED."""
    reservation: str = ""
    name: str = ""
    """Its owner's words."""
    tag: str = ""
    """Its comment; its owner's words, see :attr:`JobStatus.tag`."""

    @property
    def partition(self) -> str:
        """The first of :attr:`partitions`."""
        return self.partitions[0] if self.partitions else ""


@dataclass(frozen=True)
class DefaultMemory:
    """The cluster's memory for a job that asks for none (slurm.conf); MiB, None where it is not set."""

    per_cpu_mib: int | None = None
    per_node_mib: int | None = None
    allocated: bool = True
    """Memory is a resource that jobs hold: without any default such a job gets all of a node's."""


@dataclass(frozen=True)
class Unread:
    """A record of Slurm's answer of which a field was not understood. It holds no text that somebody chose."""

    kind: str
    """``job``, ``node``, ``partition`` or ``reservation``."""
    name: str
    """Of the node, partition or reservation, or the job's id; empty where that was not understood either."""
    field: str
    """Slurm's name of the field; empty where the whole record was not understood."""
    kept: bool = False
    """The record is in the snapshot all the same, without what this field tells."""


@dataclass(frozen=True)
class ClusterSnapshot:
    """Nodes, partitions, reservations and jobs as Slurm told them at one moment."""

    nodes: tuple[NodeState, ...] = ()
    partitions: tuple[Partition, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    jobs: tuple[ClusterJob, ...] = ()
    """Those that wait or hold nodes; ended ones are not among them."""
    memory: DefaultMemory | None = None
    """What a job gets that asks for no memory, where its partition says nothing; None where that is not known."""
    taken_at: float = 0.0
    """Seconds since the epoch."""
    unread: tuple[Unread, ...] = ()
    """What of the answer was not understood."""

    @cached_property
    def partial(self) -> bool:
        """A job that may hold or want anything, or a reservation of unknown nodes, is missing: nothing is surely free.

        A node that is missing is one that nobody counts on, and a partition is in doubt by itself.
        """
        return any(each.kind == "reservation" or (each.kind == "job" and not each.kept) for each in self.unread)

    @cached_property
    def node_by_name(self) -> Mapping[str, NodeState]:
        """Nodes by Slurm's name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def partition_by_name(self) -> Mapping[str, Partition]:
        """Partitions by name."""
        return {partition.name: partition for partition in self.partitions}

    @cached_property
    def reservation_by_name(self) -> Mapping[str, Reservation]:
        """Reservations by name."""
        return {reservation.name: reservation for reservation in self.reservations}

    @cached_property
    def job_by_id(self) -> Mapping[str, ClusterJob]:
        """Jobs by id."""
        return {job.job_id: job for job in self.jobs}

    @cached_property
    def nodes_by_partition(self) -> Mapping[str, tuple[NodeState, ...]]:
        """The nodes of each partition, in Slurm's order; those that Slurm hides are left out."""
        order = {node.name: position for position, node in enumerate(self.nodes)}
        known = {
            partition.name: sorted({order[name] for name in partition.nodes if name in order})
            for partition in self.partitions
        }
        return {name: tuple(self.nodes[position] for position in positions) for name, positions in known.items()}

    def nodes_of(self, partition: str) -> tuple[NodeState, ...]:
        """The nodes of a partition, in Slurm's order; none for a partition that is not there."""
        return self.nodes_by_partition.get(partition, ())

    @cached_property
    def jobs_by_node(self) -> Mapping[str, tuple[ClusterJob, ...]]:
        """Jobs that hold a node, by its name."""
        found: dict[str, list[ClusterJob]] = {}
        for job in self.jobs:
            for node in job.nodes:
                found.setdefault(node, []).append(job)
        return {node: tuple(jobs) for node, jobs in found.items()}

    @cached_property
    def waiting_by_partition(self) -> Mapping[str, tuple[ClusterJob, ...]]:
        """Jobs that wait, by each partition in which they do."""
        found: dict[str, list[ClusterJob]] = {}
        for job in self.jobs:
            if job.phase is Phase.QUEUED:
                for partition in job.partitions:
                    found.setdefault(partition, []).append(job)
        return {partition: tuple(jobs) for partition, jobs in found.items()}
