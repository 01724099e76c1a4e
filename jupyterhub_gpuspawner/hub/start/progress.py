"""The progress of a start: stages with their times, why the job is pending, its position in the queue.

One :class:`StartFacts` serves the progress stream, the page as the hub renders it, and the error of a start that timed
out, so all of them say the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.hub.extensions import ServerExtensions
from jupyterhub_gpuspawner.hub.job.cause import Stage
from jupyterhub_gpuspawner.hub.job.watch import JobWatch
from jupyterhub_gpuspawner.hub.start.attempt import HAS_NODE, Attempt, Line, expected_start, line_of, planned_start
from jupyterhub_gpuspawner.hub.words import of_its_user, words_for
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, Estimate, QueuePosition, Waits, as_planned, utc
from jupyterhub_gpuspawner.slurm.job import Job, Phase, job_words
from jupyterhub_gpuspawner.slurm.reason import IN_SERVICE, NO_WORDS, OutOfService, never_clears, reason_name
from jupyterhub_gpuspawner.tasks import timeout
from jupyterhub_gpuspawner.wire.documents import PlacementDocument
from jupyterhub_gpuspawner.words import counted, duration
from jupyterhub_gpuspawner.words import sentence as capitalized

_PERCENT = {Phase.QUEUED: 20, Phase.STARTING: 40, Phase.RUNNING: 60, Phase.ENDING: 60, Phase.ENDED: 60}
_USUAL = ("Priority", "Resources")
"""Reasons of which a place in the line says as much."""
_BAR_SPARE = 1.3
"""How much longer than the wait the bar is: the words at its end stand there."""
_REPEAT = 3.0
"""Seconds after which an event is sent again: the page says that the hub is silent where none comes for eight."""


@dataclass(frozen=True)
class StartFacts:
    """What is known of a start that is under way; times are seconds since the epoch."""

    job_id: str = ""
    reached: Mapping[Stage, float] = field(default_factory=dict)
    """By the hub's clock: when it was ``submitted``, ``queued`` (sbatch answered) and ``starting`` (the node reported).
    Empty for a start that another version of this package began."""
    job: Job | None = None
    """The job as Slurm last reported it; None until it has."""
    placement: PlacementDocument | None = None
    matching: str = "resources"
    """What the job waits for: ``GPUs`` or ``CPUs``."""
    queue_position: QueuePosition | None = None
    """Its position in its partition's queue, while it is pending."""
    out: OutOfService = IN_SERVICE
    """Which nodes are out of service, where it waits for them."""
    silent: bool = False
    """Slurm does not answer now."""
    contact: str = words.CONTACT
    """Whom participants may ask."""
    answered_at: float | None = None
    """When Slurm last answered; None before its first answer."""
    queued_until: float | None = None
    """When the start is given up if the job is still pending; None: never."""
    change: str = ""
    """Why it is expected at another time than before, in a sentence; empty where nothing is told."""
    at_click: Estimate = UNKNOWN
    """When it was expected to start when it was asked for."""
    settling: bool = False
    """The job is pending, and everything that it needs was free when it was asked for, a moment ago."""
    boot_seconds: int | None = None
    """Seconds that its node may take to boot, while Slurm powers it on; None if it does not."""
    kept_until: float | None = None
    """When the start is given up, where Slurm has not taken its job since it does not answer; None: it has."""
    cluster: str = ""
    """The name of the job's cluster; empty in a hub that names none."""
    waits: Waits = as_planned
    """What is known of waits there."""
    missing: str = ""
    """What is missing between the hub and the server or its job, in a sentence; empty: nothing is."""
    beside: str = ""
    """The name of the accepted profile for which another job was submitted; empty where there is none."""

    @property
    def line(self) -> Line:
        """Whether it waits in line."""
        return line_of(self.job, has_reported=self.placement is not None, settling=self.settling)

    def estimate(self, now: float) -> Estimate:
        """When the job is expected to start; UNKNOWN unless it is pending.

        Until Slurm has a plan for it, this is what the form said.
        """
        if self.job is None or not self.line.waits or never_clears(self.job.reason):
            return UNKNOWN
        estimate = expected_start(self.job, self.queue_position, now=now, waits=self.waits)
        return self.at_click if estimate is UNKNOWN and self.at_click.is_conditional(now) else estimate


def start_facts(
    attempt: Attempt,
    watch: JobWatch,
    placement: PlacementDocument | None,
    request: JobRequest | None,
    waits: Waits,
    extensions: ServerExtensions,
) -> StartFacts:
    """What is known of an attempt, and of waits on its cluster; asks nothing."""
    matching, job = "resources", watch.status
    if job is not None and job.phase is Phase.QUEUED:
        note_wait(job, waits, extensions, now=time.time())  # so that the change is that of this estimate
    if request is not None:
        matching = "GPUs" if request.resources.gpus or request.resources.shards else "CPUs"
    return StartFacts(
        job_id=watch.job_id,
        cluster=watch.spawner.cluster,
        waits=waits,
        reached=dict(attempt.reached),
        job=job,
        placement=placement,
        matching=matching,
        queue_position=extensions.first(WithServer.queue_position),
        out=watch.out_of_service(),
        silent=watch.silent,
        contact=watch.spawner.contact,
        answered_at=watch.spawner.connection().watcher.last_answer,
        queued_until=attempt.queued_until,
        change=extensions.first(WithServer.change) or "",
        at_click=attempt.at_click,
        settling=is_settling(attempt, watch, extensions),
        boot_seconds=watch.boot_seconds(),
        kept_until=attempt.kept_until,
        missing=extensions.first(WithServer.awaits) or "",
        beside=attempt.contest.profile_beside if attempt.contest is not None else "",
    )


def note_wait(job: Job, waits: Waits, extensions: ServerExtensions, *, now: float) -> None:
    """Tell extensions when a pending job is expected to start, by what is known now."""
    position = extensions.first(WithServer.queue_position)
    partition = position.partition if position is not None else job.partition
    estimate = expected_start(job, position, now=now, waits=waits)
    extensions.each(WithServer.expects, estimate, partition, now=now)


def is_settling(attempt: Attempt, watch: JobWatch, extensions: ServerExtensions) -> bool:
    """Whether the job is pending only until Slurm has taken it up; asks nothing."""
    job = watch.status
    return job is not None and attempt.settles(
        job, lambda: planned_start(job, extensions.first(WithServer.queue_position)), time.time()
    )


@dataclass(frozen=True)
class StageProgress:
    """One step of a start."""

    name: str
    title: str
    """The name in words."""
    state: str
    """``done``, ``current`` or ``coming``."""
    at: float | None = None
    """When it was reached; None if it is to come, or if that is unknown."""
    took: int | None = None
    """Seconds until the next stage was reached, for a stage that is done; None if that is unknown."""
    detail: str = ""


def stages(facts: StartFacts) -> tuple[StageProgress, ...]:
    """All stages of a start, from submitted to ready, with the state of each."""
    job = facts.job
    times, titles = dict(facts.reached), dict(words.STAGES)
    if facts.kept_until is not None:
        titles[Stage.SUBMITTED.value] = words.WAITING_FOR_SLURM
    details = {Stage.STARTING: placement_sentence(facts.placement) if facts.placement is not None else ""}
    current = Stage.QUEUED if facts.job_id else Stage.SUBMITTED
    if job is not None and job.phase in HAS_NODE:
        current = Stage.ALLOCATED
        if job.starts_at is not None:
            times[Stage.ALLOCATED] = job.starts_at
        details[Stage.ALLOCATED] = job.batch_host or job.nodes
    if facts.placement is not None or Stage.STARTING in facts.reached:
        current = Stage.STARTING
    order = tuple(Stage)
    reached = order.index(current)
    return tuple(
        StageProgress(
            stage.value,
            titles[stage.value],
            "current" if n == reached else "done" if n < reached else "coming",
            at=times.get(stage) if n <= reached else None,
            took=_took(times, order[n : n + 2]) if n < reached else None,
            detail=details.get(stage, "") if n <= reached else "",
        )
        for n, stage in enumerate(order)
    )


def _took(times: Mapping[Stage, float], stage_and_next: Sequence[Stage]) -> int | None:
    began, ended = (times.get(stage) for stage in stage_and_next)
    return None if began is None or ended is None else max(0, round(ended - began))


def event(facts: StartFacts, *, now: float, own: bool = True) -> dict[str, Any]:
    """An event of JupyterHub's progress stream; ``gpuspawner`` holds the facts for our page (:func:`document`)."""
    percent, text = _percent_and_sentence(facts, words_for(own=own))
    of_job = facts.job is not None or facts.placement is not None or facts.silent
    message = words.ABOUT_JOB.format(job_id=facts.job_id, text=text) if facts.job_id and of_job else text
    return {"progress": percent, "message": message, "gpuspawner": document(facts, now=now, own=own)}


async def events(
    facts: Callable[[], StartFacts], watch: JobWatch, refresh: Callable[[], Awaitable[object]]
) -> AsyncIterator[dict[str, Any]]:
    """One event for each change of the facts, for ever; before each look at them ``refresh`` brings them up to date.

    An event has percent and message only if the message is a new one. Without changes the facts are sent again after
    :data:`_REPEAT` seconds.
    """
    sent, sent_at = dict[str, Any](), 0.0
    while True:
        await refresh()
        changed = watch.changed  # before the facts are read: what changes from now on is not missed
        now = event(facts(), now=time.time())
        if now != sent or time.monotonic() - sent_at > _REPEAT:
            yield now if now["message"] != sent.get("message") else {"gpuspawner": now["gpuspawner"]}
            sent, sent_at = now, time.monotonic()
        with suppress(asyncio.TimeoutError):
            async with timeout(_REPEAT):
                await changed.wait()


def _percent_and_sentence(facts: StartFacts, say: Any) -> tuple[int, str]:
    """Percentage and sentence, without the job's id, in the words for their reader."""
    job_id, job = facts.job_id, facts.job
    if not job_id:
        return 5, say.ASKING if facts.kept_until is None else say.FOR_LATER
    if facts.placement is not None:
        return 85, f"{placement_sentence(facts.placement)} {facts.missing or words.SERVER_STARTING}"
    percent = _PERCENT.get(job.phase, 20) if job is not None else 10
    if facts.silent:
        return percent, say.SILENT
    if job is None:
        return percent, words.SUBMITTED_AS.format(job_id=job_id)
    if facts.settling:
        return percent, say.SETTLING
    if facts.boot_seconds is not None:
        return percent, say.BOOTING.format(node=job.batch_host, time=duration(facts.boot_seconds))
    text = job_words(job, matching=facts.matching, out=facts.out).sentence
    return percent, f"{text} {facts.missing}" if facts.missing and job.phase is Phase.RUNNING else text


def document(facts: StartFacts, *, now: float, own: bool = True) -> dict[str, Any]:
    """The facts as JSON: times in ISO 8601, None if unknown; a sentence has ``{time}`` where the page puts a time.

    ``headline`` and ``sentence`` say how far the start is, ``job`` names the job and its partition. ``reason`` is why
    the job is pending, in a sentence, ``hint`` what to do. ``place`` is its place in the line; ``estimate`` is when it
    is expected to start (:meth:`Estimate.document`), ``bar`` the same on a bar (:func:`_bar`), ``expected`` as a
    sentence, ``when`` that without its condition, and ``change`` why it is another time than before. Where place and
    time say all there is, ``sentence`` is empty, and ``why`` has the reason, for those who want to know. ``notes`` are
    the sentences above the stages: page and script show whatever is there. While Slurm is ``silent`` everything is as
    of ``answered_at``, and ``answered`` says so. Unless it is for the server's ``own`` user, nothing is said to the
    user.
    """
    say = words_for(own=own)
    job, estimate = facts.job, facts.estimate(now)
    expects = job is not None and facts.line.waits and not never_clears(job.reason)
    position = facts.queue_position if expects else None
    partition = job.partition if job is not None else ""
    text = _percent_and_sentence(replace(facts, silent=False), say)[1]
    place = say.people_ahead(position.people, position.position) if position is not None else ""
    is_usual = bool(place) and job is not None and reason_name(job.reason) in _USUAL and not facts.out.clause
    about_job = NO_WORDS
    if job is not None and not facts.settling:
        about_job = job_words(job, matching=facts.matching, contact=facts.contact, out=facts.out)
    hint = about_job.advice if facts.placement is None and own else ""
    change = facts.change if facts.line.waits else ""
    if not own:
        about_job = replace(about_job, sentence=of_its_user(about_job.sentence))
        change, text = of_its_user(change), of_its_user(text)
    queue_note = "" if not expects else say.KEPT if facts.queued_until is None else say.KEPT_UNTIL
    until = utc(facts.queued_until) if expects else None
    unless = words.UNLESS if estimate.is_conditional(now) else ""
    if facts.kept_until is not None:
        queue_note, until = say.FOR_LATER_UNTIL, utc(facts.kept_until)
    # name, sentence, and what stands for {time} in it
    beside = words.BESIDE.format(profile=facts.beside) if facts.beside and facts.line.waits else ""
    notes = (
        *(("beside", beside, None), ("unless", unless, None), ("change", change, None)),
        *(("kept", queue_note, until), ("hint", hint, None)),
    )
    return {
        "headline": _headline(facts),
        "sentence": "" if is_usual else text[:1].upper() + text[1:],
        "stages": [{**asdict(stage), "at": utc(stage.at)} for stage in stages(facts)],
        "job": words.job_in(facts.job_id, partition, facts.cluster) if facts.job_id else "",
        "job_id": facts.job_id,
        "partition": partition,
        "reason": about_job.sentence,
        "why": about_job.sentence if is_usual else "",
        "hint": hint,
        "position": position.position if position is not None else None,
        "of": position.of if position is not None else None,
        "place": place,
        "estimate": estimate.document(now),
        "bar": _bar(facts, estimate, now),
        "expected": _expected(estimate.words(now)) if expects else "",
        "when": _expected(estimate.span(now)).removesuffix(".") if expects else "",
        "change": change,
        "kept": queue_note,
        "kept_until": until,
        "notes": [{"name": name, "text": note, "at": at} for name, note, at in notes if note],
        "silent": facts.silent,
        "answered_at": utc(facts.answered_at) if facts.silent else None,
        "answered": (say.NO_ANSWER_YET if facts.answered_at is None else say.LAST_ANSWER) if facts.silent else "",
    }


def _bar(facts: StartFacts, estimate: Estimate, now: float) -> dict[str, Any] | None:
    """The wait on a bar whose width is 100: what is past of it, and the range in which it may end, to ``latest``.

    None where no latest time is expected.
    """
    asked = facts.reached.get(Stage.SUBMITTED, now)
    if estimate.latest is None or estimate.latest <= now or asked > now:
        return None
    width = (estimate.latest - asked) * _BAR_SPARE
    past, start, end = (100 * (at - asked) / width for at in (now, estimate.earliest or now, estimate.latest))
    return {"past": round(past), "start": round(max(past, start)), "end": round(end), "latest": utc(estimate.latest)}


def _expected(clause: str) -> str:
    return capitalized(words.EXPECTED.format(when=clause) if clause else words.NO_ESTIMATE)


def _headline(facts: StartFacts) -> str:
    if facts.kept_until is not None:
        return words.WAITING_FOR_SLURM
    return words.WAITING if facts.line is Line.WAITING else words.STARTING


def placement_sentence(placement: PlacementDocument) -> str:
    """One sentence for a participant: node, GPUs, CPUs, and how many other nodes the job has."""
    gpus = f", {' and '.join(words.gpus(placement.gpus))}" if placement.gpus else ""
    cpus = f", CPUs {placement.cpus}" if placement.cpus else ""
    others = f", and on {counted(len(placement.other_nodes), 'more node')}" if placement.other_nodes else ""
    return f"running on {placement.node}{gpus}{cpus}{others}."
