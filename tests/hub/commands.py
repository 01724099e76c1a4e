"""Slurm's commands with something in their way: a folder for ``slurm_bin_dir``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

NAMES = ("sbatch", "scancel", "scontrol", "sinfo", "squeue")


def commands(folder: Path, real: str, changed: Mapping[str, str]) -> Path:
    """A new folder with all commands; ``changed`` has shell lines by name, in which ``"$real" "$@"`` is the real one.

    Standard input, output and exit status are the command's own where a line is the last of its script.
    """
    folder.mkdir(parents=True)
    for name in NAMES:
        lines = changed.get(name, 'exec "$real" "$@"')
        file = folder / name
        file.write_text(f"#!/bin/bash\nreal={shlex.quote(f'{real}/{name}')}\n{lines}\n")
        file.chmod(0o755)
    return folder


def slow(before: float = 0.0, after: float = 0.0) -> str:
    """Lines of a command that takes so many seconds more."""
    return f'sleep {before}\n"$real" "$@"\nstatus=$?\nsleep {after}\nexit $status'
