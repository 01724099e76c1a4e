"""A watched job, and a watch on it. Nothing here runs a command."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.jobs.identity import JobIdentity
from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from jupyterhub_gpuspawner.jobs.status import JobStatus

HURRIED_QUESTIONS = 40
LONGEST_INTERVAL = 10.0
"""Seconds, while someone waits. It is reached when nothing has changed for ten minutes."""
_PART = 60.0
"""A change is seen after at most this part of the time for which there was none."""
WAITING = (Phase.QUEUED, Phase.STARTING, Phase.ENDING)


class Watched:
    """One job, shared by all its watches."""

    def __init__(self, job_id: str, identity: JobIdentity, *, new: bool = False) -> None:
        self.job_id = job_id
        self.identity = identity
        """Completed from the first answer."""
        self._new = new
        self._learns = identity != JobIdentity()
        self.status: JobStatus | None = None
        self.version = 0
        """Incremented on every change."""
        self.answers = 0
        """Number of answers that contained this job, including those without a change."""
        self.pending_at: float | None = None
        """When Slurm last reported it as pending, by the monotonic clock; None if it has not."""
        self.watches = 0
        self.turns: set[asyncio.Future[None]] = set()
        """Futures of those who wait for a change."""
        self.absent = 0
        """Consecutive good answers without the job."""
        self.hidden = False
        """Slurm does not show the job to this account, so its absence means nothing."""
        self.hurried = 0
        """Number of queries for which a change is still expected."""
        self.puzzling = False
        """The failure of its look-up has been logged."""

    def is_own(self, status: JobStatus) -> bool:
        """Whether Slurm's answer for this id is about this job."""
        own = self.identity.may_be(status) if self._new else self.identity.matches(status)
        if own:
            self._new = False
            if self._learns and not (self.identity.complete and self.identity.matches(status)):
                self.identity = self.identity.learnt(status)
        return own

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

    def wake(self) -> None:
        """Wake everyone who waits."""
        for turn in self.turns:
            if not turn.done():
                turn.set_result(None)

    def notify(self) -> None:
        """Record a change and wake everyone who waits."""
        self.version += 1
        self.wake()


def interval(open_jobs: Iterable[Watched], *, short: float, rest: float, unchanged: float) -> float:
    """Seconds between two queries about these jobs, of which the last change was ``unchanged`` seconds ago.

    ``rest`` while nobody waits. Else ``short``, or a sixtieth of the time without a change, up to
    :data:`LONGEST_INTERVAL`: who has waited for an hour may wait 10 s more for the news.
    """
    waited_for = [watched for watched in open_jobs if watched.waited_for]
    if not waited_for:
        return max(short, rest)
    if any(watched.expected for watched in waited_for):
        return short
    return max(short, min(LONGEST_INTERVAL, unchanged / _PART))


class Watch:
    """A watch on one job, until :meth:`close` (for example by ``contextlib.closing``)."""

    def __init__(
        self,
        watched: Watched,
        *,
        silent: Callable[[], bool],
        ask_soon: Callable[[], None],
        ask_now: Callable[[Watched], Awaitable[None]],
        unwatch: Callable[[Watched], None],
    ) -> None:
        self._watched = watched
        self._silent = silent
        self._ask_soon = ask_soon
        self._ask_now = ask_now
        self._unwatch = unwatch
        self._seen = watched.version
        self._closed = False

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._watched.job_id

    @property
    def identity(self) -> JobIdentity:
        """What distinguishes the job from another one with the same id, as far as is known."""
        return self._watched.identity

    def is_own(self, job: JobStatus) -> bool:
        """Whether Slurm's answer for the job's id is about this job."""
        return self._watched.is_own(job)

    @property
    def status(self) -> JobStatus | None:
        """The job as Slurm last reported it; None before the first answer. Never queries Slurm."""
        return self._watched.status

    @property
    def answers(self) -> int:
        """Number of Slurm's whole answers that contained the job; two are at least an interval apart."""
        return self._watched.answers

    @property
    def since_pending(self) -> float | None:
        """Seconds since Slurm last reported the job as pending; None if it has not."""
        at = self._watched.pending_at
        return None if at is None else time.monotonic() - at

    @property
    def stale(self) -> bool:
        """Slurm is not responding at the moment, or late; :attr:`status` is what it last reported."""
        return self._silent()

    @property
    def hidden(self) -> bool:
        """Slurm does not show the job to this account; :attr:`status` is what it last reported, or None."""
        return self._watched.hidden

    async def changed(self) -> JobStatus | None:
        """Wait until the status, :attr:`stale` or :attr:`hidden` differs from the last call; return the status.

        Several tasks may wait at the same time; each is told of the next change. Raises RuntimeError once the watch is
        closed.
        """
        seen = self._seen  # the first task that is told sets it for the next call
        while not self._closed and seen == self._watched.version:
            turn = asyncio.get_running_loop().create_future()
            self._watched.turns.add(turn)
            try:
                await turn
            finally:
                self._watched.turns.discard(turn)
        if self._closed:
            raise RuntimeError(f"the watch of job {self.job_id} is closed")
        self._seen = self._watched.version
        return self._watched.status

    def hurry(self, questions: int = HURRIED_QUESTIONS) -> None:
        """Use the short interval for so many queries, since a change is expected, such as the end after scancel."""
        self._watched.hurried = max(self._watched.hurried, questions)
        self._ask_soon()

    async def update(self) -> JobStatus | None:
        """Ask Slurm about this job alone and return its status, after a change by the hub that pages show at once.

        Raises SlurmUnavailable or SlurmOutputError if there is no answer; the status is then the last one.
        """
        await self._ask_now(self._watched)
        return self._watched.status

    def close(self) -> None:
        """End the watch; may be called more than once."""
        if not self._closed:
            self._closed = True
            self._watched.wake()
            self._unwatch(self._watched)
