"""``gpuspawner check --submit``: one small job in each partition that profiles use, as a user."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from jupyterhub_gpuspawner.batch.job import launch_plan, plain_request, slurms_log_dir
from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.batch.script import option, options
from jupyterhub_gpuspawner.batch.shell import call, find_python, prologue_lines, setup_lines, srun_cpus, unpack
from jupyterhub_gpuspawner.check.finding import Case, Code, Context, Finding
from jupyterhub_gpuspawner.check.machine import START, HubAddress, hub_address
from jupyterhub_gpuspawner.check.on_node import MARK
from jupyterhub_gpuspawner.check.run_as import PREFIX
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.job.log import Extent, last_lines
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm import job as jobs
from jupyterhub_gpuspawner.slurm.accounts import refuse_root
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.job import Account, Job, Phase, own_account
from jupyterhub_gpuspawner.slurm.reason import meaning
from jupyterhub_gpuspawner.slurm.scontrol import parameter_seconds
from jupyterhub_gpuspawner.wire.documents import LOG_MARK, LaunchPlan, printable
from jupyterhub_gpuspawner.words import duration

RAN = Code("job-ran", "the job of a partition ran, and its node has what servers need.", "--submit")
ON_NODE = Code("job-placed", "where the launcher placed itself on the node, and what it could not learn.", "--submit")
REFUSED = Code(
    "job-refused", "Slurm refused the job of a partition, or it could not be submitted.", "--submit", as_user=True
)
PROLOG = Code(
    "prolog-long",
    "Slurm's Prolog takes longer than BatchStartTimeout, after which Slurm may end a job as lost.",
    "--submit",
)
PENDING = Code("job-pending", "the job did not start in time, so its node was not looked at.", "--submit")
CHANGED = Code("job-changed", "something at the site changes the comment, name or partition of jobs.", "--submit")
LOG_DIR = Code("log-dir-missing", "a job could not write its log, most often since log_dir is missing.", "--submit")
LOG_UNREAD = Code("job-log-unread", "the log of the job could not be read, so that nothing is known.", "--submit")
HOME = Code("home-missing", "the user's home does not exist on a node.", "--submit")
PYTHON = Code("python-missing", "a node has no Python 3.9 or newer for the launcher.", "--submit")
LOGIN = Code(
    "login-shell-ends",
    "a file that login shells read, such as ~/.bash_profile, ends them, runs another shell, or does not end.",
    "--submit",
)
SETUP = Code("environment-fails", "modules, or another part of a profile's environment, fail on a node.", "--submit")
COMMAND = Code("command-missing", "the server's command does not exist on a node.", "--submit")
CONTAINER = Code("container-missing", "a node lacks the container runtime or image of a profile.", "--submit")
VARIABLES = Code("job-environment", "the hub's variables do not reach the job, or SBATCH_ ones do.", "--submit")
NO_HUB = Code("hub-unreachable", "a node does not reach the hub.", "--submit")
UNREACHABLE = Code("node-unreachable", "the hub's machine does not reach a server's port on a node.", "--submit")
PORTS = Code("ports-taken", "no port of port_range is free on a node.", "--submit")
NOT_CANCELLED = Code("job-left", "the job could not be cancelled afterwards.", "--submit")
NO_USER = Code("submit-without-user", "--submit needs --user: jobs belong to users.")
NO_ACCOUNT = Code("submit-without-account", "the user has no account, or is root, so there is no job.", "--submit")


async def check_submit(context: Context) -> AsyncIterator[Finding]:
    """Submit, follow and cancel the jobs, all partitions at the same time."""
    if not context.options.submit or context.snapshot is None:
        return
    user = context.options.user or ("" if context.spawner.exec_prefix.strip() else own_account())
    if not user:
        yield NO_USER.error("--submit", "jobs belong to users, and none is named.", "Name one with --user.")
        return
    site: GPUSlurmSpawner = context.site.spawner(user, context.options.groups, cluster=context.cluster)
    try:
        if site.exec_prefix.strip():
            await refuse_root(user)
        account = await site.account()
    except ConfigError as error:
        yield NO_ACCOUNT.error(f"user {user}", error.message, error.hint)
        return
    try:
        hub = hub_address(context)
    except ConfigError:  # which the check of names reports
        return
    by_partition: dict[str, list[JobRequest]] = {}
    for request in _requests(context, site, user):
        by_partition.setdefault(request.resources.partition or "", []).append(request)
    jobs = [probe_job(site, account, name, requests, hub.url) for name, requests in by_partition.items()]
    async with listening_hub(hub) as listens:
        followed = await asyncio.gather(*(follow(site, job, account) for job in jobs))
    for job in followed:
        for finding in findings_of(job, hub_listens=listens, prefix_at=context.setting(PREFIX)):
            yield finding


def _requests(context: Context, site: GPUSlurmSpawner, user: str) -> Iterator[JobRequest]:
    """Those of the Slurm profiles whose job can be written for the user, who need not be one that may use them.

    Each unchanged profile, and the options that have a job go to this cluster.
    """
    if not context.profiles:
        yield plain_request(site.job_settings(), username=user, server_name="")
    for profile in context.chosen():
        spawner = context.site.spawner(user, (*context.options.groups, *profile.allow.groups))
        is_here = context.cluster_of(Case(profile)) == context.cluster
        for case in context.cases(profile):
            if not (is_here and case.option):
                with suppress(ConfigError, RequestError):
                    yield spawner.resolve({"profile": profile.slug, **case.options})


# The job of one partition, as text.

MINUTES = 5
"""Time limit of the job."""
PATIENCE = 120.0
"""Seconds that the job may be pending."""
MEMORY = 1024
"""MiB that the job asks for at most."""
LISTENS = 60
"""Seconds for which the job waits for a connection."""
_WHERE = ("licenses", "wckey", "clusters", "nodelist", "exclude")
"""Options of ``extra`` that decide where a job may run, not how large it is."""


Lacking = tuple[Code, str, str]
"""A code, what is lacking, with ``{what}`` and ``{node}``, and the fix."""


@dataclass(frozen=True)
class ProbeJob:
    """The job of one partition."""

    partition: str
    """Empty for the cluster's default."""
    requests: Sequence[JobRequest]
    """Of the profiles that use the partition; the first one's account, QOS and reservation are used."""
    command: str
    """The first word of the command of a server whose profile names none."""
    plan: LaunchPlan
    """The launcher reports to nobody, promises nothing, and claims no GPU."""
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
    extra: str = ""
    """A command that looks at more on the node, and prints facts."""
    packages: Mapping[str, Lacking] = field(default_factory=dict)
    """Packages of Python that the profiles' environments need beside the server's command, and what is said without."""
    finds_commands: bool = True
    """Whether the commands of the servers are searched; not with an admin's own ``batch_script``."""

    @property
    def log(self) -> str:
        """The path of the job's log, with Slurm's ``%j`` for the job id."""
        return f"{self.log_dir}/gpuspawner-check-%j.log"


def probe_job(
    site: GPUSlurmSpawner, account: Account, partition: str, requests: Sequence[JobRequest], hub: str
) -> ProbeJob:
    """The job that looks at a node for these requests; ``hub`` is the URL of the hub's API."""
    word = secrets.token_hex(8)
    start = f"{START}-{word}"
    first, last = (map(int, site.port_range.split("-"))) if site.port_range else (0, 0)
    plan = launch_plan(site.job_settings(), requests[0])
    return ProbeJob(
        partition=partition,
        requests=requests,
        command=site.cmd[0],
        plan=replace(plan, report=False, gpus=None, cpus=None),
        hub=hub,
        ports=requests[0].profile.port_range or (first, last),
        tag=f"{jobs.tag(site.hub_name, account.name, '')}#{start}",
        name=jobs.job_name(site.job_name, start),
        word=word,
        log_dir=slurms_log_dir(site.log_dir, account),
        home=account.home,
        prologue=site.req_prologue,
        gpus_option=site.gpus_option,
        finds_commands=not site.batch_script,
    )


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
        "extra": tuple(option(name, value) for name, value in resources.extra_options if name in _WHERE),
    }
    return resources.model_copy(update=update)


def render(job: ProbeJob) -> str:
    """The batch script; raises ConfigError for a value that cannot be in one."""
    first = {
        "job-name": job.name,
        "comment": job.tag,
        "output": job.log,
        "chdir": job.home,
        "export": "ALL",
        "deadline": f"now+{2 * MINUTES + round(PATIENCE / 60)}minutes",  # removed by Slurm if nobody cancels it
    }
    try:
        lines = [option(name, value) for name, value in first.items()]
        lines += ["--no-requeue", *options(small(job.requests[0].resources), job.plan.policy, job.gpus_option)]
    except ValueError as error:
        raise ConfigError(f"{error}.", where=f"partition {job.partition}") from error
    log = '"$SLURM_JOB_ID"'.join(map(shlex.quote, job.log.split("%j")))
    questions = json.dumps(
        {"hub": job.hub, "ports": job.ports, "word": job.word, "seconds": LISTENS}, separators=(",", ":")
    )
    source = Path(__file__).with_name("on_node.py").read_text("utf-8")
    parts = [
        "\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines)]),
        # whoever has read the log cancels the job, and then nobody needs the log
        f"trap 'rm -f -- \"$gpuspawner_log\"; exit 0' TERM\ngpuspawner_log={log}",
        f"echo {MARK} began '{{}}'\n[ -d \"$HOME\" ] || echo {MARK} no-home '{{}}'",
        *(_of_profile(request, job) for request in job.requests),
        f"echo {MARK} launcher '{{}}'",
        srun_cpus(),
        unpack(launcher_archive(), job.plan),
        find_python("python3", now=True),
        f"GPUSPAWNER_VERBOSE=1 {call(['true'])}",
        _in_environment(job.extra, job.requests[0], job) if job.extra else "",
        f'"$GPUSPAWNER_PYTHON" -I -c {shlex.quote(source)} {shlex.quote(questions)}',
        f"echo {MARK} end '{{}}'\nsleep {LISTENS} & wait $!",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _of_profile(request: JobRequest, job: ProbeJob) -> str:
    """Lines that set up a profile's environment in a shell of its own, and look for its command there."""
    environment, container, slug = request.environment, request.environment.container, request.profile.slug
    lines = [_fact("profile", slug=slug), *setup_lines(environment), *filter(None, [prologue_lines(job.prologue)])]
    if container is not None:
        lines.append(_need("runtime", slug, container.runtime, f"command -v -- {container.runtime} >/dev/null"))
        if container.image.startswith("/"):
            lines.append(_need("image", slug, container.image, f"[ -e {shlex.quote(container.image)} ]"))
    elif job.finds_commands:
        command = request.command[0] if request.command else job.command
        lines.append(_need("command", slug, command, f"command -v -- {shlex.quote(command)} >/dev/null"))
        python = f'"$(dirname -- "$(command -v -- {shlex.quote(command)})")"/python3'
        for package in job.packages:
            imports = " || ".join(f"{name} -c 'import {package}' 2>/dev/null" for name in (python, "python3"))
            lines.append(_need(package, slug, package, imports))
    lines.append(":")  # the exit status says whether the environment could be set up
    started = _fact("shell", slug=slug)
    return f"{started}\n{_in_shell(lines, request)} || {_fact('setup', slug=slug)}"


def _in_environment(command: str, request: JobRequest, job: ProbeJob) -> str:
    """The line that runs a command where the server would run: with a proxy of the profile, or of the login shell."""
    lines = [*setup_lines(request.environment), *filter(None, [prologue_lines(job.prologue)]), command]
    return f"GPUSPAWNER_PYTHON=$GPUSPAWNER_PYTHON {_in_shell(lines, request)}"


def _in_shell(lines: Sequence[str], request: JobRequest) -> str:
    shell = "bash -l" if request.environment.login_shell else "bash"
    script = "\n".join(lines)
    return f"command {shell} -c {shlex.quote(script)} </dev/null"


def _need(fact: str, slug: str, what: str, condition: str) -> str:
    present = _fact(fact, slug=slug, what=what, found=True)
    missing = _fact(fact, slug=slug, what=what, found=False)
    return f"if {condition}; then {present}; else {missing}; fi"


def _fact(fact: str, **content: object) -> str:
    return f"echo {shlex.quote(f'{MARK} {fact} {json.dumps(content)}')}"


# The way between the hub's machine and the nodes: a stand-in for a hub that does not run, and a word sent to a job.

SECONDS = 5.0
"""Time limit of one connection."""


@asynccontextmanager
async def standing_in(context: Context) -> AsyncIterator[None]:
    """While this is open, jobs of all clusters reach something at the hub's address, if they are submitted at all."""
    if not context.options.submit:
        yield
        return
    try:
        hub = hub_address(context)
    except ConfigError:  # which the check of names reports
        yield
        return
    async with listening_hub(hub):
        yield


@asynccontextmanager
async def listening_hub(hub: HubAddress) -> AsyncIterator[bool]:
    """While this is open, something listens at the hub's address: the hub, or a stand-in that answers in its place.

    Yields False if neither does.
    """
    if await _connects(hub.host, urlsplit(hub.url).port or hub.port):
        yield True
        return
    server = HTTPServer(Application([(".*", _StandIn)]), idle_connection_timeout=SECONDS)
    try:
        server.listen(hub.port, hub.listens)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        server.stop()
        await server.close_all_connections()


class _StandIn(RequestHandler):
    def get(self) -> None:
        self.finish({"version": "check"})


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


# What a job's log says about its node.


_MISSING: dict[str, Lacking] = {
    "command": (
        COMMAND,
        "there is no command {what} on {node} after the profile's environment is set up.",
        "Install it, give its full path in c.Spawner.cmd, or load a module that has it.",
    ),
    "runtime": (CONTAINER, "{node} has no container runtime {what}.", "Install it there."),
    "image": (CONTAINER, "{node} has no image {what}.", "Install it there."),
}
"""By fact, what is said of something that a profile needs and the node lacks."""


@dataclass
class JobLog:
    """The lines of a job's log, as far as it got. The user's job writes it, so its values are of any type."""

    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The content of each fact by its name."""
    shells: dict[str, bool] = field(default_factory=dict)
    """Profiles for which a shell was started, and whether it came to the profile's first line."""
    missing: list[tuple[str, str, str]] = field(default_factory=list)
    """What profiles lack on the node: the fact that says so, the profile, and its name."""
    failed: dict[str, str] = field(default_factory=dict)
    """Profiles whose environment could not be set up, and why."""
    placement: list[str] = field(default_factory=list)
    """The launcher's own lines: first where it placed itself, then its problems."""

    @property
    def port(self) -> int | None:
        """Where the job listened; 0 if no port was free, None while that is not known."""
        port = self.facts.get("port", {}).get("port")
        return port if type(port) is int and 0 <= port <= 65535 else None


def parse_log(text: str) -> JobLog:
    """Read a log, which may end anywhere; lines that are not facts are ignored.

    The first lines may be missing: the script `log` prints the end of a log.
    """
    log, message = JobLog(), ""
    for line in text.splitlines():
        if line.startswith(LOG_MARK):
            message = line[len(LOG_MARK) :].strip()
            if "launcher" in log.facts:
                log.placement.append(message)
            continue
        mark, _, rest = line.partition(" ")
        fact, _, content = rest.partition(" ")
        try:
            values = json.loads(content) if mark == MARK else None
        except ValueError:
            continue
        if not isinstance(values, dict):
            continue
        log.facts[fact] = values
        if fact == "profile":
            message = ""
            log.shells[str(values.get("slug"))] = True
        elif fact == "shell":
            log.shells[str(values.get("slug"))] = False
        elif fact == "setup" and log.shells.get(str(values.get("slug")), True):
            log.failed[str(values.get("slug"))] = message
        elif "found" in values and values["found"] is not True:
            log.missing.append((fact, str(values.get("slug")), str(values.get("what"))))
    return log


# Submits the small job, follows it, and cancels it whatever happens.

RUNS = 90.0
"""Seconds for which a running job is followed."""
STEP = 1.0
"""Seconds between two looks."""
POLL_SECONDS = 5
"""Looks at the log after the job's end: a shared file system may be late."""
_WHOLE = Extent(1 << 16, None)
_OVER = (Phase.ENDING, Phase.ENDED)


@dataclass
class FollowedJob:
    """What became of one job, as far as it was followed."""

    job: ProbeJob
    job_id: str = ""
    """Empty if the job was not submitted."""
    refused: GPUSpawnerError | None = None
    """Why it was not submitted."""
    first: Job | None = None
    """The job as Slurm first showed it."""
    last: Job | None = None
    """The job as Slurm last showed it before it was cancelled."""
    log: JobLog = field(default_factory=JobLog)
    log_is_readable: bool = True
    """Whether this account has a way to read the user's logs."""
    prolog: float = 0.0
    """Seconds for which Slurm's Prolog was seen to run."""
    batch_start: int | None = None
    """BatchStartTimeout in seconds; None where it is not known, and where no Prolog was seen."""
    back: str | None = None
    """Why this machine did not reach the job; empty if it did, None if it was not tried."""
    not_cancelled: str = ""
    """Why the job could not be cancelled afterwards."""


async def follow(site: GPUSlurmSpawner, job: ProbeJob, account: Account) -> FollowedJob:
    """Submit the job of one partition, follow it to its last fact, and cancel it, also if this is cancelled."""
    client, prefix = site.connection().client, site.as_user()
    environment = {**site.job_environment(account), "JUPYTERHUB_API_URL": job.hub, "GPUSPAWNER_CHECK": job.word}
    for token in ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN"):
        environment.pop(token, None)
    followed = FollowedJob(job, log_is_readable=bool(not prefix or site.wrapper_dir or os.geteuid() == 0))
    submitted = asyncio.ensure_future(client.submit(render(job), prefix=prefix, environment=environment))
    try:
        followed.job_id = await asyncio.shield(submitted)
        await _watch(client, site, followed, prefix)
    except GPUSpawnerError as error:
        if followed.job_id or isinstance(error, SlurmUnavailable):
            raise
        followed.refused = error
    finally:
        followed.not_cancelled = await _cancelled(client, submitted, prefix, job)
    return followed


async def _cancelled(client: SlurmClient, submitted: asyncio.Future[str], prefix: Sequence[str], job: ProbeJob) -> str:
    """Cancel the job that sbatch made, or may have made; why that failed, or empty."""
    owner = {"USER": job.requests[0].username}
    try:
        job_id = await submitted
    except SlurmUnavailable:
        with suppress(GPUSpawnerError):
            for job_id in await client.tagged(job.tag):
                await client.cancel(job_id, prefix=prefix, environment=owner)
        return ""
    except GPUSpawnerError:
        return ""
    try:
        await client.cancel(job_id, prefix=prefix, environment=owner)
    except GPUSpawnerError as error:
        return str(error)
    return ""


async def _watch(client: SlurmClient, site: GPUSlurmSpawner, followed: FollowedJob, prefix: Sequence[str]) -> None:
    """Follow a job until it has said all, has ended or takes too long."""
    began, text, polls = time.monotonic(), "", 0
    limit = PATIENCE
    while time.monotonic() - began < limit:
        job = (await client.jobs([followed.job_id])).get(followed.job_id)
        if job is not None:
            followed.first, followed.last = followed.first or job, job
            if job.is_prepared and job.starts_at is not None:
                followed.prolog = time.time() - job.starts_at
                if followed.batch_start is None:
                    parameters = (await client.config()).parameters
                    followed.batch_start = parameter_seconds(parameters, "BatchStartTimeout")
        running = job is not None and job.phase is not Phase.QUEUED and not job.is_prepared
        if running and limit == PATIENCE:
            began, limit = time.monotonic(), RUNS
        if running and followed.log_is_readable:
            text = await _log(client, site, followed, prefix) or text
            followed.log = parse_log(text)
        port = followed.log.port
        if followed.back is None and port and job is not None and job.batch_host:
            followed.back = await answers_with(followed.job.word, await client.address(job.batch_host), port)
        if port == 0 or (port is not None and followed.back is not None):
            break
        if job is None or job.phase in _OVER:
            polls += 1
            if polls > POLL_SECONDS or not followed.log_is_readable:
                break
        await asyncio.sleep(STEP)


async def _log(client: SlurmClient, site: GPUSlurmSpawner, followed: FollowedJob, prefix: Sequence[str]) -> str:
    with suppress(GPUSpawnerError):
        if prefix and site.wrapper_dir:
            return await client.log_end(followed.job_id, prefix=prefix)
        return await last_lines(followed.job.log.replace("%j", followed.job_id), prefix, _WHOLE)
    return ""


# What a followed job shows: findings, from Slurm's account of it and its own facts.


def findings_of(
    followed: FollowedJob, *, hub_listens: bool = True, prefix_at: str = "c.GPUSlurmSpawner.exec_prefix"
) -> Iterator[Finding]:
    """The findings of one job, without characters of its log that a terminal would act on.

    ``hub_listens``: whether anything listened at the hub's address meanwhile; ``prefix_at``: where exec_prefix is set.
    """
    for finding in _findings(followed, hub_listens=hub_listens, prefix_at=prefix_at):
        yield replace(finding, where=printable(finding.where), text=printable(finding.text))


def _findings(followed: FollowedJob, *, hub_listens: bool, prefix_at: str) -> Iterator[Finding]:
    job, last, log = followed.job, followed.last, followed.log
    where = f"partition {job.partition or '(default)'}"
    if followed.not_cancelled:
        yield NOT_CANCELLED.error(where, f"job {followed.job_id} could not be cancelled: {followed.not_cancelled}")
    if (refused := followed.refused) is not None:
        of_prefix = refused.where == PREFIX
        why = refused.fault if of_prefix else refused.message
        yield REFUSED.error(prefix_at if of_prefix else where, f"the job was not submitted: {why}", refused.hint)
        return
    if followed.first is not None:
        yield from _changes(job, followed.first)
    node = f"node {last.batch_host}" if last is not None and last.batch_host else where
    if followed.batch_start is not None and followed.prolog > followed.batch_start:
        yield PROLOG.warning(
            node,
            f"Slurm's Prolog took {duration(round(followed.prolog))} or more, and BatchStartTimeout is "
            f"{duration(followed.batch_start)}: Slurm may end servers that start as lost (NODE_FAIL).",
            "Set BatchStartTimeout in slurm.conf to more than the Prolog ever takes, or have it do less.",
        )
    if last is not None and (last.phase is Phase.QUEUED or last.is_prepared):
        yield _not_started(followed, last, node if last.is_prepared else where)
        return
    if not log.facts:
        yield _without_log(followed, node)
        return
    if "no-home" in log.facts:
        yield HOME.error(node, f"the home {job.home} does not exist.", "Mount it on the nodes, or set req_homedir.")
    faults = [
        *_of_shells(log, node),
        *_of_environments(log, node, {**_MISSING, **job.packages}),
        *_of_network(followed, node, hub_listens=hub_listens),
    ]
    yield from faults
    python = log.facts.get("python", {}).get("version")
    if log.placement and python:
        first, *problems = log.placement
        yield ON_NODE.ok(node, f"the launcher found {first.partition(': ')[2] or first}")
        yield from (ON_NODE.warning(node, f"the launcher says: {problem}") for problem in problems)
    if not faults and log.port is not None:
        yield RAN.ok(
            node,
            f"Python {python}, the command, the log and the ways to the hub and back are in order "
            f"(job {followed.job_id}).",
        )


def _not_started(followed: FollowedJob, last: Job, where: str) -> Finding:
    late = f"did not start within {duration(PATIENCE)} and was cancelled."
    if last.is_prepared:
        text = f"the script of job {followed.job_id} {late} Slurm's Prolog has not ended."
        return PENDING.warning(where, text, "Look at the Prolog of that node.")
    reason = meaning(last.reason).sentence if last.reason else "Slurm gives no reason."
    fix = "Run the check again while the partition has a free node."
    return PENDING.warning(where, f"job {followed.job_id} {late} {reason}", fix)


def _changes(probe: ProbeJob, job: Job) -> Iterator[Finding]:
    where = f"job {job.job_id}"
    comment, name = job.tag != probe.tag, job.name != probe.name
    if comment and name:
        yield CHANGED.error(
            where,
            f"Slurm shows the comment {job.tag[:60]!r} and the name {job.name[:60]!r}, not those of the job: a job "
            "whose id is lost cannot be found again.",
            "Have the plugin (JobSubmitPlugins, CliFilterPlugins) keep comments that begin with "
            "jupyterhub-gpuspawner/, or job names.",
        )
    elif comment or name:
        what, shown = ("comment", job.tag) if comment else ("name", job.name)
        yield CHANGED.warning(
            where,
            f"Slurm shows the {what} {shown[:60]!r}, not the one that the job was submitted with; jobs are found "
            f"again by their {'name' if comment else 'comment'} instead.",
            "Have the plugin (JobSubmitPlugins, CliFilterPlugins) keep it.",
        )
    partitions = (probe.partition or job.partition).split(",")
    if not set(job.partition.split(",")) <= set(partitions):
        yield CHANGED.warning(
            where,
            f"Slurm put the job into partition {job.partition}, and it asked for {probe.partition}: the form shows "
            "what is free in a partition where servers do not run.",
            "Name that partition in the profile, or exempt servers from the plugin.",
        )


def _without_log(followed: FollowedJob, node: str) -> Finding:
    job = followed.last
    if not followed.log_is_readable:
        return LOG_UNREAD.warning(
            node,
            f"job {followed.job_id} ran, but this account has no way to read the log of another user.",
            "Set wrapper_dir: the script `log` reads it. Users are not shown their servers' logs either.",
        )
    if job is not None and job.phase in _OVER:
        return LOG_DIR.error(
            node,
            f"job {followed.job_id} ended at once ({job.state}, exit code {job.exit_code or 'unknown'}) and left no "
            f"log: {followed.job.log_dir} does not exist there, or the user may not write to it.",
            "Create the folder on every node, or set c.GPUSlurmSpawner.log_dir to one that exists.",
        )
    return LOG_UNREAD.warning(
        node,
        f"job {followed.job_id} ran, and its log in {followed.job.log_dir} did not appear on this machine.",
        "Set c.GPUSlurmSpawner.log_dir to a folder that nodes and hub share, if failed starts should show their log.",
    )


_LOGIN_FILES = "~/.bash_profile, ~/.bash_login, ~/.profile and /etc/profile.d"


def _of_shells(log: JobLog, node: str) -> Iterator[Finding]:
    """Whether the shells that set up environments came to the first line of each profile, and past the last."""
    if "launcher" not in log.facts and log.shells:
        slug, entered = list(log.shells.items())[-1]
        if entered:
            text = f"its environment was not set up on {node}; the job was followed for {duration(RUNS)}."
            yield SETUP.error(f"profile {slug}", text, "See `environment` in the profile.")
        else:
            text = f"the user's login shell did not get through the files that it reads within {duration(RUNS)}."
            yield LOGIN.error(node, text, f"Look for what asks a question or never ends in {_LOGIN_FILES}.")
    elif not all(log.shells.values()):
        text = "the user's login shell ended, or ran another shell, before it came to the lines of a profile."
        fix = f"Look for exec and exit in {_LOGIN_FILES}, and run these in interactive shells only."
        yield LOGIN.error(node, text, fix)


def _of_environments(log: JobLog, node: str, lacking: Mapping[str, Lacking]) -> Iterator[Finding]:
    for slug, message in log.failed.items():
        text = f"its environment cannot be set up on {node}: {message or 'one of its lines failed'}."
        yield SETUP.error(f"profile {slug}", text, "See `environment` in the profile.")
    for fact, slug, what in log.missing:
        if fact in lacking:  # anything may be in the log, which the user writes
            code, text, fix = lacking[fact]
            yield code.error(f"profile {slug}", text.format(node=node, what=what), fix)
    variables = log.facts.get("environment")
    if variables is not None and variables.get("arrived") is not True:
        yield VARIABLES.error(
            node,
            "the hub's variables did not reach the job, so no server could sign in to the hub.",
            "Look for SBATCH_EXPORT, for --export in batch_script or a plugin, and for sudo without -E.",
        )
    if names := (variables or {}).get("sbatch"):
        yield VARIABLES.warning(
            node,
            f"the job has {', '.join(map(str, names))} in its environment, which override what jobs ask for.",
            "Look for them in /etc/environment, in sudo's env_keep, and in c.Spawner.environment.",
        )
    if "launcher" in log.facts and "python" not in log.facts:
        why = log.placement[-1] if log.placement else "the launcher did not run"
        yield PYTHON.error(node, f"{why}.", "Install Python 3.9 or newer, or load a module that has one.")


def _of_network(followed: FollowedJob, node: str, *, hub_listens: bool) -> Iterator[Finding]:
    job, log = followed.job, followed.log
    hub = log.facts.get("hub")
    if hub_listens and hub is not None and not (hub.get("reached") is True and hub.get("hub") is True):
        status = f"it answered with HTTP status {hub['status']}" if hub.get("status") else ""
        yield NO_HUB.error(
            node,
            f"the hub is not reached at {job.hub}: {hub.get('why') or status or 'something else answers there'}.",
            "Set c.JupyterHub.hub_ip to an address that nodes reach, and open the hub's port (8081) to them.",
        )
    first, last = job.ports
    if log.port == 0:
        text = f"none of {log.facts['port'].get('tried')} ports from {first} to {last} is free."
        yield PORTS.error(node, text, "Widen c.GPUSlurmSpawner.port_range.")
    if followed.back:
        which = f"ports {first} to {last}" if first else "all ports above 1024"
        yield UNREACHABLE.error(
            node,
            f"this machine does not reach port {log.port} there: {followed.back}.",
            f'Open {which} from the hub\'s machine to the nodes; see the guide "Connect browsers, hub and nodes".',
        )
    if "python" in log.facts and log.port is None:
        text = f"the job did not say all it was asked for (it had {duration(MINUTES * 60)})."
        yield LOG_UNREAD.warning(node, text, "Try again.")
