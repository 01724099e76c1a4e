"""The wait of one job in Slurm's queue: when it is expected to start, and why that has changed.

Nothing here asks Slurm: a start is expected by what the watcher and the shared view of the cluster know.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyterhub_gpuspawner.cluster.capacity import QueuePosition, queue_view
from jupyterhub_gpuspawner.cluster.estimate import (
    MINUTE,
    UNKNOWN,
    Change,
    Estimate,
    QueueView,
    Waits,
    as_planned,
    cause_of_change,
    expected,
    is_changed,
    not_before,
)
from jupyterhub_gpuspawner.hub.job.session import Promise, PromiseMoment
from jupyterhub_gpuspawner.slurm.job import Job
from jupyterhub_gpuspawner.slurm.reason import never_clears
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

_TIMED = ("BeginTime", "Reservation")
"""Reasons for which the expected start is a set time, not an estimate."""


def planned_start(job: Job, position: QueuePosition | None) -> float | None:
    """When Slurm plans to start a pending job; None until it has a plan. By the view of the queue, where it has one."""
    planned = position.starts_at if position is not None else None
    return planned if planned is not None else job.starts_at


def expected_start(job: Job, position: QueuePosition | None, *, now: float, waits: Waits = as_planned) -> Estimate:
    """When a job that is pending is expected to start; UNKNOWN if it does not start by itself."""
    planned = planned_start(job, position)
    if planned is None or never_clears(job.reason):
        return UNKNOWN
    if job.reason in _TIMED:
        return not_before(planned)
    partition = position.partition if position is not None else job.partition
    return expected(planned, now=now, partition=partition, waits=waits)


@dataclass
class Wait:
    """What was said of the start of one job, for as long as it is pending."""

    change: Change | None = None
    """The last change by more than a fifth of the wait."""
    _estimate: Estimate = UNKNOWN
    _view: QueueView | None = None
    """The queue when that was said."""

    _half_at: float | None = None
    """When half of the wait will have passed that was left when a promise was kept last; None before the first."""

    def follow(
        self, job_id: str, estimate: Estimate, snapshot: ClusterSnapshot | None, partition: str, *, now: float
    ) -> Promise | None:
        """Note what is said now, and return it where it is a promise to keep."""
        if estimate.likely is None:
            return None
        changed = self._estimate.likely is not None and is_changed(self._estimate, estimate, now=now)
        if changed or self._estimate.likely is None:
            view = queue_view(snapshot, partition) if snapshot is not None else None
            if changed:
                later = estimate.likely > (self._estimate.likely or 0.0)
                self.change = cause_of_change(self._view, view, job_id, later=later)
            self._estimate, self._view = estimate, view
        if estimate.likely <= now or (self._half_at is not None and now < self._half_at):
            return None
        moment = PromiseMoment.QUEUED if self._half_at is None else PromiseMoment.HALF
        self._half_at = now + max(estimate.likely - now, MINUTE) / 2
        return Promise(now, moment, estimate, partition)
