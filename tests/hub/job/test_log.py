"""The end of a job's log, as a page may show it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.batch.job import OWN_LOG_DIR
from jupyterhub_gpuspawner.hub.job import log as job_log
from jupyterhub_gpuspawner.hub.job.log import (
    OF_DOWNLOAD,
    OF_ENDING,
    OF_PAGE,
    JobLog,
    last_lines,
    moved,
    outgrew_memory,
    shown,
)
from jupyterhub_gpuspawner.slurm.job import End, Job, JobIdentity, Phase


async def test_a_log_that_its_job_could_not_move_is_found(tmp_path: Path) -> None:
    """In the home, where Slurm has opened it; the one in the folder of logs comes first."""
    own = Path(moved(f"{tmp_path}/jupyterhub-7.log"))
    (tmp_path / "jupyterhub-7.log").write_text("in the home\n")
    in_home = [await last_lines(str(own), prefix) for prefix in ((), ("env",))]
    own.parent.mkdir(parents=True)
    (tmp_path / "jupyterhub-7.log").rename(own)

    assert (str(own), in_home) == (f"{tmp_path}/.local/share/gpuspawner/logs/jupyterhub-7.log", ["in the home"] * 2)
    assert [await last_lines(str(own), prefix) for prefix in ((), ("env",))] == ["in the home"] * 2


JOB = Job("7", Phase.RUNNING, user="ann", name="spawner-jupyterhub")
EXPECTED = JobIdentity(owner="ann", tag="jupyterhub-gpuspawner/hub/ann/")
OF_JOBS = {
    "ours": (replace(EXPECTED, tag=f"{EXPECTED.tag}#0a1b2c3d-1"), {}, moved("/home/ann/own-7.log")),
    "ours, which an earlier version stored": (EXPECTED, {}, moved("/home/ann/own-7.log")),
    "batchspawner's": (EXPECTED.completed_from(JOB), {}, "/home/ann/own-7.log"),
    "of the site's script": (EXPECTED, {"batch_script": "#!/bin/sh"}, "/home/ann/own-7.log"),
    "in a folder of the site's": (EXPECTED, {"log_dir": "/scratch"}, "/home/ann/own-7.log"),
}


@pytest.mark.parametrize(("identity", "settings", "path"), OF_JOBS.values(), ids=OF_JOBS.keys())
def test_only_a_script_of_ours_moves_its_log(identity: JobIdentity, settings: dict[str, str], path: str) -> None:
    """The path on the page is where the log is."""
    spawner = SimpleNamespace(**{"log_dir": OWN_LOG_DIR, "batch_script": "", **settings})
    watch: Any = SimpleNamespace(spawner=spawner, identity=identity)

    assert JobLog(watch).path("/home/ann/own-7.log") == path


async def test_the_last_lines_are_shown(tmp_path: Path) -> None:
    """A long log gives its last lines, whole."""
    log = tmp_path / "job.log"
    log.write_text("".join(f"line {n}\n" for n in range(1000)))

    assert await last_lines(str(log)) == "\n".join(f"line {n}" for n in range(985, 1000))


async def test_control_characters_do_not_reach_the_page(tmp_path: Path) -> None:
    """An escape sequence in a log is replaced by a visible character."""
    log = tmp_path / "job.log"
    log.write_bytes(b"\x1b[31mred\xff\n")

    assert await last_lines(str(log)) == "�[31mred�"


async def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    """A missing file, a link and a pipe without a writer give no lines, and do not block."""
    (tmp_path / "target").write_text("secret\n")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")

    assert [await last_lines(str(tmp_path / name)) for name in ("missing", "link", "pipe")] == ["", "", ""]


async def test_the_log_of_somebody_else_is_read_as_its_owner(tmp_path: Path) -> None:
    """By a command with the owner's rights; a log that it cannot read has no lines."""
    log = tmp_path / "-n 1.log"
    log.write_text("".join(f"line {n}\n" for n in range(1000)))
    as_owner = ("env", "-C", "/")
    tried = [(str(log), as_owner), (str(tmp_path / "missing"), as_owner), (str(log), ("/no/such/command",))]

    assert [await last_lines(*arguments) for arguments in tried] == [
        "\n".join(f"line {n}" for n in range(985, 1000)),
        "",
        "",
    ]


async def test_of_a_long_log_the_end_alone_is_read(tmp_path: Path) -> None:
    """One line without an end is cut, not read whole."""
    log = tmp_path / "job.log"
    log.write_text("x" * 10_000_000)

    assert await last_lines(str(log)) == "x" * OF_ENDING.size


def test_a_page_shows_more_lines_than_an_ending_keeps_and_a_download_has_all() -> None:
    """The lines that say nothing are in the download alone."""
    noise = "[I 2026-11-22 09:10:11.803 ServerApp] Package notebook took 0.0000s to import"
    log = "\n".join([noise, *map(str, range(1000))])

    assert [len(shown(log, extent).splitlines()) for extent in (OF_ENDING, OF_PAGE, OF_DOWNLOAD)] == [15, 400, 1001]


async def test_a_download_is_bounded_and_without_secrets(tmp_path: Path) -> None:
    """Of a longer log the beginning is missing, with the first line if that was cut."""
    log = tmp_path / "job.log"
    log.write_text("a line of forty characters and no secret\n" * 100_000 + "API_TOKEN=0123\tx\n")

    lines = (await last_lines(str(log), extent=OF_DOWNLOAD)).splitlines()

    assert (lines[0], lines[-1]) == ("a line of forty characters and no secret", "API_TOKEN=(not shown)\tx")
    assert len("\n".join(lines)) <= OF_DOWNLOAD.size


class Wrapped:
    """A hub whose wrapper script ``log`` takes a job's id; Slurm has a job 7 with this log, or none."""

    wrapper_dir = "/etc/jupyterhub/wrappers"
    job_id = ""

    def __init__(self, path: str) -> None:
        self.path = path
        self.client = self.spawner = self

    def is_own(self, _: Job) -> bool:
        return False

    def as_user(self) -> tuple[str, ...]:
        return ("sudo", "-n", "-u", "ada")

    def connection(self, _settings: object = None) -> Any:
        return self

    async def job(self, job_id: str) -> Any:
        return SimpleNamespace(stdout_path=self.path) if self.path and job_id == "7" else None

    async def log_end(self, job_id: str, *, prefix: tuple[str, ...]) -> str:
        return f"job {job_id} as {prefix[-1]}"


@pytest.mark.parametrize(
    ("path", "lines"),
    [("/home/ada/7.log", "job 7 as ada"), ("/home/ada/other.log", ""), ("", "")],
    ids=["the same job", "another job has the id", "a job that Slurm has forgotten"],
)
async def test_a_wrapper_is_not_asked_for_the_log_of_another_job(path: str, lines: str) -> None:
    """Slurm gives ids again after it has lost its state."""
    reader: Any = Wrapped(path)
    log = JobLog(reader)

    assert await log.lines_of_ended("/home/ada/7.log", "7", OF_PAGE) == lines


KILLED = Job("7", Phase.ENDED, end=End.FAILED, exit_code="0:9")
SLURMD = "slurmstepd-g1: error: Step 7.4294967291 exceeded memory limit (245760 > 51200), being killed"
SLURMD_26_05 = (
    "[2026-11-22T17:59:59.022] error: StepId=7.batch exceeded memory limit (431042560 > 52428800), being killed"
)


@pytest.mark.parametrize(
    ("status", "lines", "memory"),
    [
        (KILLED, f"working\n{SLURMD}", True),
        (KILLED, f"working\n{SLURMD_26_05}", True),
        (KILLED, "working", False),
        (KILLED, f"I read that {SLURMD}", False),
        (replace(KILLED, exit_code="1:0"), SLURMD, False),
        (replace(KILLED, end=End.CANCELLED), SLURMD, False),
    ],
    ids=["slurmd says so", "slurmd 26.05 says so", "nobody says so", "quoted", "it ended by itself", "cancelled"],
)
def test_memory_is_named_where_slurmd_has_killed_for_it(status: Job, lines: str, memory: bool) -> None:
    """Signal 9 alone may have another reason."""
    assert outgrew_memory(status, lines) is memory


@pytest.mark.parametrize(
    ("silent", "shown"),
    [("Slurm", ("", "")), ("the file server", ("/home/ada/7.log", ""))],
)
async def test_a_file_server_that_hangs_is_not_taken_for_slurm(
    monkeypatch: pytest.MonkeyPatch, silent: str, shown: tuple[str, str]
) -> None:
    """The page says where the log is, and that it cannot be read, unless it is Slurm that does not respond."""
    monkeypatch.setattr(job_log, "TIMEOUT", 0.05)
    never, answered = asyncio.get_running_loop().create_future(), asyncio.get_running_loop().create_future()
    answered.set_result(SimpleNamespace(stdout_path="/home/ada/7.log"))
    client = SimpleNamespace(job=lambda _job_id: never if silent == "Slurm" else answered)
    spawner = SimpleNamespace(connection=lambda: SimpleNamespace(client=client), log_dir="", batch_script="")
    watch: Any = SimpleNamespace(job_id="7", spawner=spawner, is_own=lambda _job: True)
    reader = JobLog(watch)
    monkeypatch.setattr(reader, "last_lines", lambda *_: never)

    assert await reader.path_and_lines() == shown


async def test_a_cancellation_that_comes_with_the_answer_is_not_lost() -> None:
    """Whoever cancels it waits for that: asyncio.wait_for would return the answer before Python 3.12."""
    answer = asyncio.get_running_loop().create_future()
    client = SimpleNamespace(job=lambda _job_id: answer)
    spawner = SimpleNamespace(connection=lambda: SimpleNamespace(client=client))
    watch: Any = SimpleNamespace(job_id="7", spawner=spawner)
    lines = asyncio.ensure_future(JobLog(watch).path_and_lines())
    for _ in range(3):
        await asyncio.sleep(0)
    answer.set_result(None)
    lines.cancel()

    with pytest.raises(asyncio.CancelledError):
        await lines
