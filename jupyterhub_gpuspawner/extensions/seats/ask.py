"""Ask a twin: who of these runs, on which GPUs and CPUs, and why the others do not."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.errors import SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.extensions.seats import controller
from jupyterhub_gpuspawner.extensions.seats.held import HELD, held_jobs
from jupyterhub_gpuspawner.extensions.seats.site import Question, Request, Site, gres_conf, question_of
from jupyterhub_gpuspawner.slurm.commands import Installation
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
from jupyterhub_gpuspawner.slurm.snapshot_reader import OUTPUT_LIMIT
from jupyterhub_gpuspawner.slurm.squeue import STATES
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
    """The site as its Slurm reports it now: seven commands.

    gres.conf is read beside slurm.conf where this machine has it. Raises SlurmUnavailable and SlurmOutputError.
    """
    shown = (
        ("show", "config"),
        ("--local", "show", "node", "-a", "-d", "-o"),
        ("--local", "show", "partition", "-a", "-o"),
        ("--local", "show", "reservation", "-a", "-o"),
        ("--local", "show", "license", "-o"),
        ("--local", "show", "job", "-a", "-d", "-o"),
    )
    mark = secrets.token_hex(8)
    listed = ("squeue", "--local", "-h", "-a", "-t", STATES, "-O", HELD.columns(mark))
    commands = [*(("scontrol", *words) for words in shown), listed]
    answers = await asyncio.gather(*(slurm.run(*command, limit=OUTPUT_LIMIT) for command in commands))
    *texts, details, queue = (answer.output() for answer in answers)

    def parse() -> Site:
        site = site_from(*texts)
        lines = "" if slurm.query_prefix else _gres_conf(site.config.parameters.get("SLURM_CONF", ""))
        try:
            devices = gres_conf(lines, [node.name for node in site.nodes])
        except ValueError as error:
            raise SlurmOutputError(f"gres.conf: {error}.", raw=lines) from None
        return replace(site, jobs=held_jobs(queue, mark, details), gres=devices)

    return await asyncio.to_thread(parse)


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

    Jobs whose time limit ends before are gone by then; those that wait now are not considered, unless they are among
    the requests. ``without``: ids of jobs that hold nothing then; ``users``: as whom the requests are made. The twin
    runs on this machine, or where ``slurm`` asks its questions (``query_prefix``, as the script ``twin`` of
    ``wrapper_dir``), and ends after ``timeout``, in seconds.

    Raises TwinMissing without slurmctld, TwinFailed if it does not start, is killed, or does not answer in time, and
    SlurmOutputError where an answer is not understood.
    """
    question = await asyncio.to_thread(
        question_of, site, requests, at=at, without=without, users=users, seconds=timeout + 5.0
    )
    document = await _run_controller(question.document, slurm, timeout)
    return await asyncio.to_thread(_answers, document, question, requests, site.config.version)


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
        return Answer(name, allocations)
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
