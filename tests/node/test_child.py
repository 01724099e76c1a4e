"""Work in a child process: its answer, its deadline, its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.node.child import ask, ask_documents, run
from tests.node.conftest import dies

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.node.child import Say


def test_the_answer_is_what_the_work_wrote() -> None:
    """Everything that was written, and that the child came to its end."""
    assert ask(lambda fd: os.write(fd, b"one\ntwo\n"), 10) == (b"one\ntwo\n", True)


def test_a_large_answer_comes_whole() -> None:
    """More than a pipe holds at once is read while it is written."""
    line = b"x" * 1_000_000 + b"\n"

    def work(fd: int) -> None:
        left = line
        while left:
            left = left[os.write(fd, left) :]

    assert ask(work, 10) == (line, True)


def test_documents_come_as_they_were_said() -> None:
    """In order and complete, even if larger than a pipe's buffer; at the deadline, those received so far."""
    large = "x" * 1_000_000

    def work(say: Say) -> None:
        say(doing="one", links=["NV1", None])
        say(text=large)

    def hang(say: Say) -> None:
        say(doing="one")
        signal.pause()

    assert ask_documents(work, 10) == ([{"doing": "one", "links": ["NV1", None]}, {"text": large}], True)
    assert ask_documents(hang, 0.5) == ([{"doing": "one"}], False)


def test_a_failure_of_the_work_is_silence() -> None:
    """An exception in the child neither reaches the parent nor prints anything."""

    def work(fd: int) -> None:
        os.write(fd, b"begun\n")
        raise RuntimeError

    assert ask(work, 10) == (b"begun\n", True)


def test_at_the_deadline_what_is_known_counts_and_the_child_is_gone() -> None:
    """A child that hangs is killed with everything it started; an incomplete line is dropped."""

    def work(fd: int) -> None:
        grandchild = os.fork()
        if grandchild:
            os.write(fd, f"{os.getpid()} {grandchild}\nhalf a li".encode())
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()

    output, finished = ask(work, 0.5)
    pids = [int(word) for word in output.split()]

    assert len(pids) == 2
    assert not finished
    assert all(map(dies, pids))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_child_does_not_outlive_its_parent(number: signal.Signals) -> None:
    """A launch that is cancelled leaves no process that waits for a driver."""
    code = """
import os, signal
from jupyterhub_gpuspawner.node import child
fork = os.fork
def told():
    pid = fork()
    if pid:
        print(pid, flush=True)
    return pid
os.fork = told
child.ask(lambda fd: signal.pause(), 60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(number)

        assert parent.stdout.read() == ""
        assert parent.wait(timeout=10) == -number
    assert dies(pid)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (["printf", "%s\n", "a b", "$HOME"], b"a b\n$HOME\n"),
        (["sh", "-c", "echo out; echo err >&2; exit 3"], b"out\n"),
        (["sh", "-c", "echo out; sleep 60"], b"out\n"),
        (["/nonexistent/command"], b""),
    ],
)
def test_a_command_is_run_without_a_shell(command: list[str], output: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    """Its standard output as far as it came; nothing of its standard error."""
    assert run(command, 1) == output
    assert capfd.readouterr() == ("", "")
