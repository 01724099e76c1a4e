"""One watcher for all of the hub's jobs: one ``squeue`` per interval, however many are watched.

The interval is short while someone waits (a job that is not yet running, or is ending) and long at rest. A job that a
good answer does not hold is looked up with ``scontrol show job``; that it is gone is believed when two answers in a row
say so. No answer changes nothing but :attr:`JobWatcher.silent_since`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.job import End, JobDetail, JobStatus, Phase

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

_LONGEST_PAUSE = 30.0
"""Seconds between two questions, at most, while Slurm is silent."""
_HURRIED_QUESTIONS = 40
_WAITING = (Phase.QUEUED, Phase.STARTING, Phase.ENDING)


class JobSource(Protocol):
    """What the watcher needs of :class:`~jupyterhub_gpuspawner.slurm.client.SlurmClient`."""

    async def jobs(self, job_ids: Collection[str]) -> Mapping[str, JobStatus]:
        """Those of the jobs that Slurm knows."""

    async def job(self, job_id: str) -> JobDetail | None:
        """One job in full, or None."""


class _Watched:
    """One job, for all who watch it."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.status: JobStatus | None = None
        self.version = 0
        self.watches: set[Watch] = set()
        self.absent = 0
        """Good answers in a row by which Slurm does not know the job."""
        self.hurried = 0
        """Questions for which it counts as waited for."""
        self.puzzling = False
        """It was said that its look-up failed."""

    @property
    def ended(self) -> bool:
        return self.status is not None and self.status.phase is Phase.ENDED

    @property
    def waited_for(self) -> bool:
        return self.status is None or self.status.phase in _WAITING or self.absent > 0 or self.hurried > 0

    def notify(self) -> None:
        self.version += 1
        for watch in self.watches:
            watch._wake()


class Watch:
    """One who watches one job, until :meth:`close` (``contextlib.closing`` does it at the end of a block)."""

    def __init__(self, watcher: JobWatcher, watched: _Watched) -> None:
        self._watcher = watcher
        self._watched = watched
        self._seen = watched.version
        self._waiting: set[asyncio.Future[None]] = set()
        self._closed = False

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._watched.job_id

    @property
    def status(self) -> JobStatus | None:
        """The job as Slurm last told it; None until it has told. Never asks."""
        return self._watched.status

    @property
    def stale(self) -> bool:
        """Slurm does not answer at the moment: :attr:`status` is the last that it told."""
        return self._watcher.silent_since is not None

    async def changed(self) -> JobStatus | None:
        """Wait until the status, or :attr:`stale`, is another than when this was last called; return the status.

        Raises RuntimeError once the watch is closed.
        """
        while self._seen == self._watched.version or self._closed:
            if self._closed:
                raise RuntimeError(f"the watch of job {self.job_id} is closed")
            turn = asyncio.get_running_loop().create_future()
            self._waiting.add(turn)
            try:
                await turn
            finally:
                self._waiting.discard(turn)
        self._seen = self._watched.version
        return self._watched.status

    def hurry(self) -> None:
        """Ask in the short interval for a while: a change is expected, such as the end after a scancel."""
        self._watched.hurried = _HURRIED_QUESTIONS
        self._watcher._wake.set()

    def close(self) -> None:
        """Watch no longer; may be called twice."""
        self._closed = True
        self._wake()
        self._watcher._unwatch(self, self._watched)

    def _wake(self) -> None:
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)


class JobWatcher:
    """Asks Slurm about every watched job with one command per interval; runs only while there is one to ask about.

    ``active_interval`` and ``rest_interval`` in seconds. ``clock`` gives seconds since the epoch.
    """

    def __init__(
        self,
        client: JobSource,
        *,
        active_interval: float = 1.5,
        rest_interval: float = 30.0,
        log: logging.Logger | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.client = client
        self.active_interval = active_interval
        self.rest_interval = rest_interval
        self.last_answer: float | None = None
        """When Slurm last answered; None until it has."""
        self.silent_since: float | None = None
        """Since when it has not answered; None while it does."""
        self.log = log or get_logger()
        self._clock = clock
        self._sleep = sleep
        self._jobs: dict[str, _Watched] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failures = 0

    def watch(self, job_id: str) -> Watch:
        """Watch a job from now on; Slurm is asked at once unless it was asked just now. Needs the running loop."""
        watched = self._jobs.setdefault(job_id, _Watched(job_id))
        watch = Watch(self, watched)
        watched.watches.add(watch)
        self._idle.clear()
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        return watch

    def status(self, job_id: str) -> JobStatus | None:
        """A watched job as Slurm last told it; None where it is not watched or nothing is told yet. Never asks."""
        watched = self._jobs.get(job_id)
        return watched.status if watched is not None else None

    async def aclose(self) -> None:
        """End the task and close every watch."""
        for watched in list(self._jobs.values()):
            for watch in list(watched.watches):
                watch.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _unwatch(self, watch: Watch, watched: _Watched) -> None:
        watched.watches.discard(watch)
        if not watched.watches and self._jobs.get(watched.job_id) is watched:
            del self._jobs[watched.job_id]
            if not self._jobs:
                self._idle.set()
                self._wake.set()

    # --- the one task --------------------------------------------------------------------------

    def _open(self) -> list[_Watched]:
        return [watched for watched in self._jobs.values() if not watched.ended]

    async def _run(self) -> None:
        while asked := self._open():
            self._wake.clear()
            await self._ask(asked)
            await self._pause()

    async def _pause(self) -> None:
        if self._failures:
            await self._sleep_until(
                self._idle, min(_LONGEST_PAUSE, self.active_interval * 2.0 ** min(self._failures, 9))
            )
            return
        await self._sleep_until(self._idle, self.active_interval)  # a new watch too waits so long
        rest = self.rest_interval - self.active_interval
        if rest > 0 and not any(watched.waited_for for watched in self._open()):
            await self._sleep_until(self._wake, rest)

    async def _sleep_until(self, event: asyncio.Event, seconds: float) -> None:
        happened = asyncio.ensure_future(event.wait())
        slept = asyncio.ensure_future(self._sleep(seconds))
        try:
            await asyncio.wait({happened, slept}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            happened.cancel()
            slept.cancel()

    async def _ask(self, asked: Iterable[_Watched]) -> None:
        by_id = {watched.job_id: watched for watched in asked}
        try:
            found = await self.client.jobs(by_id)
        except Exception as error:  # noqa: BLE001  whatever it is, the watcher goes on
            self._silent(error)
            return
        self._answered()
        absent = []
        for job_id, watched in by_id.items():
            watched.hurried = max(0, watched.hurried - 1)
            if job_id in found:
                watched.absent = 0
                self._tell(watched, found[job_id])
            else:
                absent.append(watched)
        await asyncio.gather(*(self._look_up(watched) for watched in absent))

    async def _look_up(self, watched: _Watched) -> None:
        try:
            detail = await self.client.job(watched.job_id)
        except Exception as error:  # noqa: BLE001  it is kept, and looked up again after the next answer
            if not isinstance(error, SlurmUnavailable) and not watched.puzzling:
                watched.puzzling = True
                self.log.warning("Job %s is missing in squeue's answer, and is kept: %s", watched.job_id, error)
            return
        if detail is not None:
            watched.absent = 0
            self._tell(watched, detail)
            return
        watched.absent += 1
        if watched.absent > 1:
            self.log.warning("Slurm no longer knows job %s", watched.job_id)
            last = watched.status or JobStatus(watched.job_id, Phase.UNKNOWN)
            self._tell(watched, _vanished(last))

    def _tell(self, watched: _Watched, status: JobStatus) -> None:
        if status == watched.status:
            return
        if status.phase is Phase.UNKNOWN and (watched.status is None or watched.status.state != status.state):
            self.log.warning("Job %s has the state %s, which is not known; it is kept", status.job_id, status.state)
        watched.status = status
        watched.notify()

    def _answered(self) -> None:
        now = self._clock()
        if self.silent_since is not None:
            self.log.warning("Slurm answers again, after %.0f s", now - self.silent_since)
            self.silent_since = None
            self._notify_all()
        self._failures = 0
        self.last_answer = now

    def _silent(self, error: Exception) -> None:
        self._failures += 1
        if self.silent_since is None:
            self.silent_since = self._clock()
            expected = isinstance(error, GPUSpawnerError)
            self.log.warning(
                "Slurm does not answer; every server is kept: %s", error, exc_info=None if expected else error
            )
            self._notify_all()

    def _notify_all(self) -> None:
        for watched in self._jobs.values():
            watched.notify()


def _vanished(last: JobStatus) -> JobStatus:
    return JobStatus(
        job_id=last.job_id,
        phase=Phase.ENDED,
        nodes=last.nodes,
        batch_host=last.batch_host,
        user=last.user,
        partition=last.partition,
        starts_at=last.starts_at,
        end=End.VANISHED,
        tag=last.tag,
    )
