"""The guard process: none of its processes outlives it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from jupyterhub_gpuspawner.demo.guard import Guard, GuardLost
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    """A guard that removes one folder at its end."""
    (tmp_path / "removed").mkdir()
    guard = Guard([tmp_path / "removed"])
    yield guard
    guard.stop()


def run(guard: Guard, folder: Path, name: str, script: str) -> int:
    return guard.start(name, ["/bin/sh", "-c", script], environment=ENVIRONMENT, output=folder / f"{name}.out")


def content(path: Path) -> str:
    """A file's text, as soon as it has a whole line."""
    wait_until(
        lambda: bool(path.exists() and path.read_text().endswith("\n")), lambda: f"{path} has no line", seconds=20
    )
    return path.read_text()


def test_ends_are_told_by_status_and_signal(guard: Guard, tmp_path: Path) -> None:
    """Exit statuses are reported as they were, signals as negative numbers, running programs not at all."""
    run(guard, tmp_path, "well", "exit 0")
    run(guard, tmp_path, "ill", "exit 3")
    run(guard, tmp_path, "killed", "kill -9 $$")
    run(guard, tmp_path, "running", "exec sleep 600")
    wait_until(lambda: len(guard.ended()) >= 3, seconds=20)
    assert guard.ended() == {"well": 0, "ill": 3, "killed": -9}


def test_what_a_program_prints_is_in_its_file(guard: Guard, tmp_path: Path) -> None:
    """Output and errors are appended to the file; the environment is exactly the given one."""
    (tmp_path / "talk.out").write_text("before: ")
    run(guard, tmp_path, "talk", "echo $PATH $HOME >&2")
    assert content(tmp_path / "talk.out") == "before: /usr/bin:/bin\n"


def test_a_program_that_is_not_there_is_told(guard: Guard, tmp_path: Path) -> None:
    """The message names the program, and the guard keeps running."""
    with pytest.raises(GuardLost, match=r"^/nonexistent/slurmd did not start: .*No such file"):
        guard.start("none", ["/nonexistent/slurmd"], environment=ENVIRONMENT, output=tmp_path / "out")
    assert guard.ended() == {}


def test_whoever_detaches_and_ignores_sigterm_ends_too(guard: Guard, tmp_path: Path) -> None:
    """Detached processes and those that ignore signals are ended, too; the folder is removed last."""
    deaf = "trap '' TERM; echo $$ > pid; while :; do sleep 1; done"
    run(guard, tmp_path, "start", f'cd {tmp_path}; setsid sh -c "{deaf.replace("$", chr(92) + "$")}" & exit 0')
    process = psutil.Process(int(content(tmp_path / "pid")))
    guard.stop()
    assert not process.is_running()
    assert not (tmp_path / "removed").exists()


def test_a_lost_guard_is_told(guard: Guard, tmp_path: Path) -> None:
    """After its end nothing can be started."""
    guard.stop()
    with pytest.raises(GuardLost, match="has ended"):
        run(guard, tmp_path, "late", "exit 0")
