"""Whether the server of a Slurm job still runs: the hub's poll."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.hub.site.tasks import timeout
from jupyterhub_gpuspawner.jobs.status import Phase, sentence

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable

    from jupyterhub_gpuspawner.hub.ending.server_ending import ServerEnding
    from jupyterhub_gpuspawner.hub.start.job_watch import JobWatch

_SERVES = (Phase.RUNNING, Phase.ENDING)
"""Phases in which a server that the hub has found again may still run."""


async def status_or_running(status: Awaitable[int | None], *, name: str, log: logging.Logger) -> int | None:
    """The status of the server ``name`` as a poll returns it; None, it runs, where it cannot be determined.

    JupyterHub stops a server whose poll raises an exception in its first check after a restart.
    """
    try:
        return await status
    except Exception:  # what is not known has not ended
        log.exception("Whether the server of %s still runs could not be determined, and it is kept", name)
        return None


class PolledServer(Protocol):
    """What is needed of the server's spawner."""

    server: Any
    """The server's address; None where nothing runs."""

    @property
    def pending(self) -> str | None:
        """What JupyterHub is doing with it: ``spawn``, ``stop``, ``check`` or None."""

    def poll_and_notify(self) -> asyncio.Future[int | None]:
        """Poll the server, and have JupyterHub stop it if it has ended."""

    @property
    def slurm_timeout(self) -> float:
        """Seconds that a Slurm command may take."""

    @property
    def log(self) -> logging.Logger:
        """The hub's log."""

    def cancel_in_background(self) -> None:
        """Cancel the job, and try again until that works."""


class Liveness:
    """Polls one spawner's job. Only what Slurm reports ends a server; silence does not."""

    def __init__(self, server: PolledServer, job: JobWatch, ending: ServerEnding, *, name: str) -> None:
        """``name`` is the server's for the log."""
        self._server = server
        self._job = job
        self._ending = ending
        self._name = name

    async def exit_code(self) -> int | None:
        """None while the server may run; else the job's exit code, or 1 where that is 0 or unknown."""
        watch = self._job.watch()
        if watch.status is None:  # just restored after a restart of the hub
            with suppress(asyncio.TimeoutError):
                async with timeout(self._server.slurm_timeout):
                    await watch.changed()
        status = watch.status
        if status is None or not self._job.over():
            self._lives(status.phase if status is not None else None)
            return None
        if status.phase is not Phase.ENDED:
            self._server.log.warning(
                "Slurm requeued job %s of %s; its server is gone: cancelling it", self._job.job_id, self._name
            )
            self._server.cancel_in_background()
        await self._ending.keep_job_end(status)
        code = status.exit_code.partition(":")[0]
        self._server.log.info("Job %s of %s has ended: %s", self._job.job_id, self._name, sentence(status))
        return int(code) if code.isdigit() and int(code) else 1

    def _lives(self, phase: Phase | None) -> None:
        metrics.adopted(self._server, "running")
        if self._job.served_at is None and phase in _SERVES and self._server.pending != "spawn":
            self._job.served_at = 0.0  # since before this hub process
        if self._job.served_at is not None:
            self._job.look_out(self._server.poll_and_notify)
