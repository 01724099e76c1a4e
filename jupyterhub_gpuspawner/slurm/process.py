"""Run one command without a shell, with its own environment and a time-out, leaving no process behind.

After a time-out or a cancellation of the caller the command's process group gets SIGTERM (which sudo passes on) and
SIGCONT (it may be stopped), then SIGKILL together with all descendants, and is reaped.

A hub that is not root may not signal what sudo runs, and the user it runs as may stop it (SIGSTOP). Such a process
stays until that user continues it: its pipes are closed, its id is recorded for the caller, and the log says so.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import SlurmOutputError, SlurmUnavailable

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Mapping, Sequence

_GRACE = 0.3
"""Seconds between SIGTERM and SIGKILL."""
_PATIENCE = 2.0
"""Seconds that a caller waits for a killed process, since a hub that is not root may not signal sudo's."""
_STUCK = 1.5
"""Seconds after SIGKILL until a process counts as one that cannot be ended; shorter than the caller waits."""
_TICK = 0.01
_SLOW_TICK = 1.0
_CHUNK = 65536
_PART = 1 << 20
"""Bytes that are decoded at once."""
_DESCENDANTS = 1000
"""Maximum number of descendants that are searched for."""

_log = logging.getLogger(__name__)

_reaping: set[asyncio.Task[None]] = set()


@dataclass(frozen=True)
class Answer:
    """The output of a command."""

    code: int
    """Exit status; negative for a signal."""
    stdout: str
    stderr: str


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

    ``name`` is the command's name in errors, ``timeout`` in seconds, ``limit`` in bytes for stdout and stderr each.
    ``leftovers`` contains the ids of processes that should have ended, for as long as they exist. Raises
    SlurmUnavailable after the time-out, SlurmOutputError beyond the limit, OSError if ``argv[0]`` cannot be run.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=PIPE if stdin else DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        env=dict(environment),
        cwd="/",
        start_new_session=True,
    )
    exchange = asyncio.ensure_future(_exchange(process, name, stdin, limit))
    try:
        # not wait_for: before Python 3.12 it may swallow a cancellation that comes with the result
        done, _ = await asyncio.wait({exchange}, timeout=timeout)
        if not done:
            raise SlurmUnavailable(
                f"{name} did not respond within {timeout:g} s.",
                hint="Check `scontrol ping`, and that slurm.conf can be found.",
            )
        return exchange.result()
    finally:
        if not exchange.done() or process.returncode is None:
            await _end(process, exchange, name, leftovers if leftovers is not None else set())


async def _exchange(process: Process, name: str, stdin: str, limit: int) -> Answer:
    async def feed() -> None:
        if process.stdin is not None:
            with suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(stdin.encode(errors="surrogateescape"))
                await process.stdin.drain()
            process.stdin.close()
            with suppress(BrokenPipeError, ConnectionResetError):  # else Python logs it as never retrieved
                await process.stdin.wait_closed()

    _, stdout, stderr = await asyncio.gather(
        feed(), _read(process.stdout, limit, name), _read(process.stderr, limit, name)
    )
    return Answer(await process.wait(), await _decoded(stdout), await _decoded(stderr))


async def _decoded(output: bytes) -> str:
    """The text, decoded in parts: one character beyond Latin-1 in 16 MiB would hold the event loop for 50 ms."""
    parts, begin = [], 0
    while begin < len(output):
        end = output.find(b"\n", begin + _PART) + 1 or len(output)
        parts.append(output[begin:end].decode(errors="replace"))
        begin = end
        if begin < len(output):
            await asyncio.sleep(0)
    return "".join(parts)


async def _read(stream: asyncio.StreamReader | None, limit: int, name: str) -> bytes:
    found = bytearray()
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        found += chunk
        if len(found) > limit:
            raise SlurmOutputError(f"{name} printed more than {limit} bytes.", raw=found[:200].decode(errors="replace"))
    return bytes(found)


async def _end(process: Process, exchange: asyncio.Future[Answer], name: str, leftovers: set[int]) -> None:
    reaping = asyncio.ensure_future(_reap(process, exchange, name, leftovers))
    _reaping.add(reaping)
    reaping.add_done_callback(_reaping.discard)
    await asyncio.wait({reaping}, timeout=_PATIENCE)  # a second cancellation leaves it running


async def _reap(process: Process, exchange: asyncio.Future[Answer], name: str, leftovers: set[int]) -> None:
    exchange.cancel()
    _signal_group(process, signal.SIGTERM)
    _signal_group(process, signal.SIGCONT)
    await _until(lambda: process.returncode is not None, patience=_GRACE)
    everyone = _with_descendants(process.pid) if process.returncode is None else {}
    _signal_group(process, signal.SIGKILL)
    for pid in everyone:  # sudo may have given its command a session, and so a group, of its own
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)

    def ended() -> bool:
        return process.returncode is not None and not _left(everyone)

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
    # a pipe held open by a lost child would stay open for ever; asyncio has no public method to close it
    with suppress(PermissionError):  # closing also tries to kill the process
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
    await asyncio.wait({exchange})
    if not exchange.cancelled():
        exchange.exception()  # retrieved; the caller raises its own
    await _until(ended, tick=_SLOW_TICK)
    leftovers -= set(everyone)


async def _until(true: Callable[[], bool], *, patience: float = math.inf, tick: float = _TICK) -> None:
    """Wait until ``true()``; Process.wait() also waits for the pipes in some versions of Python."""
    deadline = time.monotonic() + patience
    while not true() and time.monotonic() < deadline:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(tick)


def _with_descendants(pid: int) -> dict[int, str]:
    """This process and its descendants visible to this account, each with its start time.

    Others remain unknown: ``/proc`` may hide them (hidepid), or the kernel may lack ``CONFIG_PROC_CHILDREN``.
    """
    found = [pid]
    for each in found:
        with suppress(OSError), open(f"/proc/{each}/task/{each}/children", encoding="ascii") as children:  # noqa: PTH123
            found += map(int, children.read().split())
        if len(found) > _DESCENDANTS:
            break
    return {each: _started(each) for each in found}


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


def _signal_group(process: Process, number: signal.Signals) -> None:
    # start_new_session made the process the leader of a group with its own number
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
