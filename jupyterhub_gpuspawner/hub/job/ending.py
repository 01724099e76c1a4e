"""How a start failed or a server ended: what its page says, kept in the spawner's state until the next start.

:class:`ServerEnding` explains the end of a job's server, or why its start failed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import inspect
from tornado import web
from traitlets.log import get_logger

from jupyterhub_gpuspawner.cluster.availability import Chance, availability
from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.job.log import JobLog, outgrew_memory
from jupyterhub_gpuspawner.hub.job.watch import JobWatch
from jupyterhub_gpuspawner.hub.jupyterhub_compat import spawn_exception
from jupyterhub_gpuspawner.hub.site.account import allowed_groups, job_owner
from jupyterhub_gpuspawner.hub.site.connection import Connection
from jupyterhub_gpuspawner.hub.site.database import AWAY_MESSAGE, roll_back
from jupyterhub_gpuspawner.hub.site.tasks import timeout
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.records.record import Cause, end_of_job, job_ended_in_start, parse_cause
from jupyterhub_gpuspawner.records.record import start_failed as failed_start
from jupyterhub_gpuspawner.slurm.job import SILENT, End, Job, Phase, admin_hint, advice, sentence
from jupyterhub_gpuspawner.words import duration
from jupyterhub_gpuspawner.words import sentence as as_sentence

TEXT_LIMIT = 2000
"""Characters of each text that is kept."""


@dataclass(frozen=True)
class Ending:
    """Why the server does not run now. Every text must be escaped where it is shown."""

    what: str
    """What happened, for a participant: a sentence or two."""
    advice: str = ""
    """What the person may do."""
    hint: str = ""
    """What else an administrator should know, and could do: shown to administrators only."""
    job_id: str = ""
    at: float | None = None
    """Seconds since the epoch; None if unknown."""
    log: str = ""
    """The path of the job's log on the node."""
    lines: str = ""
    """The log's last lines."""
    profile: str = ""
    """The profile's display name, which its card shows; empty where there was none."""
    served: bool = False
    """The server had been running; False for a start that failed."""
    stopped: bool = False
    """A person stopped it, or the hub did: ``what`` says so, with ``{time}`` in the place of ``at``."""
    cause: Cause | None = None
    """The same as a value; None where an earlier version has stored it."""

    def to_json(self) -> dict[str, Any]:
        """For the spawner's state: the fields that are set, each text cut to its limit (``lines`` keeps its end)."""
        document = {key: value for key, value in asdict(self).items() if value}
        if self.cause is not None:
            document["cause"] = self.cause.to_json()
        return {
            key: value[-TEXT_LIMIT:] if key == "lines" else value[:TEXT_LIMIT] if isinstance(value, str) else value
            for key, value in document.items()
        }


_ENDING = TypeAdapter(Ending)


def ending_state(ending: Ending | None) -> dict[str, Any]:
    """The part of a spawner's state that keeps the ending of its last server."""
    return {"ending": ending.to_json()} if ending is not None else {}


def stored_ending(state: Mapping[str, Any]) -> Ending | None:
    """The ending in a spawner's state; None where there is none, or where it cannot be read."""
    document = state.get("ending")
    if not isinstance(document, dict):
        return None
    try:
        ending = _ENDING.validate_json(json.dumps({**document, "cause": None}), strict=True)
    except ValidationError:
        return None
    return replace(ending, cause=parse_cause(document.get("cause"))) if ending.what else None


# Converts our errors to the exceptions that JupyterHub shows on the form, in the progress stream, REST and the log.

_ADVICE = ((SubmitRejected, words.REFUSED), (SlurmUnavailable, words.TRY_LATER))


def spawn_failure(error: GPUSpawnerError, *, server: str = "a server", contact: str = words.CONTACT) -> web.HTTPError:
    """The exception to raise from ``start()`` or ``apply_user_options`` for one of our errors.

    JupyterHub shows its ``jupyterhub_html_message`` on the form and on the page after a failed start, and its message
    in the progress stream and in REST: these are for the participant, and ``contact`` is whom to ask. What the admin
    should know is logged, with the name of the server, and kept as the ending's ``hint``.
    """
    if isinstance(error, RequestError):
        message, ending = error.for_user, Ending(error.message, advice=error.hint)
    else:
        get_logger().error("The start of %s failed: %s", server, error)
        advised = next((text for kind, text in _ADVICE if isinstance(error, kind)), words.ASK).format(contact=contact)
        message, ending = f"{error.for_user} {advised}", Ending(error.for_user, advice=advised, hint=error.for_admin)
    return start_failed(message, ending=ending, reason=error.reason, status_code=error.status_code)


def start_failed(
    message: str,
    *,
    ending: Ending | None = None,
    detail: str = "",
    reason: str = "job_ended",
    status_code: int = 500,
) -> web.HTTPError:
    """The exception of a start that failed: a sentence, with ``detail`` (log lines) below it.

    ``ending`` is the same in its parts, for a page.
    """
    html = f"<p>{escape(message)}</p>"
    if detail:
        html += f'<pre class="text-start">{escape(detail)}</pre>'
    failure = spawn_exception(message, reason=reason, status_code=status_code, html=html, detail=detail)
    vars(failure)["gpuspawner_ending"] = ending or Ending(message, lines=detail)
    return failure


def database_away(orm_spawner: Any = None) -> web.HTTPError:
    """The exception of a start that failed with the hub's database; the session of ``orm_spawner`` is rolled back."""
    if orm_spawner is not None:
        roll_back(inspect(orm_spawner).session)
    return start_failed(AWAY_MESSAGE, reason="database", status_code=503)


def ending_of(failure: BaseException | None) -> Ending | None:
    """What a page says about an exception from this module; None for any other exception."""
    return getattr(failure, "gpuspawner_ending", None)


EXPLAIN_SECONDS = 5.0
"""Seconds to find out how a job ended, and to read its log."""
_BY_ITSELF = (End.FAILED, End.FINISHED)
_REQUEUED = "Slurm requeued the job, which ended its server."


class ServerEnding:
    """Explains the end of one spawner's servers."""

    def __init__(self, watch: JobWatch, log: JobLog) -> None:
        self._watch = watch
        self._log = log
        self.last: Ending | None = None
        """How the last server ended, or why the last start failed; kept until the next start."""

    def _ending(self, what: str, cause: Cause, *, advice: str, hint: str = "") -> Ending:
        return Ending(what, advice=advice, hint=hint, job_id=self._watch.job_id, at=time.time(), cause=cause)

    def _advice(self, status: Job) -> str:
        return advice(status, contact=self._watch.spawner.contact)

    # --- starts that failed ---------------------------------------------------------------------

    def never_starts(self, status: Job, *, why: str = "") -> Exception:
        """The error of a start whose job waits for what will not come; ``why`` is known better than from its reason."""
        what, text, rejected = why or sentence(status), self._advice(status), SubmitRejected
        hint = f"Job {self._watch.job_id}: {sentence(status)} {admin_hint(status)}".strip()
        self.last = self._ending(what, failed_start(rejected.reason), advice=text, hint=hint)
        message = f"{what} {text}".strip()
        return start_failed(message, ending=self.last, reason=rejected.reason, status_code=rejected.status_code)

    def timed_out(self, seconds: float, state: str) -> Exception:
        """The error of a job that did not serve within ``seconds`` of its allocation; ``state``: how far it was."""
        what = words.TIMED_OUT.format(time=duration(seconds), known=state)
        return self._timed_out(what, advice=words.TIMED_OUT_ADVICE)

    def not_submitted(self, seconds: float) -> Exception:
        """The error of a start for which there was no job after ``seconds``."""
        return self._timed_out(words.NOT_SUBMITTED.format(time=duration(seconds)), advice=words.TRY_LATER)

    def waited_too_long(self, seconds: float) -> Exception:
        """The error of a start whose job was pending for ``seconds``, the limit.

        Its status is below 500: JupyterHub counts others as failures, and exits after ``consecutive_failure_limit``.
        """
        what = words.WAITED.format(time=duration(seconds))
        return self._timed_out(what, "queue_timeout", 409, advice=words.WAITED_ADVICE, hint=words.WAITED_HINT)

    def _timed_out(
        self, what: str, reason: str = "timeout", status_code: int = 503, *, advice: str, hint: str = ""
    ) -> Exception:
        advice = advice.format(contact=self._watch.spawner.contact)
        self.last = self._ending(what, failed_start(reason), advice=advice, hint=hint)
        return start_failed(what, ending=self.last, reason=reason, status_code=status_code)

    async def died(self, status: Job, *, reported: bool) -> Exception:
        """The error of a start whose job has ended; ``reported``: the launcher had been heard of."""
        what = f"Job {self._watch.job_id} ended before your server was ready: {sentence(status)}"
        await self._complete(self._ending(what, job_ended_in_start(status.end), advice=self._advice(status)))
        by_itself = status.end in _BY_ITSELF
        if by_itself and not reported and self.last is not None and not self.last.lines.strip():
            self.last = replace(self.last, advice=SILENT)
        return self._with_log_file(what, "job_ended", 500 if by_itself else 503)

    async def unreachable(self, what: str, *, advice: str, hint: str, reason: str) -> Exception:
        """The error of a start whose server the hub cannot reach, with the last lines of its job's log."""
        advice = advice.format(contact=self._watch.spawner.contact)
        await self._complete(self._ending(what, failed_start(reason), advice=advice, hint=hint))
        return self._with_log_file(what, reason, 503)

    def _with_log_file(self, what: str, reason: str, status_code: int) -> Exception:
        ending = self.last or Ending(what)
        message = f"{what} Log file: {ending.log}" if ending.log else what
        return start_failed(message, ending=ending, detail=ending.lines, reason=reason, status_code=status_code)

    # --- servers that ended ---------------------------------------------------------------------

    async def keep_job_end(self, status: Job) -> None:
        """Keep how the job of a server that ran has ended; only once, and not where the hub was asked to stop it."""
        if self.last is None and not self._watch.stopping:
            what = sentence(status) if status.phase is Phase.ENDED else _REQUEUED
            ending = self._ending(what, end_of_job(status.end), advice=self._advice(status))
            at = status.ends_at if status.ends_at is not None else ending.at
            await self._complete(replace(ending, at=at, served=True), status)

    def stop_unconfirmed(self) -> None:
        """Slurm did not take the request to cancel the job: what is kept of the stop says so."""
        if self.last is not None and self.last.stopped:
            self.last = replace(self.last, what=words.STOP_UNCONFIRMED.format(job_id=self._watch.job_id, time="{time}"))

    async def _complete(self, ending: Ending, status: Job | None = None) -> None:
        """Keep ``ending``, and then with what Slurm and the log add to it within :data:`EXPLAIN_SECONDS`."""
        self.last = ending
        with suppress(GPUSpawnerError, asyncio.TimeoutError):
            async with timeout(EXPLAIN_SECONDS):
                self.last = await self._with_log(ending, status)

    async def _with_log(self, ending: Ending, status: Job | None) -> Ending:
        detail = await self._log.job()
        if detail is None:
            return ending
        if status is not None and status.end is End.TIME_LIMIT and detail.time_limit:
            ending = replace(ending, what=words.TIME_LIMIT.format(time=duration(detail.time_limit)))
        if not detail.stdout_path:
            return ending
        lines = await self._log.last_lines(detail.stdout_path)
        if status is not None and outgrew_memory(status, lines):
            status = replace(status, state="OUT_OF_MEMORY", end=End.OUT_OF_MEMORY)
            cause = end_of_job(status.end)
            ending = replace(ending, what=sentence(status), advice=self._advice(status), cause=cause)
        return replace(ending, log=detail.stdout_path, lines=lines)


async def why_never(connection: Connection, exec_prefix: str, request: JobRequest | None, *, since: float) -> str:
    """Why the job of a server can never run, in the words of the form; empty where the snapshot does not tell.

    ``since``: when the start began, in seconds since the epoch. An older snapshot may contradict what Slurm has just
    said, for example about a partition that was created in between.
    """
    if request is None:
        return ""
    snapshot = await connection.cluster.recent(max_age=time.time() - since)
    if snapshot is None:
        return ""
    owner = job_owner(exec_prefix, request.username)
    groups = await allowed_groups(snapshot, owner)
    fit = availability(request.resources, snapshot, now=time.time(), user=owner, groups=groups)
    return as_sentence(fit.sentence) if fit.chance is Chance.NEVER else ""
