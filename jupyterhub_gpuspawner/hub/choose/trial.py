"""Ask Slurm when a job would start, or why it would be refused, without submitting it (``sbatch --test-only``).

The command runs as the user. It makes slurmctld evaluate the whole cluster, so each user has one trial at a time, the
hub runs few at once, and answers are cached for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from itertools import takewhile
from weakref import WeakKeyDictionary, WeakValueDictionary

from traitlets.log import get_logger

from jupyterhub_gpuspawner.cluster.availability import Availability, Chance, availability, beyond
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.hub.site.account import allowed_groups, job_owner, refuse_root
from jupyterhub_gpuspawner.hub.site.connection import Connection
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import job_ids_of
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start.build import batch_job
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, queue_limit
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.slurm.squeue import WillRun

RETENTION_SECONDS = 30.0
"""Seconds for which an answer is cached."""
CONCURRENT_TRIALS = 3
"""Trials that run at once, of all users together."""
WAITING = 4
"""Trials of one user that may be queued or running; a further one is not made."""
PATIENCE = 12.0
"""Seconds that a request waits for its trial. The trial then goes on, and its answer is cached."""
SILENT = "Slurm is not responding at the moment"
_SOON = 90.0
"""A start within this many seconds is shown as now."""
_NEVER = 10 * 366 * 86400.0
"""Seconds. For a job that cannot start Slurm gives a time centuries ahead."""


def of_start(answer: WillRun, *, now: float) -> Availability:
    """Put Slurm's answer into words for a participant; ``now`` in seconds since the epoch."""
    if answer.starts_at - now > _NEVER:
        closed = f"partition {answer.partition} is closed, or you are not allowed to use it"
        return Availability(Chance.NEVER, closed, field="slurm.partition")
    more = f" and {len(answer.nodes) - 1} more" if len(answer.nodes) > 1 else ""
    where = f" on {answer.nodes[0]}{more}" if answer.nodes else ""
    soon = answer.starts_at - now <= _SOON
    sentence = f"would start now{where}" if soon else f"would start {{time}}{where}"
    return Availability(Chance.NOW if soon else Chance.LATER, sentence, answer.starts_at, nodes=answer.nodes)


def of_error(error: GPUSpawnerError) -> Availability:
    """Put Slurm's refusal, or the lack of an answer, into words for a participant."""
    if isinstance(error, SubmitRejected):
        clause = f"{error.for_user[:1].lower()}{error.for_user[1:].rstrip('.')}"
        return Availability(Chance.NEVER, clause, field=error.field)
    silent = isinstance(error, SlurmUnavailable)
    return _unknown(SILENT if silent else "this hub cannot check in advance when a job would start")


def _unknown(sentence: str) -> Availability:
    return Availability(Chance.UNKNOWN, sentence)


def undelayed(trial: Availability, by_snapshot: Availability | None) -> Availability:
    """The trial of a job that is able to start now by the snapshot: Slurm may refuse it, but not delay it.

    As soon as a job is pending in the partition, ``sbatch --test-only`` predicts a start after it, also where it waits
    for other devices than these, and the job then starts at once.
    """
    if by_snapshot is not None and by_snapshot.chance is Chance.NOW and trial.chance is Chance.LATER:
        return by_snapshot
    return trial


def directives(script: str) -> tuple[str, ...]:
    """Return the ``#SBATCH`` lines of a batch script that Slurm reads: those before the first command (sbatch(1))."""
    lines = (line.strip() for line in script.splitlines())
    head = takewhile(lambda line: not line or line.startswith("#"), lines)
    return tuple(line for line in head if line.startswith("#SBATCH"))


class Trials:
    """The trials of one connection to Slurm: limited in number, and cached for :data:`RETENTION_SECONDS` seconds.

    Equal questions of one user share one trial.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._cached: dict[tuple[Hashable, ...], tuple[float, asyncio.Future[Availability]]] = {}
        self._slots = asyncio.Semaphore(CONCURRENT_TRIALS)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By user: one of a user's trials runs at a time."""
        self._logged: set[str] = set()

    async def of(self, client: SlurmClient, script: str, *, user: str, prefix: tuple[str, ...]) -> Availability:
        """Try the job of this script; faults of Slurm or sudo are part of the answer.

        ``prefix`` runs a command as the user.
        """
        key = (user, prefix, directives(script))
        self._forget()
        if key not in self._cached:
            if sum(key[0] == user and not trial.done() for key, (_, trial) in self._cached.items()) >= WAITING:
                return _unknown("please wait: Slurm is still checking your earlier choices")
            turn = self._turns.setdefault(user, asyncio.Lock())
            question = asyncio.ensure_future(self._ask(client, script, user, prefix, turn))
            self._cached[key] = (self._clock() + RETENTION_SECONDS, question)
        trial = self._cached[key][1]
        await asyncio.wait({trial}, timeout=PATIENCE)
        return trial.result() if trial.done() else _unknown("Slurm is responding slowly")

    def _forget(self) -> None:
        now = self._clock()
        for key in [key for key, (until, trial) in self._cached.items() if until <= now and trial.done()]:
            del self._cached[key]

    async def _ask(
        self, client: SlurmClient, script: str, user: str, prefix: tuple[str, ...], turn: asyncio.Lock
    ) -> Availability:
        async with turn, self._slots:
            try:
                await refuse_root(user)
                answer = await client.test_only(script, prefix=prefix, environment={"USER": user, "LOGNAME": user})
            except GPUSpawnerError as error:
                self.log(error)
                return of_error(error)
        return of_start(answer, now=time.time())

    def log(self, error: GPUSpawnerError) -> None:
        """Log, once, a fault that only the administrator can repair."""
        if not isinstance(error, (SubmitRejected, SlurmUnavailable)) and str(error) not in self._logged:
            self._logged.add(str(error))
            get_logger().warning("Slurm cannot be asked in advance whether a job would start: %s", error)


_TRIALS: WeakKeyDictionary[Connection, Trials] = WeakKeyDictionary()


async def trial_of(spawner: GPUProfilesSpawner, request: JobRequest) -> Availability:
    """The trial of a request for a Slurm job, which this spawner could start. Raises RequestError.

    Slurm is not asked about a job that the cluster snapshot rules out, nor while it does not answer. Of several
    partitions the one that the snapshot finds best is tried, since --test-only evaluates only the first.
    """
    connection = spawner.connection()
    trials = _TRIALS.setdefault(connection, Trials())
    try:
        settings = spawner.settings_of(request)
        by_snapshot = await availability_of(spawner, request, await connection.cluster.recent(), now=time.time())
        if by_snapshot is not None and by_snapshot.chance is Chance.NEVER:
            return by_snapshot
        if by_snapshot is not None and by_snapshot.partition:
            resources = request.resources.model_copy(update={"partition": by_snapshot.partition})
            request = replace(request, resources=resources)
        if connection.silent:
            return _unknown(SILENT)
        job = batch_job(settings, request, await spawner.account(settings), start_id="")
        trial = await trials.of(connection.client, job.script, user=spawner.user.name, prefix=spawner.as_user())
        trial = undelayed(trial, by_snapshot)
        limit = queue_limit(request.queue_timeout, spawner.site_queue_limit)
        return replace(trial, sentence=trial.sentence + beyond(trial.starts_at, limit, now=time.time()))
    except ConfigError as error:
        trials.log(error)
        return of_error(error)


async def availability_of(
    spawner: GPUSlurmSpawner, request: JobRequest, snapshot: ClusterSnapshot | None, *, now: float
) -> Availability | None:
    """What a cluster snapshot says of a user's request for a Slurm job; None without one."""
    if snapshot is None:
        return None
    owner = job_owner(spawner.exec_prefix, spawner.user.name)
    groups = await allowed_groups(snapshot, owner)
    return availability(
        request.resources,
        snapshot,
        now=now,
        user=owner,
        shared=owner != spawner.user.name,
        own_jobs=job_ids_of([spawner.user]),
        groups=groups,
    )
