"""A snapshot of the cluster: nodes, partitions, reservations, jobs and slurm.conf, with indexes over them. Pure.

Sources: scontrol(1), ``show node``, ``show partition`` and ``show reservation``; squeue(1), ``--Format``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from math import inf
from operator import eq
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

from jupyterhub_gpuspawner.slurm import text
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.reason import IN_SERVICE, OutOfService, meaning, out_of_service
from jupyterhub_gpuspawner.slurm.text import UnparsedField, parameter
from jupyterhub_gpuspawner.units import Gres

# Many values of one class as columns, for the nodes and jobs of a large cluster.

T = TypeVar("T")
P = TypeVar("P")
_BATCH = 500
"""Values that exist at the same time while a table is made."""


class Table(Sequence[T]):
    """Values of a NamedTuple class, kept as one list for each field; each value is made when it is asked for.

    Python's garbage collector visits every tuple and every object, but not the strings and numbers in a list: tens of
    thousands of nodes and jobs would hold the hub's event loop for hundreds of milliseconds at each full collection.
    """

    __slots__ = ("_columns", "_kind")

    def __init__(self, kind: type[T], columns: Sequence[Sequence[Any]]) -> None:
        """``columns`` in the order of the class's fields."""
        self._kind: Any = kind
        self._columns = list(columns)

    def __del__(self) -> None:
        columns = self._columns  # one after the other: other threads may run in between
        while columns:
            columns.pop()

    @classmethod
    def of(cls, kind: type[T], values: Iterable[T]) -> Table[T]:
        """The table of these values; a table is its own."""
        if isinstance(values, Table):
            return values
        fields: Sequence[str] = vars(kind)["_fields"]
        columns: list[list[Any]] = [[] for _ in fields]
        rows: Iterator[Any] = iter(values)
        while batch := list(islice(rows, _BATCH)):
            for column, more in zip(columns, zip(*batch, strict=True), strict=True):
                column.extend(more)
        return cls(kind, columns)

    def column(self, field: str) -> Sequence[Any]:
        """One field of all values."""
        at: int = self._kind._fields.index(field)
        return self._columns[at]

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Table[T]: ...
    def __getitem__(self, at: int | slice) -> T | Table[T]:
        if isinstance(at, slice):
            return Table(self._kind, [column[at] for column in self._columns])
        row: T = self._kind(*[column[at] for column in self._columns])
        return row

    def __iter__(self) -> Iterator[T]:
        return map(self._kind, *self._columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]


class Index(Mapping[str, T], Generic[P, T]):
    """Values by name, each made of its position, or its positions, when it is asked for."""

    __slots__ = ("_value", "positions")

    def __init__(self, positions: Mapping[str, P], value: Callable[[P], T]) -> None:
        self.positions = positions
        self._value = value

    def __getitem__(self, name: str) -> T:
        return self._value(self.positions[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.positions)

    def __len__(self) -> int:
        return len(self.positions)


# One node as slurmctld reports it.
#
# Source: scontrol(1), ``show node -d``; states from sinfo(1), "NODE STATE CODES".

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

_WHY_OUT = {
    "NOT_RESPONDING": "it does not respond",
    "MAINTENANCE": "in maintenance",
    "REBOOT_ISSUED": "rebooting",
    "POWERING_DOWN": "powering down",
    "POWER_DOWN": "powering down",
}


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
    hardware: tuple[tuple[str, str], ...] = ()
    """What slurm.conf says of it, by Slurm's names; nodes that are alike have the same object."""

    @property
    def usable(self) -> bool:
        """Whether Slurm may start a job here: up, responding, neither draining nor in maintenance.

        Reserved nodes (``RESERVED``), and cloud nodes that are powered down or get their power, count as usable;
        not so one that is powered down and was not responding, on which Slurm 22.05 starts nothing.
        """
        out = _OUT - {"NOT_RESPONDING"} if "POWERING_UP" in self.states else _OUT
        return bool(self.states & _UP) and not self.states & out

    @property
    def why_out(self) -> str:
        """Why no job starts on a node that is not usable: the admin's reason, else its state; empty if neither says."""
        return self.reason or next((words for state, words in _WHY_OUT.items() if state in self.states), "")

    @property
    def cpus_free(self) -> int:
        """CPUs not allocated to jobs."""
        return max(0, self.cpus - self.cpus_allocated)

    @property
    def memory_free_mib(self) -> int:
        """MiB not allocated to jobs; unlike the kernel's free memory."""
        return max(0, self.memory_mib - self.memory_allocated_mib)


def gpus_of(gres: Iterable[Gres]) -> Counter[str]:
    """The GPUs and MIG devices among generic resources, by type."""
    return Counter({device.type or "": device.count for device in gres if device.name == "gpu" and device.count})


def free_gpus_of(gpus: Counter[str], used: Iterable[Gres]) -> Counter[str]:
    """Those of a node's GPUs that are not in use."""
    free = gpus.copy()
    only_type = next(iter(free)) if len(free) == 1 else ""  # shards may be untyped where the GPUs are typed
    for gres in used:
        if gres.name == "gpu":
            free[gres.type or ""] -= gres.count
        elif gres.name in ("shard", "mps"):
            free[gres.type or only_type] -= len(gres.indices)
    return +free


def _several(table: Table[T]) -> Callable[[Sequence[int]], tuple[T, ...]]:
    return lambda positions: tuple(table[at] for at in positions)


def _jobs_per_cpu(key: str, value: str) -> int:
    """``FORCE:4`` and ``YES:4``: each CPU is given to four jobs (slurm.conf(5))."""
    name, _, number = value.partition(":")
    return text.read(int, key, number or "4") if name in ("FORCE", "YES") else 1


@dataclass(frozen=True)
class Partition:
    """One partition. Lists of who may use it are empty where Slurm prints ALL."""

    name: str
    state: str = parameter("State", text.plain, "UP")
    """``UP``, ``DOWN``, ``DRAIN`` or ``INACTIVE``."""
    default: bool = parameter("Default", text.yes)
    hidden: bool = parameter("Hidden", text.yes)
    nodes: tuple[str, ...] = parameter("Nodes", text.nodes)
    max_time: int | None = parameter("MaxTime", text.walltime)
    """Seconds; None for UNLIMITED."""
    default_time: int | None = parameter("DefaultTime", text.walltime)
    """Seconds; None where Slurm uses :attr:`max_time`."""
    min_nodes: int = parameter("MinNodes", text.number)
    max_nodes: int | None = parameter("MaxNodes", text.count)
    max_cpus_per_node: int | None = parameter("MaxCPUsPerNode", text.count)
    max_memory_per_node_mib: int | None = parameter("MaxMemPerNode", text.memory)
    max_memory_per_cpu_mib: int | None = parameter("MaxMemPerCPU", text.memory)
    """MaxMemPerCPU; a job that requests more memory is given more CPUs accordingly."""
    default_memory_per_cpu_mib: int | None = parameter("DefMemPerCPU", text.memory)
    """DefMemPerCPU of the partition; None where the cluster's applies."""
    default_memory_per_node_mib: int | None = parameter("DefMemPerNode", text.memory)
    """DefMemPerNode likewise."""
    allow_groups: tuple[str, ...] = parameter("AllowGroups", text.allowed)
    allow_accounts: tuple[str, ...] = parameter("AllowAccounts", text.allowed)
    deny_accounts: tuple[str, ...] = parameter("DenyAccounts", text.listed)
    allow_qos: tuple[str, ...] = parameter("AllowQos", text.allowed)
    deny_qos: tuple[str, ...] = parameter("DenyQos", text.listed)
    needs_reservation: bool = parameter("ReqResv", text.yes)
    """ReqResv: only jobs with a reservation."""
    exclusive: bool = False
    """OverSubscribe=EXCLUSIVE: every job gets whole nodes."""
    jobs_per_cpu: int = parameter("OverSubscribe", _jobs_per_cpu)
    """OverSubscribe=YES or FORCE: how many jobs Slurm places on each CPU."""
    shares_cpus: bool = parameter("OverSubscribe", lambda _, value: value.startswith("FORCE"))
    """OverSubscribe=FORCE: it does so with every job; else only with those that ask for it (``--oversubscribe``)."""
    one_user: bool = False
    """ExclusiveUser, in newer versions Exclusive=USER: jobs of one user alone are on a node."""
    priority_tier: int = parameter(
        "PriorityTier", lambda key, value: text.read(int, key, text.value_or_empty(value) or "1")
    )
    """PriorityTier: with preemption by partition, its jobs preempt those of partitions with a lower one."""
    preemptable: bool = parameter(
        "PreemptMode", lambda _, value: not {"CANCEL", "REQUEUE"}.isdisjoint(text.words(value))
    )
    """Its jobs give back all that they hold when they are preempted (PreemptMode is CANCEL or REQUEUE)."""
    suspendable: bool = parameter("PreemptMode", lambda _, value: "SUSPEND" in text.words(value))
    """Its jobs are suspended when they are preempted, and resumed later (PreemptMode is SUSPEND)."""
    default_cpus_per_gpu: int | None = parameter("JobDefaults", text.per_gpu("DefCpuPerGPU"))
    """DefCpuPerGPU of the partition; None where the cluster's applies."""
    default_memory_per_gpu_mib: int | None = parameter("JobDefaults", text.per_gpu("DefMemPerGPU"))
    """DefMemPerGPU likewise."""
    unread: tuple[str, ...] = ()
    """Slurm's names of fields that were not understood and have their defaults here."""
    not_modelled: tuple[str, ...] = ()
    """Parameters that are set and may keep a job from starting in a way that no other field says."""
    parameters: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """All as Slurm prints them, by its names."""

    def length_of(self, requested: float | str | None) -> float:
        """Seconds of a job's time limit; infinite without one. ``requested`` is a number, or text for no limit."""
        if requested is None:
            return next((limit for limit in (self.default_time, self.max_time) if limit is not None), inf)
        return inf if isinstance(requested, str) else requested


PERIODS = {"HOURLY": 3600, "DAILY": 86400, "WEEKLY": 7 * 86400, "WEEKDAY": 86400, "WEEKEND": 86400}
"""Flags of reservations that are repeated, with the seconds after which they are (scontrol(1))."""


@dataclass(frozen=True)
class Reservation:
    """One reservation; times are seconds since the epoch."""

    name: str
    start: float | None = parameter("StartTime", text.moment)
    end: float | None = parameter("EndTime", text.moment)
    nodes: tuple[str, ...] = parameter("Nodes", text.nodes)
    partial: bool = False
    """It is of some of its nodes' cores (CoreCnt), not of whole nodes."""
    core_count: int = parameter("CoreCnt", text.number)
    """The sum of these cores."""
    cores: tuple[int, ...] = ()
    """How many of each node; empty where Slurm reports their sum alone, as it does in the first seconds."""
    licenses: str = parameter("Licenses", text.plain)
    """Those that it holds, as Slurm prints them: ``matlab:2,idl:1``."""
    flags: frozenset[str] = parameter("Flags", text.flags)
    users: tuple[str, ...] = parameter("Users", text.listed)
    """Who may use it; a name with ``-`` in front may not. Empty: see :attr:`accounts` and :attr:`groups`."""
    accounts: tuple[str, ...] = parameter("Accounts", text.listed)
    groups: tuple[str, ...] = parameter("Groups", text.listed)
    allowed_partitions: tuple[str, ...] = parameter("AllowedPartitions", text.listed)
    """Whose jobs may use it, since 26.05; empty: those of any partition."""
    qos: tuple[str, ...] = parameter("QOS", text.listed)
    """Likewise."""

    @property
    def is_repeated(self) -> bool:
        """Whether it begins again after its end."""
        return not self.flags.isdisjoint(PERIODS)

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
    array_tasks: int = 1
    """Slurm shows the pending tasks of a job array as one job: how many they are; all else is of one task."""
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
    """Its comment, which its owner may change; see :attr:`Job.tag`."""

    @property
    def in_queue(self) -> bool:
        """It starts as soon as its resources are free: it is neither held nor waiting for anything else."""
        return self.phase is Phase.QUEUED and waits_for_resources(self.priority, self.reason)

    @property
    def partition(self) -> str:
        """The first of :attr:`partitions`."""
        return self.partitions[0] if self.partitions else ""


def _uid(_key: str, value: str) -> int | None:
    """That of ``slurm(64030)``."""
    account = re.fullmatch(r".*\(([0-9]+)\)", value)
    return int(account[1]) if account is not None else None


def _allocates_memory(_key: str, value: str) -> bool:
    return "MEMORY" in (value or "CR_CORE_MEMORY").upper()


_NO_ACCOUNTING = ("", "accounting_storage/none")
_PREEMPTION = {"preempt/partition_prio": "partition", "preempt/qos": "qos"}


@dataclass(frozen=True)
class SlurmConfig:
    """Parts of slurm.conf, as slurmctld uses them."""

    private_data: frozenset[str] = frozenset()
    """PrivateData: what users cannot see of each other, such as ``jobs``."""
    slurm_uid: int | None = parameter("SlurmUser", _uid)
    """The uid of SlurmUser, who has all rights; None where it is not reported."""
    accounting: bool = parameter(
        "AccountingStorageType", lambda key, value: text.plain(key, value) not in _NO_ACCOUNTING
    )
    """slurmdbd is in use (AccountingStorageType), so there may be operators and administrators."""
    accounting_enforced: frozenset[str] = parameter(
        "AccountingStorageEnforce", lambda key, value: text.flags(key, value) - {"none"}
    )
    """AccountingStorageEnforce: ``associations``, ``limits``, ``qos``, ...; empty without accounting."""
    cluster_name: str = parameter("ClusterName", text.plain)
    answered_at: float | None = None
    """slurmctld's own time when it answered, in seconds since the epoch; None where it is not in seconds."""
    resume_timeout: int | None = None
    """ResumeTimeout: seconds that a node which is powered off may take until it is ready; None without power saving."""
    default_memory_per_cpu_mib: int | None = parameter("DefMemPerCPU", text.memory)
    """DefMemPerCPU, for jobs that request no memory; None where it is not set."""
    default_memory_per_node_mib: int | None = parameter("DefMemPerNode", text.memory)
    """DefMemPerNode, the same per node."""
    max_memory_per_cpu_mib: int | None = parameter("MaxMemPerCPU", text.memory)
    """MaxMemPerCPU; None where it is not set."""
    max_memory_per_node_mib: int | None = parameter("MaxMemPerNode", text.memory)
    """MaxMemPerNode likewise."""
    default_memory_per_gpu_mib: int | None = parameter("JobDefaults", text.per_gpu("DefMemPerGPU"))
    """DefMemPerGPU (JobDefaults), for jobs that request GPUs."""
    default_cpus_per_gpu: int | None = parameter("JobDefaults", text.per_gpu("DefCpuPerGPU"))
    """DefCpuPerGPU (JobDefaults), for jobs that request GPUs and no CPUs."""
    cpu_unit: Literal["cpu", "core", "socket", "node"] = "core"
    """What a job gets whole (SelectType, SelectTypeParameters)."""
    shards_of_several_gpus: bool = parameter(
        "SelectTypeParameters", lambda _, value: "MULTIPLE_SHARING_GRES_PJ" in value.upper()
    )
    """A job may get shards of several GPUs of a node (SelectTypeParameters, MULTIPLE_SHARING_GRES_PJ)."""
    preemption: Literal["", "partition", "qos"] = parameter("PreemptType", lambda _, value: _PREEMPTION.get(value, ""))
    """By what jobs preempt others (PreemptType): their partition's PriorityTier, or their QOS; empty: they do not."""
    backfills: bool = parameter("SchedulerType", lambda _, value: value in ("", "sched/backfill"))
    """Jobs may start before others that are ahead of them, where that delays none; else in their order alone."""
    enforces_limits_of_all: bool = parameter("EnforcePartLimits", lambda _, value: value == "ALL")
    """EnforcePartLimits=ALL: sbatch refuses a job that is not within the limits of every partition that it lists."""
    memory_is_allocated: bool | None = parameter("SelectTypeParameters", _allocates_memory, None)
    """Slurm allocates memory (SelectTypeParameters); without a default, a job that requests none gets all of a node's.

    None: not known."""
    version: str = parameter("SLURM_VERSION", text.plain)
    """Of slurmctld, such as ``22.05.8``; empty where it is not reported."""
    parameters: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """All as Slurm prints them, by its names."""

    @property
    def enforces_limits(self) -> bool:
        """Jobs wait, or are refused, beyond the limits of accounts and QOS; ``safe`` implies ``limits``."""
        return not self.accounting_enforced.isdisjoint(("limits", "safe"))

    @property
    def hides_jobs(self) -> bool:
        """Whether users cannot see the jobs of others."""
        return "jobs" in self.private_data


@dataclass(frozen=True)
class ClusterSnapshot:
    """Nodes, partitions, reservations and jobs at one moment."""

    nodes: Sequence[NodeState] = ()
    partitions: tuple[Partition, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    jobs: Sequence[ClusterJob] = ()
    """Jobs that are pending or hold nodes; ended ones are not included."""
    config: SlurmConfig = SlurmConfig()
    """What is known of slurm.conf."""
    preempted_qos: Mapping[str, frozenset[str]] | None = None
    """With preemption by QOS, those whose jobs each QOS preempts, all in lower case; None: not known."""
    taken_at: float = 0.0
    """Seconds since the epoch."""
    unread: tuple[UnparsedField, ...] = ()
    """Fields and records that were not understood."""

    @cached_property
    def partial(self) -> bool:
        """Whether a job, a reservation or slurm.conf is missing, so that nothing is certain to be free.

        A missing node is never counted on, and a partition that was not understood is uncertain by itself.
        """
        return any(
            record.kind in ("reservation", "configuration") or (record.kind == "job" and not record.partial)
            for record in self.unread
        )

    @cached_property
    def node_table(self) -> Table[NodeState]:
        return Table.of(NodeState, self.nodes)

    @cached_property
    def job_table(self) -> Table[ClusterJob]:
        return Table.of(ClusterJob, self.jobs)

    @cached_property
    def node_by_name(self) -> Index[int, NodeState]:
        table = self.node_table
        return Index({name: at for at, name in enumerate(table.column("name"))}, table.__getitem__)

    @cached_property
    def partition_by_name(self) -> Mapping[str, Partition]:
        return {partition.name: partition for partition in self.partitions}

    def partitions_of(self, requested: str | None) -> list[str]:
        """Names of the partitions that a job would be submitted to: those requested, else the default one."""
        if requested:
            return requested.split(",")
        return [partition.name for partition in self.partitions if partition.default]

    @cached_property
    def reservation_by_name(self) -> Mapping[str, Reservation]:
        return {reservation.name: reservation for reservation in self.reservations}

    @cached_property
    def job_by_id(self) -> Index[int, ClusterJob]:
        table = self.job_table
        return Index({job_id: at for at, job_id in enumerate(table.column("job_id"))}, table.__getitem__)

    @cached_property
    def nodes_by_partition(self) -> Index[Sequence[int], tuple[NodeState, ...]]:
        """The nodes of each partition in Slurm's order, without those that Slurm hides."""
        order = self.node_by_name.positions
        indices = {
            partition.name: sorted({order[name] for name in partition.nodes if name in order})
            for partition in self.partitions
        }
        return Index(indices, _several(self.node_table))

    def hides_nodes_of(self, partition: Partition) -> bool:
        """Whether Slurm does not show all nodes of a partition: powered down ones, without ``cloud`` in PrivateData."""
        return len(self.nodes_by_partition.positions.get(partition.name, ())) < len(partition.nodes)

    def hidden(self, nodes: Iterable[str]) -> list[str]:
        """Those of these nodes that Slurm does not show."""
        return [name for name in nodes if name not in self.node_by_name.positions]

    def nodes_of(self, partition: str) -> tuple[NodeState, ...]:
        """The nodes of a partition in Slurm's order; empty for an unknown partition."""
        return self.nodes_by_partition.get(partition, ())

    def out_of_service(self, job: Job) -> OutOfService:
        """Which nodes of its partitions take no jobs, where that may be what a pending job waits for."""
        reason, partitions = meaning(job.reason), job.partition.split(",")
        nodes = {node.name: node for partition in partitions for node in self.nodes_of(partition)}
        out = [(node.name, node.why_out) for node in nodes.values() if not node.usable]
        hidden = any(name in partitions and self.hides_nodes_of(of) for name, of in self.partition_by_name.items())
        is_all = reason.for_resources and not hidden and 0 < len(out) == len(nodes)
        if job.phase is not Phase.QUEUED or not (reason.of_nodes or is_all):
            return IN_SERVICE
        return OutOfService(out_of_service(out), is_all)

    @cached_property
    def jobs_by_node(self) -> Index[tuple[int, ...], tuple[ClusterJob, ...]]:
        """The jobs on each node, by its name."""
        indices: dict[str, tuple[int, ...]] = {}
        for at, nodes in enumerate(self.job_table.column("nodes")):
            for node in nodes:
                indices[node] = (*indices[node], at) if node in indices else (at,)
        return Index(indices, _several(self.job_table))

    @cached_property
    def waiting_by_partition(self) -> Index[Sequence[int], tuple[ClusterJob, ...]]:
        """Pending jobs by partition; one that is pending in several appears in each."""
        indices: dict[str, list[int]] = {}
        partitions = self.job_table.column("partitions")
        for at, phase in enumerate(self.job_table.column("phase")):
            if phase is Phase.QUEUED:
                for partition in partitions[at]:
                    indices.setdefault(partition, []).append(at)
        return Index(indices, _several(self.job_table))


def waits_for_resources(priority: int, reason: str) -> bool:
    """Whether a pending job with this reason is neither held nor waiting for anything else."""
    return priority > 0 and (not reason or meaning(reason).for_resources)


def rank(priority: int, job_id: str) -> tuple[int, int]:
    """A pending job's rank in its queue, the lower the sooner: by priority, and then by age."""
    return -priority, int(job_id) if job_id.isdigit() else 0
