"""What is said of an ending, which stands in ``ending_words.yaml`` for a start that failed.

A new cause has its words there; what else they name is a field of :class:`~.ending.Ending`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jupyterhub_gpuspawner.errors import SubmitRejected
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.job.cause import JOB_NODE_DRAINED, JOB_SILENT, Stage
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.slurm.job import SILENT, Job, Phase, job_words
from jupyterhub_gpuspawner.slurm.messages import rejected
from jupyterhub_gpuspawner.slurm.reason import Words, table
from jupyterhub_gpuspawner.wire.documents import FAULTS_WITH_LINE
from jupyterhub_gpuspawner.words import counted, duration

_TABLE = table(__file__)
_STARTS = {
    fault: {stage: Words(**texts) for stage, texts in stages.items()} for fault, stages in _TABLE["starts"].items()
}
"""By the fault and the stage, or ``any``."""
_REPORTS = {fault: Words(**texts) for fault, texts in _TABLE["reports"].items()}
_ADVICE: Mapping[str, str] = _TABLE["advice"]

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
        return Words("Slurm requeued the job, which ended its server.", _ADVICE["requeued"])
    if ending.session_over:
        return Words(words.SESSION_OVER, words.FILES_KEPT)
    return Words(of_job.sentence, of_job.advice)


def _of_start(ending: Ending, of_job: Words, whose: Mapping[str, str]) -> Words:
    job, fault = ending.job, ending.cause.fault
    if (reported := _REPORTS.get(fault)) is not None:
        return _of_report(ending, reported, of_job, whose)
    if job is not None and job.phase is Phase.ENDED:
        return _of_end(ending, of_job, whose["your"])
    if job is not None and fault == SubmitRejected.reason:
        return replace(of_job, hint=f"Job {ending.job_id}: {of_job.sentence} {of_job.hint}".strip())
    if ending.printed:
        refusal = rejected(ending.printed)
        return Words(refusal.for_user, _ADVICE["refused"], refusal.for_admin)
    stages = _STARTS.get(fault, {"any": Words(words.START_FAILED)})
    of_start = stages.get(ending.stage.value if ending.stage is not None else "any", stages["any"])
    last_state = words.SUBMITTED_AS if job is None else words.ABOUT_JOB
    facts = {**whose, "job_id": ending.job_id, "time": duration(ending.seconds)}
    facts["job"] = last_state.format(text=of_job.sentence, **facts)
    if ending.stage is Stage.ALLOCATED and fault == "timeout" and not ending.line:
        of_start = replace(of_start, advice=_ADVICE["nothing_reported"])
    text = of_start.sentence.format(**facts)
    if ending.stage is Stage.QUEUED and ending.subject:
        text = f"{text} {ending.subject}."
    return replace(of_start, sentence=_with_line(text, ending.line))


def _of_end(ending: Ending, of_job: Words, your: str) -> Words:
    """Such as ``Job 7 ended before your server was ready: The node of the job failed.``."""
    text = f"Job {ending.job_id} ended before {your} server was ready"
    if ending.cause.fault == JOB_NODE_DRAINED:
        return Words(f"{text}: {of_job.sentence} Its node takes no more jobs: {ending.subject}.", _ADVICE["not_yours"])
    if ending.cause.fault == JOB_SILENT:
        return Words(f"{text}: {of_job.sentence} It reported nothing.", SILENT)
    if ending.line:
        nothing_ours = ending.stage is not Stage.STARTING and not ending.has_our_line
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
