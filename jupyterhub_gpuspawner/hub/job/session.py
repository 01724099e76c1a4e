"""The session of one server: one start as a Slurm job, with all that follows until it has ended, or that failed.

What is needed for its events that are to come is part of the spawner's state, so it goes on after a restart of the hub.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from jupyterhub_gpuspawner.hub.job.cause import Cause, Stage, end_of_job
from jupyterhub_gpuspawner.hub.job.events import Ended, Event, Placed, Ready, Stream, Submitted
from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.slurm.gpu_model import device_name
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.units import count_cpus, expand_nodelist
from jupyterhub_gpuspawner.wire.documents import PlacementDocument


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

    def submitted(self, job_id: str, request: JobRequest | None) -> None:
        """sbatch has returned the id of the job for this request; None in a hub without profiles."""
        if self.session is None:
            return
        self.session = replace(self.session, job_id=job_id)
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

    # --- the spawner's state --------------------------------------------------------------------

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
