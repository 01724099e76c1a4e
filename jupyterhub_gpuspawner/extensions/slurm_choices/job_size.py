"""How long and how large one job may be in an account and a QOS: MaxWall and MaxTRES of sacctmgr(1). Pure.

Slurm takes a job beyond them, which then waits for ever, or refuses it (DenyOnLimit).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from math import inf
from typing import NamedTuple

from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.units import parse_memory, parse_walltime
from jupyterhub_gpuspawner.words import counted, duration, memory

GPU = "gres/gpu"
_WORDS: Mapping[str, Callable[[int], str]] = {
    "cpu": lambda number: counted(number, "CPU"),
    "mem": memory,
    "node": lambda number: counted(number, "node"),
}


class Limits(NamedTuple):
    """Those of an association or a QOS, as far as a profile can exceed them."""

    wall: int | None = None
    """Seconds; None: no limit."""
    tres: tuple[tuple[str, int], ...] = ()
    """By the names of TRES; memory in MiB."""


NO_LIMITS = Limits()


class Asked(NamedTuple):
    """What a job requests; what is missing is not known, and exceeds nothing."""

    wall: float | None = None
    """Seconds; ``inf``: UNLIMITED."""
    tres: Mapping[str, int] = {}
    """As in :class:`Limits`."""


NOTHING_KNOWN = Asked()


@lru_cache(maxsize=4096)
def parse_limits(wall: str, tres: str) -> Limits:
    """The columns MaxWall and MaxTRES of ``sacctmgr -P``; what is not understood limits nothing."""
    amounts = []
    for item in filter(None, tres.split(",")):
        name, _, value = item.partition("=")
        with suppress(ValueError):
            amounts.append((name, parse_memory(value) if name == "mem" else int(value)))
    seconds = None
    with suppress(ValueError):
        seconds = parse_walltime(wall) if wall else None
    return Limits(seconds, tuple(amounts))


def asked_of(resources: Resources) -> Asked:
    """What a job with these resources requests, at least: Slurm may count more CPUs and memory, but not fewer."""
    nodes = resources.nodes or 1
    tres = {"node": nodes}
    for name, amount in (("cpu", resources.cpus), ("mem", resources.memory), (GPU, resources.gpus)):
        if amount:
            tres[name] = amount * nodes
    if resources.gpus and resources.gpu_type:
        tres[f"{GPU}:{resources.gpu_type}"] = resources.gpus * nodes
    wall = resources.time
    return Asked(inf if isinstance(wall, str) else wall, tres)


def exceeded(asked: Asked, limits: Iterable[tuple[str, Limits]]) -> str:
    """Which limit a job exceeds, as a clause; empty where none.

    ``limits`` are those of QOS and association with their names, the one first that counts: Slurm looks at the others
    for what it does not limit.
    """
    limits = list(limits)
    for who, of in limits:
        if of.wall is not None:
            if asked.wall is not None and asked.wall > of.wall:
                return f"{who} allows at most {duration(of.wall)}"
            break
    for name, amount in asked.tres.items():
        who, limit = next(((who, dict(of.tres)[name]) for who, of in limits if name in dict(of.tres)), ("", inf))
        if amount > limit:
            return f"{who} allows at most {_amount(name, int(limit))}"
    return ""


def _amount(name: str, number: int) -> str:
    if name in _WORDS:
        return _WORDS[name](number)
    kind = name.removeprefix(GPU).removeprefix(":")
    return counted(number, f"{kind} GPU" if kind else "GPU")
