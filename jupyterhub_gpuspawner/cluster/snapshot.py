"""A snapshot of the cluster: nodes, partitions, reservations and jobs, with indexes over them. Pure.

Sources: scontrol(1), ``show node``, ``show partition`` and ``show reservation``; squeue(1), ``--Format``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.cluster.node_state import NodeState
    from jupyterhub_gpuspawner.units import Gres


@dataclass(frozen=True)
class Partition:
    """One partition. Lists of who may use it are empty where Slurm prints ALL."""

    name: str
    state: str = "UP"
    """``UP``, ``DOWN``, ``DRAIN`` or ``INACTIVE``."""
    default: bool = False
    hidden: bool = False
    nodes: tuple[str, ...] = ()
    max_time: int | None = None
    """Seconds; None for UNLIMITED."""
    default_time: int | None = None
    """Seconds; None where Slurm uses :attr:`max_time`."""
    min_nodes: int = 0
    max_nodes: int | None = None
    max_cpus_per_node: int | None = None
    max_memory_per_node_mib: int | None = None
    max_memory_per_cpu_mib: int | None = None
    """MaxMemPerCPU; a job that requests more memory is given more CPUs accordingly."""
    default_memory_per_cpu_mib: int | None = None
    """DefMemPerCPU of the partition; None where the cluster's applies."""
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
    """Slurm's names of fields that were not understood and have their defaults here."""


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
        """Whether it has begun and not ended."""
        return (self.start is None or self.start <= now) and (self.end is None or now < self.end)


class ClusterJob(NamedTuple):
    """One job of any user that is pending or holds nodes, from squeue; times are seconds since the epoch."""

    job_id: str
    phase: Phase
    state: str = ""
    """Slurm's word, such as ``PENDING``."""
    reason: str = ""
    """Slurm's word, such as ``Resources``; empty for ``None``."""
    user: str = ""
    account: str = ""
    partitions: tuple[str, ...] = ()
    """The partition it runs in, or those it is pending in."""
    priority: int = 0
    """Only the order is meaningful: values start near 2^32 in 22.05 and at 1 in later versions. 0: held."""
    nodes: tuple[str, ...] = ()
    """The nodes it holds; none while it is pending."""
    node_count: int = 1
    cpus: int = 0
    """Total over all its nodes."""
    memory_mib: int = 0
    """Total over all its nodes."""
    gpus: tuple[Gres, ...] = ()
    """``gpu``, ``shard`` and ``mps`` per node; an even share where they were requested for the whole job."""
    gpus_unknown: bool = False
    """The request could not be parsed: it may include GPUs of any type, and :attr:`gpus` is empty."""
    submitted_at: float | None = None
    starts_at: float | None = None
    """For a pending job Slurm's estimate; None until there is one."""
    ends_at: float | None = None
    """When its time limit ends; None for a job without one, and for a pending job."""
    time_limit: int | None = None
    """Seconds; None for UNLIMITED."""
    reservation: str = ""
    name: str = ""
    """Chosen by its owner."""
    tag: str = ""
    """Its comment, which its owner may change; see :attr:`JobStatus.tag`."""

    @property
    def partition(self) -> str:
        """The first of :attr:`partitions`."""
        return self.partitions[0] if self.partitions else ""


@dataclass(frozen=True)
class DefaultMemory:
    """The memory of a job that requests none (slurm.conf), in MiB; None where it is not set."""

    per_cpu_mib: int | None = None
    per_node_mib: int | None = None
    allocated: bool = True
    """Slurm allocates memory to jobs; without a default a job that requests none gets all of a node's."""


@dataclass(frozen=True)
class Unread:
    """A field or record in Slurm's answer that was not understood. Contains no text that a user chose."""

    kind: str
    """``job``, ``node``, ``partition`` or ``reservation``."""
    name: str
    """Name of the node, partition or reservation, or the job's id; empty if that was not understood either."""
    field: str
    """Slurm's name of the field; empty for the whole record."""
    kept: bool = False
    """The record is in the snapshot all the same, without this field."""


@dataclass(frozen=True)
class ClusterSnapshot:
    """Nodes, partitions, reservations and jobs at one moment."""

    nodes: tuple[NodeState, ...] = ()
    partitions: tuple[Partition, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    jobs: tuple[ClusterJob, ...] = ()
    """Jobs that are pending or hold nodes; ended ones are not included."""
    memory: DefaultMemory | None = None
    """The cluster's defaults for jobs that request no memory; None where they are not known."""
    taken_at: float = 0.0
    """Seconds since the epoch."""
    unread: tuple[Unread, ...] = ()
    """Fields and records that were not understood."""

    @cached_property
    def partial(self) -> bool:
        """Whether a job or a reservation is missing, so that nothing is certain to be free.

        A missing node is never counted on, and a partition that was not understood is uncertain by itself.
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
        """The nodes of each partition in Slurm's order, without those that Slurm hides."""
        order = {node.name: position for position, node in enumerate(self.nodes)}
        known = {
            partition.name: sorted({order[name] for name in partition.nodes if name in order})
            for partition in self.partitions
        }
        return {name: tuple(self.nodes[position] for position in positions) for name, positions in known.items()}

    def nodes_of(self, partition: str) -> tuple[NodeState, ...]:
        """The nodes of a partition in Slurm's order; empty for an unknown partition."""
        return self.nodes_by_partition.get(partition, ())

    @cached_property
    def jobs_by_node(self) -> Mapping[str, tuple[ClusterJob, ...]]:
        """The jobs on each node, by its name."""
        found: dict[str, list[ClusterJob]] = {}
        for job in self.jobs:
            for node in job.nodes:
                found.setdefault(node, []).append(job)
        return {node: tuple(jobs) for node, jobs in found.items()}

    @cached_property
    def waiting_by_partition(self) -> Mapping[str, tuple[ClusterJob, ...]]:
        """Pending jobs by partition; one that is pending in several appears in each."""
        found: dict[str, list[ClusterJob]] = {}
        for job in self.jobs:
            if job.phase is Phase.QUEUED:
                for partition in job.partitions:
                    found.setdefault(partition, []).append(job)
        return {partition: tuple(jobs) for partition, jobs in found.items()}
