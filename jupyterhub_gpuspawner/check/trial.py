"""A small job in each partition: its script, its run, the hub's connection to its node, and the facts it prints."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.batch.script import option, options
from jupyterhub_gpuspawner.batch.shell import call, find_python, setup_lines, srun_cpus, unpack
from jupyterhub_gpuspawner.check.machine import HubAddress
from jupyterhub_gpuspawner.check.on_node import MARK
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.job.log import Extent, last_lines
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, printable

MINUTES = 5
"""Time limit of the job."""
PATIENCE = 120.0
"""Seconds that the job may be pending."""
MEMORY = 1024
"""MiB that the job asks for at most."""
LISTENS = 60
"""Seconds for which the job waits for a connection."""
_VARIABLES = ("--licenses", "-L", "--wckey", "--clusters", "-M", "--nodelist", "-w", "--exclude", "-x")
"""Lines of ``extra`` that decide where a job may run, not how large it is."""


@dataclass(frozen=True)
class Tried:
    """One profile in the job of its partition."""

    slug: str
    request: JobRequest
    command: str
    """The first word of the server's command."""


@dataclass(frozen=True)
class Trial:
    """The job of one partition."""

    partition: str
    profiles: tuple[Tried, ...]
    """Those that use the partition; the first one's account, QOS and reservation are used."""
    hub: str
    """The URL of the hub's API that nodes are told."""
    ports: tuple[int, int]
    """First and last port; zeros for any."""
    tag: str
    name: str
    word: str
    """A random word by which the job is recognised."""
    log_dir: str
    home: str
    prologue: str = ""
    gpus_option: str = "gres"
    """As servers ask for GPUs: a plugin of the site may look for it."""
    finds_commands: bool = True
    """Whether the commands of the servers are searched; not with an admin's own ``batch_script``."""

    @property
    def log(self) -> str:
        """The path of the job's log, with Slurm's ``%j`` for the job id."""
        return f"{self.log_dir}/gpuspawner-check-%j.log"


def small(resources: Resources) -> Resources:
    """The resources cut down to one core and one GPU, which say where a job may run and not how large it is."""
    update = {
        "nodes": 1,
        "gpus": 1 if resources.gpus else None,
        "shards": 1 if resources.shards else None,
        "cpus": 1,
        "memory": None if resources.memory is None else min(resources.memory or MEMORY, MEMORY),
        "time": MINUTES * 60,
        "exclusive": False,
        "extra": tuple(line for line in resources.extra or () if line.startswith(_VARIABLES)),
    }
    return resources.model_copy(update=update)


def render(trial: Trial, plan: LaunchPlan) -> str:
    """The batch script; raises ConfigError for a value that cannot be in one."""
    resources = small(trial.profiles[0].request.resources)
    head = ["#!/bin/bash"]
    first = {
        "job-name": trial.name,
        "comment": trial.tag,
        "output": trial.log,
        "chdir": trial.home,
        "export": "ALL",
        "deadline": f"now+{2 * MINUTES + round(PATIENCE / 60)}minutes",  # removed by Slurm if nobody cancels it
    }
    try:
        head += [f"#SBATCH {option(name, value)}" for name, value in first.items()]
        head += [
            f"#SBATCH {option}" for option in ("--no-requeue", *options(resources, plan.policy, trial.gpus_option))
        ]
    except ValueError as error:
        raise ConfigError(f"{error}.", where=f"partition {trial.partition}") from error
    log = '"$SLURM_JOB_ID"'.join(map(shlex.quote, trial.log.split("%j")))
    questions = json.dumps(
        {"hub": trial.hub, "ports": trial.ports, "word": trial.word, "seconds": LISTENS}, separators=(",", ":")
    )
    source = Path(__file__).with_name("on_node.py").read_text("utf-8")
    parts = [
        "\n".join(head),
        # whoever has read the log cancels the job, and then nobody needs the log
        f"trap 'rm -f -- \"$gpuspawner_log\"; exit 0' TERM\ngpuspawner_log={log}",
        f"echo {MARK} began '{{}}'\n[ -d \"$HOME\" ] || echo {MARK} no-home '{{}}'",
        *(_of_profile(profile, trial) for profile in trial.profiles),
        f"echo {MARK} launcher '{{}}'",
        srun_cpus(),
        unpack(launcher_archive(), plan),
        find_python(["python3"], now=True),
        f"GPUSPAWNER_VERBOSE=1 {call(['true'])}",
        f'"$GPUSPAWNER_PYTHON" -I -c {shlex.quote(source)} {shlex.quote(questions)}',
        f"echo {MARK} end '{{}}'\nsleep {LISTENS} & wait $!",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _of_profile(tried: Tried, trial: Trial) -> str:
    """Lines that set up a profile's environment in a shell of its own, and look for its command there."""
    environment = tried.request.environment
    lines = [f"echo {MARK} profile {shlex.quote(json.dumps({'slug': tried.slug}))}"]
    lines += setup_lines(environment)
    lines += [trial.prologue] if trial.prologue else []
    lines += _needs(tried, trial)
    shell = "bash -l" if environment.login_shell else "bash"
    failed = shlex.quote(f"{MARK} setup {json.dumps({'slug': tried.slug})}")
    return f"command {shell} -c {shlex.quote(chr(10).join(lines))} </dev/null || echo {failed}"


def _needs(tried: Tried, trial: Trial) -> Iterator[str]:
    container = tried.request.environment.container
    if container is not None:
        yield _need("runtime", tried.slug, container.runtime, f"command -v -- {container.runtime} >/dev/null")
        if container.image.startswith("/"):
            yield _need("image", tried.slug, container.image, f"[ -e {shlex.quote(container.image)} ]")
    elif trial.finds_commands:
        command = f"command -v -- {shlex.quote(tried.command)} >/dev/null"
        yield _need("command", tried.slug, tried.command, command)
    yield ":"  # the exit status says whether the environment could be set up


def _need(fact: str, slug: str, what: str, condition: str) -> str:
    def line(*, present: bool) -> str:
        return shlex.quote(f"{MARK} {fact} {json.dumps({'slug': slug, 'what': what, 'found': present})}")

    return f"if {condition}; then echo {line(present=True)}; else echo {line(present=False)}; fi"


def partitions(profiles: Sequence[Tried]) -> dict[str, tuple[Tried, ...]]:
    """The profiles by the partition that they ask for, in their order; the cluster's default is an empty name."""
    by_partition: dict[str, tuple[Tried, ...]] = {}
    for profile in profiles:
        name = profile.request.resources.partition or ""
        by_partition[name] = (*by_partition.get(name, ()), profile)
    return by_partition


# The way between the hub's machine and the nodes: a stand-in for a hub that does not run, and a word sent to a job.

SECONDS = 5.0
"""Time limit of one connection."""
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 20\r\n\r\n"
    b'{"version": "check"}'
)


@asynccontextmanager
async def listening_hub(hub: HubAddress) -> AsyncIterator[bool]:
    """While this is open, something listens at the hub's address: the hub, or a stand-in that answers in its place.

    Yields False if neither does.
    """
    if await _connects(hub.host, urlsplit(hub.url).port or hub.port):
        yield True
        return
    try:
        server = await asyncio.start_server(_answer, hub.listens or None, hub.port)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        server.close()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 1.0)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.TimeoutError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
        writer.write(_ANSWER)
        await writer.drain()
    writer.close()


async def _connects(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), SECONDS)
    except (OSError, asyncio.TimeoutError):
        return False
    writer.close()
    return True


async def answers_with(word: str, host: str, port: int) -> str:
    """Send a word to a job's port; empty if it comes back, else why it does not."""
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), SECONDS)
    except asyncio.TimeoutError:
        return f"no answer within {SECONDS:g} s"
    except OSError as error:
        return error.strerror or str(error)
    try:
        writer.write(f"{word}\n".encode("ascii"))
        answer = await asyncio.wait_for(reader.readline(), SECONDS)
    except (OSError, asyncio.TimeoutError, ValueError):
        return "the connection was closed"
    finally:
        writer.close()
    return "" if answer.strip() == word.encode("ascii") else "another program answers there"


# What a job said about its node, read from its log.

_OUTPUT_MARK = "gpuspawner: "
"""What begins a line of the launcher, or of a profile's environment that failed."""


@dataclass(frozen=True)
class Need:
    """Whether something that a profile needs was found on the node."""

    fact: str
    """``command``, ``runtime`` or ``image``."""
    slug: str
    what: str
    present: bool


@dataclass(frozen=True)
class Facts:
    """The lines of a job's log, as far as it got."""

    began: bool = False
    ended: bool = False
    home: bool = True
    needs: tuple[Need, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)
    """Profiles whose environment could not be set up, and why."""
    python: str = ""
    """The version of the node's Python; empty if there is none, or it was not reached."""
    launched: bool = False
    """Whether the launcher's turn had come."""
    placement: tuple[str, ...] = ()
    """The launcher's own lines: first where it placed itself, then its problems."""
    environment_arrived: bool | None = None
    sbatch_variables: tuple[str, ...] = ()
    hub_reached: bool | None = None
    hub_is_hub: bool = False
    hub_why: str = ""
    port: int | None = None
    """Where the job listened; 0 if no port was free, None while that is not known."""
    tried: int = 0
    """How many ports were tried."""


def parse_facts(text: str) -> Facts:
    """Read a log, which may end anywhere; lines that are not facts are ignored."""
    values: dict[str, Any] = {"needs": (), "failed": {}, "placement": ()}
    slug, message = "", ""
    for line in text.splitlines():
        if line.startswith(_OUTPUT_MARK):
            message = printable(line[len(_OUTPUT_MARK) :].strip())
            if values.get("launched"):
                values["placement"] += (message,)
            continue
        fact, content = _fact(line)
        if fact:  # the first lines may be missing: the script `log` prints the end of a log
            values["began"] = True
        if fact == "profile":
            slug, message = str(content.get("slug", "")), ""
        elif fact == "setup":
            values["failed"] = {**values["failed"], printable(str(content.get("slug", slug))): message}
        elif fact in ("command", "runtime", "image"):
            what = printable(str(content.get("what", "")))
            need = Need(fact, printable(str(content.get("slug", slug))), what, content.get("found") is True)
            values["needs"] += (need,)
        else:
            values.update(_READERS.get(fact, _nothing)(content))
    return Facts(**values)


def _fact(line: str) -> tuple[str, dict[str, Any]]:
    head, _, rest = line.partition(" ")
    fact, _, text = rest.partition(" ")
    if head != MARK:
        return "", {}
    try:
        content = json.loads(text)
    except ValueError:
        return "", {}
    return (fact, content) if isinstance(content, dict) else ("", {})


def _nothing(_content: dict[str, Any]) -> dict[str, Any]:
    return {}


def _of_hub(content: dict[str, Any]) -> dict[str, Any]:
    status = content.get("status")
    why = str(content.get("why", "")) or (f"it answered with HTTP status {status}" if status else "")
    return {
        "hub_reached": content.get("reached") is True,
        "hub_is_hub": content.get("hub") is True,
        "hub_why": printable(why),
    }


def _of_environment(content: dict[str, Any]) -> dict[str, Any]:
    names: Iterable[object] = content.get("sbatch") if isinstance(content.get("sbatch"), list) else ()  # type: ignore[assignment]
    return {
        "environment_arrived": content.get("arrived") is True,
        "sbatch_variables": tuple(printable(str(name)) for name in names),
    }


def _of_port(content: dict[str, Any]) -> dict[str, Any]:
    port, tried = content.get("port"), content.get("tried")
    if type(port) is not int or type(tried) is not int or not 0 <= port <= 65535:
        return {}
    return {"port": port, "tried": tried}


_READERS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "no-home": lambda _content: {"home": False},
    "launcher": lambda _content: {"launched": True},
    "python": lambda content: {"python": printable(str(content.get("version", "")))},
    "environment": _of_environment,
    "hub": _of_hub,
    "port": _of_port,
    "end": lambda _content: {"ended": True},
}


# Submits the small job, follows it, and cancels it whatever happens.

RUNS = 90.0
"""Seconds for which a running job is followed."""
STEP = 1.0
"""Seconds between two looks."""
POLL_SECONDS = 5
"""Looks at the log after the job's end: a shared file system may be late."""
_WHOLE = Extent(1 << 16, None)
_OVER = (Phase.ENDING, Phase.ENDED)


@dataclass(frozen=True)
class Course:
    """What became of one job, as far as it was followed."""

    trial: Trial
    job_id: str = ""
    """Empty if the job was not submitted."""
    refused: GPUSpawnerError | None = None
    """Why it was not submitted."""
    seen: Job | None = None
    """The job as Slurm first showed it."""
    last: Job | None = None
    """The job as Slurm last showed it before it was cancelled."""
    facts: Facts = field(default_factory=Facts)
    log_is_readable: bool = True
    """Whether this account has a way to read the user's logs."""
    back: str | None = None
    """Why this machine did not reach the job; empty if it did, None if it was not tried."""
    not_cancelled: str = ""
    """Why the job could not be cancelled afterwards."""


async def follow(
    site: GPUSlurmSpawner, trial: Trial, plan: LaunchPlan, prefix: Sequence[str], environment: Mapping[str, str]
) -> Course:
    """Submit the job of one partition, follow it to its last fact, and cancel it, also if this is cancelled."""
    client = site.connection().client
    course = Course(trial, log_is_readable=bool(not prefix or site.wrapper_dir or os.geteuid() == 0))
    submitted = asyncio.ensure_future(
        client.submit(render(trial, plan), prefix=prefix, environment={**environment, "GPUSPAWNER_CHECK": trial.word})
    )
    try:
        course = replace(course, job_id=await asyncio.shield(submitted))
        course = await _followed(client, site, course, prefix)
    except GPUSpawnerError as error:
        if course.job_id:
            raise
        course = replace(course, refused=error)
        if isinstance(error, SlurmUnavailable):
            raise
    finally:
        why = await _cancelled(client, submitted, prefix, trial)
    return replace(course, not_cancelled=why)


async def _cancelled(client: SlurmClient, submitted: asyncio.Future[str], prefix: Sequence[str], trial: Trial) -> str:
    """Cancel the job that sbatch made, or may have made; why that failed, or empty."""
    owner = {"USER": trial.profiles[0].request.username}
    try:
        jobs = [await submitted]
    except SlurmUnavailable:
        with suppress(GPUSpawnerError):
            jobs = list(await client.tagged(trial.tag))
            for job in jobs:
                await client.cancel(job, prefix=prefix, environment=owner)
        return ""
    except GPUSpawnerError:
        return ""
    try:
        await client.cancel(jobs[0], prefix=prefix, environment=owner)
    except GPUSpawnerError as error:
        return str(error)
    return ""


async def _followed(client: SlurmClient, site: GPUSlurmSpawner, course: Course, prefix: Sequence[str]) -> Course:
    began, text, polls = time.monotonic(), "", 0
    limit = PATIENCE
    while time.monotonic() - began < limit:
        job = (await client.jobs([course.job_id])).get(course.job_id)
        if job is not None:
            course = replace(course, seen=course.seen or job, last=job)
        running = job is not None and job.phase is not Phase.QUEUED
        if running and limit == PATIENCE:
            began, limit = time.monotonic(), RUNS
        if running and course.log_is_readable:
            text = await _log(client, site, course, prefix) or text
            course = replace(course, facts=parse_facts(text))
        if course.back is None and course.facts.port and job is not None and job.batch_host:
            address = await client.address(job.batch_host)
            course = replace(course, back=await answers_with(course.trial.word, address, course.facts.port))
        if course.facts.port is not None and (course.back is not None or course.facts.port == 0):
            break
        if job is None or job.phase in _OVER:
            polls += 1
            if polls > POLL_SECONDS or not course.log_is_readable:
                break
        await asyncio.sleep(STEP)
    return course


async def _log(client: SlurmClient, site: GPUSlurmSpawner, course: Course, prefix: Sequence[str]) -> str:
    with suppress(GPUSpawnerError):
        if prefix and site.wrapper_dir:
            return await client.log_end(course.job_id, prefix=prefix)
        return await last_lines(course.trial.log.replace("%j", course.job_id), prefix, _WHOLE)
    return ""
