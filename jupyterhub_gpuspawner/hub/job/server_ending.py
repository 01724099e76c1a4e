"""Explains how a Slurm job's server ended, or why its start failed, and keeps that for the server's pages."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from jupyterhub_gpuspawner.errors import GPUSpawnerError, SubmitRejected
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.job.ending import Ending, contact_of, start_failed
from jupyterhub_gpuspawner.hub.job.log import outgrew_memory
from jupyterhub_gpuspawner.hub.site.tasks import timeout
from jupyterhub_gpuspawner.jobs.status import SILENT, End, JobStatus, Phase, admin_hint, advice, sentence
from jupyterhub_gpuspawner.records.cause import end_of_job, job_ended_in_start
from jupyterhub_gpuspawner.records.cause import start_failed as failed_start
from jupyterhub_gpuspawner.words import duration

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.hub.job.log import JobLog
    from jupyterhub_gpuspawner.hub.job.watch import JobWatch
    from jupyterhub_gpuspawner.records.cause import Cause

TIME_LIMIT = 5.0
"""Seconds to find out how a job ended, and to read its log."""
_BY_ITSELF = (End.FAILED, End.FINISHED)
_REQUEUED = "Slurm requeued the job, which ended its server."


class KeepsEnding(Protocol):
    """A spawner whose pages show how its last server ended."""

    ending: Ending | None


class ServerEnding:
    """Explains the end of one spawner's servers; the last one is kept as the ``ending`` of the spawner."""

    def __init__(self, job: JobWatch, log: JobLog, spawner: KeepsEnding) -> None:
        self._job = job
        self._log = log
        self._spawner = spawner

    @property
    def last(self) -> Ending | None:
        """How the last server ended, or why the last start failed; None where there is nothing to tell."""
        return self._spawner.ending

    @property
    def cause(self) -> Cause | None:
        """Why it ended; None where that is not kept."""
        return self.last.cause if self.last is not None else None

    def forget(self) -> None:
        """A new start begins."""
        self._keep(None)

    @property
    def contact(self) -> str:
        """Whom participants may ask."""
        return contact_of(self._spawner)

    def _keep(self, ending: Ending | None) -> None:
        self._spawner.ending = ending

    # --- starts that failed ---------------------------------------------------------------------

    def never_starts(self, status: JobStatus, *, why: str = "") -> Exception:
        """The error of a start whose job waits for what will not come; ``why`` is known better than from its reason."""
        ending = Ending(
            why or sentence(status),
            advice=advice(status, contact=self.contact),
            hint=f"Job {self._job.job_id}: {sentence(status)} {admin_hint(status)}".strip(),
            job_id=self._job.job_id,
            at=time.time(),
            cause=failed_start(SubmitRejected.reason),
        )
        self._keep(ending)
        return start_failed(
            f"{ending.what} {ending.advice}".strip(),
            reason=SubmitRejected.reason,
            status_code=SubmitRejected.status_code,
            ending=ending,
        )

    async def died(self, status: JobStatus, *, reported: bool) -> Exception:
        """The error of a start whose job has ended; ``reported``: the launcher had been heard of."""
        return await self.failed(
            f"Job {self._job.job_id} ended before your server was ready: {sentence(status)}",
            hint=advice(status, contact=self.contact),
            status_code=500 if status.end in _BY_ITSELF else 503,
            silent=SILENT if status.end in _BY_ITSELF and not reported else "",
            cause=job_ended_in_start(status.end),
        )

    def timed_out(self, seconds: float, known: str) -> Exception:
        """The error of a job that did not serve within ``seconds`` of its allocation; ``known`` is its last state."""
        what = words.TIMED_OUT.format(time=duration(seconds), known=known)
        return self._given_up(what, advice=words.TIMED_OUT_ADVICE, reason="timeout", status_code=503)

    def not_submitted(self, seconds: float) -> Exception:
        """The error of a start for which there was no job after ``seconds``."""
        what = words.NOT_SUBMITTED.format(time=duration(seconds))
        return self._given_up(what, advice=words.TRY_LATER, reason="timeout", status_code=503)

    def waited_too_long(self, seconds: float) -> Exception:
        """The error of a start whose job was pending for ``seconds``, the limit.

        Its status is below 500: JupyterHub counts others as failures, and exits after ``consecutive_failure_limit``.
        """
        return self._given_up(
            words.WAITED.format(time=duration(seconds)),
            advice=words.WAITED_ADVICE,
            hint=words.WAITED_HINT,
            reason="queue_timeout",
            status_code=409,
        )

    def _given_up(self, what: str, *, advice: str, hint: str = "", reason: str, status_code: int) -> Exception:
        advised = advice.format(contact=self.contact)
        cause = failed_start(reason)
        ending = Ending(what, advice=advised, hint=hint, job_id=self._job.job_id, at=time.time(), cause=cause)
        self._keep(ending)
        return start_failed(what, reason=reason, status_code=status_code, ending=ending)

    async def failed(
        self,
        what: str,
        *,
        hint: str,
        for_admin: str = "",
        reason: str = "job_ended",
        status_code: int,
        silent: str = "",
        cause: Cause | None = None,
    ) -> Exception:
        """The error of a start that failed, with the last lines of its job's log.

        ``hint`` is the advice; ``silent`` replaces it where the log has no line. ``cause`` is by default a start that
        failed for ``reason``.
        """
        cause = cause or failed_start(reason)
        advised = hint.format(contact=self.contact)
        ending = await self._completed(
            Ending(what, advice=advised, hint=for_admin, job_id=self._job.job_id, at=time.time(), cause=cause)
        )
        if silent and not ending.lines.strip():
            ending = replace(ending, advice=silent)
            self._keep(ending)
        place = f" Log file: {ending.log}" if ending.log else ""
        return start_failed(
            f"{what}{place}", detail=ending.lines, reason=reason, status_code=status_code, ending=ending
        )

    # --- servers that ended ---------------------------------------------------------------------

    async def keep_job_end(self, status: JobStatus) -> None:
        """Keep how the job of a server that ran has ended; only once, and not where the hub was asked to stop it."""
        if self.last is None and not self._job.stopping:
            at = status.ends_at if status.ends_at is not None else time.time()
            what = sentence(status) if status.phase is Phase.ENDED else _REQUEUED
            ending = Ending(
                what,
                advice=advice(status, contact=self.contact),
                job_id=self._job.job_id,
                at=at,
                served=True,
                cause=end_of_job(status.end),
            )
            await self._completed(ending, status)

    def stop_unconfirmed(self) -> None:
        """Slurm did not take the request to cancel the job: what is kept of the stop says so."""
        if self.last is not None and self.last.stopped:
            self._keep(replace(self.last, what=words.stop_unconfirmed(self._job.job_id)))

    async def _completed(self, ending: Ending, status: JobStatus | None = None) -> Ending:
        """``ending`` with what Slurm and the log add to it within :data:`TIME_LIMIT`; kept before and after."""
        self._keep(ending)
        with suppress(GPUSpawnerError, asyncio.TimeoutError):
            async with timeout(TIME_LIMIT):
                ending = await self._with_log(ending, status)
            self._keep(ending)
        return ending

    async def _with_log(self, ending: Ending, status: JobStatus | None) -> Ending:
        detail = await self._log.job()
        if detail is None:
            return ending
        if status is not None and status.end is End.TIME_LIMIT and detail.time_limit:
            ending = replace(ending, what=words.TIME_LIMIT.format(time=words.span(detail.time_limit)))
        if not detail.stdout_path:
            return ending
        lines = await self._log.last_lines(detail.stdout_path)
        if status is not None and outgrew_memory(status, lines):
            status = replace(status, state="OUT_OF_MEMORY", end=End.OUT_OF_MEMORY)
            told = advice(status, contact=self.contact)
            ending = replace(ending, what=sentence(status), advice=told, cause=end_of_job(status.end))
        return replace(ending, log=detail.stdout_path, lines=lines)
