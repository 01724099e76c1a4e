"""A pending job's position in its partition's queue. Pure.

Slurm may start a job with lower priority first if that delays no other (backfill), so a position is no promise.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyterhub_gpuspawner.cluster.snapshot import ClusterJob, ClusterSnapshot

_WAITS_FOR_RESOURCES = frozenset({"", "Resources", "Priority", "SchedDefer", "Licenses"})
_WAITS_FOR_RESOURCES_STARTS = ("ReqNodeNotAvail", "Nodes required for job are DOWN")


@dataclass(frozen=True)
class QueuePosition:
    """A pending job's position in the queue of one partition."""

    position: int
    """1 is next."""
    of: int
    """Jobs in the queue, this one included."""
    partition: str
    starts_at: float | None = None
    """Slurm's estimate, seconds since the epoch; None until it has made one."""


def in_queue(job: ClusterJob) -> bool:
    """Whether the job starts as soon as its resources are free: it is neither held nor waiting for anything else."""
    return (
        job.phase is Phase.QUEUED
        and job.priority > 0
        and (job.reason in _WAITS_FOR_RESOURCES or job.reason.startswith(_WAITS_FOR_RESOURCES_STARTS))
    )


def _order(job: ClusterJob) -> tuple[int, int]:
    return -job.priority, int(job.job_id) if job.job_id.isdigit() else 0


def first_in_line(jobs: Iterable[ClusterJob], at_most: int) -> list[ClusterJob]:
    """The pending jobs that are considered first; those that are held or wait for something else come last."""
    return heapq.nsmallest(at_most, jobs, key=lambda job: (not in_queue(job), *_order(job)))


def queue_position(snapshot: ClusterSnapshot, job_id: str) -> QueuePosition | None:
    """The job's best position in the queues of its partitions; None for a job that is in no queue."""
    job = snapshot.job_by_id.get(job_id)
    if job is None or not in_queue(job):
        return None
    positions = []
    for partition in job.partitions:
        queue = [other for other in snapshot.waiting_by_partition[partition] if in_queue(other)]
        before = sum(_order(other) < _order(job) for other in queue)
        positions.append(QueuePosition(before + 1, len(queue), partition, job.starts_at))
    return min(positions, key=lambda each: each.position, default=None)
