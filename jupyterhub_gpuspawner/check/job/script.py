"""The batch script of the small job: the resources of a profile cut down, and the same environment. Pure."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.batch.script import option, options
from jupyterhub_gpuspawner.batch.shell import call, find_python, setup_lines, srun_cpus, unpack
from jupyterhub_gpuspawner.check.job.on_node import MARK
from jupyterhub_gpuspawner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyterhub_gpuspawner.profiles.resolve import JobRequest, ResolvedResources
    from jupyterhub_gpuspawner.wire.documents import LaunchPlan

START = "check"
"""The mark of these jobs' comments, in place of a hub's."""
MINUTES = 5
"""Time limit of the job."""
PATIENCE = 120.0
"""Seconds that the job may be pending."""
MEMORY = 1024
"""MiB that the job asks for at most."""
LISTENS = 60
"""Seconds for which the job waits for a connection."""
_KEPT = ("--licenses", "-L", "--wckey", "--clusters", "-M", "--nodelist", "-w", "--exclude", "-x")
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


def small(asked: ResolvedResources) -> ResolvedResources:
    """The resources cut down to one core and one GPU, which say where a job may run and not how large it is."""
    return replace(
        asked,
        nodes=1,
        gpus=1 if asked.gpus else None,
        shards=1 if asked.shards else None,
        cpus=1,
        memory=None if asked.memory is None else min(asked.memory or MEMORY, MEMORY),
        time=MINUTES * 60,
        time_unit="",
        exclusive=False,
        extra=tuple(line for line in asked.extra if line.startswith(_KEPT)),
    )


def render(trial: Trial, plan: LaunchPlan) -> str:
    """The batch script; raises ConfigError for a value that cannot be in one."""
    asked = small(trial.profiles[0].request.resources)
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
        head += [f"#SBATCH {each}" for each in ("--no-requeue", *options(asked, plan.policy, trial.gpus_option))]
    except ValueError as error:
        raise ConfigError(f"{error}.", where=f"partition {trial.partition}") from error
    log = '"$SLURM_JOB_ID"'.join(map(shlex.quote, trial.log.split("%j")))
    asked_of_node = json.dumps(
        {"hub": trial.hub, "ports": trial.ports, "word": trial.word, "seconds": LISTENS}, separators=(",", ":")
    )
    source = Path(__file__).with_name("on_node.py").read_text("utf-8")
    parts = [
        "\n".join(head),
        # whoever has read the log cancels the job, and then nobody needs the log
        f"trap 'rm -f -- \"$gpuspawner_log\"; exit 0' TERM\ngpuspawner_log={log}",
        f"echo {MARK} began '{{}}'\n[ -d \"$HOME\" ] || echo {MARK} no-home '{{}}'",
        *(_of_profile(each, trial) for each in trial.profiles),
        f"echo {MARK} launcher '{{}}'",
        srun_cpus(),
        unpack(launcher_archive(), plan),
        find_python(["python3"], now=True),
        f"GPUSPAWNER_VERBOSE=1 {call(['true'])}",
        f'"$GPUSPAWNER_PYTHON" -I -c {shlex.quote(source)} {shlex.quote(asked_of_node)}',
        f"echo {MARK} end '{{}}'\nsleep {LISTENS} & wait $!",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _of_profile(tried: Tried, trial: Trial) -> str:
    """Lines that set up a profile's environment in a shell of its own, and look for its command there."""
    environment = tried.request.environment
    lines = [f"echo {MARK} profile {shlex.quote(json.dumps({'slug': tried.slug}))}"]
    lines += setup_lines(environment)
    lines += [trial.prologue] if trial.prologue else []
    lines += _looks(tried, trial)
    shell = "bash -l" if environment.login_shell else "bash"
    failed = shlex.quote(f"{MARK} setup {json.dumps({'slug': tried.slug})}")
    return f"command {shell} -c {shlex.quote(chr(10).join(lines))} </dev/null || echo {failed}"


def _looks(tried: Tried, trial: Trial) -> Iterator[str]:
    container = tried.request.environment.container
    if container is not None:
        yield _look("runtime", tried.slug, container.runtime, f"command -v -- {container.runtime} >/dev/null")
        if container.image.startswith("/"):
            yield _look("image", tried.slug, container.image, f"[ -e {shlex.quote(container.image)} ]")
    elif trial.finds_commands:
        found = f"command -v -- {shlex.quote(tried.command)} >/dev/null"
        yield _look("command", tried.slug, tried.command, found)
    yield ":"  # the exit status says whether the environment could be set up


def _look(fact: str, slug: str, what: str, condition: str) -> str:
    def line(*, found: bool) -> str:
        return shlex.quote(f"{MARK} {fact} {json.dumps({'slug': slug, 'what': what, 'found': found})}")

    return f"if {condition}; then echo {line(found=True)}; else echo {line(found=False)}; fi"


def partitions(profiles: Sequence[Tried]) -> dict[str, tuple[Tried, ...]]:
    """The profiles by the partition that they ask for, in their order; the cluster's default is an empty name."""
    found: dict[str, tuple[Tried, ...]] = {}
    for each in profiles:
        name = each.request.resources.partition or ""
        found[name] = (*found.get(name, ()), each)
    return found
