"""One job, and one who watches it. Nothing here asks Slurm."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.jobs.identity import JobIdentity
from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyterhub_gpuspawner.jobs.status import JobStatus

HURRIED_QUESTIONS = 40
WAITING = (Phase.QUEUED, Phase.STARTING, Phase.ENDING)


class Watched:
    """One job, for all who watch it."""

    def __init__(self, job_id: str, identity: JobIdentity, *, new: bool = False) -> None:
        self.job_id = job_id
        self.identity = identity
        """Grows by what the first answer adds to it."""
        self._new = new
        self._learns = identity != JobIdentity()
        self.status: JobStatus | None = None
        self.version = 0
        """Counts what was told."""
        self.answers = 0
        """Counts the answers that held this job, also those by which nothing changed."""
        self.watches = 0
        self.turns: set[asyncio.Future[None]] = set()
        """Of those who wait for a change."""
        self.absent = 0
        """Good answers in a row by which Slurm does not know the job."""
        self.hidden = False
        """Slurm does not show it to this account: that it is not told of means nothing."""
        self.hurried = 0
        """Questions for which it counts as waited for."""
        self.puzzling = False
        """It was said that its look-up failed."""

    def is_own(self, status: JobStatus) -> bool:
        """Whether what Slurm says under this number is said of this job."""
        own = self.identity.may_be(status) if self._new else self.identity.matches(status)
        if own:
            self._new = False
            if self._learns and not (self.identity.complete and self.identity.matches(status)):
                self.identity = self.identity.learnt(status)
        return own

    @property
    def ended(self) -> bool:
        """Slurm will tell nothing more of it."""
        return self.status is not None and self.status.phase is Phase.ENDED

    @property
    def waited_for(self) -> bool:
        """Someone waits for its next change."""
        if self.hidden:
            return False  # asking often would bring nothing
        return self.status is None or self.status.phase in WAITING or self.absent > 0 or self.hurried > 0

    def wake(self) -> None:
        """Let everyone who waits look again."""
        for turn in self.turns:
            if not turn.done():
                turn.set_result(None)

    def notify(self) -> None:
        """Something changed."""
        self.version += 1
        self.wake()


class Watch:
    """One who watches one job, until :meth:`close` (``contextlib.closing`` does it at the end of a block)."""

    def __init__(
        self,
        watched: Watched,
        *,
        silent: Callable[[], bool],
        ask_soon: Callable[[], None],
        unwatch: Callable[[Watched], None],
    ) -> None:
        self._watched = watched
        self._silent = silent
        self._ask_soon = ask_soon
        self._unwatch = unwatch
        self._seen = watched.version
        self._closed = False

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._watched.job_id

    @property
    def identity(self) -> JobIdentity:
        """What tells the job from another one under its number, as far as is known now."""
        return self._watched.identity

    def is_own(self, job: JobStatus) -> bool:
        """Whether what Slurm says under the job's number is said of this job."""
        return self._watched.is_own(job)

    @property
    def status(self) -> JobStatus | None:
        """The job as Slurm last told it; None until it has told. Never asks."""
        return self._watched.status

    @property
    def answers(self) -> int:
        """How many answers of Slurm's have held the job; silence is none. Two are at least an interval apart."""
        return self._watched.answers

    @property
    def stale(self) -> bool:
        """Slurm does not answer at the moment: :attr:`status` is the last that it told."""
        return self._silent()

    @property
    def hidden(self) -> bool:
        """Slurm does not show the job to this account: :attr:`status` is the last that it told, or None."""
        return self._watched.hidden

    async def changed(self) -> JobStatus | None:
        """Wait until the status, :attr:`stale` or :attr:`hidden` is another than at the last call; return the status.

        Raises RuntimeError once the watch is closed.
        """
        while not self._closed and self._seen == self._watched.version:
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
        """Ask that often in the short interval: a change is expected, such as the end after a scancel."""
        self._watched.hurried = max(self._watched.hurried, questions)
        self._ask_soon()

    def close(self) -> None:
        """Watch no longer; may be called twice."""
        if not self._closed:
            self._closed = True
            self._watched.wake()
            self._unwatch(self._watched)
