"""A pending job's position in its partition's queue. Pure.

Slurm may start a job with lower priority first if that delays no other (backfill), so a position is no promise.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cluster.snapshot import rank, waits_for_resources
from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyterhub_gpuspawner.cluster.snapshot import ClusterJob, ClusterSnapshot


@dataclass(frozen=True)
class QueuePosition:
    """A pending job's position in the queue of one partition."""

    position: int
    """1 is next."""
    of: int
    """Jobs in the queue, this one included."""
    partition: str
    people: int = 0
    """Users with jobs ahead of it. Jobs of its own user count one by one: an account may submit for many people."""
    starts_at: float | None = None
    """Slurm's estimate, seconds since the epoch; None until it has made one."""


def in_queue(job: ClusterJob) -> bool:
    """Whether the job starts as soon as its resources are free: it is neither held nor waiting for anything else."""
    return job.phase is Phase.QUEUED and waits_for_resources(job.priority, job.reason)


def first_in_line(jobs: Iterable[ClusterJob], at_most: int) -> list[ClusterJob]:
    """The pending jobs that are considered first; those that are held or wait for something else come last."""
    return heapq.nsmallest(at_most, jobs, key=lambda job: (not in_queue(job), *rank(job.priority, job.job_id)))


def queue_position(snapshot: ClusterSnapshot, job_id: str) -> QueuePosition | None:
    """The job's best position in the queues of its partitions; None for a job that is in no queue."""
    job = snapshot.job_by_id.get(job_id)
    if job is None or not in_queue(job):
        return None
    positions = []
    for partition in job.partitions:
        place, people = snapshot.queue_places[partition][job_id]
        positions.append(QueuePosition(place, len(snapshot.queue_places[partition]), partition, people, job.starts_at))
    return min(positions, key=lambda each: each.position, default=None)
