"""Slurm's commands that give recorded answers, or other texts: a folder for ``--slurm-bin-dir``."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tests.slurm.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

SCONTROL = """#!/bin/sh
case "$*" in
*"show node"*) cat {folder}/node.out ;;
*"show partition"*) cat {folder}/partition.out ;;
*"show config"*) cat {folder}/config.out ;;
esac
"""


def recorded_commands(folder: Path, version: str) -> Path:
    """The commands of the recorded cluster, with slurmdbd, for a person whose default account is ``proj``."""
    names = {"node": "node_a_o", "partition": "partition_a_o", "config": "config"}
    texts = {name: recorded(version, "scontrol", answer).stdout for name, answer in names.items()}
    return commands(folder, version=recorded(version, "sinfo", "version").stdout, **texts)


def commands(folder: Path, *, version: str, **texts: str) -> Path:
    """Commands that print these texts: scontrol ``node``, ``partition`` and ``config``."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.out").write_text(text)
    command(folder, "scontrol", SCONTROL.format(folder=shlex.quote(str(folder))))
    command(folder, "sinfo", f"#!/bin/sh\nprintf %s {shlex.quote(version)}\n")
    command(folder, "sacctmgr", "#!/bin/sh\necho proj\n")
    return folder


def command(folder: Path, name: str, script: str) -> None:
    """Write a command."""
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)
