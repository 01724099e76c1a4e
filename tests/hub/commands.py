"""Slurm's commands wrapped in shell scripts that delay or change them: a folder for ``slurm_bin_dir``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm

NAMES = ("sbatch", "scancel", "scontrol", "sinfo", "squeue")


def commands(folder: Path, real: str, changed: Mapping[str, str]) -> Path:
    """Create a folder of all commands; lines of shell in ``changed`` call the real command as ``"$real" "$@"``.

    Standard input and output are the real command's; so is the exit status if it is the last command of the script.
    In a folder that exists the commands are replaced: those that run go on with the lines that they began with.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        lines = changed.get(name, 'exec "$real" "$@"')
        file = folder / f".{name}"
        file.write_text(f"#!/bin/bash\nreal={shlex.quote(f'{real}/{name}')}\n{lines}\n")
        file.chmod(0o755)
        file.rename(folder / name)
    return folder


def slow(before: float = 0.0, after: float = 0.0) -> str:
    """Shell lines that run the command with so many seconds of delay before and after it."""
    return f'sleep {before}\n"$real" "$@"\nstatus=$?\nsleep {after}\nexit $status'


@dataclass(frozen=True)
class OddSite:
    """A hub, and the folder of the commands that it runs, which a test can change."""

    hub: HubProcess
    slurm: PrivateSlurm
    folder: Path

    def change(self, changed: Mapping[str, str]) -> Callable[[], str]:
        """Give the hub these commands; return a function that reads what it has logged since then."""
        commands(self.folder, self.slurm.bin_dir, changed)
        logged = len(self.hub.log.read_text())
        return lambda: self.hub.log.read_text()[logged:]
