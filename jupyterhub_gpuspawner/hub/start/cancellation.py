"""``scancel`` of one start's job, never of another job that got the same id later; tried again until it works."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count

from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.site.connection import Cluster
from jupyterhub_gpuspawner.slurm.accounts import refuse_root
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.job import JobIdentity

Cancel = Callable[[str], Awaitable[None]]
PAUSES = (2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds between tries; the last one repeats."""
TRUSTED = 60.0
"""Seconds after sbatch for which the id alone identifies the job if Slurm does not show its owner."""


@dataclass
class Cancellation:
    """Cancels one start's job; before each ``scancel`` it checks that the id still belongs to that job.

    A call raises SlurmUnavailable if Slurm does not answer whose job it is, and ConfigError if Slurm refuses or scancel
    cannot be run.
    """

    client: SlurmClient
    identity: JobIdentity
    username: str
    """Whose server the job is."""
    prefix: tuple[str, ...]
    """Runs scancel as the job's owner."""
    trusted_until: float | None = 0.0
    """Until then (monotonic clock) the id alone identifies the job; None: :data:`TRUSTED` seconds from the first call.
    """

    async def __call__(self, job_id: str) -> None:
        """Cancel the job; do nothing if it has ended, or if its id belongs to another job by now."""
        if self.trusted_until is None:
            self.trusted_until = time.monotonic() + TRUSTED
        trusted = time.monotonic() < self.trusted_until
        try:
            job = (await self.client.jobs([job_id])).get(job_id)
        except GPUSpawnerError:
            if not trusted:
                raise
            job = None
        # a job that squeue does not show may be hidden (PrivateData): scancel, run as its owner, knows more
        own = job is None or (self.identity.may_be(job) if trusted else self.identity.matches(job))
        if job is not None and not own:
            get_logger().warning(
                "Job %s is not cancelled: the id belongs to another job now, of %s; this hub's job (%s) is gone",
                *(job_id, job.user or "somebody", self.identity.tag),
            )
            return
        if self.prefix:
            await refuse_root(self.username)
        environment = {"USER": self.username, "LOGNAME": self.username}
        await self.client.cancel(job_id, prefix=self.prefix, environment=environment)


async def cancel_surely(cluster: Cluster, job_id: str, cancel: Cancel) -> None:
    """Cancel a job on this cluster, and try again until that works; a hub that is restarted finds the job again.

    A refusal is tried again, too: slurmctld may not find the account for a while, and an admin may mend the rights.
    """
    cluster.cancelling.add(job_id)
    try:
        await _cancel_until_done(job_id, cancel)
    finally:
        cluster.cancelling.discard(job_id)


async def _cancel_until_done(job_id: str, cancel: Cancel) -> None:
    for failures in count():
        try:
            await cancel(job_id)
        except GPUSpawnerError as error:
            if failures == 0:
                get_logger().error("Job %s is not cancelled yet; the hub will try again: %s", job_id, error)
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
        else:
            get_logger().info("Job %s is cancelled", job_id)
            return
