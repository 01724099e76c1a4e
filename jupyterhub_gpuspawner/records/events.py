"""The events of a session: submitted, placed, ready, usage, ended. Pure.

A session is one start of a server as a Slurm job, with all that follows until it has ended, or the start that failed.
Each event has its schema in ``hub/events/schemas``, with the fields of :meth:`Event.to_json`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jupyterhub_gpuspawner.records.cause import UNKNOWN, Cause

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE = "https://jupyterhub-gpuspawner.readthedocs.io/events"
"""What the ids of the schemas begin with. The address is an identifier; nothing is fetched from it."""


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
    at: float
    """Seconds since the epoch, by the hub's clock."""

    @classmethod
    def schema_id(cls) -> str:
        """The ``$id`` of the event's schema."""
        return f"{NAMESPACE}/{cls.NAME}/v1"

    def to_json(self) -> dict[str, Any]:
        """The event's data, without its time, which the event log adds."""
        found = asdict(self)
        del found["at"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


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

    def to_json(self) -> dict[str, Any]:
        """With the cause's parts beside each other."""
        return super().to_json() | {"cause": self.cause.kind.value, "fault": self.cause.fault}


EVENTS: tuple[type[Event], ...] = (Submitted, Placed, Ready, Usage, Ended)


def stages(reached: Mapping[str, float], ready_at: float) -> tuple[float, float, float] | None:
    """Seconds in the queue, until the report and until the server answered; None where a time is missing.

    ``reached`` has ``queued``, ``allocated`` and ``starting``. Slurm reports whole seconds, and its clock may differ.
    """
    queued, allocated, reported = (reached.get(name) for name in ("queued", "allocated", "starting"))
    if queued is None or allocated is None or reported is None:
        return None
    began = min(max(allocated, queued), reported)
    return max(began - queued, 0.0), max(reported - began, 0.0), max(ready_at - reported, 0.0)
