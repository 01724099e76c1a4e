"""Work that may hang, done in a child process with a deadline.

A sick GPU can hold its driver inside the kernel for ever. A thread cannot be abandoned, and
``subprocess.run(timeout=...)`` waits without limit for a child that it has killed. Here the parent kills at the
deadline and walks away.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Callable, NamedTuple, NoReturn, Sequence, Tuple

LIMIT = 4 * 1024 * 1024
"""Bytes that a child may say."""
_REAP = 0.05
"""Seconds that a killed child is given to die before it is left to itself."""
_PR_SET_PDEATHSIG = 1


class Answer(NamedTuple):
    """What a child said, and whether it came to its end in time."""

    output: bytes
    finished: bool

    @property
    def lines(self) -> Tuple[bytes, ...]:
        """The complete lines; a last one without its end is dropped."""
        return tuple(self.output.split(b"\n")[:-1])


def ask(work: Callable[[int], object], seconds: float) -> Answer:
    """Run ``work(fd)`` in a forked child and read what it writes to ``fd``, for ``seconds`` at most.

    Raises OSError where the system gives no pipe or process. What ``work`` raises ends the child in silence.
    """
    ends_at = time.monotonic() + seconds
    reading, writing = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid == 0:
        _be_child(work, writing)
    os.close(writing)
    try:
        return _read(reading, ends_at)
    finally:
        os.close(reading)
        _end(pid)


def run(command: Sequence[str], seconds: float) -> Answer:
    """Run a command without a shell and read its standard output; its standard error is dropped."""

    def work(writing: int) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(writing, 1)
        os.dup2(null, 2)
        os.execvp(command[0], list(command))  # noqa: S606 - no shell is wanted

    return ask(work, seconds)


def _be_child(work: Callable[[int], object], writing: int) -> NoReturn:
    try:
        os.setpgid(0, 0)
        _die_with_parent()
        work(writing)
    finally:
        os._exit(0)


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends (prctl(2)); without it the deadline still holds."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError, ImportError):
        return


def _read(reading: int, ends_at: float) -> Answer:
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    output = bytearray()
    while len(output) < LIMIT:
        left = ends_at - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            break
        chunk = os.read(reading, 65536)
        if not chunk:
            return Answer(bytes(output), finished=True)
        output += chunk
    return Answer(bytes(output), finished=False)


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
