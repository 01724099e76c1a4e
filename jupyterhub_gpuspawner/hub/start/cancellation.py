"""``scancel`` of one start's job, never of another job that got the same id later."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.site.account import refuse_root

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyterhub_gpuspawner.jobs.identity import JobIdentity
    from jupyterhub_gpuspawner.slurm.client import SlurmClient

TRUSTED = 60.0
"""Seconds after sbatch for which the id alone identifies the job if Slurm does not show its owner."""


class Cancellation:
    """Cancels one start's job; before each ``scancel`` it checks that the id still belongs to that job.

    A call raises SlurmUnavailable if Slurm does not answer whose job it is, NotPermitted if Slurm refuses, and
    ConfigError if scancel cannot be run.
    """

    def __init__(
        self,
        client: SlurmClient,
        identity: JobIdentity,
        *,
        prefix: Sequence[str],
        environment: Mapping[str, str],
        trusted_until: float | None = 0.0,
    ) -> None:
        """``trusted_until`` is on the monotonic clock; None: :data:`TRUSTED` seconds from the first call."""
        self._client = client
        self._identity = identity
        self._prefix = tuple(prefix)
        self._environment = dict(environment)
        self._trusted_until = trusted_until

    async def __call__(self, job_id: str) -> None:
        """Cancel the job; do nothing if it has ended, or if its id belongs to another job by now."""
        if self._trusted_until is None:
            self._trusted_until = time.monotonic() + TRUSTED
        trusted = time.monotonic() < self._trusted_until
        try:
            found = (await self._client.jobs([job_id])).get(job_id)
        except GPUSpawnerError:
            if not trusted:
                raise
            found = None
        # a job that squeue does not show may be hidden (PrivateData): scancel, run as its owner, knows more
        own = found is None or (self._identity.may_be(found) if trusted else self._identity.matches(found))
        if found is not None and not own:
            get_logger().warning(
                "Job %s is not cancelled: the id belongs to another job now, of %s; this hub's job (%s) is gone",
                *(job_id, found.user or "somebody", self._identity.tag),
            )
            return
        if self._prefix:
            await refuse_root(self._environment["USER"])
        await self._client.cancel(job_id, prefix=self._prefix, environment=self._environment)
