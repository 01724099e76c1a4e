"""How a job ended, or why its server never came: in words, with what Slurm and the job's log add to them."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.errors import GPUSpawnerError, SubmitRejected
from jupyterhub_gpuspawner.hub.ending.failure import start_failed
from jupyterhub_gpuspawner.hub.ending.joblog import last_lines, outgrew_memory, shown
from jupyterhub_gpuspawner.hub.ending.record import Ending, RemembersEnding
from jupyterhub_gpuspawner.hub.pages.text import wait
from jupyterhub_gpuspawner.jobs.advice import SILENT, advice
from jupyterhub_gpuspawner.jobs.status import End, JobStatus, Phase, admin_hint, sentence

if TYPE_CHECKING:
    import logging

    from jupyterhub_gpuspawner.hub.site.connection import Connection

_LAST_WORD = 5.0
"""Seconds that may be spent on finding out how a job ended, and on its log."""
_BY_ITSELF = (End.FAILED, End.FINISHED)
_PUT_BACK = "Slurm took the job from its node and put it back to wait; the server that ran in it is gone."


class JobEnd(RemembersEnding):
    """A mixin for the spawner of Slurm jobs: the errors of starts that failed, and the endings that are kept."""

    if TYPE_CHECKING:  # what the spawner has
        job_id: str
        start_timeout: int
        wrapper_dir: str
        known: Any
        log: logging.Logger
        _log_name: str

        def connection(self) -> Connection: ...  # noqa: D102

        def as_user(self) -> tuple[str, ...]: ...  # noqa: D102

        def is_own(self, job: JobStatus) -> bool: ...  # noqa: D102

        @property
        def reported(self) -> asyncio.Event: ...  # noqa: D102

    _stopping = False
    """The hub was asked to stop this server."""

    def _hopeless(self, status: JobStatus) -> Exception:
        error = SubmitRejected(f"Job {self.job_id}: {sentence(status)}", hint=admin_hint(status))
        self.known.ending = Ending(
            error.message, advice=advice(status), hint=error.hint, job_id=self.job_id, at=time.time()
        )
        return start_failed(str(error), reason=error.reason, status_code=error.status_code, ending=self.known.ending)

    async def _died(self, status: JobStatus) -> Exception:
        return await self._failure(
            f"Job {self.job_id} ended before your server was ready: {sentence(status)}",
            hint=advice(status),
            status_code=500 if status.end in _BY_ITSELF else 503,
            silent=SILENT if status.end in _BY_ITSELF and not self.reported.is_set() else "",
        )

    def _too_late(self, known: str, *, hint: str = "") -> Exception:
        what = f"The server did not start within {self.start_timeout} s and is given up. Last known: {known}"
        self.known.ending = Ending(
            what,
            advice="Start again, or choose something smaller that is free sooner.",
            hint=hint,
            job_id=self.job_id,
            at=time.time(),
        )
        return start_failed(what, reason="timeout", status_code=503, ending=self.known.ending)

    async def _failure(
        self, what: str, *, hint: str, reason: str = "job_ended", status_code: int, silent: str = ""
    ) -> Exception:
        """A start that failed, with the end of its job's log; ``silent`` is the advice where no line of it is known."""
        ending = await self._last_word(Ending(what, advice=hint, job_id=self.job_id, at=time.time()))
        if silent and not ending.lines.strip():
            ending = self.known.ending = replace(ending, advice=silent)
        place = f" Its log: {ending.log}" if ending.log else ""
        return start_failed(
            f"{what}{place}", detail=ending.lines, reason=reason, status_code=status_code, ending=ending
        )

    async def _remember_end(self, status: JobStatus) -> None:
        """Note how a server ended that had run; once, and not where the hub was asked to stop it."""
        if self.known.ending is None and not self._stopping:
            at = status.ends_at if status.ends_at is not None else time.time()
            what = sentence(status) if status.phase is Phase.ENDED else _PUT_BACK
            told = Ending(what, advice=advice(status), job_id=self.job_id, at=at, served=True)
            await self._last_word(told, status)

    async def _remember_closed(self) -> None:
        """Note that a server whose job Slurm does not show answers no more."""
        if self.known.ending is None and not self._stopping:
            await self._last_word(
                Ending(wait.CLOSED, advice=wait.CLOSED_ADVICE, job_id=self.job_id, at=time.time(), served=True)
            )

    async def _last_word(self, told: Ending, status: JobStatus | None = None) -> Ending:
        """``told``, with what Slurm and the job's log add to it within some seconds; kept with the server."""
        self.known.ending = told
        with suppress(GPUSpawnerError, asyncio.TimeoutError):
            self.known.ending = await asyncio.wait_for(self._with_log(told, status), _LAST_WORD)
        ending: Ending = self.known.ending
        return ending

    async def job_log(self) -> tuple[str, str]:
        """The path of the job's log as Slurm names it, and its last lines; both may be empty."""
        told = Ending("")
        with suppress(GPUSpawnerError, asyncio.TimeoutError):
            told = await asyncio.wait_for(self._with_log(told, None), _LAST_WORD)
        return told.log, told.lines

    async def _with_log(self, told: Ending, status: JobStatus | None) -> Ending:
        detail = await self.connection().client.job(self.job_id)
        if detail is None or not self.is_own(detail):
            return told
        if status is not None and status.end is End.TIME_LIMIT and detail.time_limit:
            told = replace(told, what=wait.TIME_LIMIT.format(time=wait.span(detail.time_limit)))
        if not detail.stdout_path:
            return told
        lines = await self._last_lines(detail.stdout_path)
        if status is not None and outgrew_memory(status, lines):
            status = replace(status, state="OUT_OF_MEMORY", end=End.OUT_OF_MEMORY)
            told = replace(told, what=sentence(status), advice=advice(status))
        return replace(told, log=detail.stdout_path, lines=lines)

    async def _last_lines(self, path: str) -> str:
        """Where jobs belong to users, so do their logs: they are read as the user, or not at all."""
        owner = self.as_user()
        try:
            if owner and self.wrapper_dir:
                return shown(await self.connection().client.log_end(self.job_id, prefix=owner))
            # what an account of the hub's own may do is sbatch and scancel: sudo would refuse more, and report it
            return await last_lines(path, owner) if not owner or os.geteuid() == 0 else ""
        except GPUSpawnerError as error:
            self.log.warning("The log of job %s of %s cannot be shown: %s", self.job_id, self._log_name, error)
            return ""
