"""A pending job's position in its partition's queue. Pure.

Slurm may start a job with lower priority first if that delays no other (backfill), so a position is no promise.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cluster.snapshot import rank, waits_for_resources
from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot

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


def queue_position(snapshot: ClusterSnapshot, job_id: str) -> QueuePosition | None:
    """The job's best position in the queues of its partitions; None for a job that is in no queue.

    A queue holds the jobs that start as soon as their resources are free: they are not held, and wait for nothing else.
    """
    job = snapshot.job_by_id.get(job_id)
    if job is None or job.phase is not Phase.QUEUED or not waits_for_resources(job.priority, job.reason):
        return None
    positions = []
    for partition in job.partitions:
        queue = snapshot.queue_order[partition]
        before = bisect_left(queue, rank(job.priority, job.job_id))
        positions.append(QueuePosition(before + 1, len(queue), partition, job.starts_at))
    return min(positions, key=lambda each: each.position, default=None)
