"""``gpuspawner check --submit``: one small job in each partition that profiles use, as a user."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from jupyterhub_gpuspawner.batch.job import plain_request
from jupyterhub_gpuspawner.check.finding import Case, Code, Context, Finding
from jupyterhub_gpuspawner.check.machine import HubAddress, hub_address, ways_of
from jupyterhub_gpuspawner.check.on_node import MARK
from jupyterhub_gpuspawner.check.probe_job import MINUTES, PATIENCE, Lacking, ProbeJob, probe_job, render
from jupyterhub_gpuspawner.check.run_as import PREFIX
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.hub.extensions import ServerExtensions
from jupyterhub_gpuspawner.hub.job.log import Extent, last_lines
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.placement.topology import as_line
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.slurm.accounts import refuse_root
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.job import Account, Job, Phase, own_account
from jupyterhub_gpuspawner.slurm.reason import meaning
from jupyterhub_gpuspawner.slurm.scontrol import parameter_seconds
from jupyterhub_gpuspawner.tasks import timeout
from jupyterhub_gpuspawner.wire.documents import LOG_MARK
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
FOLDER = Code(
    "folder-full", "a node's folder for temporary files cannot be written, since it is full or missing.", "--submit"
)
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
    ways = ways_of(site)
    async with listening_hub(hub) as listens:
        try:
            await ways.await_each(WithServer.lead_back)
            followed = await asyncio.gather(*(follow(site, job, account) for job in jobs))
        finally:
            await ways.await_each(WithServer.leave)
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


# The way between the hub's machine and the nodes: a stand-in for a hub that does not run, and a word sent to a job.

SECONDS = 5.0
"""Time limit of one connection."""
WAY_SECONDS = 15.0
"""Time limit for the way to a node, where an extension makes it."""


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
    folders: list[str] = field(default_factory=list)
    """Why folders of the node cannot hold the launcher."""
    before: list[str] = field(default_factory=list)
    """What else was said before the launcher started."""
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
        if fact == "unpacked":
            log.folders, log.placement = log.placement, []
        elif fact == "starts":
            log.before, log.placement = log.placement, []
        elif fact == "profile":
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
    ways = ways_of(site)
    environment = {**site.job_environment(account), "JUPYTERHUB_API_URL": job.hub, "GPUSPAWNER_CHECK": job.word}
    for token in ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN"):
        environment.pop(token, None)
    followed = FollowedJob(job, log_is_readable=bool(not prefix or site.wrapper_dir or os.geteuid() == 0))
    submitted = asyncio.ensure_future(client.submit(render(job), prefix=prefix, environment=environment))
    try:
        followed.job_id = await asyncio.shield(submitted)
        await _watch(client, site, ways, followed, prefix)
    except GPUSpawnerError as error:
        if followed.job_id or isinstance(error, SlurmUnavailable):
            raise
        followed.refused = error
    finally:
        await ways.await_each(WithServer.leave)
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


async def _watch(
    client: SlurmClient, site: GPUSlurmSpawner, ways: ServerExtensions, followed: FollowedJob, prefix: Sequence[str]
) -> None:
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
            followed.back = await _back(ways, followed.job.word, await client.address(job.batch_host), port)
        if port == 0 or (port is not None and followed.back is not None):
            break
        if job is None or job.phase in _OVER:
            polls += 1
            if polls > POLL_SECONDS or not followed.log_is_readable:
                break
        await asyncio.sleep(STEP)


async def _back(ways: ServerExtensions, word: str, host: str, port: int) -> str:
    """Why this machine does not reach the job, by the way that the hub would take; empty if it does."""
    try:
        async with timeout(WAY_SECONDS):
            entrance = await ways.await_first(WithServer.reach, host, port)
    except asyncio.TimeoutError:
        return (await ways.await_first(WithServer.unreached) or "there is no way to it").removesuffix(".")
    fault = await answers_with(word, *(entrance or (host, port)))
    why = await ways.await_first(WithServer.unreached) if fault else ""
    return f"{fault}. {why}".removesuffix(".") if why else fault


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
        yield replace(finding, where=as_line(finding.where), text=as_line(finding.text))


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
    if log.folders:
        fix = "Servers write there, too. Make room, or give another TMPDIR to jobs, such as in a profile's environment."
        yield FOLDER.warning(node, f"{'; '.join(log.folders)}.", fix)
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
        yield from (ON_NODE.warning(node, f"before the launcher: {line}") for line in log.before)
        yield from (ON_NODE.warning(node, f"the launcher says: {problem}") for problem in problems)
    if not faults and not log.folders and log.port is not None:
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
