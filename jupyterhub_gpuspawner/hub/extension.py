"""How far a running job may be extended, judged from one snapshot of the cluster. Pure.

Slurm checks a time limit that an operator sets against none of its own limits, so this module keeps what it would
otherwise enforce: reservations and partitions. Limits of accounts and QOS (MaxWall) are known to Slurm alone, and are
not considered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from math import inf
from typing import Any

from jupyterhub.spawner import Spawner

from jupyterhub_gpuspawner.cluster.availability import STALE
from jupyterhub_gpuspawner.cluster.capacity import capacity_of
from jupyterhub_gpuspawner.cluster.estimate import utc
from jupyterhub_gpuspawner.cluster.fit import ANY, Need
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.job.watch import JobWatch
from jupyterhub_gpuspawner.hub.site.database import StoredState
from jupyterhub_gpuspawner.hub.words import uses
from jupyterhub_gpuspawner.profiles.resources import Extend
from jupyterhub_gpuspawner.slurm.commands import MINUTES_AT_MOST, operator_prefix
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
            return _refusal(self.reason or Reason.UNKNOWN, self.name)
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


def _refusal(reason: Reason, name: str) -> str:
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
        others = capacity.competition(partition.name, held.reservation, need)
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


# Gives one running server more time: what its profile allows, within the bounds of the cluster.

FRESH = 5.0
"""Age in seconds of a snapshot of the cluster that is new enough to extend a job."""
SHOWN = 60.0
"""The same for a page that shows whether a server can be extended."""
RIGHTS = 600.0
"""Seconds for which it is not asked again whether the hub's account is a Slurm operator."""
USUAL = 3600
"""Seconds by which staff extend a server where neither they nor its profile say."""
STAFF_AT_MOST = 86400
"""Seconds by which all staff together extend one server, from start to end. Else two people who teach each other could
keep what they have for as long as the partition allows; it is as much as a profile allows its users at once."""


class NotExtended(RequestError):
    """A server is not extended now, for this reason; ``name`` is that of its reservation or partition."""

    status_code = 409
    reason = "not_extended"

    def __init__(self, why: Reason, name: str = "") -> None:
        super().__init__(_refusal(why, name), field="minutes")


@dataclass(frozen=True)
class Extended:
    """An extension that was made."""

    seconds: int
    """By how much."""
    at: float
    """In seconds since the epoch."""
    by: str = ""
    """The instructor or administrator who made it; empty for the server's own user."""

    @property
    def words(self) -> str:
        """What the card says, with ``{time}`` in the place of :attr:`at`."""
        return f"Extended by {duration(self.seconds)} at {{time}}{f', by {self.by}' if self.by else ''}."


class Extension:
    """The extensions of one spawner's server: how many there were, and the last one, until the server ends."""

    def __init__(self, server: Spawner, job: JobWatch, state: StoredState, *, name: str) -> None:
        """``name`` is the server's for the log."""
        self.last: Extended | None = None
        """The last one since this hub process started."""
        self._server = server
        self._job = job
        self._state = state
        self._name = name
        self._used = 0
        self._by_staff = 0  # seconds
        self._stored: Extend | None = None
        self._turn = asyncio.Lock()

    @property
    def rule(self) -> Extend | None:
        """What the profile allowed when the server was started; None: nothing."""
        request = self._server.request
        return request.profile.extend if request is not None else self._stored

    # --- what a page shows ----------------------------------------------------------------------

    def offer(self) -> MoreTime | None:
        """What the server's user can have now, as far as is known; asks nothing.

        None where the profile allows nothing, where this hub may not raise time limits, or that is not known yet.
        """
        rule, status = self.rule, self._job.status
        if rule is None or status is None or not self._permitted:
            return None
        if status.phase in (Phase.QUEUED, Phase.STARTING):  # the server was faster than the watcher
            return None
        left = rule.times - self._used
        if left <= 0:
            return MoreTime(0, status.ends_at, Reason.USED)
        return replace(self._bounded(status, rule.by), uses_left=left)

    async def refresh(self, patience: float) -> None:
        """Bring up to date what :meth:`offer` needs; takes ``patience`` seconds at most."""
        if self.rule is None or not self._job.job_id:
            return
        if self._used < self.rule.times:
            await asyncio.gather(self._read_rights(patience), self._refresh_snapshot(self._job.status, SHOWN, patience))

    # --- extending ------------------------------------------------------------------------------

    async def extend(self, minutes: int | None = None, *, by: str = "", unlimited: bool = False) -> Extended:
        """Extend the server by so many minutes, or by what its profile says, or by less where a bound comes first.

        ``by`` names an instructor or administrator who does it for the user: it does not count as one of the profile's
        ``times``, but is at most :data:`STAFF_AT_MOST` for the server in all, whoever they are and however often they
        ask; not for an administrator (``unlimited``). Raises NotExtended with its reason, RequestError for a number of
        minutes that is not allowed, ConfigError if the hub is not permitted to, SlurmUnavailable.
        """
        async with self._turn:
            return await self._extend(self._wanted(minutes, by, unlimited=unlimited), by, unlimited=unlimited)

    def _wanted(self, minutes: int | None, by: str, *, unlimited: bool) -> int:
        """Seconds to add; raises RequestError."""
        rule = self.rule
        if minutes is not None and not 1 <= minutes <= MINUTES_AT_MOST:
            raise RequestError(f"Choose from 1 to {MINUTES_AT_MOST} minutes.", field="minutes")
        if by:
            seconds = minutes * MINUTE if minutes is not None else rule.by if rule is not None else USUAL
            left = seconds if unlimited else STAFF_AT_MOST - self._by_staff
            if left < MINUTE:
                raise NotExtended(Reason.STAFF_USED)
            return min(seconds, left)
        if rule is None:
            raise RequestError("Servers of this profile cannot be extended.", field="profile")
        if self._used >= rule.times:
            raise NotExtended(Reason.USED)
        if minutes is not None and minutes * MINUTE > rule.by:
            raise RequestError(f"Choose at most {rule.by // MINUTE} minutes.", field="minutes")
        return minutes * MINUTE if minutes is not None else rule.by

    async def _extend(self, wanted: int, by: str, *, unlimited: bool) -> Extended:
        server, job_id = self._server, self._job.job_id
        connection = server.connection()
        await self._read_rights(server.slurm_timeout)
        if not self._permitted:
            raise not_permitted(connection.operator.fault)
        if not job_id:
            raise NotExtended(Reason.NOT_RUNNING)
        status = await self._own_job(job_id)
        await self._refresh_snapshot(status, FRESH, server.slurm_timeout)
        if connection.cluster.latest is None or time.time() - connection.cluster.latest.taken_at > SHOWN:
            raise NotExtended(Reason.UNKNOWN)
        bounded = self._bounded(status, wanted)
        if not bounded.possible or bounded.ends_at is None:
            raise NotExtended(bounded.reason or Reason.UNKNOWN, bounded.name)
        used, by_staff = self._used, self._by_staff
        if not by:
            self._used += 1
        elif not unlimited:
            self._by_staff += bounded.seconds
        self._state.store_soon()  # before it is done: a hub that is killed meanwhile must not forget it
        try:
            await self._raise_limit(job_id, bounded)
        except GPUSpawnerError as error:
            # Slurm may do all the same what it does not answer: that counts, where many may ask
            self._used = used
            self._by_staff = self._by_staff if isinstance(error, SlurmUnavailable) else by_staff
            self._state.store_soon()
            raise
        done = self.last = Extended(bounded.seconds, time.time(), by)
        server.log.info(
            "Job %s of %s was extended by %d min%s",
            *(job_id, self._name, bounded.seconds // MINUTE, f" by {by}" if by else ""),
        )
        connection.cluster.outdate()
        with suppress(GPUSpawnerError):  # the watcher asks again soon
            await self._job.update()
        return done

    async def _raise_limit(self, job_id: str, bounded: MoreTime) -> None:
        client = self._server.connection().client
        prefix = operator_prefix(self._server.extend_prefix)
        try:
            running = await client.extend(job_id, bounded.seconds // MINUTE, prefix=prefix)
        except SlurmUnavailable:  # it may have been done before the answer was lost
            status = await self._own_job(job_id)
            if status.ends_at is None or bounded.ends_at is None or status.ends_at < bounded.ends_at:
                raise
            return
        if not running:
            raise NotExtended(Reason.NOT_RUNNING)

    async def _own_job(self, job_id: str) -> Job:
        """The job as Slurm reports it now; raises NotExtended if it is gone, or the id is another job's."""
        status: Job | None = (await self._server.connection().client.jobs([job_id])).get(job_id)
        if status is None or not self._job.is_own(status):
            raise NotExtended(Reason.NOT_RUNNING)
        return status

    async def _refresh_snapshot(self, status: Job | None, max_age: float, patience: float) -> None:
        """Have a snapshot that is at most ``max_age`` seconds old and has the job; one serves a whole course.

        Of a job that runs by ``status`` it has to have the nodes: a snapshot from before the job's start has none.
        """
        cluster = self._server.connection().cluster
        latest = cluster.latest
        held = latest.job_by_id.get(self._job.job_id) if latest is not None else None
        runs = status is not None and status.phase is Phase.RUNNING
        has_job = held is not None and (bool(held.nodes) or not runs)
        if latest is None or not has_job or time.time() - latest.taken_at > max_age:
            await cluster.recent(0.0, patience)

    def _bounded(self, status: Job, wanted: int) -> MoreTime:
        snapshot = self._server.connection().cluster.latest
        others = self._server.extend_when_others_wait
        return more_time(status, snapshot, wanted=wanted, now=time.time(), although_others_wait=others)

    # --- the right to raise time limits -----------------------------------------------------------

    @property
    def _permitted(self) -> bool:
        """An account for it is set, or the hub's own may; False while that is not known."""
        return bool(self._server.extend_prefix.strip()) or bool(self._server.connection().operator.latest)

    async def _read_rights(self, patience: float) -> None:
        if not self._server.extend_prefix.strip():
            await self._server.connection().operator.recent(RIGHTS, patience)

    # --- the spawner's state ----------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """What the profile allowed, how much of it was used, and what staff have added; empty without a job."""
        if not self._job.job_id:
            return {}
        rule = self.rule
        of_user = {"by": rule.by, "times": rule.times, "used": self._used} if rule is not None else {}
        document = {**of_user, **({"by_staff": self._by_staff} if self._by_staff else {})}
        return {"extension": document} if document else {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Read what :meth:`to_state` wrote; anything else allows nothing."""
        document = state.get("extension")
        if not isinstance(document, dict):
            return
        by_staff = document.get("by_staff", 0)
        self._by_staff = by_staff if isinstance(by_staff, int) and by_staff >= 0 else STAFF_AT_MOST
        by, times, used = (document.get(name) for name in ("by", "times", "used"))
        if isinstance(by, int) and isinstance(times, int) and isinstance(used, int) and min(by, times, used) >= 0:
            self._stored, self._used = Extend.model_construct(by=by, times=times), used

    def forget(self) -> None:
        """The server has ended."""
        self._stored, self._used, self._by_staff, self.last = None, 0, 0, None


def not_permitted(fault: GPUSpawnerError | None = None) -> ConfigError:
    """The error of a hub that may not raise time limits; ``fault``: why that is not known."""
    return ConfigError(
        f"It is not known whether the hub may raise time limits: {fault.message}"
        if fault is not None
        else "The hub's account is not a Slurm operator, so it cannot raise the time limit of a running job.",
        where="extend_prefix",
        hint="Install the script `extend`, and set c.GPUSlurmSpawner.extend_prefix.",
        for_user="Servers of this hub cannot be extended.",
    )
