"""Accounts and QOS as sacctmgr(1) prints them: the limits of each, which QOS a job has, and whose limit counts.

What slurmctld does with them is in its job_mgr.c and acct_policy.c.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import TypeAlias

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.commands import OUTPUT_LIMIT, Installation
from jupyterhub_gpuspawner.slurm.text import parse_tres
from jupyterhub_gpuspawner.units import parse_walltime

Limits: TypeAlias = Mapping[tuple[str, str], float]
"""By scontrol's name of the limit, such as ``GrpTRES``, and the TRES, such as ``gres/gpu``; empty for jobs and minutes.

Memory is in MiB, time in minutes."""
WALL = ("MaxWallPJ", "")
TRES_OF_A_JOB = "MaxTRESPJ"
OF_A_JOB = {"maxwall": "MaxWallPJ", "maxtres": TRES_OF_A_JOB}
"""scontrol's names of columns of sacctmgr."""


async def sacctmgr_show(slurm: Installation, what: str, columns: Sequence[str], *where: str) -> str:
    """What ``sacctmgr show`` prints, for :func:`rows`; raises SlurmUnavailable."""
    command = ("sacctmgr", "-n", "-P", "show", what, *where, f"format={','.join(columns)}")
    return (await slurm.run(*command, limit=OUTPUT_LIMIT)).output()


def rows(text: str, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """The rows by their columns; raises SlurmOutputError for one with another number of fields."""
    for line in text.splitlines():
        values = line.split("|")
        if len(values) != len(columns):
            raise SlurmOutputError(
                f"sacctmgr printed {len(values)} fields for {', '.join(columns)}.", raw=line, field=columns[0]
            )
        yield dict(zip(columns, map(str.strip, values), strict=True))


def limits_of(row: Mapping[str, str], names: Mapping[str, str] = OF_A_JOB) -> Limits:
    """The limits in a row, of columns with these names; what is not understood limits nothing."""
    limits = dict[tuple[str, str], float]()
    for column, name in names.items():
        text = row.get(column, "")
        limits |= {(name, tres): amount for tres, amount in parse_tres(text).items()}
        number = parse_minutes(text) if column == "maxwall" else float(text) if text.isdecimal() else None
        if number is not None:
            limits[name, ""] = number
    return limits


def parse_minutes(text: str) -> float | None:
    """Of a time as Slurm prints it, such as ``1-00:00:00``; None for none."""
    with suppress(ValueError):
        seconds = parse_walltime(text)
        return None if seconds is None else seconds / 60
    return None


def qos_of_job(default: str, allowed: Collection[str], of_root: str) -> str:
    """The QOS of a job that names none: the association's default, its only one, root's default, or ``normal``."""
    return default or (next(iter(allowed)) if len(allowed) == 1 else "") or of_root or "normal"


def in_order(of_partition: str, of_job: str, flags: Collection[str]) -> tuple[str, ...]:
    """The QOS that limit a job, the one first that comes before the other; ``flags``: those of the job's."""
    names = tuple(dict.fromkeys(filter(None, (of_partition.lower(), of_job.lower()))))
    return names[::-1] if "overpartqos" in map(str.lower, flags) else names


def exceeded(requested: Limits, limits: Iterable[tuple[str, Limits]]) -> Iterator[tuple[tuple[str, str], str, float]]:
    """Each limit that a job exceeds, whose it is, and how much it allows.

    ``requested`` has the names of limits, too; ``limits`` those whom Slurm asks, in its order: of each limit the first
    that has it counts.
    """
    limits = list(limits)
    for key, number in requested.items():
        who, most = next(((who, of[key]) for who, of in limits if key in of), ("", inf))
        if number > most:
            yield key, who, most
