"""Run one command: argv only, an environment of its own, a time-out, and nothing left behind.

Neither a time-out nor the cancellation of the caller leaves a process: the command's whole process group gets SIGTERM
(so that sudo can pass it on), then SIGKILL, and is reaped.
"""

from __future__ import annotations

import asyncio
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
    from collections.abc import Mapping, Sequence

_GRACE = 0.3
"""Seconds between SIGTERM and SIGKILL."""
_PATIENCE = 2.0
"""Seconds that a caller waits for a killed process: a hub without root may not signal sudo's."""
_TICK = 0.01
_CHUNK = 65536

_reaping: set[asyncio.Task[None]] = set()


@dataclass(frozen=True)
class Answer:
    """What a command said."""

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
) -> Answer:
    """Run ``argv`` in ``/`` with ``environment`` and nothing else, and return its answer, whatever its exit status.

    ``name`` is the command's in errors, ``timeout`` in seconds, ``limit`` in bytes of stdout and of stderr. Raises
    SlurmUnavailable after the time-out, SlurmOutputError past the limit, OSError where ``argv[0]`` cannot be run.
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
                f"{name} gave no answer within {timeout:g} s.",
                hint="Look at `scontrol ping`, and whether slurm.conf is in its place.",
            )
        return exchange.result()
    finally:
        if not exchange.done() or process.returncode is None:
            await _end(process, exchange)


async def _exchange(process: Process, name: str, stdin: str, limit: int) -> Answer:
    async def feed() -> None:
        if process.stdin is not None:
            with suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(stdin.encode(errors="surrogateescape"))
                await process.stdin.drain()
            process.stdin.close()
            with suppress(BrokenPipeError, ConnectionResetError):  # else Python logs that nobody asked
                await process.stdin.wait_closed()

    _, stdout, stderr = await asyncio.gather(
        feed(), _read(process.stdout, limit, name), _read(process.stderr, limit, name)
    )
    return Answer(await process.wait(), stdout.decode(errors="replace"), stderr.decode(errors="replace"))


async def _read(stream: asyncio.StreamReader | None, limit: int, name: str) -> bytes:
    found = bytearray()
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        found += chunk
        if len(found) > limit:
            raise SlurmOutputError(f"{name} said more than {limit} bytes.", raw=found[:200].decode(errors="replace"))
    return bytes(found)


async def _end(process: Process, exchange: asyncio.Future[Answer]) -> None:
    reaping = asyncio.ensure_future(_reap(process, exchange))
    _reaping.add(reaping)
    reaping.add_done_callback(_reaping.discard)
    await asyncio.wait({reaping}, timeout=_PATIENCE)  # a second cancellation leaves it running


async def _reap(process: Process, exchange: asyncio.Future[Answer]) -> None:
    exchange.cancel()
    _signal_group(process, signal.SIGTERM)
    await _exited(process, patience=_GRACE)
    _signal_group(process, signal.SIGKILL)
    await _exited(process)
    # a pipe that nobody reads, or that a lost child holds open, stays open for ever; asyncio has no public word for it
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
    await asyncio.wait({exchange})
    if not exchange.cancelled():
        exchange.exception()  # the caller has its own


async def _exited(process: Process, *, patience: float = math.inf) -> None:
    """Wait for the exit status; Process.wait() would, in some versions of Python, wait for the pipes too."""
    deadline = time.monotonic() + patience
    while process.returncode is None and time.monotonic() < deadline:  # noqa: ASYNC110  there is no event for it
        await asyncio.sleep(_TICK)


def _signal_group(process: Process, number: signal.Signals) -> None:
    # start_new_session made the process the leader of a group with its own number
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
