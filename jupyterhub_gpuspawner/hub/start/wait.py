"""The wait of one job in Slurm's queue: when it is expected to start, and why that has changed.

Nothing here asks Slurm: a start is expected by what the watcher and the shared view of the cluster know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jupyterhub_gpuspawner.cluster.capacity import QueuePosition, queue_view
from jupyterhub_gpuspawner.cluster.estimate import (
    UNKNOWN,
    Change,
    Estimate,
    PastWaits,
    QueueView,
    cause_of_change,
    expected,
    is_changed,
    not_before,
)
from jupyterhub_gpuspawner.slurm.job import Job
from jupyterhub_gpuspawner.slurm.reason import never_clears
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

_TIMED = ("BeginTime", "Reservation")
"""Reasons for which the expected start is a set time, not an estimate."""


@dataclass
class LearnedWaits:
    """Past waits by partition, read from the session records; empty where none are kept."""

    asked: Mapping[str, PastWaits] = field(default_factory=dict)
    """Of what was said before a job was submitted."""
    queued: Mapping[str, PastWaits] = field(default_factory=dict)
    """Of what Slurm said while a job was pending."""


LEARNED = LearnedWaits()
"""Those of the hub of this process."""


def planned_start(job: Job, position: QueuePosition | None) -> float | None:
    """When Slurm plans to start a pending job; None until it has a plan. By the view of the queue, where it has one."""
    planned = position.starts_at if position is not None else None
    return planned if planned is not None else job.starts_at


def expected_start(job: Job, position: QueuePosition | None, *, now: float) -> Estimate:
    """When a pending job is expected to start; UNKNOWN for one that does not start by itself."""
    planned = planned_start(job, position)
    if planned is None or never_clears(job.reason):
        return UNKNOWN
    if job.reason in _TIMED:
        return not_before(planned)
    return expected(planned, now=now, past=LEARNED.queued.get(position.partition if position else job.partition))


@dataclass
class Wait:
    """What was said of the start of one job, for as long as it is pending."""

    change: Change | None = None
    """The last change by more than a fifth of the wait."""
    _said: Estimate = UNKNOWN
    _view: QueueView | None = None
    """The queue when that was said."""

    def follow(
        self, job_id: str, estimate: Estimate, snapshot: ClusterSnapshot | None, partition: str, *, now: float
    ) -> None:
        """Note what is said now."""
        if estimate.likely is None:
            return
        if self._said.likely is not None:
            if not is_changed(self._said, estimate, now=now):
                return
            view = queue_view(snapshot, partition) if snapshot is not None else None
            self.change = cause_of_change(self._view, view, job_id, later=estimate.likely > self._said.likely)
            self._said, self._view = estimate, view
            return
        self._said, self._view = estimate, queue_view(snapshot, partition) if snapshot is not None else None
