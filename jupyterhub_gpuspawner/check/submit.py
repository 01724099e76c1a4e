"""``gpuspawner check --submit``: one small job in each partition that profiles use, as a user."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from dataclasses import replace

from jupyterhub_gpuspawner.check.finding import START, Code, Context, Finding
from jupyterhub_gpuspawner.check.machine import hub_address
from jupyterhub_gpuspawner.check.run_as import PREFIX
from jupyterhub_gpuspawner.check.trial import (
    MINUTES,
    PATIENCE,
    Course,
    Facts,
    Trial,
    Tried,
    follow,
    listening_hub,
    partitions,
)
from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.hub.site.account import Account, refuse_root
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start.build import launch_plan, plain_request
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.slurm import identity
from jupyterhub_gpuspawner.slurm.commands import command_prefix
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.reason import meaning
from jupyterhub_gpuspawner.slurm.snapshot_reader import own_account
from jupyterhub_gpuspawner.wire.documents import LaunchPlan
from jupyterhub_gpuspawner.words import duration

# What a followed job shows: findings, from Slurm's account of it and its own facts.

RAN = Code("job-ran", "With --submit: the job of a partition ran, and its node has what servers need.")
PLACED = Code("job-placed", "With --submit: where the launcher placed itself on the node, and what it could not learn.")
REFUSED = Code("job-refused", "With --submit: Slurm refused the job of a partition, or it could not be submitted.")
PENDING = Code("job-pending", "With --submit: the job did not start in time, so its node was not looked at.")
CHANGED = Code("job-changed", "With --submit: something at the site changes the comment, name or partition of jobs.")
LOG_DIR = Code("log-dir-missing", "With --submit: a job could not write its log, most often since log_dir is missing.")
LOG_UNREAD = Code("job-log-unread", "With --submit: the log of the job could not be read, so that nothing is known.")
HOME = Code("home-missing", "With --submit: the user's home does not exist on a node.")
PYTHON = Code("python-missing", "With --submit: a node has no Python 3.9 or newer for the launcher.")
SETUP = Code("environment-fails", "With --submit: modules, or another part of a profile's environment, fail on a node.")
COMMAND = Code("command-missing", "With --submit: the server's command does not exist on a node.")
CONTAINER = Code("container-missing", "With --submit: a node lacks the container runtime or image of a profile.")
VARIABLES = Code("job-environment", "With --submit: the hub's variables do not reach the job, or SBATCH_ ones do.")
NO_HUB = Code("hub-unreachable", "With --submit: a node does not reach the hub.")
UNREACHABLE = Code("node-unreachable", "With --submit: the hub's machine does not reach a server's port on a node.")
PORTS = Code("ports-taken", "With --submit: no port of port_range is free on a node.")
NOT_CANCELLED = Code("job-left", "With --submit: the job could not be cancelled afterwards.")
CODES = (
    RAN,
    PLACED,
    REFUSED,
    PENDING,
    CHANGED,
    LOG_DIR,
    LOG_UNREAD,
    HOME,
    PYTHON,
    SETUP,
    COMMAND,
    CONTAINER,
    VARIABLES,
    NO_HUB,
    UNREACHABLE,
    PORTS,
    NOT_CANCELLED,
)


def findings_of(
    course: Course, *, hub_listens: bool = True, prefix_at: str = "c.GPUSlurmSpawner.exec_prefix"
) -> Iterator[Finding]:
    """The findings of one job.

    ``hub_listens``: whether anything listened at the hub's address meanwhile; ``prefix_at``: where exec_prefix is set.
    """
    trial, job = course.trial, course.last
    where = f"partition {trial.partition or '(default)'}"
    if course.not_cancelled:
        yield NOT_CANCELLED.error(where, f"job {course.job_id} could not be cancelled: {course.not_cancelled}")
    if course.refused is not None:
        of_prefix = isinstance(course.refused, ConfigError) and course.refused.where == PREFIX
        why = course.refused.message.removeprefix(f"{PREFIX}: ")
        yield REFUSED.error(prefix_at if of_prefix else where, f"the job was not submitted: {why}", course.refused.hint)
        return
    if course.seen is not None:
        yield from _changes(trial, course.seen)
    if job is not None and job.phase is Phase.QUEUED:
        yield PENDING.warning(where, *_why_pending(course.job_id, job))
        return
    node = f"node {job.batch_host}" if job is not None and job.batch_host else where
    facts = course.facts
    if not facts.began:
        yield _without_log(course, node)
        return
    if not facts.home:
        yield HOME.error(node, f"the home {trial.home} does not exist.", "Mount it on the nodes, or set req_homedir.")
    faults = [
        *_of_environments(facts, node),
        *_of_python(facts, node),
        *_of_network(course, node, hub_listens=hub_listens),
    ]
    yield from faults
    if facts.placement and facts.python:
        first, *problems = facts.placement
        yield PLACED.ok(node, f"the launcher found {first.partition(': ')[2] or first}")
        yield from (PLACED.warning(node, f"the launcher says: {problem}") for problem in problems)
    if not faults and facts.port is not None:
        yield RAN.ok(
            node,
            f"Python {facts.python}, the command, the log and the ways to the hub and back are in order "
            f"(job {course.job_id}).",
        )


def _changes(trial: Trial, job: Job) -> Iterator[Finding]:
    where = f"job {job.job_id}"
    comment, name = job.tag != trial.tag, job.name != trial.name
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
    partitions = (trial.partition or job.partition).split(",")
    if not set(job.partition.split(",")) <= set(partitions):
        yield CHANGED.warning(
            where,
            f"Slurm put the job into partition {job.partition}, and it asked for {trial.partition}: the form shows "
            "what is free in a partition where servers do not run.",
            "Name that partition in the profile, or exempt servers from the plugin.",
        )


def _why_pending(job_id: str, job: Job) -> tuple[str, str]:
    reason = meaning(job.reason).sentence if job.reason else "Slurm gives no reason."
    text = f"job {job_id} did not start within {duration(PATIENCE)} and was cancelled. {reason}"
    return text, "Run the check again while the partition has a free node."


def _without_log(course: Course, node: str) -> Finding:
    job, trial = course.last, course.trial
    if not course.log_is_readable:
        return LOG_UNREAD.warning(
            node,
            f"job {course.job_id} ran, but this account has no way to read the log of another user.",
            "Set wrapper_dir: the script `log` reads it. Users are not shown their servers' logs either.",
        )
    if job is not None and job.phase in (Phase.ENDED, Phase.ENDING):
        return LOG_DIR.error(
            node,
            f"job {course.job_id} ended at once ({job.state}, exit code {job.exit_code or 'unknown'}) and left no log: "
            f"{trial.log_dir} does not exist there, or the user may not write to it.",
            "Create the folder on every node, or set c.GPUSlurmSpawner.log_dir to one that exists.",
        )
    return LOG_UNREAD.warning(
        node,
        f"job {course.job_id} ran, and its log in {trial.log_dir} did not appear on this machine.",
        "Set c.GPUSlurmSpawner.log_dir to a folder that nodes and hub share, if failed starts should show their log.",
    )


def _of_environments(facts: Facts, node: str) -> Iterator[Finding]:
    for slug, message in facts.failed.items():
        why = message or "one of its lines failed"
        yield SETUP.error(
            f"profile {slug}",
            f"its environment cannot be set up on {node}: {why}.",
            "See `environment` in the profile.",
        )
    for need in facts.needs:
        if need.present:
            continue
        if need.fact == "command":
            yield COMMAND.error(
                f"profile {need.slug}",
                f"there is no command {need.what} on {node} after the profile's environment is set up.",
                "Install it, give its full path in c.Spawner.cmd, or load a module that has it.",
            )
        else:
            what = "container runtime" if need.fact == "runtime" else "image"
            yield CONTAINER.error(f"profile {need.slug}", f"{node} has no {what} {need.what}.", "Install it there.")
    if facts.environment_arrived is False:
        yield VARIABLES.error(
            node,
            "the hub's variables did not reach the job, so no server could sign in to the hub.",
            "Look for SBATCH_EXPORT, for --export in batch_script or a plugin, and for sudo without -E.",
        )
    if facts.sbatch_variables:
        yield VARIABLES.warning(
            node,
            f"the job has {', '.join(facts.sbatch_variables)} in its environment, which override what jobs ask for.",
            "Look for them in /etc/environment, in sudo's env_keep, and in c.Spawner.environment.",
        )


def _of_python(facts: Facts, node: str) -> Iterator[Finding]:
    if facts.launched and not facts.python:
        why = facts.placement[-1] if facts.placement else "the launcher did not run"
        yield PYTHON.error(node, f"{why}.", "Install Python 3.9 or newer, or load a module that has one.")


def _of_network(course: Course, node: str, *, hub_listens: bool) -> Iterator[Finding]:
    trial, facts = course.trial, course.facts
    if hub_listens and facts.hub_reached is not None and not (facts.hub_reached and facts.hub_is_hub):
        why = facts.hub_why or "something else answers there"
        yield NO_HUB.error(
            node,
            f"the hub is not reached at {trial.hub}: {why}.",
            "Set c.JupyterHub.hub_ip to an address that nodes reach, and open the hub's port (8081) to them.",
        )
    first, last = trial.ports
    if facts.port == 0:
        yield PORTS.error(
            node, f"none of {facts.tried} ports from {first} to {last} is free.", "Widen c.GPUSlurmSpawner.port_range."
        )
    if course.back:
        which = f"ports {first} to {last}" if first else "all ports above 1024"
        yield UNREACHABLE.error(
            node,
            f"this machine does not reach port {facts.port} there: {course.back}.",
            f"Open {which} from the hub's machine to the nodes; see docs/howto/ports-and-firewalls.md.",
        )
    if facts.python and facts.port is None:
        limit = duration(MINUTES * 60)
        yield LOG_UNREAD.warning(node, f"the job did not say all it was asked for (it had {limit}).", "Try again.")


NO_USER = Code("submit-without-user", "--submit needs --user: jobs belong to users.")
NO_ACCOUNT = Code("submit-without-account", "With --submit: the user has no account, or is root, so there is no job.")


async def check_submit(context: Context) -> list[Finding]:
    """Submit, follow and cancel the jobs, all partitions at the same time."""
    if not context.options.submit or context.snapshot is None:
        return []
    user = context.options.user or ("" if context.slurm_site.exec_prefix.strip() else own_account())
    if not user:
        return [NO_USER.error("--submit", "jobs belong to users, and none is named.", "Name one with --user.")]
    site = _site_of(context, user)
    try:
        if site.exec_prefix.strip():
            await refuse_root(user)
        account = await site.account()
    except ConfigError as error:
        return [NO_ACCOUNT.error(f"user {user}", error.message, error.hint)]
    try:
        hub = hub_address(context)
    except ConfigError:  # which the check of names reports
        return []
    environment = {
        name: value
        for name, value in site.job_environment(account).items()
        if name not in ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN")
    }
    environment["JUPYTERHUB_API_URL"] = hub.url
    prefix = command_prefix(site.exec_prefix, user)
    trials = [
        _trial(site, account, name, profiles, hub.url)
        for name, profiles in partitions(list(_profiles(context, site, user))).items()
    ]
    async with listening_hub(hub) as listens:
        courses = await asyncio.gather(
            *(follow(site, trial, _plan(site, trial), prefix, environment) for trial in trials)
        )
    at = site.configured_as("exec_prefix")
    return [finding for course in courses for finding in findings_of(course, hub_listens=listens, prefix_at=at)]


def _site_of(context: Context, user: str) -> GPUSlurmSpawner:
    spawner: GPUSlurmSpawner = context.site.spawner(user, context.options.groups)
    return spawner


def _profiles(context: Context, site: GPUSlurmSpawner, user: str) -> Iterator[Tried]:
    """The Slurm profiles whose job can be written for the user; whether the user may use them is another check's."""
    if not context.profiles:
        request = plain_request(site.job_settings(), username=user, server_name="")
        yield Tried(request.profile, request, site.cmd[0])
    for profile in context.profiles:
        if profile.kind != "slurm" or context.options.profile not in ("", profile.slug):
            continue
        spawner = context.site.spawner(user, (*context.options.groups, *profile.allow.groups))
        try:
            request = spawner.resolve({"profile": profile.slug})
        except (ConfigError, RequestError):
            continue
        yield Tried(profile.slug, request, _command(request, site))


def _command(request: JobRequest, site: GPUSlurmSpawner) -> str:
    return (request.command or tuple(site.cmd))[0]


def _plan(site: GPUSlurmSpawner, trial: Trial) -> LaunchPlan:
    """The launcher's plan: it reports to nobody, promises nothing, and claims no GPU."""
    plan = launch_plan(site.job_settings(), trial.profiles[0].request)
    return replace(plan, report=False, gpus=None, cpus=None, claim=None)


def _trial(site: GPUSlurmSpawner, account: Account, partition: str, profiles: tuple[Tried, ...], hub: str) -> Trial:
    word = secrets.token_hex(8)
    start = f"{START}-{word}"
    first, last = (map(int, site.port_range.split("-"))) if site.port_range else (0, 0)
    return Trial(
        partition=partition,
        profiles=profiles,
        hub=hub,
        ports=profiles[0].request.port_range or (first, last),
        tag=f"{identity.tag(site.hub_name, account.name, '')}#{start}",
        name=identity.job_name(site.job_name, start),
        word=word,
        log_dir=site.log_dir.replace("{homedir}", account.home).replace("{username}", account.name),
        home=account.home,
        prologue=site.req_prologue,
        gpus_option=site.gpus_option,
        finds_commands=not site.batch_script,
    )
