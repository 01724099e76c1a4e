"""Processes: work that may hang, in a child with a deadline; work beside the server; what this process becomes.

A broken GPU can block its driver inside the kernel forever. ``subprocess.run(timeout=...)`` waits without limit for a
child that it has killed. Here the parent kills the child at the deadline and continues without it. A thread can be
abandoned only by a process that ends by ``_exit``, as one beside the server does (:class:`DeadlineThread`).
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from threading import Thread
    from typing import Any, NoReturn, TypeVar

    Result = TypeVar("Result")
    Say = Callable[..., None]
    """Sends one JSON object, made of its keyword arguments, from the child to the parent."""

LIMIT = 4 * 1024 * 1024
"""Bytes that are read from a child at most."""
_REAP = 0.05
"""Seconds to wait for a killed child to end before it is abandoned."""
_PR_SET_PDEATHSIG = 1
NO_COMMAND, NOT_RUN = 127, 126
"""Exit codes, as a shell's: there is no such command, and it cannot be run."""
_FIRST = 100
"""Lowest number of a file that is kept open: scripts use the small ones."""


def unnamed_file(name: str) -> int:
    """A new file that no folder has, and that is not inherited; ``name`` is what /proc shows of it. Raises OSError.

    It is in memory (memfd_create(2)), or where Python was built for a libc without that, as those of conda are, among
    the temporary files.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def ask(work: Callable[[int], object], seconds: float) -> tuple[bytes, bool]:
    """Run ``work(fd)`` in a forked child and read what it writes to ``fd``, for at most ``seconds``.

    Returns the complete lines that it wrote, and whether it ended in time. Afterwards the child is gone, or the kernel
    does not let it die. Raises OSError if no pipe or process can be had; an exception in ``work`` ends the child
    silently.
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
    """Run a command without a shell; returns the complete lines of its standard output, discards standard error."""

    def work(writing: int) -> None:
        os.dup2(writing, 1)
        os.execvp(command[0], list(command))  # noqa: S606 - no shell is involved

    return ask(work, seconds)[0]


def _work(work: Callable[[int], object], writing: int, parent: int) -> NoReturn:
    try:
        # A child that hangs must not keep the job's log open, or a pipe that somebody reads.
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.setpgid(0, 0)
        die_with(parent)
        work(writing)
    finally:
        os._exit(0)


def detach(work: Callable[[], object]) -> None:
    """Run ``work`` in a background process; an exception in it ends that process silently.

    The process is not a child of this one, nor of the server that this one becomes: init, or slurmstepd, adopts it. It
    keeps neither the job's log nor anything else of this process open. Raises OSError if no process can be started.
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


_POLL = 2.0
"""Seconds between two looks whether a process lives, where the kernel has no pidfd (Linux before 5.3)."""


class DeadlineThread:
    """Work that may hang, in a thread beside: its caller waits for a limited time, and for one thing at a time.

    A driver that does not respond, or a resolver, blocks its thread; the process goes on without it. The thread does
    not keep the process from ending (:func:`detach` ends it by ``_exit``). Unlike a signal's, its deadline ends nothing
    else of the process.
    """

    def __init__(self) -> None:
        self._thread: Thread | None = None

    def ask(self, work: Callable[[], Result], seconds: float) -> Result:
        """What ``work`` returns or raises; TimeoutError after ``seconds`` or while earlier work hangs."""
        import threading

        if self._thread is not None and self._thread.is_alive():
            raise TimeoutError
        results: list[Result] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
                errors.append(error)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        self._thread.join(seconds)
        if results:
            return results[0]
        if errors:
            raise errors[0]
        raise TimeoutError


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask the kernel to send this process a signal when its parent ends (prctl(2)); if that fails, nothing happens."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    except (OSError, AttributeError, ImportError):
        return
    if os.getppid() != parent:
        # The parent ended before the kernel was asked.
        os._exit(0)


def lives(pid: int) -> bool:
    """Whether there is a process with this number."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def wait_for_end(server: int) -> Callable[[float], bool]:
    """A function that waits for so many seconds, or until the process ``server`` ends or this one gets SIGTERM.

    It returns whether one of these has happened. Slurm sends SIGTERM to all processes of a job before its end.
    """
    import select

    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGTERM, lambda *_: None)
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    try:
        poll.register(os.pidfd_open(server), select.POLLIN)
        longest = float("inf")
    except ProcessLookupError:
        return lambda _: True
    except (AttributeError, OSError):  # no such call in this kernel, or a sandbox that forbids it
        longest = _POLL

    def over(seconds: float) -> bool:
        ends_at = time.monotonic() + seconds
        while True:
            left = max(0.0, ends_at - time.monotonic())
            if poll.poll(min(left, longest) * 1000) or not lives(server):
                return True
            if not left:
                return False

    return over


class CommandError(SystemExit):
    """The command cannot be run; the process exits with ``code``, as a shell does. The job's log says why."""

    def __init__(self, code: int, command: str) -> None:
        super().__init__(code)
        self.command = command


def exec_command(command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process with ``command``; raises CommandError, with code 127 if there is none, 126 otherwise."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores these signals, and ignored signals stay ignored after exec.
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), dict(environ))  # noqa: S606 - no shell is involved
    except OSError as error:
        path = environ.get("PATH", "not set")
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            complain(f"{command[0]}: no such command; PATH is {path}")
            raise CommandError(NO_COMMAND, command[0]) from None
        complain(f"{command[0]} cannot be run: {error.strerror}; PATH is {path}")
        raise CommandError(NOT_RUN, command[0]) from None


def complain(sentence: str) -> None:
    """Write one line to the job's log; a full disk is ignored."""
    try:
        os.write(2, f"gpuspawner: {sentence}\n".encode(errors="replace"))
    except OSError:
        return


def keep_open(descriptor: int) -> int:
    """Keep a file open across exec, with a number that scripts do not use for their own files; returns that."""
    import fcntl

    try:
        duplicate = fcntl.fcntl(descriptor, fcntl.F_DUPFD, _FIRST)
    except OSError:
        os.set_inheritable(descriptor, True)
        return descriptor
    os.close(descriptor)
    return duplicate


def descends(pid: int, roots: Collection[int], parent: Callable[[int], int]) -> bool:
    """Whether a process is one of ``roots``, or was started by one; ``parent``: of a process, 0 if it has none."""
    passed: set[int] = set()  # process ids are used again, so parents that were read one by one may form a circle
    while pid > 1 and pid not in roots and pid not in passed:
        passed.add(pid)
        pid = parent(pid)
    return pid in roots


def has_variable(pid: int, variable: str, proc: str = "/proc") -> bool:
    """Whether a process was started with ``NAME=VALUE`` in its environment; False if it may not be examined."""
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            return variable.encode() in file.read().split(b"\0")
    except OSError:
        return False


def _end(pid: int) -> None:
    """Kill the child and everything it started; wait for its end, but not longer than :data:`_REAP`."""
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
