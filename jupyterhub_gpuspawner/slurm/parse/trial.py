"""``sbatch --test-only``: when and where Slurm would start a job that is not submitted. Pure.

The answer comes on stderr, with ``--parsable`` too. 26.05 puts a letter between the time and ``using``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.parse.records import epoch, read
from jupyterhub_gpuspawner.units import expand_nodelist

_WOULD_START = re.compile(
    r"^sbatch: Job \d+ to start at (?P<time>\S+)(?: [a-z])? using (?P<cpus>\d+) processors on nodes (?P<nodes>\S+)"
    r" in partition (?P<partition>\S+)$",
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


def parse_trial(stderr: str) -> WillRun:
    """The start predicted by ``sbatch --test-only``; raises SlurmOutputError if it predicts none."""
    found = _WOULD_START.search(stderr)
    starts_at = epoch(found["time"]) if found is not None else None
    if found is None or starts_at is None:
        raise SlurmOutputError("sbatch --test-only predicted no start.", raw=stderr)
    return WillRun(starts_at, read(expand_nodelist, "nodes", found["nodes"]), int(found["cpus"]), found["partition"])
