"""slurmctld has lost its state, and job ids are reused: another job is never mistaken for the server's job."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm
from tests.fixtures.hubs import start_hub
from tests.hub.servers import state, stored
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIG = """
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}
from pathlib import Path
from jupyterhub_gpuspawner.hub.job import watch
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
watch.VERDICT_POLL_SECONDS = 1.0  # during a start a third question is not the last one
watcher.REST_INTERVAL = AT_REST
until_next = watcher.interval


def interval(*jobs, **times):
    seconds = until_next(*jobs, **times)
    if seconds == watcher.REST_INTERVAL:
        Path("rests").touch()
    else:
        Path("rests").unlink(missing_ok=True)
    return seconds


watcher.interval = interval
"""
"""A hub that asks about its jobs every half second during a start, and whose file ``rests`` is there afterwards."""
LOST = "Slurm has lost the job: its id now belongs to another job."


@pytest.fixture
def own_slurm(needs_slurm: None, public_folder: Path, tmp_path: Path) -> Iterator[PrivateSlurm]:
    """A separate Slurm for each test, which makes it lose its state."""
    with PrivateSlurm(DEMO_CLUSTER, public_folder / f"slurm-{tmp_path.name[-20:]}") as slurm:
        yield slurm


def hub_of(stack: ExitStack, slurm: PrivateSlurm, folder: Path, *, rest: float) -> HubProcess:
    return start_hub(stack, slurm, folder, lines=CONFIG.replace("AT_REST", str(rest)))


def lose_state(slurm: PrivateSlurm) -> None:
    """Restart slurmctld with an empty StateSaveLocation, so that job ids start over."""
    slurm.stop_controller()
    shutil.rmtree(slurm.layout.folder / "state")
    (slurm.layout.folder / "state").mkdir()
    slurm.start_controller(nodes=False)  # the next job ids are the test's


@contextmanager
def asking_nothing(hub: HubProcess) -> Iterator[None]:
    """A context in which the hub hangs, and the commands that it has run have ended."""
    assert hub.process is not None
    process = psutil.Process(hub.process.pid)

    def commands() -> list[psutil.Process]:
        return [child for child in process.children() if child.status() != psutil.STATUS_ZOMBIE and not proxy(child)]

    process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: not commands(), commands)
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def proxy(process: psutil.Process) -> bool:
    return "configurable-http-proxy" in " ".join(process.cmdline())


def sleeper(slurm: PrivateSlurm, log: Path, *options: str) -> str:
    """Submit an ordinary batch job that runs for ten minutes."""
    return slurm.run(
        *("sbatch", "--parsable", "-p", "batch", "-c", "1", "--mem=50M", f"--output={log}", "--chdir=/", *options),
        "--wrap=echo the log of another job; sleep 600",
    )


def alive(slurm: PrivateSlurm, job: str) -> bool:
    return state(slurm, job) in ("PENDING", "CONFIGURING", "RUNNING")


@pytest.mark.users
def test_servers_whose_numbers_belong_to_other_jobs_have_ended(
    own_slurm: PrivateSlurm, two_users: tuple[str, str], tmp_path: Path, public_folder: Path
) -> None:
    """The ids now belong to a stranger's job and the user's batch job: both continue, and pages say what happened."""
    log = public_folder / "another.log"
    log.touch(mode=0o666)
    log.chmod(0o666)
    with ExitStack() as stack:
        hub = hub_of(stack, own_slurm, tmp_path / "hub", rest=1.0)
        jobs = {user: hub.spawn(user, {"profile": "light"})["job_id"] for user in ("una", "vera")}
        with asking_nothing(hub):  # else it might ask before the numbers have been given to others
            lose_state(own_slurm)
            strangers = sleeper(own_slurm, log, f"--uid={two_users[1]}")
            own = sleeper(own_slurm, log)

        assert [strangers, own] == list(jobs.values())
        for user in jobs:
            hub.wait(user, ready=False, timeout=60)
            page = Visitor(hub, user).look(f"/hub/spawn/{user}")
            text = page.text + Visitor(hub, user).look("/hub/home").text
            assert LOST in text, (text, hub.log_end())
        assert [alive(own_slurm, job) for job in (strangers, own)] == [True, True]
        assert "the log of another job" not in hub.log.read_text()
        hub.restart()
        assert [alive(own_slurm, job) for job in (strangers, own)] == [True, True]


@pytest.mark.nightly
def test_a_stop_and_a_look_at_the_log_touch_no_other_job(
    own_slurm: PrivateSlurm, tmp_path: Path, public_folder: Path
) -> None:
    """The user's own batch job has the id, which the hub has not noticed yet: it is neither cancelled nor shown."""
    log = public_folder / "own.log"
    with ExitStack() as stack:
        hub = hub_of(stack, own_slurm, tmp_path / "hub", rest=600.0)
        visitor = Visitor(hub, "una")
        job = hub.spawn("una", {"profile": "light"})["job_id"]
        wait_until((hub.folder / "rests").exists, hub.log_end)  # the next question is ten minutes away
        lose_state(own_slurm)
        own = sleeper(own_slurm, log)

        assert own == job
        wait_until(lambda: log.exists() and "another job" in log.read_text())

        page = visitor.look("/hub/gpuspawner/log/una")

        assert ("the log of another job" in page.text, str(log) in page.text) == (False, False)

        hub.end("una")

        wait_until(
            lambda: f"Job {job} is not cancelled: the id belongs to another job" in hub.log.read_text(),
            hub.log_end,
        )
        assert alive(own_slurm, own)
        assert stored(hub, "una").get("job_id") is None


@pytest.mark.nightly
def test_a_hub_that_comes_back_takes_up_no_job_but_its_own(own_slurm: PrivateSlurm, tmp_path: Path) -> None:
    """Job ids started over while the hub was down; a second server, which really has its job id, continues."""
    with ExitStack() as stack:
        hub = hub_of(stack, own_slurm, tmp_path / "hub", rest=1.0)
        gone = hub.spawn("una", {"profile": "light"})["job_id"]
        hub.kill()
        lose_state(own_slurm)
        other = sleeper(own_slurm, Path(os.devnull))

        assert other == gone

        hub.start()
        hub.wait("una", ready=False, timeout=60)
        second_job = hub.spawn("vera", {"profile": "light"})["job_id"]
        hub.restart()
        hub.wait("vera", ready=True)

        assert [alive(own_slurm, job) for job in (other, second_job)] == [True, True]
