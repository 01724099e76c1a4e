"""Run one command without a shell, with its own environment and a time-out, leaving no process behind.

After a time-out or a cancellation of the caller the command's process group gets SIGTERM (which sudo passes on) and
SIGCONT (it may be stopped), then SIGKILL together with all descendants, and is reaped.

A hub that is not root may not signal what sudo runs, and the user it runs as may stop it (SIGSTOP). Such a process
stays until that user continues it: its pipes are closed, its id is recorded for the caller, and the log says so.

Not asyncio.create_subprocess_exec: before Python 3.12.4 it waits for ever if its tasks are cancelled while the pipes
are connected. JupyterHub cancels all tasks when it shuts down, and such a hub ended only when it was killed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import subprocess
import tempfile
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.messages import TimedOut, failure, last_line

_GRACE = 0.3
"""Seconds between SIGTERM and SIGKILL."""
_PATIENCE = 2.0
"""Seconds that a caller waits for a killed process, since a hub that is not root may not signal sudo's."""
_STUCK = 1.5
"""Seconds after SIGKILL until a process counts as one that cannot be ended; shorter than the caller waits."""
_TICK = 0.01
_SLOW_TICK = 1.0
_CHUNK = 65536
_UMASK = 0o022
"""Of all commands: sbatch passes its own on to the job, where a hub's (UMask=0077) would make all files private."""
_DESCENDANTS = 1000
"""Maximum number of descendants that are searched for."""

_log = logging.getLogger(__name__)

_reaping: set[asyncio.Task[None]] = set()


@dataclass(frozen=True)
class Answer:
    """The output of a command."""

    command: str
    code: int
    """Exit status; negative for a signal."""
    stdout: str
    stderr: str
    where: str = "exec_prefix"
    """The setting with the prefix of the command."""

    def output(self) -> str:
        """Its standard output; raises :meth:`error` if it failed."""
        if self.code != 0:
            raise self.error()
        return self.stdout

    def error(self) -> GPUSpawnerError:
        """The error for a failed command, from its messages."""
        return failure(self.command, self.stderr, where=self.where) or SlurmUnavailable(
            f"{self.command} failed with exit code {self.code}: {last_line(self.stderr or self.stdout)}"
        )


async def run(
    argv: Sequence[str],
    *,
    name: str,
    environment: Mapping[str, str],
    timeout: float,
    stdin: str = "",
    limit: int = 1 << 24,
    leftovers: set[int] | None = None,
) -> Answer:
    """Run ``argv`` in ``/`` with ``environment`` and nothing else, and return its answer, whatever its exit status.

    It does not have the hub's umask, either, but the usual one.

    ``name`` is the command's name in errors, ``timeout`` in seconds, ``limit`` in bytes for stdout and stderr each.
    ``leftovers`` contains the ids of processes that should have ended, for as long as they exist. Raises
    TimedOut, SlurmOutputError beyond the limit, OSError if ``argv[0]`` cannot be run.
    """
    process = _process(argv, environment, stdin)
    stderr: list[str] = []
    exchange = asyncio.ensure_future(_exchange(process, name, limit, stderr))
    try:
        # not wait_for: before Python 3.12 it may swallow a cancellation that comes with the result
        done, _ = await asyncio.wait({exchange}, timeout=timeout)
        if not done:
            raise TimedOut(name, timeout, "".join(stderr))
        return exchange.result()
    finally:
        if not exchange.done() or process.poll() is None:
            await _end(process, exchange, name, leftovers if leftovers is not None else set())


def _process(argv: Sequence[str], environment: Mapping[str, str], stdin: str) -> subprocess.Popen[bytes]:
    """Start it; its input is a file, which it may read or not, and as slowly as it likes."""
    with _memory() if stdin else open(os.devnull, "r+b", buffering=0) as file:  # noqa: PTH123
        if stdin:
            file.write(stdin.encode(errors="surrogateescape"))
            file.seek(0)
        return subprocess.Popen(
            argv,
            bufsize=0,
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd="/",
            umask=_UMASK,
            start_new_session=True,
        )


def _memory() -> IO[bytes]:
    """A file in memory; a temporary one where Python was built for a libc without these, as those of conda are."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("stdin"), "r+b", buffering=0)  # noqa: PTH123
    return tempfile.TemporaryFile(buffering=0)


async def _exchange(process: subprocess.Popen[bytes], name: str, limit: int, stderr: list[str]) -> Answer:
    """Read its output until it ends; ``stderr`` gets its messages as they come, for one that does not end."""
    stdout: list[str] = []
    streams = ((process.stdout, stdout), (process.stderr, stderr))
    reading = [asyncio.ensure_future(_read(pipe, limit, name, parts)) for pipe, parts in streams]
    try:
        await asyncio.gather(*reading)
    finally:
        for task in reading:
            task.cancel()
    await _until(lambda: process.poll() is not None)
    return Answer(name, process.returncode, "".join(stdout), "".join(stderr))


async def _read(pipe: IO[bytes] | None, limit: int, name: str, parts: list[str]) -> None:
    """Append the text, decoded as it comes: one character beyond Latin-1 in 16 MiB would take 50 ms at the end."""
    stream, loop = asyncio.StreamReader(), asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
    decoder, size = getincrementaldecoder("utf-8")("replace"), 0
    try:
        while chunk := await stream.read(_CHUNK):
            parts.append(decoder.decode(chunk))
            size += len(chunk)
            if size > limit:
                raise SlurmOutputError(f"{name} printed more than {limit} bytes.", raw=parts[0][:200])
        parts.append(decoder.decode(b"", final=True))
    finally:
        transport.close()  # a process that was lost may hold the pipe's other end open for ever


async def _end(
    process: subprocess.Popen[bytes], exchange: asyncio.Future[Answer], name: str, leftovers: set[int]
) -> None:
    reaping = asyncio.ensure_future(_reap(process, exchange, name, leftovers))
    _reaping.add(reaping)
    reaping.add_done_callback(_reaping.discard)
    await asyncio.wait({reaping}, timeout=_PATIENCE)  # a second cancellation leaves it running


async def _reap(
    process: subprocess.Popen[bytes], exchange: asyncio.Future[Answer], name: str, leftovers: set[int]
) -> None:
    _signal_group(process, signal.SIGTERM)
    _signal_group(process, signal.SIGCONT)
    await _until(lambda: process.poll() is not None, patience=_GRACE)
    everyone = _with_descendants(process.pid) if process.poll() is None else {}
    _signal_group(process, signal.SIGKILL)
    for pid in everyone:  # sudo may have given its command a session, and so a group, of its own
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)

    def ended() -> bool:
        return process.poll() is not None and not _left(everyone)

    await _until(ended, patience=_STUCK)
    if not ended():
        stuck = _left(everyone)
        leftovers |= stuck
        _log.warning(
            "%s cannot be killed: process %s belongs to another user, who may have stopped it, or is waiting for a "
            "file system. It remains until it continues.",
            name,
            ", ".join(map(str, sorted(stuck))),
        )
    exchange.cancel()  # not before: a command that prints while it ends would get SIGPIPE
    await asyncio.wait({exchange})
    if not exchange.cancelled():
        exchange.exception()  # retrieved; the caller raises its own
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()  # nobody has read it, if the exchange was cancelled before it began
    await _until(ended, tick=_SLOW_TICK)
    leftovers -= set(everyone)


async def _until(true: Callable[[], bool], *, patience: float = math.inf, tick: float = _TICK) -> None:
    """Wait until ``true()``, for ``patience`` seconds at most."""
    deadline = time.monotonic() + patience
    while not true() and time.monotonic() < deadline:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(tick)


def _with_descendants(pid: int) -> dict[int, str]:
    """This process and its descendants visible to this account, each with its start time.

    Others remain unknown: ``/proc`` may hide them (hidepid), or the kernel may lack ``CONFIG_PROC_CHILDREN``.
    """
    pids = [pid]
    for process in pids:
        with suppress(OSError), open(f"/proc/{process}/task/{process}/children", encoding="ascii") as children:  # noqa: PTH123
            pids += map(int, children.read().split())
        if len(pids) > _DESCENDANTS:
            break
    return {process: _started(process) for process in pids}


def _left(processes: Mapping[int, str]) -> set[int]:
    """Ids of those that still exist and are the same process."""
    return {pid for pid, started in processes.items() if started and _started(pid) == started}


def _started(pid: int) -> str:
    """Start time of a process in kernel ticks; empty if it does not exist or is a zombie (proc(5))."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # start_new_session made the process the leader of a group with its own number
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
