"""The events of a session: submitted, placed, ready, usage, ended; and why it ended. Pure; needs no JupyterHub.

Why a session ended is a value. It is derived from what Slurm reports of the job
(:class:`~jupyterhub_gpuspawner.slurm.job.End`), from who asked the hub to stop the server, and from the class of the
error with which its start failed.

A session is one start of a server as a Slurm job, with all that follows until it has ended, or the start that failed.
Each event has its schema in ``schemas``, with the fields of :meth:`Event.to_json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, ClassVar

from jupyterhub_gpuspawner.cluster.estimate import Estimate
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


class PromiseMoment(str, Enum):
    """When a start was promised."""

    CLICK = "click"
    """When the server was asked for, by what the form says."""
    QUEUED = "queued"
    """When its job began to wait."""
    HALF = "half"
    """When half of the wait that was left had passed."""


@dataclass(frozen=True)
class Promise:
    """What the hub said of a start at one moment."""

    at: float
    """Seconds since the epoch."""
    moment: PromiseMoment
    estimate: Estimate
    partition: str = ""


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
