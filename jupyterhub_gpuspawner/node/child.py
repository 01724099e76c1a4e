"""Work that may hang, done in a child process with a deadline.

A sick GPU can hold its driver inside the kernel for ever. A thread cannot be abandoned, and
``subprocess.run(timeout=...)`` waits without limit for a child that it has killed. Here the parent kills at the
deadline and walks away.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn, Protocol

    class Say(Protocol):
        """Sends one JSON object, made of its keyword arguments, from the child to the parent."""

        def __call__(self, **document: Any) -> None: ...  # noqa: D102


LIMIT = 4 * 1024 * 1024
"""Bytes that a child may say."""
_REAP = 0.05
"""Seconds that a killed child is given to die before it is left to itself."""
_PR_SET_PDEATHSIG = 1


def ask(work: Callable[[int], object], seconds: float) -> tuple[bytes, bool]:
    """Run ``work(fd)`` in a forked child and read what it writes to ``fd``, for ``seconds`` at most.

    Returns what it wrote, up to the last end of a line, and whether it came to its end in time. After this there is no
    child, or one that the kernel does not let die. Raises OSError where the system gives no pipe or process; what
    ``work`` raises ends the child in silence.
    """
    ends_at = time.monotonic() + seconds
    reading, writing = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid == 0:
        _work(work, writing, parent)
    os.close(writing)
    try:
        return _read(reading, ends_at)
    finally:
        os.close(reading)
        _end(pid)


def _read(reading: int, ends_at: float) -> tuple[bytes, bool]:
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    output = bytearray()
    finished = False
    while not finished and len(output) < LIMIT:
        left = max(0.0, ends_at - time.monotonic())
        if not poll.poll(left * 1000):
            break
        chunk = os.read(reading, 65536)
        finished = not chunk
        output += chunk
    return bytes(output[: output.rfind(b"\n") + 1]), finished


def ask_documents(work: Callable[[Say], object], seconds: float) -> tuple[list[dict[str, Any]], bool]:
    """As :func:`ask`, in JSON: each ``say(key=value)`` of ``work(say)`` is one of the objects that are returned."""

    def write(writing: int) -> None:
        def say(**document: Any) -> None:
            text = memoryview(json.dumps(document).encode() + b"\n")
            while text:
                text = text[os.write(writing, text) :]

        work(say)

    output, finished = ask(write, seconds)
    return [json.loads(line) for line in output.splitlines()], finished


def run(command: Sequence[str], seconds: float) -> bytes:
    """Run a command without a shell; its standard output as far as it came, without its standard error."""

    def work(writing: int) -> None:
        os.dup2(writing, 1)
        os.execvp(command[0], list(command))  # noqa: S606 - no shell is wanted

    return ask(work, seconds)[0]


def _work(work: Callable[[int], object], writing: int, parent: int) -> NoReturn:
    try:
        # A child that hangs must not hold the job's log, or a pipe that somebody reads.
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.setpgid(0, 0)
        _die_with(parent)
        work(writing)
    finally:
        os._exit(0)


def leave(work: Callable[[], object]) -> None:
    """Run ``work`` in a process that nobody waits for; what it raises ends that in silence.

    It is no child of this process, nor of what this process becomes: init, or slurmstepd, has it. It holds neither the
    job's log nor anything else that is open here. Raises OSError where the system gives no process.
    """
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            os.closerange(3, 1024)
            os.chdir("/")
            work()
    finally:
        os._exit(0)


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends (prctl(2)); without it the deadline still holds."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError, ImportError):
        return
    if os.getppid() != parent:
        # It ended before the kernel was asked.
        os._exit(0)


def _end(pid: int) -> None:
    """Kill the child and all that it started; wait for it a moment, never longer."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            continue
    ends_at = time.monotonic() + _REAP
    while time.monotonic() < ends_at:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except OSError:
            return
        time.sleep(0.0005)
