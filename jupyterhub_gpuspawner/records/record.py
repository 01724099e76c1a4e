"""A session's events (submitted, placed, ready, usage, ended), its record, and how each event changes it. Pure.

Why a session ended is a value. It is derived from what Slurm reports of the job
(:class:`~jupyterhub_gpuspawner.slurm.job.End`), from who asked the hub to stop the server, and from the class of the
error with which its start failed.

A session is one start of a server as a Slurm job, with all that follows until it has ended, or the start that failed.
Each event has its schema in ``hub/events/schemas``, with the fields of :meth:`Event.to_json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from typing import Any, ClassVar

from jupyterhub_gpuspawner.records.promises import Outcome, Promise, outcomes
from jupyterhub_gpuspawner.slurm.job import End

NAMESPACE = "https://jupyterhub-gpuspawner.readthedocs.io/events"
"""What the ids of the schemas begin with. The address is an identifier; nothing is fetched from it."""


class Kind(str, Enum):
    """What ended a session."""

    FINISHED = "finished"
    """The server exited by itself, without an error."""
    FAILED = "failed"
    """The server exited with an error."""
    STOPPED_BY_USER = "stopped by user"
    """The server's own user stopped it."""
    STOPPED_BY_INSTRUCTOR = "stopped by instructor"
    """An instructor of a course of its user's stopped it."""
    STOPPED_BY_ADMIN = "stopped by admin"
    """An administrator of the hub stopped it, not from the page of a course."""
    STOPPED_BY_OTHER_USER = "stopped by other user"
    """Another user with the right to stop it did, such as one with whom the server is shared."""
    IDLE = "idle"
    """The idle policy of the hub stopped it, since its GPUs were not used."""
    CULLED = "culled"
    """A service such as jupyterhub-idle-culler stopped it; or it was started ahead and nobody opened it."""
    TIME_LIMIT = "time limit"
    """The job reached its time limit, or its deadline."""
    MEMORY = "memory"
    """The job exceeded its memory."""
    NODE_FAILURE = "node failure"
    """The job's node failed, or did not boot."""
    PREEMPTED = "preempted"
    """A job with a higher priority needed its resources."""
    CANCELLED_OUTSIDE = "cancelled outside"
    """Somebody cancelled the job in Slurm, not through the hub."""
    START_FAILED = "start failed"
    """The server never became ready; ``fault`` is the class of the error."""
    UNKNOWN = "unknown"
    """Nobody saw the end, or Slurm no longer knows the job."""


STOPS = (
    Kind.STOPPED_BY_USER,
    Kind.STOPPED_BY_INSTRUCTOR,
    Kind.STOPPED_BY_ADMIN,
    Kind.STOPPED_BY_OTHER_USER,
    Kind.IDLE,
    Kind.CULLED,
)
"""Those where the hub stopped the server, because somebody or a policy wanted it."""


class Stage(str, Enum):
    """How far a start is, in this order."""

    SUBMITTED = "submitted"
    """sbatch is being asked."""
    QUEUED = "queued"
    ALLOCATED = "allocated"
    STARTING = "starting"
    """The node has reported."""
    READY = "ready"


@dataclass(frozen=True)
class Cause:
    """Why a session ended."""

    kind: Kind
    fault: str = ""
    """Why a start failed: what its job reported (``FAULTS`` of :mod:`~jupyterhub_gpuspawner.wire.bounds`, such as
    ``module`` or ``home_full``), ``hook`` or ``hook_refused``, the ``reason`` of one of this package's errors, such as
    ``submit_rejected``, or ``job_`` and how its job ended, such as ``job_out_of_memory``, ``job_killed`` (by signal 9),
    ``job_node_drained``, ``job_no_log`` or ``job_silent`` (before anything of the server ran)."""

    def to_json(self) -> dict[str, str]:
        """Its parts that are set."""
        return {"kind": self.kind.value} | ({"fault": self.fault} if self.fault else {})


UNKNOWN = Cause(Kind.UNKNOWN)

_OF_JOB: Mapping[End, Kind] = {
    End.FINISHED: Kind.FINISHED,
    End.FAILED: Kind.FAILED,
    End.CANCELLED: Kind.CANCELLED_OUTSIDE,
    End.TIME_LIMIT: Kind.TIME_LIMIT,
    End.OUT_OF_MEMORY: Kind.MEMORY,
    End.NODE_FAILED: Kind.NODE_FAILURE,
    End.PREEMPTED: Kind.PREEMPTED,
    End.REVOKED: Kind.CANCELLED_OUTSIDE,
    End.VANISHED: Kind.UNKNOWN,
    End.REPLACED: Kind.UNKNOWN,
}


def end_of_job(end: End | None) -> Cause:
    """The cause where the job of a server that ran has ended so; None: Slurm does not say how."""
    return Cause(_OF_JOB[end]) if end is not None else UNKNOWN


def start_failed(fault: str) -> Cause:
    """The cause where the start failed with an error of this class."""
    return Cause(Kind.START_FAILED, fault)


def job_ended_in_start(end: End | None) -> Cause:
    """The cause where the job ended before its server was ready."""
    return start_failed("job_" + (end.name.lower() if end is not None else "ended"))


@dataclass(frozen=True, kw_only=True)
class Event:
    """What all events have."""

    NAME: ClassVar[str] = ""

    session: str
    """The session's id: what the job's comment ends in."""
    username: str
    servername: str = ""
    """Empty for the default server."""
    job_id: str = ""
    """Slurm's job id; empty where there is none."""
    cluster: str = ""
    """The cluster's name in ``clusters``; empty in a hub that names none, where the event's data do not have it."""
    at: float
    """Seconds since the epoch, by the hub's clock."""

    @classmethod
    def schema_id(cls) -> str:
        """The ``$id`` of the event's schema."""
        return f"{NAMESPACE}/{cls.NAME}/v1"

    def to_json(self) -> dict[str, Any]:
        """The event's data, without its time, which the event log adds."""
        values = asdict(self)
        del values["at"]
        if not self.cluster:
            del values["cluster"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


@dataclass(frozen=True, kw_only=True)
class Submitted(Event):
    """sbatch has returned the job's id."""

    NAME: ClassVar[str] = "submitted"

    begun_at: float
    """When the start was asked for."""
    profile: str = ""
    """The profile's slug."""
    course: str = ""
    """The course's slug; empty where the profile is not a course."""
    partition: str | None = None
    """As requested; None: Slurm's default."""
    nodes: int = 1
    gpus: int | None = None
    """On each node."""
    gpu_type: str | None = None
    shards: int | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    seconds: int | None = None
    """The time limit; None: the partition's, or none."""


@dataclass(frozen=True, kw_only=True)
class Placed(Event):
    """The launcher has reported, and the hub knows where the server runs."""

    NAME: ClassVar[str] = "placed"

    profile: str = ""
    """The profile's slug."""
    allocated_at: float | None = None
    """When Slurm started the job, by slurmctld's clock; None where Slurm does not show the job."""
    node: str = ""
    nodes: int = 1
    partition: str | None = None
    gpus: int = 0
    """Of all nodes; a MIG device counts as one."""
    gpu_model: str = ""
    cpus: int | None = None
    """On the server's node."""
    memory_mib: int | None = None
    aligned: bool | None = None
    """Whether GPUs, CPUs and memory are on the same NUMA nodes; None if unknown."""
    weakest_link: str | None = None
    """The slowest link among the GPUs, as `nvidia-smi topo -m` calls it; None for fewer than two."""
    simulated: bool = False
    reasons: tuple[str, ...] = ()
    """Slurm's reasons why the job was pending, in the order in which they were met."""
    promises: tuple[Promise, ...] = ()
    """What was said of its start, in the order in which it was."""


@dataclass(frozen=True, kw_only=True)
class Ready(Event):
    """The server answers."""

    NAME: ClassVar[str] = "ready"

    profile: str = ""
    queue_seconds: float | None = None
    """From sbatch's answer until Slurm started the job; this and the next two are None where a time is not known."""
    start_seconds: float | None = None
    """Until the launcher's report."""
    ready_seconds: float | None = None
    """Until the server answered."""


@dataclass(frozen=True, kw_only=True)
class Usage(Event):
    """A summary of the server's use. It comes from a process that the user owns, so it is advice."""

    NAME: ClassVar[str] = "usage"

    seconds: float
    """The time that it is about, not longer than since the summary before it."""
    gpu_seconds_measured: float = 0.0
    """GPU-seconds in which the utilisation was known."""
    gpu_seconds_busy: float = 0.0
    """Utilisation times seconds, summed over the GPUs."""
    gpu_memory_max_mib: int | None = None
    """The largest memory used of one GPU."""
    memory_max_mib: int | None = None
    joules: float | None = None
    """Energy of the GPUs; None where the counter is not the job's own."""
    simulated: bool = False


@dataclass(frozen=True, kw_only=True)
class Ended(Event):
    """The session is over."""

    NAME: ClassVar[str] = "ended"

    begun_at: float
    profile: str = ""
    course: str = ""
    served: bool = False
    """The server had become ready."""
    cause: Cause = UNKNOWN
    reasons: tuple[str, ...] = ()
    """As in :class:`Placed`; also those of a job that never started."""
    node: str = ""
    """The server's node by Slurm; empty where the job had none."""
    promises: tuple[Promise, ...] = ()
    """Likewise."""
    subject: str = ""
    """The profile's module or conda environment that the fault is about; empty for other faults, and for a path."""

    def to_json(self) -> dict[str, Any]:
        """With the cause's parts beside each other."""
        return super().to_json() | {"cause": self.cause.kind.value, "fault": self.cause.fault}


ASKED = ("partition", "nodes", "gpus", "gpu_type", "shards", "cpus", "memory_mib", "seconds")
"""What a submission asks for; a record has it with ``asked_`` before the name, beside what was granted."""
EVENTS: tuple[type[Event], ...] = (Submitted, Placed, Ready, Usage, Ended)


def stages(reached: Mapping[Stage, float], ready_at: float) -> tuple[float, float, float] | None:
    """Seconds in the queue, until the report and until the server answered; None where a time is missing.

    ``reached`` says when each stage was reached. Slurm reports whole seconds, and its clock may differ.
    """
    queued, allocated, reported = map(reached.get, (Stage.QUEUED, Stage.ALLOCATED, Stage.STARTING))
    if queued is None or allocated is None or reported is None:
        return None
    began = min(max(allocated, queued), reported)
    return max(began - queued, 0.0), max(reported - began, 0.0), max(ready_at - reported, 0.0)


@dataclass(frozen=True)
class SessionRecord:
    """What is kept of a session. Times are seconds since the epoch; None is unknown, or not yet."""

    session: str
    username: str
    servername: str = ""
    job_id: str = ""
    cluster: str = ""
    """The name of the cluster of job, partition and node; empty in a hub that names none."""
    profile: str = ""
    course: str = ""
    begun_at: float = 0.0
    """When the start was asked for."""
    submitted_at: float | None = None
    """When sbatch had returned the job's id."""
    allocated_at: float | None = None
    """When Slurm started the job."""
    placed_at: float | None = None
    """When the hub knew where the server runs."""
    ready_at: float | None = None
    ended_at: float | None = None
    seen_at: float = 0.0
    """When the last event came."""
    queue_seconds: float | None = None
    """In Slurm's queue."""
    start_seconds: float | None = None
    """From the job's start to the launcher's report."""
    ready_seconds: float | None = None
    """From the report until the server answered."""
    reasons: tuple[str, ...] = ()
    """Slurm's reasons why the job was pending, in the order in which they were met."""
    promises: tuple[Promise, ...] = ()
    """What was said of its start, in the order in which it was."""
    asked_partition: str | None = None
    asked_nodes: int | None = None
    asked_gpus: int | None = None
    asked_gpu_type: str | None = None
    asked_shards: int | None = None
    asked_cpus: int | None = None
    asked_memory_mib: int | None = None
    asked_seconds: int | None = None
    partition: str | None = None
    node: str = ""
    nodes: int | None = None
    gpus: int | None = None
    gpu_model: str = ""
    cpus: int | None = None
    memory_mib: int | None = None
    aligned: bool | None = None
    weakest_link: str | None = None
    simulated: bool = False
    gpu_seconds_measured: float = 0.0
    gpu_seconds_busy: float = 0.0
    gpu_memory_max_mib: int | None = None
    memory_max_mib: int | None = None
    joules: float | None = None
    cause: Cause | None = None
    """None while it is under way."""
    subject: str = ""
    """The module or conda environment that the fault is about, as in :class:`Ended`."""

    @property
    def start_failed(self) -> bool:
        """Whether its start failed; False while it is under way."""
        return self.cause is not None and self.cause.kind is Kind.START_FAILED

    @property
    def wait_seconds(self) -> float | None:
        """From the click until the server answered."""
        return None if self.ready_at is None else max(self.ready_at - self.begun_at, 0.0)

    @property
    def run_seconds(self) -> float | None:
        """From then until its end."""
        if self.ready_at is None or self.ended_at is None:
            return None
        return max(self.ended_at - self.ready_at, 0.0)

    @property
    def promise_outcomes(self) -> tuple[Outcome, ...]:
        """What came of what was said of its start."""
        never_started = self.allocated_at is None and not self.node
        return tuple(outcomes(self.promises, self.allocated_at, self.ended_at if never_started else None))

    @property
    def gpu_seconds_held(self) -> float | None:
        """GPUs times the seconds for which the job had them; None where it is not known, or not over."""
        began = self.allocated_at if self.allocated_at is not None else self.placed_at
        if self.gpus is None or began is None or self.ended_at is None:
            return None
        return self.gpus * max(self.ended_at - began, 0.0)


def applied(record: SessionRecord | None, event: Event) -> SessionRecord | None:
    """The record after this event; ``record`` is None where there was none.

    A session begins with its job's submission, or ends before it. Any other event of a session without a record is
    one of a session that was forgotten: it stays so.
    """
    if isinstance(event, Submitted):
        return replace(_new(event), submitted_at=event.at, **{f"asked_{name}": getattr(event, name) for name in ASKED})
    if record is None:
        if not isinstance(event, Ended) or event.job_id:
            return None
        record = _new(event)
    if record.ended_at is not None:
        return record
    changes: dict[str, Any]
    if isinstance(event, Usage):
        changes = _with_usage(record, event)
    elif isinstance(event, Ended):
        changes = {"ended_at": event.at, "cause": event.cause, "reasons": event.reasons or record.reasons}
        changes |= {"promises": event.promises or record.promises, "node": record.node or event.node}
        changes["subject"] = event.subject
    else:  # the record has the fields of the others under the same names
        common = {field.name for field in fields(Event)}
        changes = {field.name: getattr(event, field.name) for field in fields(event) if field.name not in common}
        changes[f"{event.NAME}_at"] = event.at
    return replace(record, seen_at=max(record.seen_at, event.at), **changes)


def lost(record: SessionRecord) -> SessionRecord:
    """The record of a session whose end nobody saw: it ended at some time after its last event."""
    return replace(record, ended_at=record.seen_at, cause=UNKNOWN)


def on_clusters(records: Iterable[SessionRecord], first: str) -> list[SessionRecord]:
    """The same, where those from before the hub named its clusters were on the first one."""
    return [replace(record, cluster=record.cluster or first) for record in records]


def _new(event: Submitted | Ended) -> SessionRecord:
    names = ("session", "username", "servername", "job_id", "cluster", "profile", "course", "begun_at")
    return SessionRecord(**{name: getattr(event, name) for name in names}, seen_at=event.at)


def _with_usage(record: SessionRecord, event: Usage) -> dict[str, Any]:
    return {
        "gpu_seconds_measured": record.gpu_seconds_measured + event.gpu_seconds_measured,
        "gpu_seconds_busy": record.gpu_seconds_busy + event.gpu_seconds_busy,
        "gpu_memory_max_mib": _larger(record.gpu_memory_max_mib, event.gpu_memory_max_mib),
        "memory_max_mib": _larger(record.memory_max_mib, event.memory_max_mib),
        "joules": record.joules if event.joules is None else (record.joules or 0.0) + event.joules,
    }


def _larger(one: int | None, two: int | None) -> int | None:
    return max((value for value in (one, two) if value is not None), default=None)
