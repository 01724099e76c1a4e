"""How long and how large one job may be in an account and a QOS: MaxWall and MaxTRES of sacctmgr(1). Pure.

Slurm takes a job beyond them, which then waits for ever, or refuses it (DenyOnLimit).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.accounting import TRES_OF_A_JOB, WALL, Limits, exceeded
from jupyterhub_gpuspawner.words import counted, duration, memory

GPU = "gres/gpu"
_WORDS: Mapping[str, Callable[[int], str]] = {
    "cpu": lambda number: counted(number, "CPU"),
    "mem": memory,
    "node": lambda number: counted(number, "node"),
}


def requested_by(resources: Resources) -> Limits:
    """What a job with these resources requests, at least: Slurm may count more CPUs and memory, but not fewer.

    By the limits that it counts for. What is missing is not known, and exceeds nothing; UNLIMITED is ``inf``.
    """
    nodes = resources.nodes or 1
    tres = {"node": nodes}
    for name, amount in (("cpu", resources.cpus), ("mem", resources.memory), (GPU, resources.gpus)):
        if amount:
            tres[name] = amount * nodes
    if resources.gpus and resources.gpu_type:
        tres[f"{GPU}:{resources.gpu_type}"] = resources.gpus * nodes
    wall = resources.time
    minutes = {} if wall is None else {WALL: inf if isinstance(wall, str) else wall / 60}
    return minutes | {(TRES_OF_A_JOB, name): float(amount) for name, amount in tres.items()}


def beyond(requested: Limits, limits: Iterable[tuple[str, Limits]]) -> str:
    """Which limit a job exceeds, as a clause; empty where none. See :func:`.accounting.exceeded`."""
    for (name, tres), who, most in exceeded(requested, limits):
        return f"{who} allows at most {duration(most * 60) if (name, tres) == WALL else _amount(tres, int(most))}"
    return ""


def _amount(name: str, number: int) -> str:
    if name in _WORDS:
        return _WORDS[name](number)
    kind = name.removeprefix(GPU).removeprefix(":")
    return counted(number, f"{kind} GPU" if kind else "GPU")
