"""Ask a twin: who of these runs, on which GPUs and CPUs, and why the others do not."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.errors import SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.extensions.seats import controller
from jupyterhub_gpuspawner.extensions.seats.accounting import read_accounting
from jupyterhub_gpuspawner.extensions.seats.devices import gres_conf
from jupyterhub_gpuspawner.extensions.seats.held import JOBS, JOBS_EXCLUSIVE, read_jobs, with_details
from jupyterhub_gpuspawner.extensions.seats.site import Question, Request, Site, question_of
from jupyterhub_gpuspawner.extensions.seats.together import Limited, Started, not_counted, waiting_before
from jupyterhub_gpuspawner.slurm.accounting import parse_minutes
from jupyterhub_gpuspawner.slurm.accounts import has_all_rights
from jupyterhub_gpuspawner.slurm.commands import OUTPUT_LIMIT, Installation
from jupyterhub_gpuspawner.slurm.login_node import command_line
from jupyterhub_gpuspawner.slurm.messages import last_line
from jupyterhub_gpuspawner.slurm.process import run
from jupyterhub_gpuspawner.slurm.scontrol import (
    parse_config,
    parse_licenses,
    parse_nodes,
    parse_partitions,
    parse_reservations,
)
from jupyterhub_gpuspawner.slurm.squeue import STATES
from jupyterhub_gpuspawner.slurm.text import parse_tres
from jupyterhub_gpuspawner.units import NodeAllocation, parse_allocations, parse_cpulist

TWIN = "twin"
"""The script of ``wrapper_dir`` that is the controller on another machine."""
SECONDS = 120.0
"""After them a twin ends itself."""


@dataclass(frozen=True)
class Answer:
    """What becomes of one request; exactly one of the three is not empty."""

    name: str
    """The request's."""
    allocations: tuple[NodeAllocation, ...] = ()
    """What it gets on each node: Slurm's CPU numbers, and generic resources with Slurm's indices."""
    reason: str = ""
    """Slurm's word for why it waits: ``Resources``, ``Priority``, ``ReqNodeNotAvail``, ..."""
    refusal: str = ""
    """sbatch's message, where it can never run as it is."""
    partition: str = ""
    """Where it runs."""
    tres: Mapping[str, float] = field(default_factory=dict)
    """What it gets in all, see :func:`.text.parse_tres`; without generic resources."""
    minutes: float | None = None
    """Its time limit; None without one."""

    @property
    def runs(self) -> bool:
        """It gets what it requests."""
        return bool(self.allocations)


@dataclass(frozen=True)
class Answers:
    """What the twin says, in the order of the requests."""

    answers: tuple[Answer, ...]
    version: str
    """Of the twin's slurmctld."""
    notes: tuple[str, ...] = ()
    """Sentences for the admin: what of the site or of the requests the twin had to leave out."""
    not_counted: tuple[str, ...] = ()
    """Sentences: what may keep jobs from running that was not considered, since Slurm does not tell it."""

    @property
    def running(self) -> int:
        """How many run."""
        return sum(answer.runs for answer in self.answers)


class TwinMissing(SlurmUnavailable):
    """There is no slurmctld to run a twin with."""

    usual_for_user = "Slurm's scheduler cannot be asked here."


class TwinFailed(SlurmUnavailable):
    """A twin did not start, or ended while it was asked."""

    usual_for_user = "Slurm's scheduler could not be asked."


async def read_site(slurm: Installation) -> Site:
    """The site as its Slurm reports it now: seven commands, and three more where accounting has limits.

    gres.conf is read beside slurm.conf where this machine has it. Raises SlurmUnavailable and SlurmOutputError.
    """
    shown = (
        ("show", "config"),
        ("--local", "show", "node", "-a", "-d", "-o"),
        ("--local", "show", "partition", "-a", "-o"),
        ("--local", "show", "reservation", "-a", "-o"),
        ("--local", "show", "license", "-o"),
    )
    answers = await asyncio.gather(*(slurm.run("scontrol", *words, limit=OUTPUT_LIMIT) for words in shown))
    texts = [answer.output() for answer in answers]

    def parse() -> Site:
        site = site_from(*texts)
        lines = "" if slurm.query_prefix else _gres_conf(site.config.parameters.get("SLURM_CONF", ""))
        try:
            devices = gres_conf(lines, [node.name for node in site.nodes])
        except ValueError as error:
            raise SlurmOutputError(f"gres.conf: {error}.", raw=lines) from None
        return replace(site, gres=devices)

    site = await asyncio.to_thread(parse)
    mark = secrets.token_hex(8)
    question = JOBS_EXCLUSIVE if any("Exclusive" in part.parameters for part in site.partitions) else JOBS
    listed = ("squeue", "--local", "-h", "-a", "-t", STATES, "-O", question.columns(mark))
    queue = (await slurm.run(*listed, limit=OUTPUT_LIMIT)).output()
    held, waiting = await asyncio.to_thread(read_jobs, queue, mark, question)
    site = replace(site, jobs=held, waiting=waiting)
    hides = site.config.hides_jobs and not await has_all_rights(slurm, site.config)
    details, accounting = await asyncio.gather(_details(slurm, site), read_accounting(slurm, site.config))
    detailed = await asyncio.to_thread(with_details, site.jobs, details)
    return replace(site, jobs=detailed, accounting=accounting, hides_jobs=hides)


DETAILED_AT_MOST = 40_000
"""Jobs of a site of which what each has on its nodes is asked; Slurm prints more than a kilobyte for each."""
ONE_BY_ONE_AT_MOST = 500
"""Jobs on several nodes of which it is asked one by one where there are more than those."""


async def _details(slurm: Installation, site: Site) -> str:
    """What the jobs that hold resources have on each of their nodes, of as many as Slurm can be asked.

    scontrol prints one job or all of them, and those that wait are the most: where there are too many, only jobs on
    several nodes are asked about, since each of the others has on its node what squeue says.
    """
    if not site.jobs:
        return ""
    show = ("scontrol", "--local", "show", "job")
    if len(site.jobs) + len(site.waiting) <= DETAILED_AT_MOST:
        return (await slurm.run(*show, "-a", "-d", "-o", limit=OUTPUT_LIMIT)).output()
    several = [held.job.job_id for held in site.jobs if len(held.job.nodes) > 1][:ONE_BY_ONE_AT_MOST]
    answers = await asyncio.gather(*(slurm.run(*show, "-d", "-o", job_id) for job_id in several))
    return "".join(answer.stdout for answer in answers if answer.code == 0)


def site_from(config: str, nodes: str, partitions: str, reservations: str = "", licenses: str = "") -> Site:
    """The site by these answers of ``scontrol show``, without its jobs; raises SlurmOutputError."""
    return Site(
        parse_config(config),
        parse_nodes(nodes),
        parse_partitions(partitions),
        parse_reservations(reservations),
        parse_licenses(licenses),
    )


def _gres_conf(slurm_conf: str) -> str:
    """What is beside slurm.conf; empty where that is not on this machine."""
    try:
        return Path(slurm_conf).with_name("gres.conf").read_text("utf-8", "replace") if slurm_conf else ""
    except OSError:
        return ""


async def what_runs(
    site: Site,
    requests: Sequence[Request],
    *,
    at: float,
    slurm: Installation,
    without: Collection[str] = (),
    users: Collection[str] = (),
    timeout: float = SECONDS,
) -> Answers:
    """Which of the requests start at ``at`` (seconds since the epoch) if they are made then in this order, and on what.

    Jobs whose time limit ends before are gone by then; those that wait now for the same nodes come first. Limits of
    accounting hold back requests that have a user. ``without``: ids of jobs that hold nothing then; ``users``: as whom
    the requests are made. The twin runs on this machine, or where ``slurm`` asks its questions (``query_prefix``, as
    the script ``twin`` of ``wrapper_dir``), and ends after ``timeout``, in seconds.

    Raises TwinMissing without slurmctld, TwinFailed if it does not start, is killed, or does not answer in time, and
    SlurmOutputError where an answer is not understood.
    """
    before, left_out = await asyncio.to_thread(waiting_before, site, requests, at)
    limited = Limited(site, at, without)
    everybody = [*before, *await asyncio.to_thread(limited.with_time, requests)]
    verdict = await asyncio.to_thread(limited.refused, everybody)
    not_started = {
        place: Answer(everybody[place].name, refusal=f"the limit {word} is reached")
        for place, word in verdict.refused.items()
    }
    for number in range(ROUNDS):
        places = [place for place in range(len(everybody)) if place not in not_started]
        asked = [everybody[place] for place in places]
        question = await asyncio.to_thread(
            question_of, site, asked, at=at, without=without, users=users, seconds=timeout + 5.0
        )
        document = await _run_controller(question.document, slurm, timeout)
        answers = await asyncio.to_thread(_answers, document, question, asked, site.config.version)
        by_place = dict(zip(places, answers.answers, strict=True))
        judged = await asyncio.to_thread(limited.held_back, everybody, _started(by_place))
        held = {place: word for place, word in judged.held_back.items() if place in by_place}
        not_started |= {place: Answer(everybody[place].name, reason=word) for place, word in held.items()}
        # what they do not get, others may, whom the scheduler is asked about again
        if number == ROUNDS - 1 or not held or not any(answer.reason for answer in by_place.values()):
            break
    all_answers = by_place | not_started
    return replace(
        answers,
        answers=tuple(all_answers[place] for place in range(len(before), len(everybody))),
        notes=(*answers.notes, *left_out),
        not_counted=tuple(not_counted(site, verdict, requests)),
    )


ROUNDS = 6
"""How often the scheduler is asked at most: whoever a limit holds back leaves room to others."""


def _started(answers: Mapping[int, Answer]) -> dict[int, Started]:
    return {
        place: Started(answer.partition, answer.tres, answer.minutes, answer.allocations)
        for place, answer in answers.items()
        if answer.runs
    }


async def _run_controller(document: Mapping[str, Any], slurm: Installation, timeout: float) -> dict[str, Any]:
    if slurm.query_prefix:
        program: tuple[str, ...] = (str(Path(slurm.wrapper_dir, TWIN)),)
    else:
        program = (sys.executable, "-I", controller.__file__)
    path = ":".join(filter(None, (slurm.bin_dir, os.environ.get("PATH", "/usr/bin:/bin"))))
    try:
        answer = await run(
            command_line(slurm.query_prefix, program),
            name=TWIN,
            environment={"PATH": path, "LANG": "C.UTF-8"},
            timeout=timeout,
            stdin=json.dumps(document),
            limit=OUTPUT_LIMIT,
        )
    except OSError as error:
        raise TwinFailed(f"A copy of this cluster's scheduler cannot be run: {error}.") from error
    except SlurmUnavailable as error:
        raise TwinFailed(f"The copy of this cluster's scheduler did not answer within {timeout:g} s.") from error
    if answer.code != 0:
        why = last_line(answer.stderr) if answer.stderr.strip() else "it was killed"
        raise TwinFailed(f"The copy of this cluster's scheduler gave no answer: {why}.")
    try:
        result: dict[str, Any] = json.loads(answer.stdout)
    except ValueError as error:
        raise SlurmOutputError("The copy of the scheduler printed no JSON.", raw=answer.stdout) from error
    if result.get("fault") == "missing":
        raise TwinMissing(
            result["sentence"],
            hint="Install the packages with slurmctld and munged (Debian: slurmctld, munge); neither has to run.",
        )
    if "fault" in result:
        raise TwinFailed(f"The copy of this cluster's scheduler failed: {result['sentence']}")
    return result


_RESERVATION = re.compile(r"(?<=^reservation )r\d+(?=:)")
"""A name of the twin's in a sentence about a reservation that could not be made."""
_JOB = re.compile(r"JobId=(\d+) (?:ArrayJobId=(\d+) ArrayTaskId=(\S+) )?")
_TRES, _TIME_LIMIT = re.compile(r" (?:Alloc)?TRES=(\S*)"), re.compile(r" TimeLimit=(\S+)")
_PARTITION = re.compile(r" Partition=(\S+)")
_STATE = re.compile(r" JobState=(\S+) Reason=(\S+) ")


def _answers(document: Mapping[str, Any], question: Question, requests: Sequence[Request], version: str) -> Answers:
    tasks = {key: record for record in document["jobs"].splitlines() for key in _tasks(record)}
    notes = [*question.notes]
    if _release(document["version"]) != _release(version):
        here = version or "an unknown version"
        notes.append(f"Counted by the scheduler of Slurm {document['version']}; this cluster has {here}.")
    unplaced = (_RESERVATION.sub(lambda match: question.reservations[match[0]], text) for text in document["unplaced"])
    notes += [f"Not considered by Slurm's scheduler: {text}" for text in unplaced]
    answers = []
    for request, (number, task) in zip(requests, question.jobs, strict=True):
        submitted = document["requests"][number]
        if submitted["refusal"]:
            answers.append(Answer(request.name, refusal=last_line(submitted["refusal"])))
            continue
        record = tasks.get((submitted["job"], task))
        if record is None:
            raise SlurmOutputError(
                f"The copy of the scheduler lost job {submitted['job']}.", raw=document["jobs"][:2000]
            )
        answers.append(_answer(request.name, record))
    return Answers(tuple(answers), document["version"], tuple(notes))


def _answer(name: str, record: str) -> Answer:
    state = _STATE.search(record)
    allocations = parse_allocations(record)
    if allocations and state is not None and state[1] != "PENDING":
        tres, time_limit = _TRES.search(record), _TIME_LIMIT.search(record)
        return Answer(
            name,
            allocations,
            partition=partition[1] if (partition := _PARTITION.search(record)) is not None else "",
            tres=parse_tres(tres[1]) if tres is not None else {},
            minutes=parse_minutes(time_limit[1]) if time_limit is not None else None,
        )
    return Answer(name, reason=state[2] if state is not None else "None")


def _tasks(record: str) -> Iterator[tuple[str, int]]:
    job = _JOB.match(record)
    if job is not None and not job[2]:
        yield job[1], 1
    elif job is not None:
        for task in parse_cpulist(job[3].partition("%")[0]):
            yield job[2], task


def _release(version: str) -> str:
    return ".".join(version.split(".")[:2])
