"""The trial of one choice before the click: what Slurm would do with the job, asked as the user, no job made.

``sbatch --test-only`` costs slurmctld a look at the whole cluster, so there is one at a time for a user, few for the
hub, and an answer counts for a while.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from traitlets.log import get_logger

from jupyterhub_gpuspawner.cluster.availability import Availability, Chance, availability
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.hub.site.account import allowed_groups, job_owner, refuse_root

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot
    from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
    from jupyterhub_gpuspawner.profiles.resolve import JobRequest
    from jupyterhub_gpuspawner.slurm.parse.trial import WillRun

KEPT = 30.0
"""Seconds that an answer counts."""
AT_ONCE = 3
"""Trials of all users together."""
WAITING = 4
"""Trials of one user that may wait for their turn."""
PATIENCE = 12.0
"""Seconds until whoever asked gets no answer; the trial goes on and is kept."""
_SOON = 90.0
_NO_TIME = 10 * 366 * 86400.0
"""Slurm puts a start that it cannot see centuries ahead."""


@dataclass(frozen=True)
class Trial:
    """What Slurm would do with a job; as :class:`Availability`, and where."""

    chance: Chance
    sentence: str
    starts_at: float | None = None
    """Seconds since the epoch."""
    nodes: tuple[str, ...] = ()
    """Where it would start."""
    field: str = ""
    """The profile's field at fault, such as ``slurm.time``; empty where none is."""


def of_start(told: WillRun, *, now: float) -> Trial:
    """What Slurm's answer means for a participant; ``now`` in seconds since the epoch."""
    if told.starts_at - now > _NO_TIME:
        return Trial(
            Chance.NEVER,
            f"Slurm sees no time when it could start: partition {told.partition} is closed, or not for you",
            field="slurm.partition",
        )
    more = f" and {len(told.nodes) - 1} more" if len(told.nodes) > 1 else ""
    where = f" on {told.nodes[0]}{more}" if told.nodes else ""
    if told.starts_at - now <= _SOON:
        return Trial(Chance.NOW, f"would start now{where}", told.starts_at, told.nodes)
    start, today = (datetime.fromtimestamp(moment).astimezone() for moment in (told.starts_at, now))
    days = (start.date() - today.date()).days
    day = "" if days == 0 else "tomorrow " if days == 1 else f"on {start:%Y-%m-%d} "
    return Trial(Chance.LATER, f"would start {day}at {start:%H:%M}{where}", told.starts_at, told.nodes)


def of_error(error: GPUSpawnerError) -> Trial:
    """What a refusal or silence means for a participant."""
    if isinstance(error, SubmitRejected):
        told = error.message.removeprefix("Slurm refused the job: ").rstrip(".")
        return Trial(Chance.NEVER, f"Slurm would refuse it: {told}", field=error.field)
    if isinstance(error, SlurmUnavailable):
        return Trial(Chance.UNKNOWN, "Slurm does not answer at the moment")
    return Trial(Chance.UNKNOWN, "this hub cannot ask Slurm beforehand")


def of_availability(told: Availability) -> Trial:
    """The same, from the snapshot."""
    return Trial(told.chance, told.sentence, told.starts_at, field=told.field)


def directives(script: str) -> tuple[str, ...]:
    """What Slurm reads of a batch script: its ``#SBATCH`` lines, which end at the first command (sbatch(1))."""
    lines = (line.strip() for line in script.splitlines())
    head = takewhile(lambda line: not line or line.startswith("#"), lines)
    return tuple(line for line in head if line.startswith("#SBATCH"))


class Trials:
    """The hub's trials: limited, shared by those who ask the same, and kept for :data:`KEPT` seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[Hashable, tuple[float, asyncio.Future[Trial]]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._of_user: WeakValueDictionary[str, _Turns] = WeakValueDictionary()
        self._told: set[str] = set()

    async def of(self, child: GPUSlurmSpawner) -> Trial:
        """The trial of a Slurm job that is prepared and not started; never raises for Slurm, sudo or the account.

        Raises RequestError or ConfigError where no batch script can be written.
        """
        account = await child.account()
        job = child.batch_job(account)
        key = (child.user.name, child.as_user(), directives(job.script))
        self._forget()
        if key not in self._kept:
            turns = self._of_user.get(child.user.name)
            if turns is None:
                turns = self._of_user[child.user.name] = _Turns()
            if turns.waiting >= WAITING:
                return Trial(Chance.UNKNOWN, "wait a moment: your earlier choices are being asked about")
            asked = asyncio.ensure_future(self._ask(child, job.script, turns.lock))
            turns.waiting += 1
            asked.add_done_callback(turns.done)
            self._kept[key] = (self._clock() + KEPT, asked)
        trial = self._kept[key][1]
        await asyncio.wait({trial}, timeout=PATIENCE)
        if not trial.done():
            return Trial(Chance.UNKNOWN, "Slurm takes its time to answer")
        return trial.result()

    def _forget(self) -> None:
        now = self._clock()
        for key in [key for key, (until, trial) in self._kept.items() if until <= now and trial.done()]:
            del self._kept[key]

    async def _ask(self, child: GPUSlurmSpawner, script: str, turn: asyncio.Lock) -> Trial:
        user = child.user.name
        async with turn, self._turns:
            try:
                await refuse_root(user)
                told = await child.connection().client.test_only(
                    script, prefix=child.as_user(), environment={"USER": user, "LOGNAME": user}
                )
            except GPUSpawnerError as error:
                self.tell(error)
                return of_error(error)
        return of_start(told, now=time.time())

    def tell(self, error: GPUSpawnerError) -> None:
        """Tell the admin, once, what a participant cannot mend."""
        if not isinstance(error, (SubmitRejected, SlurmUnavailable)) and str(error) not in self._told:
            self._told.add(str(error))
            get_logger().warning("Starts cannot be told before the click: %s", error)


class _Turns:
    """One user's."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0

    def done(self, _trial: asyncio.Future[Trial]) -> None:
        """One less waits."""
        self.waiting -= 1


async def trial_of(child: GPUSlurmSpawner) -> Trial:
    """The trial of a prepared child: what the snapshot rules out is not asked; nor is Slurm while it is silent.

    Of several partitions the one that the snapshot finds best is tried: --test-only looks at the first alone.
    """
    try:
        connection = child.connection()
        snapshot = await connection.cluster.recent()
        if snapshot is not None and child.request is not None:
            told = await _of_snapshot(child, child.request, snapshot)
            if told.chance is Chance.NEVER:
                return of_availability(told)
            if told.partition:
                resources = replace(child.request.resources, partition=told.partition)
                child.request = replace(child.request, resources=resources)
        if connection.cluster.silent:
            return Trial(Chance.UNKNOWN, "Slurm does not answer at the moment")
        return await connection.trials.of(child)
    except ConfigError as error:
        child.connection().trials.tell(error)
        return of_error(error)


async def _of_snapshot(child: GPUSlurmSpawner, request: JobRequest, snapshot: ClusterSnapshot) -> Availability:
    owner = job_owner(child.exec_prefix, child.user.name)
    groups = await allowed_groups(snapshot, owner)
    return availability(request.resources, snapshot, now=time.time(), user=owner, groups=groups)
