"""Who waits before whom, as one snapshot tells it. Pure.

Slurm may start a later job first where that delays nobody (backfill), so a place is no promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.cluster.snapshot import ClusterJob, ClusterSnapshot

_IN_LINE = frozenset({"", "Resources", "Priority", "SchedDefer", "Licenses"})
_IN_LINE_STARTS = ("ReqNodeNotAvail", "Nodes required for job are DOWN")


@dataclass(frozen=True)
class Place:
    """A waiting job's place in one partition."""

    position: int
    """1 is next."""
    of: int
    """Jobs in line, this one among them."""
    partition: str
    starts_at: float | None = None
    """Slurm's own estimate, seconds since the epoch; None where it has made none yet."""


def in_line(job: ClusterJob) -> bool:
    """It starts as soon as what it asks for is free; held jobs, and those that wait for something else, are not."""
    return (
        job.phase is Phase.QUEUED
        and job.priority > 0
        and (job.reason in _IN_LINE or job.reason.startswith(_IN_LINE_STARTS))
    )


def _order(job: ClusterJob) -> tuple[int, int]:
    return -job.priority, int(job.job_id) if job.job_id.isdigit() else 0


def place_in_line(snapshot: ClusterSnapshot, job_id: str) -> Place | None:
    """The job's best place among the jobs in line of its partitions; None for one that is not in line."""
    job = snapshot.job_by_id.get(job_id)
    if job is None or not in_line(job):
        return None
    places = []
    for partition in job.partitions:
        others = [other for other in snapshot.waiting_by_partition[partition] if in_line(other)]
        before = sum(_order(other) < _order(job) for other in others)
        places.append(Place(before + 1, len(others), partition, job.starts_at))
    return min(places, key=lambda place: place.position, default=None)
