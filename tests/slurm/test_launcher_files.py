"""The launcher's files on a node while a job runs, and their removal however the job ends."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from jupyterhub_gpuspawner.batch import script
from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import resolve
from jupyterhub_gpuspawner.profiles.sections import ServerCommand
from jupyterhub_gpuspawner.slurm.job import tag
from jupyterhub_gpuspawner.wire.documents import LaunchPlan
from tests.fixtures.slurm import processes_of
from tests.waiting import wait_until

pytestmark = pytest.mark.slurm

SERVER = [sys.executable, "-c", "import time; print('serving', flush=True); time.sleep(600)"]


class Job:
    """A server's job, whose TMPDIR is a folder of the test."""

    def __init__(
        self, slurm: PrivateSlurm, folder: Path, name: str, *, limit: str = "0:10:00", tmpdir: str = ""
    ) -> None:
        self.slurm, self.files, self.log = slurm, folder / "tmp", folder / f"{name}.log"
        self.files.mkdir(exist_ok=True)
        profile = {"display_name": "X", "slurm": {"partition": "batch", "cpus": 1, "memory": "100M", "time": limit}}
        request = resolve(
            parse_profiles([profile]), {}, username="ada", groups=(), server_name="", now=datetime.now().astimezone()
        )
        text = script.render(
            request,
            launcher=launcher_archive(),
            plan=LaunchPlan(deadline=0.5),
            command=ServerCommand(tuple(SERVER)),
            tag=tag("hub", "ada", ""),
            log_path=str(self.log),
            job_name="jupyterhub",
            chdir=str(folder),
            prologue=f"export TMPDIR={tmpdir or self.files}",
        )
        self.id = subprocess.run(
            [f"{slurm.bin_dir}/sbatch", "--parsable"],
            input=text,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **slurm.environment},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        self.until(lambda: self.log.exists() and "serving" in self.log.read_text())

    def until(self, true: Callable[[], object]) -> None:
        wait_until(true, lambda: self.log.read_text() if self.log.exists() else "it has not started")

    def left(self) -> list[str]:
        return sorted(path.name for path in self.files.iterdir())

    def gone(self) -> bool:
        return self.slurm.run("squeue", "-h", "-j", self.id, "-t", "all", "-o", "%T") in (
            *("CANCELLED", "FAILED", "COMPLETED", "TIMEOUT", "NODE_FAIL", ""),
        )


@pytest.fixture
def folder(public_folder: Path) -> Path:
    """A new folder for each test."""
    folder = public_folder / f"files-{time.monotonic_ns()}"
    folder.mkdir()
    return folder


def test_the_files_are_the_users_alone_and_their_names_cannot_be_foreseen(
    slurm_cluster: PrivateSlurm, folder: Path
) -> None:
    """The folder has mode 0700, a random name, and only files of mode 0600."""
    job = Job(slurm_cluster, folder, "one")
    [name] = job.left()
    mode = stat.S_IMODE((job.files / name).stat().st_mode)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (job.files / name).iterdir()}
    slurm_cluster.run("scancel", job.id)
    job.until(lambda: job.gone() and not job.left())

    assert re.fullmatch(rf"gpuspawner\.{re.escape(os.uname().nodename)}\.[A-Za-z0-9]{{10}}", name)
    assert (mode, modes) == (0o700, {"launch.pyz": 0o600, "plan.json": 0o600, "port": 0o600, "shell": 0o600})


def test_they_go_with_a_job_that_is_told_to_end(slurm_cluster: PrivateSlurm, folder: Path) -> None:
    """The batch script removes the files at its end, after scancel or SIGTERM as at the end of the job's time."""
    job = Job(slurm_cluster, folder, "one")
    slurm_cluster.run("scancel", job.id)
    job.until(lambda: job.gone() and not job.left())
    job = Job(slurm_cluster, folder, "two")
    slurm_cluster.run("scancel", "--batch", "--signal=TERM", job.id)
    for process in processes_of(slurm_cluster, job.id):
        with suppress(psutil.NoSuchProcess):  # the batch script's shell, which was told to end
            if process.cmdline()[:2] == SERVER[:2]:
                process.send_signal(signal.SIGTERM)
    job.until(lambda: job.gone() and not job.left())


def test_what_a_job_killed_outright_leaves_goes_with_the_next_start(slurm_cluster: PrivateSlurm, folder: Path) -> None:
    """After kill -9 of all processes the files remain until the next start, which keeps those of running jobs."""
    killed, runs = Job(slurm_cluster, folder, "one"), Job(slurm_cluster, folder, "two")
    processes = processes_of(slurm_cluster, killed.id)
    assert processes
    for number in (signal.SIGSTOP, signal.SIGKILL):  # a shell that sees its child end would remove the files
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
    killed.until(killed.gone)

    assert len(killed.left()) == 2

    for name in killed.left():
        os.utime(killed.files / name, (0, 0))
    third = Job(slurm_cluster, folder, "three")

    assert len(killed.left()) == 2  # those of the two running jobs

    slurm_cluster.run("scancel", runs.id, third.id)
    killed.until(lambda: not killed.left())


@pytest.fixture
def full(folder: Path) -> Iterator[Path]:
    """A file system with some free bytes, but too few for the launcher."""
    mount_point = folder / "full"
    mount_point.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k,mode=1777", "none", str(mount_point)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"needs to mount a file system: {mounted.stderr.strip()}")
    yield mount_point
    subprocess.run(["umount", str(mount_point)], check=True)


@pytest.mark.parametrize("tmpdir", ["/no/such/folder", "a/relative/one", "/sys", "full"])
def test_a_tmpdir_that_cannot_be_used_is_told_in_the_log_and_the_server_starts(
    slurm_cluster: PrivateSlurm, folder: Path, full: Path, tmpdir: str
) -> None:
    """The real job's log names the TMPDIR that cannot be used, and no file is left there."""
    tmpdir = str(full) if tmpdir == "full" else tmpdir
    job = Job(slurm_cluster, folder, "one", tmpdir=tmpdir)
    log = job.log.read_text()
    slurm_cluster.run("scancel", job.id)
    job.until(job.gone)

    assert log.startswith(f"gpuspawner: {tmpdir} cannot be used for the launcher: "), log
    assert list(full.iterdir()) == []
