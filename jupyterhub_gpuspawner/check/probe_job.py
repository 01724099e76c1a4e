"""The small job of ``gpuspawner check --submit`` in one partition, as text."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from jupyterhub_gpuspawner.batch.job import launch_plan, slurms_log_dir
from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.batch.script import option, options
from jupyterhub_gpuspawner.batch.shell import call, find_python, prologue_lines, setup_lines, srun_cpus, unpack
from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.check.machine import START
from jupyterhub_gpuspawner.check.on_node import MARK
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm import job as jobs
from jupyterhub_gpuspawner.slurm.job import Account
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

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
        _fact("unpacked"),
        find_python("python3", now=True),
        _fact("starts"),
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
