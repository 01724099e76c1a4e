"""How one spawner's servers end and its starts fail: finds out why, and keeps it until the next start."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError, SubmitRejected
from jupyterhub_gpuspawner.hub.job.cause import (
    JOB_KILLED,
    JOB_NO_LOG,
    JOB_NODE_DRAINED,
    JOB_SILENT,
    Cause,
    Kind,
    Stage,
    end_of_job,
    job_ended_in_start,
    start_failed,
)
from jupyterhub_gpuspawner.hub.job.ending import Ending, ending_state, stored_ending
from jupyterhub_gpuspawner.hub.job.failed_start import (
    database_away,
    ending_of,
    log_failed_start,
    spawn_failure,
    start_error,
)
from jupyterhub_gpuspawner.hub.job.log import JobLog, outgrew_memory
from jupyterhub_gpuspawner.hub.job.watch import JobWatch
from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name
from jupyterhub_gpuspawner.hub.report.server_report import ServerReport
from jupyterhub_gpuspawner.hub.site.database import fault
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import Environment
from jupyterhub_gpuspawner.slurm.job import KILLED, NO_LOG, End, Job, Phase
from jupyterhub_gpuspawner.slurm.reason import Words, node_reason
from jupyterhub_gpuspawner.tasks import timeout
from jupyterhub_gpuspawner.wire.documents import LOG_MARK, SLURM_LINE, StartFailure

_BY_ITSELF = (End.FAILED, End.FINISHED)
BEFORE_SESSION_END_SECONDS = 180.0
"""Seconds before the end of a session from which a job's time limit is that end: it is lowered to whole minutes."""
EXPLAIN_SECONDS = 5.0
"""Seconds to find out how a job ended, and to read its log."""


class ServerEnding:
    """How one spawner's last server ended, or why its last start failed; only this writes that value.

    It is kept until the next start begins. What a person asked for counts more than what came of it, and the first end
    of a server more than what is found later.
    """

    def __init__(self, watch: JobWatch, report: ServerReport) -> None:
        self._watch = watch
        self._spawner: Any = watch.spawner
        self._report = report
        self._keeping = asyncio.Lock()
        self.last: Ending | None = None
        self.stopper: Kind | None = None
        """Who has asked JupyterHub itself to stop the server, for its record: its card does not say it."""

    def begin(self) -> None:
        """A start begins, and nothing of the last server counts."""
        self.last, self.stopper, self._watch.stopping = None, None, False

    def keep(self, ending: Ending | None) -> None:
        """Keep how the server was stopped, or what the hub has found out of one that is gone; None takes that back."""
        self.last = ending

    @property
    def cause(self) -> Cause | None:
        """Why the server ended, as the hub knows it; None where only Slurm may say."""
        if self.last is not None:
            return self.last.cause
        return Cause(self.stopper) if self.stopper is not None else None

    def of_profile(self, name: str, slug: str) -> None:
        """The server had this profile."""
        if self.last is not None:
            self.last = replace(self.last, profile=name, slug=slug)

    def load(self, state: Mapping[str, Any]) -> None:
        """Read the ending in a spawner's state."""
        self.last = stored_ending(state) if "ending" in state else None

    def to_state(self) -> dict[str, Any]:
        """The part of a spawner's state with the ending; empty where there is none."""
        return ending_state(self.last) if self.last is not None else {}

    def _ending(self, cause: Cause, job: Job | None, **facts: Any) -> Ending:
        return Ending(cause, at=time.time(), job_id=self._watch.job_id, job=job, **facts)

    def _error(self, ending: Ending, status_code: int = 503) -> Exception:
        log_failed_start(log_name(self._spawner), ending)
        return start_error(ending, status_code, contact=self._spawner.contact)

    @contextmanager
    def of_start(self) -> Iterator[None]:
        """Keep what ends the start in this block, and raise it as the exception that JupyterHub shows."""
        try:
            yield
        except Exception as error:
            failure = self.start_failed(error)
            if failure is error:
                raise
            raise failure from error

    def start_failed(self, error: Exception) -> Exception:
        """The exception that JupyterHub shows for what has ended a start, and whose ending is kept."""
        spawner = self._spawner
        if isinstance(error, GPUSpawnerError):
            error = spawn_failure(error, server=log_name(spawner), contact=spawner.contact)
        elif isinstance(error, SQLAlchemyError):
            get_logger().error("The start of %s failed: the hub's database: %s", log_name(spawner), fault(error))
            error = database_away(spawner.orm_spawner)
        self.last = self.last or ending_of(error)
        return error

    def never_starts(self, job: Job, *, why: str = "") -> Exception:
        """The error of a start whose job waits for what will not come; ``why`` is known better than from its reason."""
        cause = start_failed(SubmitRejected.reason)
        return self._error(self._ending(cause, job, quoted=Words(why)), SubmitRejected.status_code)

    async def took_too_long(self, stage: Stage, seconds: float) -> Exception:
        """The error of a start for which there was no job, no node or no server after ``seconds``.

        For the queue its status is below 500: JupyterHub counts others as failures, and exits after
        ``consecutive_failure_limit``.
        """
        fault, status_code = ("queue_timeout", 409) if stage is Stage.QUEUED else ("timeout", 503)
        facts = {"stage": stage, "seconds": seconds, "subject": self._watch.out_of_service().clause}
        ending = self._ending(start_failed(fault), self._watch.status, **facts)
        if stage is Stage.ALLOCATED:
            ending = await self._explained(ending)
        return self._error(ending, status_code)

    async def died(self, job: Job, *, stage: Stage) -> Exception:
        """The error of a start whose job has ended."""
        ending = await self._explained(self._ending(job_ended_in_start(job.end), job, stage=stage))
        if job.end is End.CANCELLED and (reason := await self._drained(job.batch_host or job.nodes)):
            ending = replace(ending, cause=start_failed(JOB_NODE_DRAINED), subject=reason)
        return self._error(ending, 500 if job.end in _BY_ITSELF else 503)

    async def _drained(self, node: str) -> str:
        """Slurm's reason why a node takes no more jobs, as after a Prolog that failed; empty while it does.

        Slurm cancels such a job, since it must not be requeued.
        """
        snapshot = await self._watch.spawner.connection().view.recent(0.0, EXPLAIN_SECONDS)
        nodes = snapshot.nodes if snapshot is not None else ()
        reason = next((drained.reason for drained in nodes if drained.name == node and "DRAIN" in drained.states), "")
        return node_reason(reason).text

    async def unreachable(self, fault: str, hint: str, *, seconds: float = 0.0) -> Exception:
        """The error of a start whose server the hub cannot reach, with the last lines of its job's log."""
        facts = {"stage": Stage.STARTING, "seconds": seconds, "quoted": Words(hint=hint)}
        return self._error(await self._explained(self._ending(start_failed(fault), self._watch.status, **facts)))

    async def keep_job_end(self, job: Job, *, planned: float | None = None) -> None:
        """Keep how the job of a server that ran has ended; only once, and not where the hub was asked to stop it.

        ``planned`` is when the session ends for which the server was started, in seconds since the epoch.
        """
        async with self._keeping:  # several polls may see the same end; each waits until it is explained
            if self.last is not None or self._watch.stopping:
                return
            ending = self._ending(end_of_job(job.end), job)
            at = job.ends_at if job.ends_at is not None else time.time()
            over = job.end is End.TIME_LIMIT and planned is not None and at >= planned - BEFORE_SESSION_END_SECONDS
            unexplained = self.last = replace(ending, at=at, session_over=over)
            explained = await self._explained(unexplained)
            if self.last is unexplained:
                self.last = explained

    async def keep_log_of_stop(self) -> None:
        """Keep the path of the log of a server that was stopped."""
        ending = self.last
        if ending is None or not ending.stopped or not ending.ran:
            return
        with suppress(GPUSpawnerError, asyncio.TimeoutError):
            async with timeout(EXPLAIN_SECONDS):
                log: JobLog = self._spawner.job_log
                job = await log.job()
                if job is not None and job.stdout_path and self.last is ending:
                    self.last = replace(ending, log=log.path(job.stdout_path))

    def stop_unconfirmed(self) -> None:
        """The first request to cancel the job failed: what is kept of the stop says so."""
        if self.last is not None and self.last.stopped:
            self.last = replace(self.last, unconfirmed=True)

    def stop_confirmed(self, job_id: str) -> bool:
        """The job has been cancelled after all. Return whether what is kept is its stop, which then says so."""
        if self.last is None or not self.last.unconfirmed or self.last.job_id != job_id:
            return False
        self.last = replace(self.last, unconfirmed=False)
        return True

    async def _explained(self, ending: Ending) -> Ending:
        """``ending`` with what the job has reported, and what Slurm and the log add within :data:`EXPLAIN_SECONDS`.

        Nothing is kept of a start before its error is raised: the server may answer meanwhile.
        """
        with suppress(GPUSpawnerError, asyncio.TimeoutError):
            async with timeout(EXPLAIN_SECONDS):
                ending = await self._with_log(ending)
        return with_failure(ending, self._report.failure)

    async def _with_log(self, ending: Ending) -> Ending:
        log: JobLog = self._spawner.job_log
        detail = await log.job()
        if detail is None:
            return ending
        job, path = ending.job or detail, detail.stdout_path
        job = replace(job, time_limit=detail.time_limit, memory_mib=detail.memory_mib)
        path = log.path(path) if path else ""
        lines = await log.last_lines(path) if path else ""
        if outgrew_memory(job, lines):
            job = replace(job, state="OUT_OF_MEMORY", end=End.OUT_OF_MEMORY)
            cause = end_of_job(job.end) if ending.served else job_ended_in_start(job.end)
            ending = replace(ending, cause=cause)
        return replace(ending, job=job, log=path, lines=lines)


def with_failure(ending: Ending, failure: StartFailure | None) -> Ending:
    """The ending of a start with what its job has reported of it, or else with the last line of its log.

    Where somebody or Slurm ended the job, that is the cause.
    """
    job, stage = ending.job, ending.stage
    if job is not None and job.phase is Phase.ENDED:
        return _with_end(ending, job, failure) if ending.failed and job.end in _BY_ITSELF else ending
    if not ending.failed or stage in (Stage.SUBMITTED, Stage.QUEUED):
        return ending
    if failure is not None:
        return _as_reported(ending, failure)
    return replace(ending, line=headline(ending.lines, ours_alone=True)) if stage is Stage.ALLOCATED else ending


def _with_end(ending: Ending, job: Job, failure: StartFailure | None) -> Ending:
    """The same for a job that has ended by itself."""
    fault = JOB_KILLED if job.exit_code in KILLED else JOB_NO_LOG if job.exit_code == NO_LOG else ""
    if fault:
        return replace(ending, cause=start_failed(fault))
    if failure is not None:
        return _as_reported(ending, failure)
    # our script ends with 0 only after a server that did, and has said so
    silent = not ending.lines.strip() or (job.end is End.FINISHED and not ending.has_our_line)
    if silent and ending.stage is not Stage.STARTING:
        return replace(ending, cause=start_failed(JOB_SILENT))
    return replace(ending, line=headline(ending.lines))


def _as_reported(ending: Ending, failure: StartFailure) -> Ending:
    return replace(ending, cause=start_failed(failure.fault), subject=failure.subject, line=failure.line)


def recorded_subject(ending: Ending, request: JobRequest | None) -> str:
    """What records keep of an ending's subject: a module or conda environment that the profile names, and no path.

    What a job reports is the word of its user, so anything else is left out.
    """
    environment = request.environment if request is not None else Environment()
    conda = (environment.conda,) if environment.conda is not None and "/" not in environment.conda else ()
    names = {"module": environment.modules, "conda": conda}.get(ending.cause.fault, ())
    return ending.subject if ending.subject in names else ""


def headline(lines: str, *, ours_alone: bool = False) -> str:
    """The line of a log that says most about why its job ended: our own last one, or else the last one.

    ``ours_alone`` is for a job that runs: what programs have written last does not say why no server came.
    """
    written = [line.strip() for line in lines.splitlines() if line.strip() and not re.match(SLURM_LINE, line)]
    ours = [line for line in written if line.startswith(LOG_MARK)]
    return (ours or (written if not ours_alone else []) or [""])[-1].removeprefix(LOG_MARK)
