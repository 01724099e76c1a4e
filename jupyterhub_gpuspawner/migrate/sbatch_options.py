"""The ``#SBATCH`` lines of a batch script as options with values, and how those of two scripts differ."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.batch.sbatch_line import FLAGS, options_of
from jupyterhub_gpuspawner.units import format_memory, format_walltime, parse_memory, parse_walltime

if TYPE_CHECKING:
    from collections.abc import Mapping

_DIRECTIVE = re.compile(r"#SBATCH\s*(?P<options>.*)")
WHY = {
    "chdir": "the job starts in the home folder of its user's account",
    "comment": "the hub finds its jobs again by their comment",
    "error": "errors are in the same log as the output",
    "exclusive": "a profile says itself whether it takes whole nodes (slurm.exclusive)",
    "export": "the environment of sbatch is made for the job, so all of it is passed on, and nothing else of the hub's",
    "get-user-env": "a login shell runs the script, and Slurm need not start one for each job",
    "gid": "the job is submitted as its user, and only root may name another",
    "gres": "GPUs are requested as the profile's typed fields say",
    "gpus": "GPUs are requested for each node, by --gres",
    "gpus-per-node": "GPUs are requested by --gres",
    "gres-flags": "the placement policy requires it",
    "job-name": "each start has a name of its own, by which its job can be found",
    "no-requeue": "a server that lost its node has lost its work, and its user decides what comes next",
    "nodes": "a server runs on one node, and without the option its GPUs could be on several",
    "ntasks": "a job on one node has one task without it, and with it Slurm may spread the cores over the sockets",
    "output": "logs have one name, and their folder is c.GPUSlurmSpawner.log_dir",
    "uid": "the job is submitted as its user, and only root may name another",
    "workdir": "the option has been called --chdir since Slurm 17.11",
}
"""Why the scripts of this package differ in an option, whatever the configuration."""


_ADDED = frozenset(["chdir", "comment", "export", "job-name", "nodes", "no-requeue", "output", "gres-flags"])
"""Options that this package adds."""


@dataclass(frozen=True)
class OptionChange:
    """An option in which two scripts differ."""

    option: str
    was: str | None
    """None: the option was not given; empty: without a value."""
    now: str | None
    why: str


def sbatch_options(script: str) -> dict[str, str]:
    """Every option by its long name, with its value in one spelling; the value of a flag is empty."""
    found: dict[str, str] = {}
    for line in script.split("\n"):
        if line.strip() and not line.startswith("#"):
            break
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is not None:
            for name, value in options_of(match["options"]):
                found[name] = _normal(name, value)
    return found


def _normal(name: str, value: str) -> str:
    """One spelling: MiB for memory, days and hours for a time."""
    try:
        if name == "mem":
            return format_memory(parse_memory(re.sub("(?i)b$", "", value)))
        if name == "time":
            return format_walltime(parse_walltime(value))
    except ValueError:
        pass
    if name == "export" and value not in ("ALL", "NONE", "NIL"):
        return "(names)"  # those of the hub's variables for a server
    if name == "gres":
        return re.sub(r"(?<=:)1$|^(gpu|shard)$", lambda found: found[0] if found[0] == "1" else f"{found[0]}:1", value)
    return value


def option_changes(was: Mapping[str, str], now: Mapping[str, str]) -> tuple[OptionChange, ...]:
    """The options in which two scripts differ, by name."""
    return tuple(
        OptionChange(name, was.get(name), now.get(name), _why(name, was))
        for name in sorted({*was, *now})
        if was.get(name) != now.get(name)
    )


def _why(name: str, was: Mapping[str, str]) -> str:
    if name == "gres" and not {"gpus", "gpus-per-node"}.isdisjoint(was):
        return WHY["gpus"]
    if name not in was:
        return WHY[name] if name in _ADDED else f"the value of --{name} was set, but the template did not pass it on"
    if not was[name] and name not in FLAGS:
        return "sbatch refuses the option without a value"
    return WHY.get(name, "")


def spelled(name: str, value: str | None) -> str:
    """``--name=value``, or that it is absent."""
    if value is None:
        return "(not given)"
    return f"--{name}={value}" if value else f"--{name}"


def option_of_time(minutes: str) -> str:
    """``--time`` of this many minutes, as hours."""
    return format_walltime(int(minutes) * 60)
