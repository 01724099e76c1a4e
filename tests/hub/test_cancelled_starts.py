"""A start that is cancelled at any moment leaves no job, however slow Slurm is."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm, SlurmFailed
from jupyterhub_gpuspawner.hub.upkeep import state_job_ids
from tests.fixtures.hubs import COMMAND, StartHub
from tests.fixtures.slurm import hanging
from tests.hub.commands import commands, slow
from tests.hub.test_life import start, stored
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIG = """
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}  # a start over REST is answered at once
c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.active_server_limit = 0
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
from jupyterhub_gpuspawner.hub.site import slurm_settings
slurm_settings.COMMANDS_AT_A_TIME = 40
c.GPUSlurmSpawner.slurm_bin_dir = BIN
"""
PROFILES = f"""
- display_name: Light
  slug: light
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: {COMMAND}
""" + "".join(
    f"""
- display_name: {seconds} seconds
  slug: within-{seconds}
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  start_timeout: {seconds}
  environment: {{setup: "sleep 60"}}
  command: {COMMAND}
"""
    for seconds in (1, 2, 3, 4, 5)
)
SLOW: dict[str, tuple[dict[str, str], float]] = {
    "Slurm is quick": ({}, 0.1),
    "everything takes its time": (
        {"sbatch": slow(0.3, 0.7), "squeue": slow(0.3, 0.2), "scontrol": slow(0.5), "scancel": slow(0.3)},
        0.25,
    ),
    "sbatch answers late": ({"sbatch": slow(0.0, 5.0)}, 0.4),
    "sbatch begins late": ({"sbatch": slow(5.0)}, 0.4),
    "squeue and scontrol are dead": ({"squeue": "sleep 60", "scontrol": "exit 1"}, 0.2),
}
"""Changes to Slurm's commands, and the seconds between two moments at which starts are cancelled."""
MOMENTS = 16
_COUNT = itertools.count()


@pytest.fixture(params=list(SLOW.values()), ids=list(SLOW))
def slow_hub(
    request: pytest.FixtureRequest, start_light_hub: StartHub, slurm_cluster: PrivateSlurm, tmp_path: Path
) -> Iterator[tuple[HubProcess, float]]:
    """A hub whose Slurm is slow in one of these ways, and the seconds between two cancellations."""
    changed, step = request.param
    folder = commands(tmp_path / "bin", slurm_cluster.bin_dir, changed)
    hub = start_light_hub(lines=CONFIG.replace("BIN", repr(str(folder))), profiles=PROFILES)
    yield hub, step
    hub.stop()


def alive(slurm: PrivateSlurm) -> list[str]:
    """The servers' jobs that are pending or running."""
    said = slurm.run("squeue", "-h", "-t", "PD,CF,R,S", "-O", "JobID:|,Comment:").splitlines()
    return sorted(line.strip() for line in said if "|jupyterhub-gpuspawner/" in line)


def submitting(slurm: PrivateSlurm) -> bool:
    """Whether an sbatch for this Slurm is running, by which a job may still come."""
    return any(
        process.info["name"] == "sbatch"
        and (process.info["environ"] or {}).get("SLURM_CONF") == slurm.environment["SLURM_CONF"]
        for process in psutil.process_iter(["name", "environ"])
    )


def test_a_start_that_is_stopped_at_any_moment_leaves_no_job(
    slow_hub: tuple[HubProcess, float], slurm_cluster: PrivateSlurm
) -> None:
    """Sixteen starts, each stopped a little later than the one before: no job or state is left, and all can restart."""
    hub, step = slow_hub
    users = [f"user{next(_COUNT)}" for _ in range(MOMENTS)]

    def give_up(user: str, seconds: float) -> None:
        start(hub, user, "light")
        time.sleep(seconds)
        # JupyterHub waits one second for a start that it has cancelled, then answers 500 and keeps the server
        wait_until(lambda: hub.api("DELETE", server_path(user)).status_code < 500)
        hub.wait(user, ready=False)

    with ThreadPoolExecutor(MOMENTS) as threads:
        list(threads.map(give_up, users, [step * number for number in range(MOMENTS)]))

    wait_until(lambda: not submitting(slurm_cluster))
    wait_until(lambda: not alive(slurm_cluster), lambda: (alive(slurm_cluster), hub.log_end()), seconds=60)
    assert [state_job_ids(stored(hub, user)) for user in users] == [set()] * MOMENTS


def test_a_start_that_takes_too_long_at_any_moment_leaves_no_job(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm, tmp_path: Path
) -> None:
    """The timeout expires before sbatch runs, while it runs, after it has answered, and after the allocation."""
    changed = {"sbatch": slow(1.5, 2.0), "squeue": slow(0.3), "scontrol": slow(4.0)}
    folder = commands(tmp_path / "bin", slurm_cluster.bin_dir, changed)
    hub = start_light_hub(lines=CONFIG.replace("BIN", repr(str(folder))), profiles=PROFILES)
    users = {f"late{seconds}": f"within-{seconds}" for seconds in (1, 2, 3, 4, 5)}
    for user, profile in users.items():
        start(hub, user, profile)
    for user in users:
        hub.wait(user, ready=False)

    wait_until(lambda: not submitting(slurm_cluster))
    wait_until(lambda: not alive(slurm_cluster), lambda: (alive(slurm_cluster), hub.log_end()), seconds=60)
    assert [state_job_ids(stored(hub, user)) for user in users] == [set()] * len(users)
    hub.stop()


def test_a_hub_that_is_killed_at_any_moment_of_a_start_finds_the_job_again(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm, tmp_path: Path
) -> None:
    """The hub is killed while eight users start servers: afterwards each job belongs to its server or is cancelled."""
    folder = commands(tmp_path / "bin", slurm_cluster.bin_dir, {"sbatch": slow(0.2, 1.0), "scontrol": slow(0.3)})
    hub = start_light_hub(lines=CONFIG.replace("BIN", repr(str(folder))), profiles=PROFILES)
    users = [f"kill{number}" for number in range(8)]
    for user in users:
        start(hub, user, "light")
        time.sleep(0.35)

    hub.restart()

    def settled() -> bool:
        """Whether every start has succeeded or failed, and the jobs are exactly those of the servers."""
        models = [hub.server(user) for user in users]
        if any(model and model["pending"] for model in models):
            return False
        jobs = [((model or {}).get("state") or {}).get("job_id") for model in models]
        return sorted(filter(None, jobs)) == sorted(line.partition("|")[0] for line in alive(slurm_cluster))

    wait_until(settled, lambda: (alive(slurm_cluster), [hub.server(user) for user in users], hub.log_end()), seconds=90)
    there = [user for user in users if hub.server(user)]
    assert there, "no start had come so far that its server was taken up"
    assert len(there) < len(users), "no start was between sbatch and the database"

    for user in there:
        hub.end(user)
    wait_until(lambda: not alive(slurm_cluster))
    hub.stop()


def test_a_stop_that_slurm_did_not_hear_is_made_good_by_the_next_hub(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm
) -> None:
    """slurmctld hangs, a user stops the server, and the hub is killed: the next hub cancels the job."""
    hub = start_light_hub(lines="c.GPUSlurmSpawner.slurm_timeout = 1.0")
    job = hub.spawn("wes", {"profile": "light"})["job_id"]
    with hanging(slurm_cluster):
        hub.end("wes")
        hub.kill()

    def ended() -> bool:
        with suppress(SlurmFailed):
            return slurm_cluster.run("squeue", "-h", "-j", job, "-t", "PD,R") == ""
        return False

    time.sleep(3)  # commands that were running have ended
    lost = not ended()
    hub.start()

    wait_until(ended, hub.log_end, seconds=60)
    assert (f"Job {job} (jupyterhub-gpuspawner/demo/wes/#" in hub.log.read_text()) is lost
    hub.stop()
