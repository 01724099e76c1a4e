"""Slurm's commands, wrapped to record environment, arguments and input of each call in files."""

from __future__ import annotations

from pathlib import Path

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
_SCRIPT = """#!/bin/sh
seen=$(mktemp "{seen}/{name}.XXXXXXXX")
tr '\\0' '\\n' < /proc/$$/environ > "$seen.environ"
tr '\\0' '\\n' < /proc/$$/cmdline > "$seen.cmdline"
{then}
"""
REFUSE = """cat > "$seen.script"
echo "sbatch: error: Batch job submission failed: Requested node configuration is not available" >&2
exit 1"""
"""Replace sbatch: record the script, and create no job."""


class SeenCommands:
    """A folder of commands for ``slurm_bin_dir``."""

    def __init__(self, folder: Path, real: str, *, refuse: bool = False) -> None:
        self.bin, self.seen = folder / "bin", folder / "seen"
        for path in (self.bin, self.seen):
            path.mkdir(parents=True)
        self.seen.chmod(0o1777)
        for name in COMMANDS:
            then = REFUSE if refuse and name == "sbatch" else f'exec {real}/{name} "$@"'
            (self.bin / name).write_text(_SCRIPT.format(seen=self.seen, name=name, then=then))
            (self.bin / name).chmod(0o755)

    def texts(self, command: str, what: str) -> list[str]:
        """What was recorded for calls of a command so far: its ``environ``, ``cmdline`` or ``script``."""
        return [path.read_text(errors="replace") for path in sorted(self.seen.glob(f"{command}.*.{what}"))]
