"""How far a running job may be extended, judged from one snapshot of the cluster. Pure.

Slurm checks a time limit that an operator sets against none of its own limits, so this module keeps what it would
otherwise enforce: reservations and partitions. Limits of accounts and QOS (MaxWall) are known to Slurm alone, and are
not considered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any

from jupyterhub_gpuspawner.extensions.availability.model.availability import STALE
from jupyterhub_gpuspawner.extensions.availability.model.capacity import capacity_of
from jupyterhub_gpuspawner.extensions.availability.model.fit import ANY, Need
from jupyterhub_gpuspawner.hub.words import uses
from jupyterhub_gpuspawner.slurm.estimate import utc
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot
from jupyterhub_gpuspawner.words import duration

MINUTE = 60
"""Slurm's time limits are in full minutes."""
_LEAVING = frozenset({"DRAIN", "DOWN", "FAIL", "REBOOT_REQUESTED", "POWER_DOWN"})
"""States of a node that is being taken out of service."""


class Reason(str, Enum):
    """Why a job is not extended, or not by as much as was asked for."""

    NOT_RUNNING = "not running"
    NO_LIMIT = "no limit"
    """It has no time limit."""
    USED = "used"
    """It has been extended as often as its profile allows."""
    STAFF_USED = "staff used"
    """Instructors have extended it by as much as they may."""
    RESERVATION = "reservation"
    """Its reservation ends."""
    PARTITION = "partition"
    """The partition's MaxTime is reached."""
    MAINTENANCE = "maintenance"
    """A reservation for maintenance begins on one of its nodes."""
    RESERVED = "reserved"
    """Another reservation begins on one of its nodes."""
    LEAVING = "leaving"
    """One of its nodes is being taken out of service."""
    OTHERS_WAIT = "others wait"
    """Pending jobs could use its resources then."""
    UNKNOWN = "unknown"
    """Slurm's answers do not say enough to decide."""


# ``{time}`` stays in a sentence: the page puts the time there, in the reader's time zone.

_REFUSALS = {
    Reason.NOT_RUNNING: "Only a running server can be extended.",
    Reason.NO_LIMIT: "This server has no time limit.",
    Reason.USED: "This server cannot be extended again.",
    Reason.STAFF_USED: "Instructors have extended this server by 24 h already, and that is the most. An administrator "
    "can extend it further.",
    Reason.RESERVATION: "No more time: reservation {name} ends then.",
    Reason.PARTITION: "No more time: this is the longest time that partition {name} allows.",
    Reason.MAINTENANCE: "No more time: maintenance of the node begins then.",
    Reason.RESERVED: "No more time: the node is reserved for others from then on.",
    Reason.LEAVING: "No more time: the node is being taken out of service.",
    Reason.OTHERS_WAIT: "No more time: others are waiting for these resources.",
    Reason.UNKNOWN: "Whether there is more time is not known at the moment. Try again in a minute.",
}
_BOUNDS: Mapping[Reason | None, str] = {
    Reason.RESERVATION: ", when reservation {name} ends",
    Reason.PARTITION: ", which is the longest time that partition {name} allows",
    Reason.MAINTENANCE: ", when maintenance of the node begins",
    Reason.RESERVED: ", from when on the node is reserved for others",
    Reason.OTHERS_WAIT: ", when others need these resources",
}


@dataclass(frozen=True)
class MoreTime:
    """By how much a job can be extended now: on its server's card, on a page and over REST."""

    seconds: int
    """Full minutes; 0: not at all."""
    ends_at: float | None
    """Its end after that, in seconds since the epoch; None where it has none."""
    reason: Reason | None = None
    """Why it is not more; None where it is all that was asked for."""
    name: str = ""
    """The reservation or partition of :attr:`reason`."""
    uses_left: int = 0
    """Extensions that the server's user has left, this one included."""

    @property
    def possible(self) -> bool:
        """It can be extended now."""
        return self.seconds > 0

    @property
    def words(self) -> str:
        """Such as ``1 h more, until {time}.``, and why it is not more; or why there is none."""
        if not self.possible:
            return refusal(self.reason or Reason.UNKNOWN, self.name)
        bound = _BOUNDS.get(self.reason, "").format(name=self.name)
        return f"{duration(self.seconds)} more, until {{time}}{bound}."

    @property
    def uses(self) -> str:
        """How often the server can be extended; empty where it cannot be now."""
        if not self.possible:
            return ""
        return uses(self.uses_left)

    def document(self) -> dict[str, Any]:
        """Its JSON form."""
        return {
            "seconds": self.seconds,
            "until": utc(self.ends_at),
            "uses_left": self.uses_left,
            "reason": self.reason.value if self.reason is not None else None,
            "message": "" if self.possible else self.words,
            "words": f"{self.words} {self.uses}" if self.possible else "",
        }


def refusal(reason: Reason, name: str) -> str:
    """Why there is no more time, with the name of the reservation or partition."""
    return _REFUSALS[reason].format(name=name)


@dataclass(frozen=True)
class _Bound:
    at: float
    reason: Reason
    name: str = ""


def more_time(
    job: Job,
    snapshot: ClusterSnapshot | None,
    *,
    wanted: int,
    now: float,
    although_others_wait: bool = False,
) -> MoreTime:
    """By how much of ``wanted`` seconds the job can be extended; ``now`` in seconds since the epoch.

    It is cut short at the first bound. ``although_others_wait``: pending jobs are no bound.
    """
    if job.phase is not Phase.RUNNING:
        return MoreTime(0, job.ends_at, Reason.NOT_RUNNING)
    if job.ends_at is None:
        return MoreTime(0, None, Reason.NO_LIMIT)
    if job.ends_at <= now:
        return MoreTime(0, job.ends_at, Reason.NOT_RUNNING)
    held = snapshot.job_by_id.get(job.job_id) if snapshot is not None else None
    if snapshot is None or held is None or not held.nodes or now - snapshot.taken_at > STALE:
        return MoreTime(0, job.ends_at, Reason.UNKNOWN)
    first = min(_bounds(job, held, snapshot, although_others_wait=although_others_wait), key=lambda bound: bound.at)
    seconds = int(max(0.0, min(wanted, first.at - job.ends_at)) // MINUTE * MINUTE)
    cut = seconds < wanted
    return MoreTime(
        seconds, job.ends_at + seconds, reason=first.reason if cut else None, name=first.name if cut else ""
    )


def _bounds(job: Job, held: ClusterJob, snapshot: ClusterSnapshot, *, although_others_wait: bool) -> Iterator[_Bound]:
    """The moments that the job must not pass; the last one is never."""
    end = job.ends_at or 0.0
    yield _of_partition(job, held, snapshot)
    yield from _of_reservations(held, snapshot, end)
    states = [snapshot.node_by_name[name].states for name in held.nodes if name in snapshot.node_by_name]
    if any(state & _LEAVING for state in states):
        yield _Bound(end, Reason.LEAVING)
    if not although_others_wait:
        yield _of_pending_jobs(held, snapshot, end)
    yield _Bound(inf, Reason.UNKNOWN)


def _of_partition(job: Job, held: ClusterJob, snapshot: ClusterSnapshot) -> _Bound:
    partition = snapshot.partition_by_name.get(held.partition)
    if partition is None or "MaxTime" in partition.unread or job.starts_at is None:
        return _Bound(job.ends_at or 0.0, Reason.UNKNOWN)
    longest = partition.max_time if partition.max_time is not None else inf
    return _Bound(job.starts_at + longest, Reason.PARTITION, partition.name)


def _of_reservations(held: ClusterJob, snapshot: ClusterSnapshot, end: float) -> Iterator[_Bound]:
    """The end of its own reservation, and the start of each other one on its nodes that has not ended by then."""
    if any(record.kind == "reservation" for record in snapshot.unread):
        yield _Bound(end, Reason.UNKNOWN)
    if held.reservation and held.reservation not in snapshot.reservation_by_name:
        yield _Bound(end, Reason.UNKNOWN)
    for reservation in snapshot.reservations:
        if reservation.name == held.reservation:
            yield _Bound(reservation.end if reservation.end is not None else inf, Reason.RESERVATION, reservation.name)
        elif not set(held.nodes).isdisjoint(reservation.nodes) and (reservation.end is None or reservation.end > end):
            reason = Reason.MAINTENANCE if "MAINT" in reservation.flags else Reason.RESERVED
            yield _Bound(
                max(end, reservation.start if reservation.start is not None else end), reason, reservation.name
            )


def _of_pending_jobs(held: ClusterJob, snapshot: ClusterSnapshot, end: float) -> _Bound:
    """When the first pending job is expected to start that could use what this one holds after its end.

    One that Slurm expects to start before does not wait for this job's end. Where it has no estimate for one of them,
    that job may be waiting for it.
    """
    if any(record.kind == "job" and not record.partial for record in snapshot.unread):
        return _Bound(end, Reason.UNKNOWN)
    capacity, need, first = capacity_of(snapshot), _need(held), inf
    for partition in snapshot.partitions:
        if set(held.nodes).isdisjoint(partition.nodes):
            continue
        others = capacity.competition(partition.name, held.reservation, need, of_these_devices=True)
        if others is None:
            continue
        if others.first_start is None or others.last_start is None:
            return _Bound(end, Reason.OTHERS_WAIT)
        if others.last_start >= end:
            first = min(first, max(end, others.first_start))
    return _Bound(first, Reason.OTHERS_WAIT)


def _need(held: ClusterJob) -> Need:
    """What the job holds, as a request; GPUs of several types count as any."""
    counts = {name: sum(gpu.count for gpu in held.gpus if gpu.name == name) for name in ("gpu", "shard")}
    types = {gpu.type or ANY for gpu in held.gpus}
    return Need(
        gpus=counts["gpu"] or int(held.gpus_unknown),
        gpu_type=types.pop() if len(types) == 1 else ANY,
        shards=counts["shard"],
        cpus=held.cpus // max(1, held.node_count),
    )
