"""The Slurm job of one spawner's server: its status as the hub's watcher sees it, and whether its server runs.

:func:`verdict` decides when a start need not wait any longer: the job has ended, or can never start.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name
from jupyterhub_gpuspawner.hub.site.slurm_settings import SlurmSettings
from jupyterhub_gpuspawner.slurm.job import Job, JobIdentity, Phase, identity_from_json
from jupyterhub_gpuspawner.slurm.reason import IN_SERVICE, OutOfService, never_clears
from jupyterhub_gpuspawner.slurm.watcher import Watch
from jupyterhub_gpuspawner.tasks import first_of, timeout

_JOB_ID = re.compile(r"[0-9]{1,10}")
RUNNING_SECONDS = 10.0
"""Age in seconds of Slurm's last answer from which a page that says that a server runs has Slurm asked anew."""
ANSWER_POLL_SECONDS = 0.05
NOTIFY_RETRY_SECONDS = 4.0
"""Seconds until the hub tries again to note that a server has ended, while its database is away."""
BOOT_SECONDS = 15.0
"""Seconds for which the state of a node that boots is not asked for again."""


class JobWatch:
    """One server's job: its id, its identity, and its state as Slurm last reported it.

    The job is watched from the first question on; nothing here asks Slurm, except :meth:`update_boot`.
    """

    def __init__(self, spawner: SlurmSettings) -> None:
        self.spawner = spawner
        self.stopping = False
        """The hub was asked to stop the server: that its job ends is no news, and is not looked out for."""
        self._watch: Watch | None = None
        self._lookout: asyncio.Future[None] | None = None
        self.changed = asyncio.Event()
        """Set at the next news of the server: an answer of Slurm's, a report of its node."""
        self.forget()

    def forget(self) -> None:
        """There is no job."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self.job_id = ""
        """Slurm's job id; empty before the submission."""
        self.submitted_as: JobIdentity | None = None
        """The identity as submitted or stored; None where an earlier version has stored the server."""
        self.served_at: float | None = None
        """When the server answered, by the monotonic clock; None before that, 0 if another hub process saw it."""
        self._trusted_until = 0.0

    def notify(self) -> None:
        """Wake whoever waits for news of the server."""
        self.changed.set()
        self.changed = asyncio.Event()

    def submitted(self, job_id: str, identity: JobIdentity, *, trusted: float) -> None:
        """sbatch has returned ``job_id``; for ``trusted`` seconds that counts as the job's identity."""
        self.job_id = job_id
        self.submitted_as, self._trusted_until = identity, time.monotonic() + trusted

    def replaced(self, job_id: str, identity: JobIdentity) -> Watch | None:
        """The server's job is another one from now on; returns the watch of the former one, which the caller closes."""
        former, self._watch = self._watch, None
        self.submitted(job_id, identity, trusted=0.0)
        return former

    @property
    def trusted_until(self) -> float:
        """Until when (monotonic clock) the id alone identifies the job; 0 once Slurm has reported the job."""
        return self._trusted_until if self.status is None else 0.0

    @property
    def identity(self) -> JobIdentity:
        """What tells the server's job from another one under the same id."""
        if self._watch is not None:
            return self._watch.identity
        # stored by an earlier version, or by batchspawner: Slurm's first answer completes it
        return self.submitted_as if self.submitted_as is not None else self.spawner.expected_identity()

    def is_own(self, job: Job) -> bool:
        """Whether ``job``, which Slurm reports under the id, is the server's."""
        return self._watch.is_own(job) if self._watch is not None else self.identity.matches(job)

    @property
    def status(self) -> Job | None:
        """The job as Slurm last reported it; None until it has."""
        return self._watch.status if self._watch is not None else None

    @property
    def since_pending(self) -> float | None:
        """Seconds since Slurm last reported the job as pending to this process; None if it has not."""
        return self._watch.since_pending if self._watch is not None else None

    @property
    def silent(self) -> bool:
        """Slurm is not responding at the moment."""
        return self._watch is not None and self._watch.stale

    def watch(self) -> Watch:
        """The watch of this job, opened if it is not."""
        if self._watch is None:
            new = time.monotonic() < self._trusted_until
            self._watch = self.spawner.connection().watcher.watch(self.job_id, self.identity, new=new)
        return self._watch

    def over(self) -> bool:
        """Whether Slurm reports that the server's process is gone: the job has ended, or was requeued.

        It was requeued if it is pending by an answer that is surely newer than the server. Only an answer that shows
        the job counts: where Slurm hides it from now on, it was last seen pending.
        """
        status, since_pending = self.status, self.since_pending
        if status is None or status.phase is Phase.ENDED:
            return status is not None
        if status.phase is not Phase.QUEUED or since_pending is None or self.served_at is None:
            return False
        return time.monotonic() - since_pending > self.served_at + self.spawner.slurm_timeout

    async def until_ending(self) -> None:
        """Wait until Slurm reports that the job ends or has ended."""
        watch = self.watch()
        watch.hurry()
        with suppress(RuntimeError):  # the hub has forgotten the server meanwhile: its start has failed, too
            while watch.status is None or watch.status.phase not in (Phase.ENDING, Phase.ENDED):
                await watch.changed()

    async def first_status(self) -> Job | None:
        """The job as Slurm last reported it; after a restart of the hub it waits a while for the first report."""
        watch = self.watch()
        if watch.status is None:
            with suppress(asyncio.TimeoutError):
                async with timeout(self.spawner.slurm_timeout):
                    await watch.changed()
        return watch.status

    def serves(self) -> None:
        """The server answers now."""
        self.served_at = time.monotonic()
        self.poll_when_over()

    def poll_when_over(self) -> None:
        """Have JupyterHub poll the server, and act on its end, as soon as its process is gone."""
        if self._lookout is None or self._lookout.done():
            self._lookout = asyncio.ensure_future(self._poll_when_over())

    async def _poll_when_over(self) -> None:
        watch = self.watch()
        with suppress(RuntimeError):  # the hub has forgotten the server
            while not self.over():
                await watch.changed()
            # a poll that finds it running: the hub cannot note its end
            while self.job_id and not self.stopping and await self.spawner.poll_and_notify() is None:  # noqa: ASYNC110 - the database has no event
                await asyncio.sleep(NOTIFY_RETRY_SECONDS)

    async def update(self) -> Job | None:
        """Ask Slurm about the job now, so that all pages have the answer; raises SlurmUnavailable."""
        watch = self.watch()
        watch.hurry(2)  # an answer from before may still be under way
        return await watch.update()

    async def update_running(self, patience: float) -> None:
        """For a page that says that the server runs: have Slurm asked where its last answer is old.

        One question serves all jobs, and there is one in :data:`RUNNING_SECONDS` at most, however many pages are read.
        Returns after ``patience`` seconds at most.
        """
        watcher, watch = self.spawner.connection().watcher, self.watch()
        answered = watcher.last_answer
        if watcher.age is not None and watcher.age < RUNNING_SECONDS:
            return
        watch.hurry(1)
        with suppress(asyncio.TimeoutError):
            async with timeout(patience):
                while watcher.last_answer == answered:  # noqa: ASYNC110 - an answer without a change wakes nobody
                    await asyncio.sleep(ANSWER_POLL_SECONDS)

    async def update_boot(self, patience: float) -> None:
        """Update the hub's view of the job's node for :meth:`boot_seconds`; takes ``patience`` seconds at most."""
        latest, phase = self.spawner.connection().view.latest, self.status.phase if self.status is not None else None
        if phase is Phase.STARTING and latest is not None and latest.config.resume_timeout is not None:
            await self.spawner.connection().view.recent(BOOT_SECONDS, patience)

    def boot_seconds(self) -> int | None:
        """Seconds that the job's node may take to boot, while Slurm powers it on; None if it does not, as is known."""
        snapshot, status = self.spawner.connection().view.latest, self.status
        if snapshot is None or status is None or status.phase is not Phase.STARTING:
            return None
        node = snapshot.node_by_name.get(status.batch_host)
        boots = node is not None and not node.states.isdisjoint(("POWERED_DOWN", "POWERING_UP"))
        return snapshot.config.resume_timeout if boots else None

    def out_of_service(self) -> OutOfService:
        """Which nodes are out of service, where its job waits for them, as is known."""
        snapshot, status = self.spawner.connection().view.latest, self.status
        return IN_SERVICE if snapshot is None or status is None else snapshot.out_of_service(status)

    def to_state(self) -> dict[str, Any]:
        """The job's part of the spawner's state: its id and its identity."""
        if not self.job_id:
            return {}
        identity = self._watch.identity if self._watch is not None else self.submitted_as
        return {"job_id": self.job_id} | ({"identity": identity.to_json()} if identity is not None else {})

    def load(self, state: Mapping[str, Any]) -> None:
        """Read the job's part of the state. A job id that is not a number is dropped, with an error in the log."""
        job_id = str(state.get("job_id", ""))
        if job_id and not _JOB_ID.fullmatch(job_id):
            name = log_name(self.spawner)
            self.spawner.log.error("The stored job id %r of %s is not a number and is ignored", job_id, name)
            job_id = ""
        self.job_id = job_id
        self.submitted_as = identity_from_json(state.get("identity"))


VERDICT_POLL_SECONDS = 4.0
"""Seconds between two looks at a job that does not change; the watcher asks more often."""
VERDICT_QUESTIONS = 3
"""Questions to Slurm at the short interval until the next look."""


async def verdict(
    watch: Watch,
    *,
    on_status: Callable[[Job | None], None] = lambda _: None,
    sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
) -> Job:
    """Wait until the job has ended or can never start, and return the status that says so.

    Two answers in a row must say that it can never start: Slurm may report BadConstraints once while nodes register.
    While Slurm does not answer, nothing is decided. ``on_status`` is called at each look, with the status; None before
    the first one.
    """
    first: tuple[str, int] | None = None
    """A reason that never clears, and the number of the answer that gave it first."""
    while True:
        status = watch.status
        on_status(status)
        if status is not None and status.phase is Phase.ENDED:
            return status
        if status is None or not _never_starts(status):
            first = None
        elif first is None or first[0] != status.reason:
            first = status.reason, watch.answers
        elif watch.answers > first[1]:
            return status
        if status is None or status.phase is not Phase.QUEUED or first is not None:
            # to notice soon a job that ends before its launcher reports, and a second answer that it never starts
            watch.hurry(VERDICT_QUESTIONS)
        await first_of(watch.changed(), sleep(VERDICT_POLL_SECONDS))


def _never_starts(status: Job) -> bool:
    """Whether the job can never start; a held job can be released by its owner or an admin."""
    return status.phase is Phase.QUEUED and never_clears(status.reason) and not status.reason.startswith("JobHeld")
