"""The last lines of a job's log, bounded, for the page after a failed start."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.ending.redaction import redacted
from jupyterhub_gpuspawner.jobs.status import End
from jupyterhub_gpuspawner.slurm.process import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.jobs.status import JobStatus

LIMIT = 4096
"""Bytes read from the end of a log."""
LINES = 15
_PATIENCE = 5.0
"""Seconds that reading it as somebody else may take: a log can be a pipe, or on a file system that hangs."""

_OUTGROWN = re.compile(r"^slurmstepd\S*: error: .*exceeded (job )?memory limit", re.IGNORECASE | re.MULTILINE)
"""slurmd's own word before it kills a job that has no cgroup (``JobAcctGatherParams=OverMemoryKill``)."""


def outgrew_memory(status: JobStatus, lines: str) -> bool:
    """Whether a job that Slurm calls failed, by signal 9, was killed by slurmd for its memory: its log says so."""
    return status.end is End.FAILED and status.exit_code in ("0:9", "137:0") and bool(_OUTGROWN.search(lines))


async def last_lines(path: str, prefix: Sequence[str] = ()) -> str:
    """At most :data:`LINES` lines from the end of the file; empty if it cannot be read here.

    ``prefix`` runs a command as the log's owner; then it is read with that person's rights. Raises SlurmUnavailable
    where that takes too long.
    """
    if not prefix:
        return await asyncio.to_thread(_read_end, path)
    environment = {"PATH": os.environ.get("PATH") or "/usr/bin:/bin", "LANG": "C.UTF-8"}
    words = (*prefix, "tail", f"--bytes={LIMIT}", "--", path)
    try:
        answer = await run(words, name="tail", environment=environment, timeout=_PATIENCE, limit=1 << 16)
    except OSError:
        return ""
    return shown(answer.stdout) if answer.code == 0 else ""


def _read_end(path: str) -> str:
    try:
        # a log is a plain file: neither a link nor a pipe that would block
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            return ""
        size = about.st_size
        file.seek(max(0, size - LIMIT))
        return shown(file.read(LIMIT).decode("utf-8", "replace"))


def shown(text: str) -> str:
    """The last lines of a log's end, with a stand-in for each character that does not print, and for secrets.

    A failed start is looked at by others, too. What begins in the middle of a line may be the rest of a secret, so of a
    text that is cut the first line is left out where there are more.
    """
    lines = redacted(text).splitlines()
    if len(lines) > 1 and len(text.encode(errors="replace")) >= LIMIT:
        del lines[0]
    lines = lines[-LINES:]
    return "\n".join("".join(c if c.isprintable() else "�" for c in line) for line in lines)
