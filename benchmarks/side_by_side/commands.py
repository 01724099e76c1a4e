"""Slurm's commands, each wrapped in a shell script that records its call."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

COMMANDS = ("sbatch", "scancel", "scontrol", "sinfo", "squeue", "sacctmgr", "sacct", "salloc")


class CommandLog:
    """A folder for the PATH, and the calls of its commands."""

    def __init__(self, folder: Path, *, bin_dir: str, old: bool) -> None:
        """``bin_dir`` contains the real commands; ``old``: this Slurm's scontrol has no ``--json``."""
        self.folder = folder
        self.file = folder / "commands.log"
        folder.mkdir(parents=True)
        self.file.touch(mode=0o666)
        for name in COMMANDS:
            real = Path(bin_dir, name)
            if not real.exists():
                continue
            stand_in = _JSON_FROM_SINFO.format(bin_dir=bin_dir) if name == "scontrol" and old else ""
            path = folder / name
            path.write_text(f'#!/bin/sh\necho {name} "$@" >> {self.file}\n{stand_in}exec {real} "$@"\n')
            path.chmod(0o755)

    def counts(self) -> Counter[str]:
        """The number of calls of each command."""
        return Counter(line.split(" ", 1)[0] for line in self.file.read_text().splitlines())

    async def next(self, command: str, *, timeout: float) -> bool:
        """Wait until that command runs again; False after ``seconds``."""
        before = self.counts()[command]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while self.counts()[command] == before:
            if loop.time() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True


# slurmformspawner asks scontrol for JSON, which came with Slurm 23.02. On an older one sinfo's is near enough, and an
# empty list stands for reservations, of which there are none; both ask slurmctld as the real ones do.
_JSON_FROM_SINFO = """\
case "$*" in
"--json show node") exec {bin_dir}/sinfo --json ;;
"show res --json") {bin_dir}/scontrol show res > /dev/null; echo '{{"reservations": []}}'; exit ;;
esac
"""
