"""The events of sessions, whoever takes them, and JupyterHub's event log.

Each event has its schema in ``schemas``, with the fields of :meth:`Event.to_json`. An admin configures the log with
``c.EventLogger.handlers``; without handlers it discards them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.job.cause import UNKNOWN, Cause

if TYPE_CHECKING:
    from jupyter_events.logger import EventLogger

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
    promises: tuple[Any, ...] = ()
    """What an extension knows that was said of its start, in the order in which it was."""


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
    """A summary of the server's use. It comes from a process that the user owns, so it is advice.

    Whoever measures the use tells it, and whoever records sessions takes it; neither needs the other.
    """

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
    promises: tuple[Any, ...] = ()
    """Likewise."""
    subject: str = ""
    """The profile's module or conda environment that the fault is about; empty for other faults, and for a path."""

    def to_json(self) -> dict[str, Any]:
        """With the cause's parts beside each other."""
        return super().to_json() | {"cause": self.cause.kind.value, "fault": self.cause.fault}


EVENTS: tuple[type[Event], ...] = (Submitted, Placed, Ready, Usage, Ended)


Take = Callable[[Event], None]


class Stream:
    """Passes events on to subscribers, in the order of their subscription."""

    def __init__(self) -> None:
        self._subscribers: list[Take] = []

    def subscribe(self, take: Take) -> Callable[[], None]:
        """Call ``take`` with each event from now on; returns what ends that.

        It is called in the hub's event loop, so it must not block. Its error is logged, and concerns nobody else.
        """
        self._subscribers.append(take)
        return lambda: self._subscribers.remove(take)

    def publish(self, event: Event) -> None:
        """Pass an event on; never raises."""
        for take in tuple(self._subscribers):
            try:
                take(event)
            except Exception:  # noqa: BLE001 - no server may fail because of who hears of it
                get_logger().exception("The event %s of session %s was not taken", event.NAME, event.session)


SCHEMAS = Path(__file__).parent / "schemas"


def register_schemas(log: EventLogger) -> None:
    """Have the event log know our events."""
    for path in sorted(SCHEMAS.glob("*.yaml")):
        log.register_event_schema(path)


def emitter(log: EventLogger) -> Take:
    """What writes an event to this log."""

    def emit(event: Event) -> None:
        at = datetime.fromtimestamp(event.at, timezone.utc)
        log.emit(schema_id=event.schema_id(), data=event.to_json(), timestamp_override=at)

    return emit
