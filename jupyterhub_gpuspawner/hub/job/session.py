"""The session of one server and its events: one start as a Slurm job, until that has ended, or has failed.

What is needed for its events that are to come is part of the spawner's state, so it goes on after a restart of the hub.

Whoever subscribes takes the events, and JupyterHub's event log. Each has its schema in ``schemas``, with the fields of
:meth:`Event.to_json`. An admin configures the log with ``c.EventLogger.handlers``; without handlers it discards them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter, ValidationError
from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.job.cause import UNKNOWN, Cause, Stage, end_of_job
from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.slurm.gpu_model import device_name
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.units import count_cpus, expand_nodelist
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

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
    """Whether the CPUs are near the GPUs, and the memory near the CPUs; None if unknown."""
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
"""Of the events, each by its ``$id``: for JupyterHub's event log."""


def stages(reached: Mapping[Stage, float], ready_at: float) -> tuple[float, float, float] | None:
    """Seconds in the queue, until the report and until the server answered; None where a time is missing.

    ``reached`` says when each stage was reached. Slurm reports whole seconds, and its clock may differ.
    """
    queued, allocated, reported = map(reached.get, (Stage.QUEUED, Stage.ALLOCATED, Stage.STARTING))
    if queued is None or allocated is None or reported is None:
        return None
    began = min(max(allocated, queued), reported)
    return max(began - queued, 0.0), max(reported - began, 0.0), max(ready_at - reported, 0.0)


_MODEL_LENGTH = 60
"""Characters of a GPU's model that are kept: a node's report may say anything."""


@dataclass(frozen=True)
class Session:
    """A session that is under way."""

    id: str
    username: str
    servername: str
    begun_at: float
    """Seconds since the epoch."""
    job_id: str = ""
    cluster: str = ""
    """The name of the job's cluster; empty in a hub that names none."""
    profile: str = ""
    course: str = ""
    session_ends_at: float | None = None
    """When the course's session ends; None where there is none."""
    placed: bool = False
    served: bool = False

    def to_json(self) -> dict[str, Any]:
        """For the spawner's state."""
        document = {name: value for name, value in asdict(self).items() if value not in ("", None, False, ())}
        return document | {"servername": self.servername}


@dataclass
class Life:
    """What has happened to the server of one spawner."""

    stream: Stream = field(default_factory=Stream, repr=False)
    clock: Callable[[], float] = time.time
    session: Session | None = None
    """The session that is under way."""

    def begin(
        self,
        session: str,
        *,
        username: str,
        servername: str,
        begun_at: float,
        request: JobRequest | None = None,
        cluster: str = "",
    ) -> None:
        """A start of this request begins on this cluster. One that nobody has ended is over."""
        if self.session is not None:
            self.ended()
        self.session = Session(session, username, servername, begun_at, cluster=cluster)
        if request is not None:
            self.session = replace(
                self.session,
                profile=request.profile.slug,
                course=request.offered_by,
                session_ends_at=request.ends_at,
            )

    def renamed(self, session: str) -> None:
        """Its job gets another id of a start before it is submitted."""
        if self.session is not None:
            self.session = replace(self.session, id=session)

    def submitted(self, job_id: str, request: JobRequest | None, *, profile: str = "") -> None:
        """sbatch has returned the id of the job for this request; None in a hub without profiles.

        Told again, with the slug of its ``profile``, where another job than that one runs the server.
        """
        if self.session is None:
            return
        self.session = replace(self.session, job_id=job_id, profile=profile or self.session.profile)
        fields: dict[str, Any] = {}
        if request is not None:
            resources = request.resources
            fields = {
                name: getattr(resources, name) for name in ("partition", "nodes", "gpus", "gpu_type", "shards", "cpus")
            }
            fields |= {
                "memory_mib": resources.memory,
                "seconds": resources.time if isinstance(resources.time, int) else None,
            }
        self.tell(
            Submitted,
            begun_at=self.session.begun_at,
            profile=self.session.profile,
            course=self.session.course,
            **fields,
        )

    def placed(
        self,
        placement: PlacementDocument,
        allocated_at: float | None,
        reasons: Iterable[str] = (),
        promises: tuple[Any, ...] = (),
    ) -> None:
        """The hub knows where the server runs; ``allocated_at`` and the ``reasons`` for its wait as Slurm reports."""
        session = self.session
        if session is None or session.placed:
            return
        self.session = replace(session, placed=True)
        others = placement.other_nodes
        models = [device_name(gpu.name, gpu.mig) for gpu in placement.gpus] or [
            node.gpu_type or "" for node in others if node.gpus
        ]
        self.tell(
            Placed,
            profile=session.profile,
            allocated_at=allocated_at,
            node=placement.node,
            nodes=1 + len(others),
            partition=placement.partition,
            gpus=len(placement.gpus) + sum(len(node.gpus) for node in others),
            gpu_model=models[0][:_MODEL_LENGTH] if models else "",
            cpus=count_cpus(placement.cpus) or None,
            memory_mib=placement.memory_mib,
            aligned=placement.aligned,
            weakest_link=placement.weakest_link,
            simulated=placement.simulated,
            reasons=tuple(reasons),
            promises=promises,
        )

    def ready(self, reached: Mapping[Stage, float]) -> None:
        """The server answers; ``reached`` says when its stages were reached, as far as that is known."""
        session = self.session
        if session is None or session.served:
            return
        self.session = replace(session, served=True)
        times = stages(reached, self.clock())
        if times is not None:
            for stage, seconds in zip(("queue", "start", "ready"), times, strict=True):
                metrics.STAGES.labels(session.cluster, session.profile, stage).observe(seconds)
        queue, start, ready = times or (None, None, None)
        self.tell(
            Ready,
            profile=session.profile,
            queue_seconds=queue,
            start_seconds=start,
            ready_seconds=ready,
        )

    def tell(self, kind: type[Event], **fields: Any) -> None:
        """Publish an event of this kind and with these fields, where a session is under way."""
        if self.session is not None:
            self.stream.publish(kind(**self._common(self.session), **fields))

    def ended(
        self,
        cause: Cause | None = None,
        job: Job | None = None,
        subject: str = "",
        reasons: Iterable[str] = (),
        promises: tuple[Any, ...] = (),
    ) -> None:
        """The session is over.

        ``cause`` is why, as the hub knows it; else ``job`` counts, as Slurm last reported it. ``subject`` is what the
        cause's fault is about, ``reasons`` are Slurm's for its wait.
        """
        session, self.session = self.session, None
        if session is None:
            return
        over = job if job is not None and job.phase is Phase.ENDED else None
        common = self._common(session)
        if over is not None and over.ends_at is not None:  # Slurm's clock may differ
            common["at"] = min(max(over.ends_at, session.begun_at), common["at"])
        self.stream.publish(
            Ended(
                **common,
                begun_at=session.begun_at,
                profile=session.profile,
                course=session.course,
                served=session.served,
                cause=cause or end_of_job(over.end if over is not None else None),
                reasons=tuple(reasons),
                node=_node_of(job),
                promises=promises,
                subject=subject,
            )
        )

    def _common(self, session: Session) -> dict[str, Any]:
        return {
            "session": session.id,
            "username": session.username,
            "servername": session.servername,
            "job_id": session.job_id,
            "cluster": session.cluster,
            "at": self.clock(),
        }

    def to_state(self) -> dict[str, Any]:
        """The part of the spawner's state with the session that is under way."""
        return {"session": self.session.to_json()} if self.session is not None and self.session.job_id else {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on with the session in the state."""
        self.session = stored_session(state.get("session"))


_SESSION = TypeAdapter(Session)


def stored_session(document: object) -> Session | None:
    """The session in a state; None where there is none, or where it cannot be read."""
    try:
        return _SESSION.validate_json(json.dumps(document), strict=True)
    except ValidationError:
        return None


def _node_of(job: Job | None) -> str:
    """The first node of a job, on which its server runs; empty where it has none, or where that cannot be read."""
    if job is None:
        return ""
    try:
        return job.batch_host or next(iter(expand_nodelist(job.nodes)), "")
    except ValueError:
        return ""
