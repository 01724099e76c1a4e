"""When and where Slurm would start a batch script, asked as the user who would own the job. Nothing is submitted."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.accounts import refuse_root
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import TRIAL, command_prefix
from jupyterhub_gpuspawner.slurm.messages import failure, rejected
from jupyterhub_gpuspawner.slurm.text import epoch, read
from jupyterhub_gpuspawner.units import expand_nodelist

# on stderr, with --parsable too; 26.05 puts a letter between the time and ``using``, and before it the name of a
# cluster that was asked for (--clusters)
_WOULD_START = re.compile(
    r"^sbatch: Job \d+ to start at (?P<time>\S+)(?: on cluster \S+)?(?: [a-z])? using (?P<cpus>\d+) processors"
    r" on nodes (?P<nodes>\S+) in partition (?P<partition>\S+)$",
    re.ASCII | re.MULTILINE,
)


@dataclass(frozen=True)
class WillRun:
    """When and where Slurm would start a job if nothing changed."""

    starts_at: float
    """Seconds since the epoch; centuries ahead if Slurm finds no time, as in a closed partition."""
    nodes: tuple[str, ...]
    cpus: int
    partition: str


async def will_run(client: SlurmClient, script: str, *, prefix: Sequence[str] = (), user: str = "") -> WillRun:
    """Slurm's answer to a batch script (``prefix sbatch --test-only``); sbatch is told the name of ``user``.

    Slurm does not consider limits of partitions, accounts and QOS that would keep a job pending (a time limit over
    MaxTime gets a start time too). Raises SubmitRejected with Slurm's message, ConfigError if the prefix does not
    let sbatch run, SlurmUnavailable, and SlurmOutputError if the answer is not understood.
    """
    slurm = client.installation
    if slurm.wraps(prefix):
        answer = await slurm.run("sbatch", wrapper=TRIAL, prefix=prefix, stdin=script)
    else:
        environment = {"SLURM_TIME_FORMAT": "%s"} | ({"USER": user, "LOGNAME": user} if user else {})
        answer = await slurm.run("sbatch", "--test-only", prefix=prefix, environment=environment, stdin=script)
    if answer.code != 0:
        raise failure("sbatch", answer.stderr) or rejected(answer.stderr)
    return parse_trial(answer.stderr)


def parse_trial(stderr: str) -> WillRun:
    """The start predicted by ``sbatch --test-only``; raises SlurmOutputError if it predicts none."""
    match = _WOULD_START.search(stderr)
    starts_at = epoch(match["time"]) if match is not None else None
    if match is None or starts_at is None:
        raise SlurmOutputError("sbatch --test-only predicted no start.", raw=stderr)
    return WillRun(starts_at, read(expand_nodelist, "nodes", match["nodes"]), int(match["cpus"]), match["partition"])


async def dry_run(client: SlurmClient, script: str, user: str, *, exec_prefix: str, begin: float = 0.0) -> WillRun:
    """The same for a job of a user, who must not be root; ``exec_prefix`` is the setting.

    The job may not begin before ``begin``, in seconds since the epoch. It is told to sbatch in seconds from now, since
    sbatch reads times of day in its own time zone, which need not be that of this machine. Raises GPUSpawnerError.
    """
    await refuse_root(user)
    if (seconds := math.ceil(begin - time.time())) > 0:
        script = script.replace("\n", f"\n#SBATCH --begin=now+{seconds}\n", 1)
    return await will_run(client, script, prefix=command_prefix(exec_prefix, user), user=user)
