"""The record of a session, and how each event changes it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from jupyterhub_gpuspawner.extensions.records.promises import Outcome, Promise, outcomes
from jupyterhub_gpuspawner.hub.job.cause import UNKNOWN, Cause, Kind
from jupyterhub_gpuspawner.hub.job.session import Ended, Event, Submitted, Usage

ASKED = ("partition", "nodes", "gpus", "gpu_type", "shards", "cpus", "memory_mib", "seconds")
"""What a submission asks for; a record has it with ``asked_`` before the name, beside what was granted."""


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
