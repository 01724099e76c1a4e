"""One watcher for all of the hub's jobs: one ``squeue`` per interval, however many are watched.

The interval is short while someone waits (for a job that is not yet running, or is ending) and long otherwise. In a
queue without changes it grows, see :func:`~jupyterhub_gpuspawner.slurm.watcher.interval`. A job missing from a good
answer is looked up with ``scontrol show job``. It counts as gone after two such answers in a row, provided that the
hub's account would see it (PrivateData); likewise if its id now belongs to another job. If Slurm does not answer, only
:attr:`JobWatcher.silent_since` and :attr:`JobWatcher.unanswered_since` change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.job import End, Job, JobIdentity, Phase

# A watch on one job. Nothing here runs a command.

HURRIED_QUESTIONS = 40
"""Queries in the short interval after :meth:`Watch.hurry`."""
LONGEST_INTERVAL = 10.0
"""Seconds, while someone waits. It is reached when nothing has changed for ten minutes."""
_QUIET_DIVISOR = 60.0
"""A change is seen after at most this part of the time for which there was none."""
ANY = JobIdentity()
"""The identity of a job of which only the id is known."""
WAITING = (Phase.QUEUED, Phase.STARTING, Phase.ENDING)


class Watch:
    """A watch on one job, until :meth:`close` (for example by ``contextlib.closing``)."""

    def __init__(self, watcher: JobWatcher, job_id: str, identity: JobIdentity, *, new: bool = False) -> None:
        self.job_id = job_id
        self.identity = identity
        """What distinguishes the job from another one with the same id; completed from the first answer."""
        self.status: Job | None = None
        """The job as Slurm last reported it; None before the first answer. Reading it does not query Slurm."""
        self.answers = 0
        """Number of Slurm's whole answers that contained the job; two are at least an interval apart."""
        self.pending_at: float | None = None
        """When Slurm last reported it as pending, by the monotonic clock; None if it has not."""
        self.absent = 0
        """Consecutive good answers without the job."""
        self.hidden = False
        """Slurm does not show the job to this account, so its absence means nothing."""
        self.hurried = 0
        """Number of queries for which a change is still expected."""
        self.puzzling = False
        """The failure of its look-up has been logged."""
        self._watcher = watcher
        self._new = new
        self._learns = identity != ANY
        self._version = self._seen = 0
        self._change = asyncio.Event()  # set, and replaced, by the next change
        self._closed = False

    def is_own(self, job: Job) -> bool:
        """Whether Slurm's answer for the job's id is about this job."""
        own = self.identity.may_be(job) if self._new else self.identity.matches(job)
        if own:
            self._new = False
            if self._learns and not (self.identity.complete and self.identity.matches(job)):
                self.identity = self.identity.completed_from(job)
        return own

    @property
    def owner(self) -> str:
        """The account whose job it is, as Slurm has said or else as it was submitted; empty if unknown."""
        return self.status.user if self.status is not None else self.identity.owner

    @property
    def ended(self) -> bool:
        """Slurm will report nothing more about it."""
        return self.status is not None and self.status.phase is Phase.ENDED

    @property
    def waited_for(self) -> bool:
        """Someone is waiting for its next change."""
        if self.hidden:
            return False  # frequent queries would not help
        return self.expected or (self.status is not None and self.status.phase in WAITING)

    @property
    def expected(self) -> bool:
        """Its next change is expected any moment: the first answer, its end after a look-up, or after scancel."""
        return self.status is None or self.absent > 0 or self.hurried > 0

    @property
    def since_pending(self) -> float | None:
        """Seconds since Slurm last reported the job as pending; None if it has not."""
        return None if self.pending_at is None else time.monotonic() - self.pending_at

    @property
    def stale(self) -> bool:
        """Slurm is not responding at the moment, or late; :attr:`status` is what it last reported."""
        return self._watcher.unanswered_since is not None

    async def changed(self) -> Job | None:
        """Wait until the status or :attr:`stale` differs from the last call; return the status.

        Several tasks may wait at the same time; each is told of the next change. Raises RuntimeError once the watch is
        closed.
        """
        version = self._seen  # the first task that is told sets it for the next call
        while not self._closed and version == self._version:
            await self._change.wait()
        if self._closed:
            raise RuntimeError(f"the watch of job {self.job_id} is closed")
        self._seen = self._version
        return self.status

    def notify(self) -> None:
        """Record a change and wake everyone who waits."""
        self._version += 1
        self._change.set()
        self._change = asyncio.Event()

    def hurry(self, questions: int = HURRIED_QUESTIONS) -> None:
        """Use the short interval for so many queries, since a change is expected, such as the end after scancel."""
        self.hurried = max(self.hurried, questions)
        self._watcher.ask_soon()

    async def update(self) -> Job | None:
        """Ask Slurm about this job alone and return its status, after a change by the hub that pages show at once.

        Raises SlurmUnavailable or SlurmOutputError if there is no answer; the status is then the last one.
        """
        await self._watcher.ask_now(self.job_id)
        return self.status

    def close(self) -> None:
        """End the watch; may be called more than once."""
        if not self._closed:
            self._closed = True
            self.notify()
            self._watcher.unwatch(self)


def interval(open_jobs: Iterable[Watch], *, short: float, rest: float, unchanged: float) -> float:
    """Seconds between two queries about these jobs, of which the last change was ``unchanged`` seconds ago.

    ``rest`` while nobody waits. Else ``short``, or a sixtieth of the time without a change, up to
    :data:`LONGEST_INTERVAL`: who has waited for an hour may wait 10 s more for the news.
    """
    waited_for = [watch for watch in open_jobs if watch.waited_for]
    if not waited_for:
        return max(short, rest)
    if any(watch.expected for watch in waited_for):
        return short
    return max(short, min(LONGEST_INTERVAL, unchanged / _QUIET_DIVISOR))


ACTIVE_INTERVAL = 2.25
"""Seconds. A squeue is two RPCs, so slurmctld gets less than one per second; changes are seen within three seconds."""
REST_INTERVAL = 30.0
"""Seconds; 240 RPCs per hour."""
LATE = 3.0
"""Seconds after which pages say that a query has no answer, while it may still get one."""
_LONGEST_PAUSE = 30.0
"""Maximum seconds between two queries while Slurm does not answer."""

SHOW_JOBS = (
    "Make the hub's account an operator (sacctmgr add user NAME account=root adminlevel=operator, or modify user NAME "
    "set if Slurm has it already), or take jobs out of PrivateData in slurm.conf."
)
"""What an administrator does where Slurm does not show the hub the jobs of its users."""


class JobSource(Protocol):
    """The part of :class:`~jupyterhub_gpuspawner.slurm.client.SlurmClient` that the watcher uses."""

    async def jobs(self, job_ids: Collection[str]) -> Mapping[str, Job]:
        """Those of the jobs that Slurm knows."""

    async def job(self, job_id: str) -> Job | None:
        """The details of one job, or None."""

    async def sees_jobs_of(self, user: str) -> bool:
        """Whether Slurm shows the hub's account the jobs of ``user``, or of everybody if no user is given."""


class JobWatcher:
    """Queries Slurm about all watched jobs with one command per interval; runs only while there are any.

    ``active_interval``, ``rest_interval`` and ``late`` in seconds. ``clock`` gives seconds since the epoch.
    """

    def __init__(
        self,
        client: JobSource,
        *,
        active_interval: float = ACTIVE_INTERVAL,
        rest_interval: float = REST_INTERVAL,
        late: float = LATE,
        log: logging.Logger | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.client = client
        self.active_interval = active_interval
        self.rest_interval = rest_interval
        self.last_answer: float | None = None
        """When Slurm last answered; None before the first answer."""
        self.silent_since: float | None = None
        """When Slurm stopped answering; None while it answers."""
        self.unanswered_since: float | None = None
        """The same from the query on that is :data:`LATE` or failed; None while Slurm answers in time."""
        self.log = log or get_logger()
        self._late = late
        self._clock = clock
        self._sleep = sleep
        self._watches: list[Watch] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._changed_at = clock()
        self._said_hidden = False

    def watch(self, job_id: str, identity: JobIdentity = ANY, *, new: bool = False) -> Watch:
        """Watch a job from now on; Slurm is queried at once unless it just was. Requires a running event loop.

        ``identity`` distinguishes the job from another one with the same id. ``new``: sbatch has just returned the id,
        so the first answer is the job's own even if a plugin has replaced comment and name.

        Raises ValueError for an id that is not a number, which would make the query fail for all jobs.
        """
        if not (job_id.isascii() and job_id.isdigit()):
            raise ValueError(f"{job_id!r} is not a valid job id")
        watch = Watch(self, job_id, identity, new=new)
        self._watches.append(watch)
        self._changed_at = self._clock()
        self._idle.clear()
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        return watch

    @property
    def age(self) -> float | None:
        """Seconds since Slurm last answered; None before its first answer."""
        return None if self.last_answer is None else self._clock() - self.last_answer

    def ask_soon(self) -> None:
        """Send the next query after the short interval, or at once where that is over; not while Slurm is silent."""
        self._changed_at = self._clock()
        self._wake.set()

    async def aclose(self) -> None:
        """End the task and close every watch."""
        for watch in list(self._watches):
            watch.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def unwatch(self, watch: Watch) -> None:
        """Take note that a watch was closed."""
        self._watches.remove(watch)
        if not self._watches:
            self._idle.set()
            self._wake.set()

    def _open(self) -> list[Watch]:
        return [watch for watch in self._watches if not watch.ended]

    async def _run(self) -> None:
        while watches := self._open():
            self._wake.clear()
            await self._ask(watches)
            await self._pause()

    async def _pause(self) -> None:
        if self._failures:
            await self._sleep_until(
                self._idle, min(_LONGEST_PAUSE, self.active_interval * 2.0 ** min(self._failures, 9))
            )
            return
        await self._sleep_until(self._idle, self.active_interval)  # also for a new watch
        unchanged = self._clock() - self._changed_at
        longer = interval(self._open(), short=self.active_interval, rest=self.rest_interval, unchanged=unchanged)
        if longer > self.active_interval:
            await self._sleep_until(self._wake, longer - self.active_interval)

    async def _sleep_until(self, event: asyncio.Event, seconds: float) -> None:
        tasks = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._sleep(seconds))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _ask(self, watches: Sequence[Watch]) -> None:
        late = asyncio.get_running_loop().call_later(self._late, self._unanswered, self._clock())
        try:
            jobs = await self.client.jobs({watch.job_id for watch in watches})
        except Exception as error:  # noqa: BLE001  the job is kept, and looked up again after the next answer
            self._silent(error)
            return
        finally:
            late.cancel()
        self._answered()
        absent = []
        for watch in watches:
            watch.hurried = max(0, watch.hurried - 1)
            if watch.job_id in jobs:
                self._statuses(watch, jobs[watch.job_id])
            else:
                absent.append(watch)
        await asyncio.gather(*(self._query(watch) for watch in absent if not watch.hidden))
        if missing := [watch for watch in absent if watch.hidden or (watch.absent > 1 and not watch.ended)]:
            await self._missing(missing)

    async def ask_now(self, job_id: str) -> None:
        """Ask Slurm about this job alone."""
        jobs = await self.client.jobs({job_id})
        for watch in self._watches:
            if watch.job_id in jobs:
                self._statuses(watch, jobs[watch.job_id])

    async def _query(self, watch: Watch) -> None:
        try:
            detail = await self.client.job(watch.job_id)
        except Exception as error:  # noqa: BLE001  the job is kept, and looked up again after the next answer
            if not isinstance(error, SlurmUnavailable) and not watch.puzzling:
                watch.puzzling = True
                self.log.warning("Job %s is missing in squeue's answer and is kept: %s", watch.job_id, error)
            return
        if detail is not None:
            self._statuses(watch, detail)
        else:
            watch.absent += 1

    def _statuses(self, watch: Watch, status: Job) -> None:
        if not watch.is_own(status):
            self._another(watch, status)
            return
        watch.absent = 0
        watch.answers += status is not watch.status  # the same object: only its state was asked for
        if status.phase is Phase.QUEUED:
            watch.pending_at = time.monotonic()
        watch.hidden = False
        self._notify(watch, status)

    def _another(self, watch: Watch, status: Job) -> None:
        watch.absent += 1
        if watch.absent > 1:
            self.log.warning(
                "Job id %s (%s) now belongs to another job, of %s: slurmctld lost its state, or job ids started over",
                *(watch.job_id, watch.identity.tag, status.user or "somebody"),
            )
            self._notify(watch, _gone(watch, End.REPLACED))

    async def _missing(self, missing: Collection[Watch]) -> None:
        """Handle jobs missing from two answers: they are gone, or hidden from this account."""
        owners = {watch.owner for watch in missing}
        try:
            visible = {owner: await self.client.sees_jobs_of(owner) for owner in owners}
        except Exception as error:  # noqa: BLE001  the job is kept, and looked up again after the next answer
            self.log.debug("It is not known whether Slurm shows all jobs: %s", error)
            return
        for watch in missing:
            if not visible[watch.owner]:
                watch.hidden = True
                self._name_hidden(watch)
            elif watch.hidden:  # the account may see it now: start counting again
                watch.hidden, watch.absent = False, 0
            else:
                self.log.warning("Slurm no longer has a record of job %s", watch.job_id)
                self._notify(watch, _gone(watch, End.VANISHED))
        if all(visible.values()):
            self._said_hidden = False

    def _name_hidden(self, watch: Watch) -> None:
        if not self._said_hidden:
            self._said_hidden = True
            self.log.error(
                "Slurm does not show the hub the jobs of its users. %s Noticed for job %s; running servers are kept.",
                *(SHOW_JOBS, watch.job_id),
            )

    def _notify(self, watch: Watch, status: Job) -> None:
        if status == watch.status:
            watch.status = status
            return
        if status.phase is Phase.UNKNOWN and (watch.status is None or watch.status.state != status.state):
            self.log.warning("Job %s has the unknown state %s and is kept", status.job_id, status.state)
        if watch.status is None or (status.phase, status.reason) != (watch.status.phase, watch.status.reason):
            self._changed_at = self._clock()
        watch.status = status
        watch.notify()

    def _answered(self) -> None:
        now = self._clock()
        if self.silent_since is not None:
            self.log.warning("Slurm is responding again, after %.0f s", now - self.silent_since)
            self.silent_since = None
        if self.unanswered_since is not None:
            self.unanswered_since = None
            self._notify_all()
        self._failures = 0
        self.last_answer = now

    def _silent(self, error: Exception) -> None:
        self._failures += 1
        if self.silent_since is None:
            self.silent_since = self._clock()
            expected = isinstance(error, GPUSpawnerError)
            self.log.warning(
                "Slurm is not responding; all servers are kept: %s", error, exc_info=None if expected else error
            )
            self._unanswered(self.silent_since)

    def _unanswered(self, since: float) -> None:
        if self.unanswered_since is None:
            self.unanswered_since = since
            self._notify_all()

    def _notify_all(self) -> None:
        for watch in self._watches:
            watch.notify()


def _gone(watch: Watch, end: End) -> Job:
    last = watch.status or Job(watch.job_id, Phase.UNKNOWN)
    return replace(last, phase=Phase.ENDED, end=end, state="", reason="", ends_at=None, exit_code="")
