"""How a start failed or a server ended: a value of facts, kept in the spawner's state, and the words for it.

:class:`Ending` is the value, :func:`words_of` says what is shown of it, and :class:`ServerEnding` finds the facts out.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from jupyterhub.utils import AnyTimeoutError
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import inspect
from sqlalchemy.exc import SQLAlchemyError
from tornado import web
from traitlets.log import get_logger

from jupyterhub_gpuspawner.cluster.availability import availability
from jupyterhub_gpuspawner.errors import (
    ConfigError,
    GPUSpawnerError,
    RequestError,
    SlurmOutputError,
    SlurmUnavailable,
    SubmitRejected,
)
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.job.cause import STOPS, Cause, Kind, Stage, end_of_job, job_ended_in_start, start_failed
from jupyterhub_gpuspawner.hub.job.log import JobLog, outgrew_memory
from jupyterhub_gpuspawner.hub.job.watch import JobWatch
from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name, spawn_exception
from jupyterhub_gpuspawner.hub.report.server_report import ServerReport
from jupyterhub_gpuspawner.hub.site.connection import Cluster
from jupyterhub_gpuspawner.hub.site.database import UNAVAILABLE, roll_back
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import Environment
from jupyterhub_gpuspawner.slurm.accounts import allowed_groups
from jupyterhub_gpuspawner.slurm.estimate import Chance
from jupyterhub_gpuspawner.slurm.job import KILLED, NO_LOG, SILENT, End, Job, Phase, job_owner, job_words
from jupyterhub_gpuspawner.slurm.messages import rejected
from jupyterhub_gpuspawner.slurm.reason import NO_WORDS, Words
from jupyterhub_gpuspawner.tasks import timeout
from jupyterhub_gpuspawner.wire.documents import FAULTS_WITH_LINE, LOG_MARK, SLURM_LINE, StartFailure
from jupyterhub_gpuspawner.words import counted, duration, memory_used, nearest
from jupyterhub_gpuspawner.words import sentence as as_sentence

TEXT_LIMIT = 2000
"""Characters of each text that is kept."""


@dataclass(frozen=True)
class Ending:
    """Why the server does not run now: facts alone. What is said of them is :func:`words_of`'s."""

    cause: Cause
    at: float | None = None
    """Seconds since the epoch; None if unknown."""
    by: str = ""
    """Who stopped it, where that is not its user."""
    job_id: str = ""
    job: Job | None = None
    """The job as Slurm last reported it; None where it has not, or where that explains nothing."""
    stage: Stage | None = None
    """How far a start was that failed or was stopped, where that matters."""
    seconds: float = 0.0
    """The limit that a start has reached."""
    gpus: int = 0
    """How many GPUs a stop has released."""
    ran: float = 0.0
    """For how many seconds a server had run that was stopped; 0 where it had not, or that is not known."""
    said: str = ""
    """What extensions say of a server that had run, as a clause, such as how much of its GPUs was used."""
    why: str = ""
    """Why the hub has stopped it, as a clause that follows when; empty where a person did."""
    subject: str = ""
    """What kept a start from succeeding, as its job reported: a module, a command, a folder."""
    line: str = ""
    """The last line of a job that ended in its start; its user can have it say anything."""
    session_over: bool = False
    """The job reached the time limit that a session of its profile's occasion had set: a planned end."""
    unconfirmed: bool = False
    """The first request to cancel the job failed: Slurm did not answer, or Slurm, sudo or ssh refused it."""
    printed: str = ""
    """What sbatch printed when it refused the job."""
    quoted: Words = NO_WORDS
    """Words in the place of the cause's own: those of an error, of the form, or of an extension that stops a server.

    The sentence of a stop is a clause without its full stop: what became of the job follows it.
    """
    log: str = ""
    """The path of the job's log on the node."""
    lines: str = ""
    """The log's last lines."""
    profile: str = ""
    """The profile's display name, which its card shows; empty where there was none."""
    slug: str = ""
    """The profile's slug; empty where there was none."""

    @property
    def stopped(self) -> bool:
        """A person stopped it, or the hub did."""
        return self.cause.kind in STOPS

    @property
    def failed(self) -> bool:
        """It is that of a start, and nobody stopped it."""
        return self.cause.kind is Kind.START_FAILED

    @property
    def log_says_more(self) -> bool:
        """The log's last lines may say why it failed, and are more than the line that is shown as the reason."""
        lines = (line.strip() for line in self.lines.splitlines())
        more = (line for line in lines if line not in ("", self.line) and not line.startswith(LOG_MARK))
        return (self.failed or self.cause.kind is Kind.FAILED) and any(more)

    @property
    def served(self) -> bool:
        """The server had been running, and nobody stopped it."""
        return not self.stopped and not self.failed


_ENDING = TypeAdapter(Ending)


def ending_state(ending: Ending | None) -> dict[str, Any]:
    """The part of a spawner's state that keeps the ending of its last server; each text is cut to its limit."""
    if ending is None:
        return {}
    quoted = ending.quoted
    ending = replace(
        ending,
        subject=ending.subject[:TEXT_LIMIT],
        line=ending.line[:TEXT_LIMIT],
        lines=ending.lines[-TEXT_LIMIT:],
        quoted=Words(*(text[:TEXT_LIMIT] for text in (quoted.sentence, quoted.advice, quoted.hint))),
    )
    return {"ending": _ENDING.dump_python(ending, mode="json", exclude_defaults=True)}


def stored_ending(state: Mapping[str, Any]) -> Ending | None:
    """The ending in a spawner's state; None where there is none, or where it cannot be read."""
    document = state.get("ending")
    if not isinstance(document, dict):
        return None
    try:
        text = json.dumps(document)
        ending = _ENDING.validate_json(text, strict=True)
        measured = _MEASURED.validate_json(text, strict=True)
    except ValidationError:
        return None
    return replace(
        ending,
        said=ending.said or measured.said(ending),
        why=ending.why or measured.why(ending),
        quoted=measured.quoted(ending),
    )


@dataclass(frozen=True)
class _Measured:
    """What hubs stored before extensions gave the words; read until no such hub can be upgraded."""

    mean_use: float | None = None
    """Of the GPUs in the last hour, in per cent."""
    memory_max_mib: int = 0
    most: float = 0.0
    """The highest use while the server was idle: of a GPU in per cent; without GPUs, in cores."""
    held_mib: int = 0
    course: str = ""
    """The title of the course for which a server was started that nobody opened."""

    def said(self, ending: Ending) -> str:
        used = f"{nearest(self.mean_use)}\N{NO-BREAK SPACE}%" if ending.gpus and self.mean_use is not None else ""
        whose = "its GPUs were" if ending.gpus > 1 else "its GPU was"
        facts = [f"{whose} used {used} on average"] if used else []
        if self.memory_max_mib:
            facts.append(f"at most {memory_used(self.memory_max_mib, None)} of memory was in use")
        last = "in its last hour " if facts and ending.ran > 3600 else ""
        return last + ", and ".join(facts)

    def why(self, ending: Ending) -> str:
        if ending.cause.kind is not Kind.IDLE:
            return ""
        whose = {0: "it", 1: "its GPU"}.get(ending.gpus, "its GPUs")
        most = f"{nearest(self.most)} %" if ending.gpus else f"{self.most:.2f} cores"
        held = self.held_mib if ending.gpus and self.held_mib >= 1024 else 0
        most += f", {memory_used(held, None)} of GPU memory held" if held else ""
        return f"because it was idle: {whose} had not been used for {duration(ending.seconds)} (at most {most})"

    def quoted(self, ending: Ending) -> Words:
        if not self.course or not ending.stopped:
            return ending.quoted
        return Words(f"Nobody opened this server after {self.course} had begun, so it was stopped at {{time}}")


_MEASURED = TypeAdapter(_Measured)


# What is said of an ending. A new cause has its words here; what else they name is a field of :class:`Ending`.

_BY_ITSELF = (End.FAILED, End.FINISHED)
_RETRY = "Start again. If it happens again, contact {contact}."
_REQUEUE = "Start again; the new server may have to wait in the queue."
_ASK = "Please contact {contact}."
_NOTHING_REPORTED = (
    "Start again. If it happens again, look for what asks a question or takes long in ~/.bash_profile, ~/.bash_login "
    "or ~/.profile, or contact {contact}."
)
_TRY_LATER = (
    "Try again in a minute; if it still fails, contact {contact}. Servers that are already running are not affected."
)
_REFUSED = "Choose something else, or something smaller; if that does not help, contact {contact}."
_STARTS_IN_WORDS: Mapping[tuple[str, Stage | None], Words] = {
    ("timeout", None): Words("The server was started but did not respond to the hub in time.", _RETRY),
    ("timeout", Stage.SUBMITTED): Words(
        "Slurm did not accept the job within {time}, so the start was cancelled.", _TRY_LATER
    ),
    ("timeout", Stage.ALLOCATED): Words(
        "{Your} server did not start within {time} after Slurm had started its job, so the start was cancelled. "
        "Last known state: {job}",
        _RETRY,
    ),
    ("timeout", Stage.STARTING): Words(
        "{Your} server was started but did not respond to the hub within {time}.", _RETRY
    ),
    ("queue_timeout", None): Words(
        "{You} waited {time} in the queue, which is the limit here; the start was cancelled, and {your} place given "
        "up.",
        "Start again, or choose fewer resources: a smaller job may start sooner.",
        "The limit is queue_timeout, of the profile or of c.GPUSlurmSpawner.",
    ),
    ("hook", None): Words(
        "The hub could not prepare {your} server.",
        "This was not caused by you: please tell {contact}.",
        "A hook of this hub's configuration failed; its log says more.",
    ),
    ("unreachable", None): Words("{Your} server was started, but the hub cannot reach it.", _ASK),
    ("hub_restarted", None): Words(
        "The hub was restarted while {your} server was being started. Job {job_id}, which had been submitted for it, "
        "has been cancelled. Please start {your} server again."
    ),
    ("hub_restarted", Stage.SUBMITTED): Words(
        "The hub was restarted while {your} server was kept for later, and the start was given up.",
        "Please start {your} server again.",
    ),
    ("database", None): Words(
        "The hub's database did not respond while {your} server was being started.", "Please start it again."
    ),
    ("database", Stage.READY): Words(
        "The hub's database failed while {your} server was being started or stopped, and the server is gone.",
        "Please start it again.",
    ),
    (SubmitRejected.reason, None): Words(advice=_REFUSED),
    (SlurmUnavailable.reason, None): Words(advice=_TRY_LATER),
    **{(error.reason, None): Words(advice=_ASK) for error in (GPUSpawnerError, ConfigError, SlurmOutputError)},
}
"""Why a start failed, by the fault and how far it was; the sentence of an error is its own.

``{Your}``, ``{your}`` and ``{You}`` in a sentence depend on its reader: :func:`words_of`.
"""
_MISSING = "The profile needs it: please tell {contact}."
_OF_A_LINE = "If this does not help you, send it to {contact}."
_NOT_YOURS = "This was not caused by you. Start again: Slurm uses another node if one is available."
_LOG_DIR = "{subject} on {node}: see log_dir."
_TMPDIR = "{subject}: look at its owner and mode, and at TMPDIR."
_OF_REPORTS: Mapping[str, Words] = {
    "module_command": Words("There is no module command on {node}.", _MISSING),
    "module_path": Words("The modules in {subject} cannot be used on {node}.", _MISSING),
    "module": Words("The module {subject} cannot be loaded on {node}.", _MISSING),
    "conda_command": Words("There is no conda command on {node}.", _MISSING),
    "conda": Words("The conda environment {subject} cannot be activated on {node}.", _MISSING),
    "venv": Words("The virtual environment {subject} cannot be activated on {node}.", _MISSING),
    "setup": Words("The profile's setup ended the job before {your} server was started.", _OF_A_LINE, "See `setup`."),
    "prologue": Words(
        "The site's own lines ended the job before {your} server was started.", _OF_A_LINE, "See `req_prologue`."
    ),
    "launcher": Words(
        "No folder on {node} could hold the program that starts {your} server.",
        _ASK,
        "Make room in /tmp and /dev/shm, and look at TMPDIR and the home folder there; its log says what each lacks.",
    ),
    "script": Words("The site's batch script ended before {your} server was ready.", _OF_A_LINE, "See `batch_script`."),
    "command": Words(
        "There is no command {subject} on {node}.",
        _MISSING,
        "The job's environment lacks it: see `cmd`, and the modules and the environment of the profile.",
    ),
    "command_refused": Words("The command {subject} cannot be run on {node}.", _MISSING, "Look at its mode."),
    "server": Words("The server ended before it was ready.", "The log may say more. " + _OF_A_LINE),
    "home_full": Words(
        "{Your} home folder is full.",
        "Delete what you no longer need, or move it elsewhere, and start again; or ask {contact} for more room.",
        "{subject} takes no more bytes or files on {node}: a quota, or the file system itself.",
    ),
    "home_unwritable": Words(
        "{Your} home folder cannot be written on {node}.",
        _ASK,
        "{subject}: look at how it is mounted there, and at its owner and mode.",
    ),
    "home_silent": Words(
        "{Your} home folder does not answer on {node}.",
        "This was not caused by you. Try again in a few minutes; if it still fails, contact {contact}.",
        "A write to {subject} took too long: look at the file server, and at the node's mounts.",
    ),
    "log_full": Words("The folder of the server's log is full.", _ASK, _LOG_DIR),
    "log_silent": Words("The folder of the server's log does not answer.", _ASK, _LOG_DIR),
    "tmp_full": Words("The folder for temporary files on {node} is full.", _ASK, "Remove what is left in {subject}."),
    "tmp_unwritable": Words("The folder for temporary files on {node} cannot be written.", _ASK, _TMPDIR),
    "tmp_silent": Words("The folder for temporary files on {node} does not answer.", _ASK, _TMPDIR),
}
"""What a job has reported of its start. ``{node}`` is where it ran, ``{subject}`` what the report names."""
_UNEXPLAINED = Words(words.START_FAILED)


_TO_USER = {"Your": "Your", "your": "your", "You": "You"}
_TO_OTHERS = {"Your": "The", "your": "the", "You": "The server"}


def words_of(ending: Ending, *, title: str = "", contact: str = words.CONTACT, to_user: bool = True) -> Words:
    """What is shown of an ending, always with a sentence; ``{time}`` in it stands for :attr:`Ending.at`. Escape it.

    ``title`` is the server's, and names one that was stopped; ``contact`` is whom its user may ask. With
    ``to_user=False`` the sentence is for somebody else, such as an instructor; advice is always for the user.
    """
    if ending.stopped:
        return Words(_of_stop(ending, title))
    own, quoted = _of_facts(ending, contact, _TO_USER if to_user else _TO_OTHERS), ending.quoted
    text = (quoted.advice or own.advice).replace("{contact}", contact)
    return Words(quoted.sentence or own.sentence, text, quoted.hint or own.hint)


def _of_facts(ending: Ending, contact: str, whose: Mapping[str, str]) -> Words:
    job = ending.job or Job(ending.job_id, Phase.ENDED)
    of_job = job_words(job, contact=contact)
    if ending.failed:
        return _of_start(ending, of_job, whose)
    if job.phase is not Phase.ENDED:
        return Words("Slurm requeued the job, which ended its server.", _REQUEUE)
    if ending.session_over:
        return Words(words.SESSION_OVER, words.FILES_KEPT)
    return Words(of_job.sentence, of_job.advice)


def _of_start(ending: Ending, of_job: Words, whose: Mapping[str, str]) -> Words:
    job, fault = ending.job, ending.cause.fault
    if (reported := _OF_REPORTS.get(fault)) is not None:
        return _of_report(ending, reported, of_job, whose)
    if job is not None and job.phase is Phase.ENDED:
        return _of_end(ending, of_job, whose["your"])
    if job is not None and fault == SubmitRejected.reason:
        return replace(of_job, hint=f"Job {ending.job_id}: {of_job.sentence} {of_job.hint}".strip())
    if ending.printed:
        refusal = rejected(ending.printed)
        return Words(refusal.for_user, _REFUSED, refusal.for_admin)
    of_start = _STARTS_IN_WORDS.get((fault, ending.stage)) or _STARTS_IN_WORDS.get((fault, None), _UNEXPLAINED)
    last_state = words.SUBMITTED_AS if job is None else words.ABOUT_JOB
    facts = {**whose, "job_id": ending.job_id, "time": duration(ending.seconds)}
    facts["job"] = last_state.format(text=of_job.sentence, **facts)
    if ending.stage is Stage.ALLOCATED and fault == "timeout" and not ending.line:
        of_start = replace(of_start, advice=_NOTHING_REPORTED)
    return replace(of_start, sentence=_with_line(of_start.sentence.format(**facts), ending.line))


def _of_end(ending: Ending, of_job: Words, your: str) -> Words:
    """Such as ``Job 7 ended before your server was ready: The node of the job failed.``."""
    text = f"Job {ending.job_id} ended before {your} server was ready"
    if ending.cause.fault == JOB_NODE_DRAINED:
        return Words(f"{text}: {of_job.sentence} Its node takes no more jobs: {ending.subject}.", _NOT_YOURS)
    if ending.cause.fault == JOB_SILENT:
        return Words(f"{text}: {of_job.sentence} It reported nothing.", SILENT)
    if ending.line:
        nothing_ours = ending.stage is not Stage.STARTING and not _has_our_line(ending.lines)
        advice = " ".join((of_job.advice, *([SILENT] if nothing_ours else [])))
        return Words(_with_line(f"{text}.", ending.line), advice, of_job.sentence)
    return Words(f"{text}: {of_job.sentence}", of_job.advice)


def _of_report(ending: Ending, reported: Words, of_job: Words, whose: Mapping[str, str]) -> Words:
    """Such as ``The module CUDA/99 cannot be loaded on g1.``; how the job ended is for administrators."""
    job = ending.job
    node = (job.batch_host if job is not None else "") or "the node"
    facts = {**whose, "node": node, "subject": ending.subject}
    ended = words.ABOUT_JOB.format(job_id=ending.job_id, text=of_job.sentence) if job is not None else ""
    hint = f"{reported.hint.format(**facts)} {ended}".strip()
    text = reported.sentence.format(**facts)
    if not ending.line and ending.cause.fault in FAULTS_WITH_LINE and job is not None:
        return Words(f"{text} {of_job.sentence}", reported.advice, hint)
    return Words(_with_line(text, ending.line), reported.advice, hint)


def _with_line(sentence: str, line: str) -> str:
    """The sentence with what the job wrote last, in quotation marks."""
    return f"{sentence} {words.WROTE.format(line=line)}" if line else sentence


def _of_stop(ending: Ending, title: str) -> str:
    """Such as ``K80 was stopped at {time}; job 42 released 1 GPU.``."""
    job_id, gpus = ending.job_id, ending.gpus
    if ending.unconfirmed:
        return (
            f"Job {job_id} could not be cancelled at {{time}}, so it may still be running. "
            "The hub keeps trying to cancel it."
        )
    released = f"released {counted(gpus, 'GPU')}" if gpus else "was cancelled"
    released = f"; job {job_id} {released}." if job_id else "."
    if ending.quoted.sentence:
        return f"{ending.quoted.sentence}{released}"
    if ending.why:
        return f"{title} was stopped at {{time}} {ending.why}{released}"
    if ending.stage is Stage.QUEUED:
        return f"{title} left the line at {{time}}{f': {ending.by} stopped it' if ending.by else ''}{released}"
    return f"{title} was stopped at {{time}}{f' by {ending.by}' if ending.by else ''}{released}"


# The errors of a start, as the exceptions that JupyterHub shows on the form, in the progress stream, REST and the log.


_FAILED = "The start of %s failed: %s"


def log_failed_start(server: str, ending: Ending) -> None:
    """Write the line about a start that failed: its cause, and for whoever looks into it, the node and the log."""
    shown, node = words_of(ending), ending.job.batch_host or ending.job.nodes if ending.job is not None else ""
    facts = (f"Node: {node}." if node else "", f"Log file: {ending.log}" if ending.log else "")
    get_logger().error(_FAILED, server, " ".join(filter(None, (shown.sentence, shown.hint, *facts))))


def spawn_failure(error: GPUSpawnerError, *, server: str = "a server", contact: str = words.CONTACT) -> web.HTTPError:
    """The exception to raise from ``start()`` or ``apply_user_options`` for one of our errors.

    What the admin should know is logged, with the name of the server; ``contact`` is whom the participant may ask.
    """
    ending = Ending(start_failed(error.reason), at=time.time())
    if isinstance(error, RequestError):
        ending = replace(ending, quoted=Words(error.message, error.hint))
    else:
        get_logger().error(_FAILED, server, error)
        if isinstance(error, SubmitRejected) and error.stderr:
            ending = replace(ending, printed=error.stderr, quoted=Words(error.why))
        else:
            ending = replace(ending, quoted=Words(error.for_user, hint=error.for_admin))
    return start_error(ending, error.status_code, contact=contact)


def start_error(ending: Ending, status_code: int = 503, *, contact: str = words.CONTACT) -> web.HTTPError:
    """The exception of a start that failed, which has its ending (:func:`ending_of`).

    JupyterHub shows its ``jupyterhub_html_message`` on the form and on the page after a failed start, and its message
    in the progress stream and in REST, with the lines of the job's log below it: these are for the participant.
    """
    shown = words_of(ending, contact=contact)
    message = " ".join(filter(None, (shown.sentence, shown.advice, f"Log file: {ending.log}" if ending.log else "")))
    html = f"<p>{escape(message)}</p>"
    if ending.lines:
        html += f'<pre class="text-start">{escape(ending.lines)}</pre>'
    fault = ending.cause.fault
    failure = spawn_exception(message, reason=fault, status_code=status_code, html=html, detail=ending.lines)
    vars(failure)["gpuspawner_ending"] = ending
    return failure


def database_away(orm_spawner: Any = None) -> web.HTTPError:
    """The exception of a start that failed with the hub's database; the session of ``orm_spawner`` is rolled back."""
    if orm_spawner is not None:
        roll_back(inspect(orm_spawner).session)
    return start_error(Ending(start_failed("database"), at=time.time()))


def ending_of(failure: BaseException | None) -> Ending | None:
    """The ending of an exception from this module; None for any other exception that JupyterHub has words for.

    JupyterHub writes to its database before it calls the spawner; the sentence of such an error is that of
    :func:`~jupyterhub_gpuspawner.hub.site.database.describe_errors`. One without words comes from a hook or a class of
    the site's.
    """
    ending: Ending | None = getattr(failure, "gpuspawner_ending", None)
    if ending is not None or not isinstance(failure, Exception):
        return ending
    if isinstance(failure, SQLAlchemyError) and hasattr(failure, "jupyterhub_message"):
        return Ending(start_failed("database"), quoted=UNAVAILABLE)
    has_words = isinstance(failure, (web.HTTPError, AnyTimeoutError)) or hasattr(failure, "jupyterhub_message")
    return None if has_words else hook_ending(f"{type(failure).__name__}: {failure}")


def hook_ending(what: str, *, at: float | None = None) -> Ending:
    """The ending of a start that a hook of the site has ended; ``what`` it raised is for administrators."""
    return Ending(start_failed("hook"), at=at, quoted=Words(hint=what[:TEXT_LIMIT]))


def hook_refused(refusal: web.HTTPError, *, contact: str = words.CONTACT) -> web.HTTPError:
    """The exception of a start that a hook has refused, with its own message in place of HTTP's words."""
    message = refusal.log_message or ""
    # without arguments, tornado doubles each % of the message
    message = message % refusal.args if refusal.args else message.replace("%%", "%")
    if not message:
        return refusal
    ending = Ending(start_failed("hook_refused"), at=time.time(), quoted=Words(message))
    return start_error(ending, refusal.status_code, contact=contact)


JOB_KILLED, JOB_NODE_DRAINED, JOB_NO_LOG, JOB_SILENT = "job_killed", "job_node_drained", "job_no_log", "job_silent"
"""The fault of a start whose job was killed by signal 9, was cancelled when Slurm drained its node, could not write its
log, or ended and neither reported nor wrote anything of its own."""
BEFORE_SESSION_END_SECONDS = 180.0
"""Seconds before the end of a session from which a job's time limit is that end: it is lowered to whole minutes."""
EXPLAIN_SECONDS = 5.0
"""Seconds to find out how a job ended, and to read its log."""


class ServerEnding:
    """Explains the end of one spawner's servers."""

    def __init__(self, watch: JobWatch, log: JobLog, report: ServerReport) -> None:
        self._watch = watch
        self._spawner: Any = watch.spawner
        """Its ``ending`` is how the last server ended, or why the last start failed; kept until the next start."""
        self._log = log
        self._report = report
        self._keeping = asyncio.Lock()

    def _ending(self, cause: Cause, job: Job | None, **facts: Any) -> Ending:
        return Ending(cause, at=time.time(), job_id=self._watch.job_id, job=job, **facts)

    def _error(self, ending: Ending, status_code: int = 503) -> Exception:
        self._spawner.ending = ending
        log_failed_start(log_name(self._spawner), ending)
        return start_error(ending, status_code, contact=self._spawner.contact)

    # --- starts that failed ---------------------------------------------------------------------

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
        ending = self._ending(start_failed(fault), self._watch.status, stage=stage, seconds=seconds)
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
        snapshot = await self._watch.spawner.connection().cluster.recent(0.0, EXPLAIN_SECONDS)
        nodes = snapshot.nodes if snapshot is not None else ()
        reason = next((drained.reason for drained in nodes if drained.name == node and "DRAIN" in drained.states), "")
        return reason.partition(" [")[0]  # who drained it, and when

    async def unreachable(self, fault: str, hint: str, *, seconds: float = 0.0) -> Exception:
        """The error of a start whose server the hub cannot reach, with the last lines of its job's log."""
        facts = {"stage": Stage.STARTING, "seconds": seconds, "quoted": Words(hint=hint)}
        return self._error(await self._explained(self._ending(start_failed(fault), self._watch.status, **facts)))

    # --- servers that ended ---------------------------------------------------------------------

    async def keep_job_end(self, job: Job, *, planned: float | None = None) -> None:
        """Keep how the job of a server that ran has ended; only once, and not where the hub was asked to stop it.

        ``planned`` is when the session ends for which the server was started, in seconds since the epoch.
        """
        async with self._keeping:  # several polls may see the same end; each waits until it is explained
            if self._spawner.ending is not None or self._watch.stopping:
                return
            ending = self._ending(end_of_job(job.end), job)
            at = job.ends_at if job.ends_at is not None else time.time()
            over = job.end is End.TIME_LIMIT and planned is not None and at >= planned - BEFORE_SESSION_END_SECONDS
            kept = self._spawner.ending = replace(ending, at=at, session_over=over)
            explained = await self._explained(kept)
            if self._spawner.ending is kept:
                self._spawner.ending = explained

    async def keep_log_of_stop(self) -> None:
        """Keep the path of the log of a server that was stopped."""
        ending: Ending | None = self._spawner.ending
        if ending is None or not ending.stopped or not ending.ran:
            return
        with suppress(GPUSpawnerError, asyncio.TimeoutError):
            async with timeout(EXPLAIN_SECONDS):
                job = await self._log.job()
                if job is not None and job.stdout_path and self._spawner.ending is ending:
                    self._spawner.ending = replace(ending, log=self._log.path(job.stdout_path))

    def stop_unconfirmed(self) -> None:
        """The first request to cancel the job failed: what is kept of the stop says so."""
        if self._spawner.ending is not None and self._spawner.ending.stopped:
            self._spawner.ending = replace(self._spawner.ending, unconfirmed=True)

    def stop_confirmed(self, job_id: str) -> bool:
        """The job has been cancelled after all. Return whether what is kept is its stop, which then says so."""
        ending: Ending | None = self._spawner.ending
        if ending is None or not ending.unconfirmed or ending.job_id != job_id:
            return False
        self._spawner.ending = replace(ending, unconfirmed=False)
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
        detail = await self._log.job()
        if detail is None:
            return ending
        job, path = ending.job or detail, detail.stdout_path
        job = replace(job, time_limit=detail.time_limit, memory_mib=detail.memory_mib)
        path = self._log.path(path) if path else ""
        lines = await self._log.last_lines(path) if path else ""
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
    silent = not ending.lines.strip() or (job.end is End.FINISHED and not _has_our_line(ending.lines))
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


def _has_our_line(lines: str) -> bool:
    """Whether our script, or the launcher, has written to the log."""
    return any(line.startswith(LOG_MARK) for line in lines.splitlines())


def headline(lines: str, *, ours_alone: bool = False) -> str:
    """The line of a log that says most about why its job ended: our own last one, or else the last one.

    ``ours_alone`` is for a job that runs: what programs have written last does not say why no server came.
    """
    written = [line.strip() for line in lines.splitlines() if line.strip() and not re.match(SLURM_LINE, line)]
    ours = [line for line in written if line.startswith(LOG_MARK)]
    return (ours or (written if not ours_alone else []) or [""])[-1].removeprefix(LOG_MARK)


async def why_never(connection: Cluster, exec_prefix: str, request: JobRequest | None, *, since: float) -> str:
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
