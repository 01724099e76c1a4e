"""The last lines of a job's log, without secrets and without what every server writes."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from jupyterhub_gpuspawner.batch.job import LOG_FOLDER, OWN_LOG_DIR
from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.job.watch import JobWatch
from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name
from jupyterhub_gpuspawner.hub.site.secrets import redacted
from jupyterhub_gpuspawner.slurm.job import KILLED, End, Job, parse_tag
from jupyterhub_gpuspawner.slurm.process import run
from jupyterhub_gpuspawner.tasks import timeout


@dataclass(frozen=True)
class Extent:
    """How much of a log's end is shown."""

    size: int
    """Bytes that are read."""
    lines: int | None
    """Lines at most, without those that say nothing (:func:`without_noise`); None: every line that was read."""


def moved(path: str) -> str:
    """Where a job moves its log, which Slurm has opened at ``path``."""
    home, _, name = path.rpartition("/")
    return f"{home}/{LOG_FOLDER}/{name}"


def paths_of(path: str) -> tuple[str, ...]:
    """The paths at which a log may be that should be at ``path``: a job that cannot move it leaves it in the home."""
    folder, _, name = path.rpartition("/")
    home, own, rest = folder.rpartition(f"/{LOG_FOLDER}")
    return (path, f"{home}/{name}") if own and not rest else (path,)


OF_ENDING = Extent(4096, 15)
"""What is kept with the ending of a server."""
OF_PAGE = Extent(1 << 16, 400)
OF_DOWNLOAD = Extent(1 << 20, None)
OF_WRAPPER = 4096
"""Bytes that the wrapper script ``log`` prints."""
TIMEOUT = 5.0
"""Seconds to read a log as another user, or by a wrapper: it can be a pipe, or on a file system that hangs."""

_OUTGROWN = re.compile(
    r"^(slurmstepd\S*:|\[[\d:.T-]+\]) error: .*exceeded (job )?memory limit", re.IGNORECASE | re.MULTILINE
)
"""slurmd's message before it kills a job that has no cgroup (``JobAcctGatherParams=OverMemoryKill``).

Slurm 26.05 begins the line with the time, earlier versions with the daemon's name.
"""


class JobLog:
    """The log of one server's job."""

    def __init__(self, watch: JobWatch) -> None:
        self._watch = watch
        self._spawner = watch.spawner

    async def job(self) -> Job | None:
        """The job as Slurm reports it now, with the path of its log; None if it does not. Raises GPUSpawnerError."""
        detail = await self._spawner.connection().client.job(self._watch.job_id)
        return detail if detail is not None and self._watch.is_own(detail) else None

    async def path_and_lines(self, extent: Extent = OF_PAGE) -> tuple[str, str]:
        """The path of the log and its last lines; either may be empty.

        The time for each is bounded: a file system that hangs does not hide where the log is.
        """
        path = ""
        with suppress(GPUSpawnerError, asyncio.TimeoutError):
            async with timeout(TIMEOUT):
                detail = await self.job()
            if detail is not None and detail.stdout_path:
                path = self.path(detail.stdout_path)
                async with timeout(TIMEOUT):
                    return path, await self.last_lines(path, extent)
        return path, ""

    async def lines_of_ended(self, path: str, job_id: str, extent: Extent) -> str:
        """The last lines of the log of an earlier job of this user; empty if the hub may not read it."""
        with suppress(GPUSpawnerError, asyncio.TimeoutError):
            async with timeout(TIMEOUT):
                if self._spawner.as_user() and self._spawner.wrapper_dir:
                    # the wrapper takes an id, which may have a new owner
                    detail = await self._spawner.connection().client.job(job_id)
                    if detail is None or detail.stdout_path not in paths_of(path):
                        return ""
                return await self.last_lines(path, extent, job_id=job_id)
        return ""

    def path(self, stdout_path: str) -> str:
        """Where the log is that Slurm has opened at ``stdout_path``; a site's or batchspawner's script leaves it."""
        spawner = self._spawner
        own = spawner.log_dir == OWN_LOG_DIR and not spawner.batch_script and parse_tag(self._watch.identity.tag)
        return moved(stdout_path) if own else stdout_path

    async def last_lines(self, path: str, extent: Extent = OF_ENDING, *, job_id: str = "") -> str:
        """The last lines of the log at ``path``; empty if the hub may not read it.

        Where jobs belong to users, so do their logs: they are read as the user, or not at all. ``job_id`` is that of
        the log, where it is not the server's.
        """
        owner, job_id = self._spawner.as_user(), job_id or self._watch.job_id
        try:
            if owner and self._spawner.wrapper_dir:
                text = await self._spawner.connection().client.log_end(job_id, prefix=owner)
                return await _shown(text, replace(extent, size=OF_WRAPPER))
            # sudo allows the hub's account sbatch and scancel only; it would refuse tail, and report the attempt
            return await last_lines(path, owner, extent) if not owner or os.geteuid() == 0 else ""
        except GPUSpawnerError as error:
            name = log_name(self._spawner)
            self._spawner.log.warning("The log of job %s of %s cannot be shown: %s", job_id, name, error)
            return ""


def outgrew_memory(status: Job, lines: str) -> bool:
    """Whether slurmd killed a job for its memory that Slurm reports as failed by signal 9: its log says so."""
    return status.end is End.FAILED and status.exit_code in KILLED and bool(_OUTGROWN.search(lines))


async def last_lines(path: str, prefix: Sequence[str] = (), extent: Extent = OF_ENDING) -> str:
    """The last lines of the file; empty if it cannot be read here.

    ``prefix`` runs a command as the log's owner, so that the file is read with the owner's rights. Raises
    SlurmUnavailable if that takes too long.
    """
    if not prefix:
        ends = [await asyncio.to_thread(_read_end, file, extent.size) for file in paths_of(path)]
        return await _shown(next(filter(None, ends), ""), extent)
    environment = {"PATH": os.environ.get("PATH") or "/usr/bin:/bin", "LANG": "C.UTF-8"}
    words = (*prefix, "tail", "--quiet", f"--bytes={extent.size}", "--", *paths_of(path))
    try:
        answer = await run(words, name="tail", environment=environment, timeout=TIMEOUT, limit=extent.size + (1 << 16))
    except OSError:
        return ""
    return await _shown(answer.stdout, extent)  # tail skips the paths at which there is no file


def _read_end(path: str, size: int) -> str:
    try:
        # a log is a plain file: neither a link nor a pipe that would block
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            return ""
        file.seek(max(0, about.st_size - size))
        return file.read(size).decode("utf-8", "replace")


async def _shown(text: str, extent: Extent) -> str:
    """As :func:`shown`; in a thread, where it may take long."""
    return shown(text, extent) if extent.size <= OF_ENDING.size else await asyncio.to_thread(shown, text, extent)


def shown(text: str, extent: Extent = OF_ENDING) -> str:
    """The last lines of ``text``, with unprintable characters and secrets replaced.

    Others may look at a failed start, too. A text that was cut may begin in the middle of a secret, so its first line
    is left out if there are more.
    """
    lines = redacted(text).splitlines()
    if len(lines) > 1 and len(text.encode(errors="replace")) >= extent.size:
        del lines[0]
    if extent.lines is not None:
        lines = without_noise(lines)[-extent.lines :]
    return "\n".join("".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line) for line in lines)


_JUPYTER = r"\[[ID] [\d-]{10} [\d:.]{8,15} \w+\] "
"""What Jupyter's applications write before messages of the levels INFO and DEBUG."""
_WARNING = r"\[W [\d-]{10} [\d:.]{8,15} \w+\] "
_NOISE = tuple(
    re.compile(pattern)
    for pattern in (
        _JUPYTER + r"\S+ \| extension was (successfully )?(linked|loaded|enabled)",
        _JUPYTER + r"(Extension package|Package) \S+ took [\d.]+s to import",
        _JUPYTER + r"(JupyterLab extension loaded from|JupyterLab application directory is|Extension Manager is) ",
        _JUPYTER + r"Skipped non-installed server\(s\): ",
        _JUPYTER + r"Writing Jupyter server cookie secret to ",
        _JUPYTER + r"Use Control-C to stop this server",
        _JUPYTER + r"Setting new xsrf cookie for ",
        _JUPYTER + r"200 GET \S*/api \(",
        _WARNING + r"A `_jupyter_server_extension_points` function was not found in ",
        _WARNING + r"'extra_template_paths' was found in both NotebookApp and ServerApp",
    )
)


def without_noise(lines: Sequence[str]) -> list[str]:
    """The lines that may say how a server fares, and at most one blank line in a row; all where there are none.

    Left out are those that every JupyterLab writes while it loads its extensions and when a browser first opens it.
    Errors and other programs' lines stay.
    """
    shown_lines = [line for line in lines if not any(pattern.match(line) for pattern in _NOISE)]
    if not any(line.strip() for line in shown_lines):
        shown_lines = list(lines)
    shown_ = list(_single_blanks(shown_lines))
    while shown_ and not shown_[-1].strip():
        shown_.pop()
    return shown_


def _single_blanks(lines: Sequence[str]) -> Iterator[str]:
    blank = True  # none at the beginning
    for line in lines:
        if line.strip() or not blank:
            yield line
        blank = not line.strip()
