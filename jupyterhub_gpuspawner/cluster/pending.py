"""A pending job's position in its partition's queue. Pure.

Slurm may start a job with lower priority first if that delays no other (backfill), so a position is no promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
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
    people: int = 0
    """Users with jobs ahead of it. Jobs of its own user count one by one: an account may submit for many people."""
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


def queue_position(snapshot: ClusterSnapshot, job_id: str) -> QueuePosition | None:
    """The job's best position in the queues of its partitions; None for a job that is in no queue."""
    job = snapshot.job_by_id.get(job_id)
    if job is None or not in_queue(job):
        return None
    positions = []
    for partition in job.partitions:
        queue = [other for other in snapshot.waiting_by_partition[partition] if in_queue(other)]
        ahead = [other for other in queue if _order(other) < _order(job)]
        people = len({other.job_id if other.user in ("", job.user) else other.user for other in ahead})
        positions.append(QueuePosition(len(ahead) + 1, len(queue), partition, people, job.starts_at))
    return min(positions, key=lambda each: each.position, default=None)
