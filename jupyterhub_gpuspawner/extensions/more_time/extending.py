"""Gives one running server more time: what its profile allows, within the bounds of the cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError, SlurmUnavailable
from jupyterhub_gpuspawner.extensions.more_time.bounds import MINUTE, MoreTime, Reason, more_time, refusal
from jupyterhub_gpuspawner.extensions.more_time.fields import EXTEND, Extend
from jupyterhub_gpuspawner.extensions.more_time.raising import operator_prefix, raise_limit, rights
from jupyterhub_gpuspawner.hub.extension import MINUTES_AT_MOST, WithServer
from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name
from jupyterhub_gpuspawner.hub.spawners.server import kept_with
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.words import duration

FRESH = 5.0
"""Age in seconds of a snapshot of the cluster that is new enough to extend a job."""
MAX_AGE_SECONDS = 60.0
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
        super().__init__(refusal(why, name), field="minutes")


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


class ServerTime(WithServer):
    """The extensions of one server: how many there were, and the last one, until the server ends."""

    def __init__(self, spawner: Any) -> None:
        super().__init__(spawner)
        self.last: Extended | None = None
        """The last one since this hub process started."""
        self._used = 0
        self._by_staff = 0  # seconds
        self._stored: Extend | None = None
        self._turn = asyncio.Lock()

    @property
    def rule(self) -> Extend | None:
        """What the profile allowed when the server was started; None: nothing."""
        request = self.spawner.request
        return EXTEND.of(request.profile) if request is not None else self._stored

    # --- what a page shows ----------------------------------------------------------------------

    def offer(self) -> MoreTime | None:
        """What the server's user can have now, as far as is known; asks nothing.

        None where the profile allows nothing, where this hub may not raise time limits, or that is not known yet.
        """
        rule, status = self.rule, self.spawner.watch.status
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
        if self.rule is None or not self.spawner.watch.job_id:
            return
        if self._used < self.rule.times:
            await asyncio.gather(
                self._read_rights(patience),
                self._refresh_snapshot(self.spawner.watch.status, MAX_AGE_SECONDS, patience),
            )

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
        server, job_id = self.spawner, self.spawner.job_id
        cluster = server.connection()
        await self._read_rights(server.slurm_timeout)
        if not self._permitted:
            raise not_permitted(cluster.of(rights).fault)
        if not job_id:
            raise NotExtended(Reason.NOT_RUNNING)
        status = await self._own_job(job_id)
        await self._refresh_snapshot(status, FRESH, server.slurm_timeout)
        if cluster.view.latest is None or time.time() - cluster.view.latest.taken_at > MAX_AGE_SECONDS:
            raise NotExtended(Reason.UNKNOWN)
        bounded = self._bounded(status, wanted)
        if not bounded.possible or bounded.ends_at is None:
            raise NotExtended(bounded.reason or Reason.UNKNOWN, bounded.name)
        used, by_staff = self._used, self._by_staff
        if not by:
            self._used += 1
        elif not unlimited:
            self._by_staff += bounded.seconds
        self.spawner.row.store_soon()  # before it is done: a hub that is killed meanwhile must not forget it
        try:
            await self._raise_limit(job_id, bounded)
        except GPUSpawnerError as error:
            # Slurm may do all the same what it does not answer: that counts, where many may ask
            self._used = used
            self._by_staff = self._by_staff if isinstance(error, SlurmUnavailable) else by_staff
            self.spawner.row.store_soon()
            raise
        done = self.last = Extended(bounded.seconds, time.time(), by)
        server.log.info(
            "Job %s of %s was extended by %d min%s",
            *(job_id, log_name(self.spawner), bounded.seconds // MINUTE, f" by {by}" if by else ""),
        )
        cluster.view.outdate()
        with suppress(GPUSpawnerError):  # the watcher asks again soon
            await self.spawner.watch.update()
        return done

    async def _raise_limit(self, job_id: str, bounded: MoreTime) -> None:
        client = self.spawner.connection().client
        prefix = operator_prefix(self.spawner.extend_prefix)
        try:
            running = await raise_limit(client, job_id, bounded.seconds // MINUTE, prefix=prefix)
        except SlurmUnavailable:  # it may have been done before the answer was lost
            status = await self._own_job(job_id)
            if status.ends_at is None or bounded.ends_at is None or status.ends_at < bounded.ends_at:
                raise
            return
        if not running:
            raise NotExtended(Reason.NOT_RUNNING)

    async def _own_job(self, job_id: str) -> Job:
        """The job as Slurm reports it now; raises NotExtended if it is gone, or the id is another job's."""
        status: Job | None = (await self.spawner.connection().client.jobs([job_id])).get(job_id)
        if status is None or not self.spawner.watch.is_own(status):
            raise NotExtended(Reason.NOT_RUNNING)
        return status

    async def _refresh_snapshot(self, status: Job | None, max_age: float, patience: float) -> None:
        """Have a snapshot that is at most ``max_age`` seconds old and has the job; one serves a whole course.

        Of a job that runs by ``status`` it has to have the nodes: a snapshot from before the job's start has none.
        """
        view = self.spawner.connection().view
        latest = view.latest
        held = latest.job_by_id.get(self.spawner.watch.job_id) if latest is not None else None
        runs = status is not None and status.phase is Phase.RUNNING
        has_job = held is not None and (bool(held.nodes) or not runs)
        if latest is None or not has_job or time.time() - latest.taken_at > max_age:
            await view.recent(0.0, patience)

    def _bounded(self, status: Job, wanted: int) -> MoreTime:
        snapshot = self.spawner.connection().view.latest
        others = self.spawner.extend_when_others_wait
        return more_time(status, snapshot, wanted=wanted, now=time.time(), although_others_wait=others)

    # --- the right to raise time limits -----------------------------------------------------------

    @property
    def _permitted(self) -> bool:
        """An account for it is set, or the hub's own may; False while that is not known."""
        return bool(self.spawner.extend_prefix.strip()) or bool(self.spawner.connection().of(rights).latest)

    async def _read_rights(self, patience: float) -> None:
        if not self.spawner.extend_prefix.strip():
            await self.spawner.connection().of(rights).recent(RIGHTS, patience)

    # --- the spawner's state ----------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """What the profile allowed, how much of it was used, and what staff have added; empty without a job."""
        if not self.spawner.watch.job_id:
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


async def extend_server(spawner: Any, minutes: int | None = None, *, by: str = "", unlimited: bool = False) -> Extended:
    """Give a running server more time; see :meth:`ServerTime.extend`. Raises NotExtended where nothing runs, too."""
    of_server = kept_with(spawner, ServerTime)
    if of_server is None or not spawner.ready:
        raise NotExtended(Reason.NOT_RUNNING)
    return await of_server.extend(minutes, by=by, unlimited=unlimited)
