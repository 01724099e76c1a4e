"""However a job ends, the launcher's folder goes with it: script and launcher are real, and so are the signals."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.batch.template import render_template
from jupyterhub_gpuspawner.profiles.sections import ServerCommand
from jupyterhub_gpuspawner.wire.documents import LaunchPlan
from tests.node.conftest import job_script
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SERVER = [sys.executable, "-c", "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(600)"]
"""A server that is there once its file is, and ends with SIGTERM."""


class Job:
    """A job's script, in a process group of its own; its signals are those of slurmd."""

    def __init__(self, folder: Path, script: str, *, shell: str = "/bin/bash", environ: Mapping[str, str] = {}) -> None:
        self.folder, self.started = folder, folder / "started"
        (folder / "job.sh").write_text(script)
        self.process = subprocess.Popen(
            [shell, str(folder / "job.sh")],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "TMPDIR": str(folder),
                "SLURM_JOB_ID": "7",
                **environ,
            },
            cwd=folder,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Signal all of its processes, as Slurm does to end a job."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def left(self) -> list[str]:
        """Folders of the launcher, once every process of the job has ended."""
        self.process.wait(60)
        wait_until(self._is_over, "the end of the job's processes")
        return [path.name for path in self.folder.iterdir() if path.name.startswith("gpuspawner.")]

    def _is_over(self) -> bool:
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert list(tmp_path.glob("gpuspawner.*")) == []


def server_of(folder: Path) -> list[str]:
    return [*SERVER, str(folder / "started")]


def template_script(folder: Path) -> str:
    """That of a site's own template, for any POSIX shell."""
    variables = dict.fromkeys(("partition", "runtime", "options"), "")
    made = render_template(
        "#!/bin/sh\n{cmd}\n",
        variables,
        launcher=launcher_archive(),
        plan=LaunchPlan(),
        command=ServerCommand(tuple(server_of(folder))),
        tag="t",
    )
    return made.script


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/dash"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("kind", ["own script", "template"])
def test_a_server_that_is_stopped_leaves_nothing(folder: Path, kind: str, shell: str, number: signal.Signals) -> None:
    """By the script that a profile has, and by a site's own, which sh may run."""
    if not Path(shell).exists() or (kind == "own script" and shell == "/bin/dash"):
        pytest.skip(f"{kind} is not run by {shell}")
    job = Job(folder, job_script(server_of(folder)) if kind == "own script" else template_script(folder), shell=shell)
    wait_until(job.started.exists, "the server")

    job.terminate(number)

    assert job.left() == []


def held(script: str, pipe: Path) -> str:
    """The script, in which the launcher's plan is not written before somebody reads from the pipe."""
    assert script.count("gpuspawner_plan() { command printf") == 1
    return script.replace("gpuspawner_plan() { command printf", f"gpuspawner_plan() {{ : > {pipe}; command printf")


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/dash"])
@pytest.mark.parametrize("of", ["all processes", "the script's shell alone"])
def test_a_job_that_is_stopped_while_the_folder_is_filled_leaves_nothing(folder: Path, shell: str, of: str) -> None:
    """The shell does not know its name yet."""
    if not Path(shell).exists():
        pytest.skip(f"there is no {shell}")
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    job = Job(folder, held(template_script(folder), pipe), shell=shell)
    wait_until(lambda: list(folder.glob("gpuspawner.*/plan.json")), "the folder")

    if of == "all processes":
        job.terminate()
    else:
        job.process.terminate()
        with pipe.open():
            job.process.wait(60)

    assert job.left() == []


def test_a_job_that_is_stopped_just_before_its_server_starts_starts_none(folder: Path) -> None:
    """The signal comes when there is no server yet to get it, too."""
    script = job_script(server_of(folder))
    assert script.count("\ngpuspawner_serve ||") == 1
    job = Job(folder, script.replace("\ngpuspawner_serve ||", "\nkill -TERM $$\ngpuspawner_serve ||"))

    assert (job.left(), job.process.returncode, job.started.exists()) == ([], 143, False)


def test_a_job_that_is_stopped_while_it_reports_its_failure_leaves_nothing(folder: Path) -> None:
    """To a hub that takes the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as hub:
        environ = {
            "JUPYTERHUB_API_URL": f"http://127.0.0.1:{hub.getsockname()[1]}/hub/api",
            "JUPYTERHUB_API_TOKEN": "t",
        }
        script = job_script(["/bin/true"]).replace("gpuspawner_fault=launcher\n", "exit 3\n", 1)
        job = Job(folder, script, environ=environ)
        connection, _ = hub.accept()
        with connection:
            assert list(folder.glob("gpuspawner.*")) != []
            job.terminate()

            assert job.left() == []


def test_what_a_killed_job_leaves_goes_with_the_next_start_there(folder: Path) -> None:
    """A server that did not end in time; what else is new there stays."""
    job = Job(folder, job_script(server_of(folder)))
    wait_until(job.started.exists, "the server")
    job.terminate(signal.SIGKILL)
    [left] = job.left()
    job.started.unlink()
    another = Job(folder, job_script(server_of(folder)))
    wait_until(another.started.exists, "the server")
    assert (folder / left).exists()  # for ten minutes
    another.terminate()
    assert another.left() == [left]
    os.utime(folder / left, (time.time() - 700,) * 2)

    last = Job(folder, job_script(["/bin/true"]))

    assert last.left() == []


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_stops_at_random_moments_leave_nothing(folder: Path) -> None:
    """Two hundred starts, stopped within the first two seconds, most of them while the script begins.

    A signal that finds bash between its fork and the exec of the launcher is lost there. Such a job is killed, as Slurm
    does after KillWait, and what it leaves is removed by a later start.
    """
    seed = random.randrange(2**32)
    moments = random.Random(seed)
    killed: list[str] = []
    for _ in range(200):
        job = Job(folder, job_script(server_of(folder)))
        time.sleep(moments.choice([0.1, 0.3, 2.0]) * moments.random())
        job.terminate()
        try:
            job.process.wait(15)
        except subprocess.TimeoutExpired:
            job.terminate(signal.SIGKILL)
            killed = job.left()
        assert sorted(job.left()) == sorted(killed), f"seed {seed}"
    assert len(killed) < 10, f"seed {seed}"
    for name in killed:
        os.utime(folder / name, (time.time() - 700,) * 2)
    assert Job(folder, job_script(["/bin/true"])).left() == []
