"""A process that starts other processes, and ends all their descendants when its parent ends or asks it to.

It is a child subreaper (prctl(2)): processes whose parents have ended, such as the steps of Slurm's jobs, become its
children instead of init's, so that it finds all of them. Standard library only, since it is run as a file by its path.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
GRACE, LIMIT = 1.5, 10.0
"""Seconds from SIGTERM to SIGKILL, and until it gives up."""


class GuardLost(RuntimeError):
    """The guard has ended, or could not start a program; the message says which of the two."""


class Guard:
    """The parent's side: starts programs, asks for their state, ends them all and removes ``folders``."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, str(os.getpid()), *map(str, folders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C at the terminal is for the parent alone
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def start(self, name: str, argv: Sequence[str], *, environment: Mapping[str, str], output: Path) -> int:
        """Start a program under a name and return its process id. Its output and errors are appended to ``output``."""
        answer = self._ask(name=name, argv=list(argv), environment=dict(environment), output=str(output))
        if "error" in answer:
            raise GuardLost(f"{argv[0]} did not start: {answer['error']}")
        return int(answer["pid"])

    def ended(self) -> dict[str, int]:
        """The programs that have ended, by name, with their exit status, or a negative signal number."""
        return dict(self._ask())

    def stop(self) -> None:
        """End everything."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._process.wait()
        self._answers.close()

    def _ask(self, **question: object) -> dict[str, Any]:
        try:
            self._requests.write(json.dumps(question).encode() + b"\n")
            self._requests.flush()
            answer: dict[str, Any] = json.loads(self._answers.readline())
        except (OSError, ValueError) as error:
            raise GuardLost(f"The process that guards the daemons has ended ({error}).") from error
        return answer


class _Held:
    """The guard's side: the programs by name, and the exit codes of those that have ended."""

    def __init__(self) -> None:
        self.pids: dict[str, int] = {}
        self.exits: dict[int, int] = {}

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        if "argv" not in question:
            self.reap()
            return {name: self.exits[pid] for name, pid in self.pids.items() if pid in self.exits}
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            pid = os.posix_spawn(
                question["argv"][0],
                question["argv"],
                question["environment"],
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, question["output"], append, 0o644),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
            )
        except OSError as error:
            return {"error": str(error)}
        self.pids[question["name"]] = pid
        return {"pid": pid}

    def reap(self, *_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self.exits[pid] = os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        """Send SIGTERM to every descendant, then SIGKILL until none is left, since processes may fork meanwhile."""
        began = time.monotonic()
        number = signal.SIGTERM
        signalled: set[int] = set()
        while left := descendants(os.getpid()):
            waited = time.monotonic() - began
            if waited > LIMIT:
                return
            if waited > GRACE and number is signal.SIGTERM:
                number, signalled = signal.SIGKILL, set()
            for pid in left - signalled:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            signalled |= left
            time.sleep(0.02)
            self.reap()


def descendants(ancestor: int) -> set[int]:
    """All living descendants of ``ancestor``."""
    parents = dict(_parents())
    result: set[int] = set()
    level = {ancestor}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level} - result
        result |= level
    return result


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # proc(5): after the command's name in parentheses come the state and the parent
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                yield int(folder.name), int(parent)


def _questions(parent: int) -> Iterator[dict[str, Any]]:
    """Requests from standard input, one JSON object per line, until it ends or the parent is gone."""
    waiting = b""
    while os.getppid() == parent:
        if not select.select([0], [], [], 1.0)[0]:
            continue
        got = os.read(0, 65536)
        if not got:
            return
        *lines, waiting = (waiting + got).split(b"\n")
        for line in lines:
            yield json.loads(line)


def main(parent: int, folders: Sequence[str]) -> None:
    """Guard programs until asked to stop, then end them and remove ``folders``."""
    held = _Held()

    def stop(*_: object) -> None:
        raise SystemExit

    signal.signal(signal.SIGCHLD, held.reap)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        for question in _questions(parent):
            os.write(1, json.dumps(held.answer(question)).encode() + b"\n")
    except BrokenPipeError:
        pass
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        held.end()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
