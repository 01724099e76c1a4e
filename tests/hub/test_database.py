"""The hub's database is unavailable while servers start, run and stop: no server is lost, and no job is left."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.hub.lost_jobs import state_job_ids
from tests.fixtures.hubs import COMMAND, StartHub
from tests.fixtures.postgres import PrivatePostgres
from tests.hub.commands import commands
from tests.hub.servers import alive_of, start
from tests.hub.test_restart import job_of_server
from tests.hub.visitor import events
from tests.waiting import true_within, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIG = """
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}  # a start over REST is answered at once
c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.db_url = URL
c.Spawner.poll_interval = 3
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
watcher.REST_INTERVAL = 1.0
"""
PROFILES = f"""
- display_name: Light
  slug: light
  slurm: {{partition: batch, cpus: 1, memory: 50M, time: "0:10:00"}}
  start_timeout: 90
  command: {COMMAND}
- display_name: Starts when the gate is open
  slug: gated
  slurm: {{partition: batch, cpus: 1, memory: 50M, time: "0:10:00"}}
  start_timeout: 90
  environment: {{setup: "until [ -e GATE ]; do sleep 0.2; done"}}
  command: {COMMAND}
"""
SENTENCE = "The hub's database did not respond"
"""What a participant reads begins so, whether the hub's own write fails or the spawner's."""
OUTAGE = 5.0
"""Seconds, about as long as a restart of Postgres takes."""


@pytest.fixture(scope="module")
def gate(public_folder: Path) -> Path:
    """A file whose existence lets servers start."""
    return public_folder / "gate"


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub, postgres: PrivatePostgres, gate: Path) -> Iterator[HubProcess]:
    """A hub with a Postgres database."""
    hub = start_light_hub(lines=CONFIG.replace("URL", repr(postgres.url)), profiles=PROFILES.replace("GATE", str(gate)))
    yield hub
    hub.stop()


@pytest.fixture(autouse=True)
def no_server_is_left(hub: HubProcess, gate: Path) -> Iterator[None]:
    """After each test all servers are stopped and the gate file is removed."""
    yield
    with ThreadPoolExecutor(10) as threads:
        list(threads.map(hub.end, [user["name"] for user in hub.api("GET", "/users?state=active").json()]))
    gate.unlink(missing_ok=True)


def jobs_of_servers(slurm: PrivateSlurm, users: Collection[str]) -> list[str]:
    """The jobs of these users' servers that have not ended, as :func:`outcome` names them."""
    return sorted(f"job {job}" for job in alive_of(slurm, users))


def outcome(hub: HubProcess, user: str) -> str:
    """The job behind a user's URL, or else the hub's last message about the start."""

    def over() -> bool:
        model = hub.server(user)
        return model is None or (model["ready"] and not model["pending"])

    if not true_within(100, over):
        return f"pending for ever: {str(hub.server(user))[:300]}"
    address = f"{hub.url}/user/{user}/environ"
    if true_within(
        45,
        lambda: hub.server(user) is None or requests.get(address, timeout=10, allow_redirects=False).status_code == 200,
    ):
        return f"job {job_of_server(hub, user)}" if hub.server(user) else str(list(events(hub, user))[-1]["message"])
    return "ready, and not reached"


@pytest.mark.nightly
def test_postgres_is_restarted_in_the_middle_of_twenty_starts(
    hub: HubProcess, postgres: PrivatePostgres, slurm_cluster: PrivateSlurm, gate: Path
) -> None:
    """Twelve report during the outage, eight are at any step: each starts or fails with a reason; no job is left."""
    users = [f"blip{number:02}" for number in range(20)]
    for user in users[:12]:
        start(hub, user, "gated")
    wait_until(lambda: len(alive_of(slurm_cluster, users, "R")) == 12, hub.log_end, seconds=60)
    for user in users[12:]:
        start(hub, user, "light")

    with postgres.away():
        gate.touch()
        time.sleep(OUTAGE)

    with ThreadPoolExecutor(20) as threads:
        outcomes = list(threads.map(lambda user: outcome(hub, user), users))
    served = sorted(text for text in outcomes if text.startswith("job "))

    assert [text for text in outcomes[:12] if not text.startswith("job ")] == []
    # a job that could not be cancelled at once is cancelled later
    true_within(90, lambda: jobs_of_servers(slurm_cluster, users) == served)
    assert jobs_of_servers(slurm_cluster, users) == served, hub.log_end()
    assert [text for text in outcomes[12:] if not text.startswith(("job ", f"Spawn failed: {SENTENCE}"))] == []


def test_a_job_that_ends_while_postgres_is_away_ends_its_server(
    hub: HubProcess, postgres: PrivatePostgres, slurm_cluster: PrivateSlurm
) -> None:
    """No ended server remains ready or is stopping for ever."""
    users = ("ida", "jon", "kim")
    jobs = [hub.spawn(user, {"profile": "light"})["job_id"] for user in users]
    with postgres.away():
        slurm_cluster.run("scancel", *jobs)
        time.sleep(OUTAGE)

    wait_until(lambda: [hub.server(user) for user in users] == [None] * 3, hub.log_end, seconds=60)

    hub.spawn("ida", {"profile": "light"})


@pytest.mark.nightly
def test_postgres_hangs_while_servers_start(
    hub: HubProcess, postgres: PrivatePostgres, slurm_cluster: PrivateSlurm, gate: Path
) -> None:
    """The hub hangs too, as JupyterHub queries its database in the event loop; reports arrive after the outage."""
    users = [f"hung{number}" for number in range(4)]
    for user in users:
        start(hub, user, "gated")
    wait_until(lambda: len(alive_of(slurm_cluster, users, "R")) == 4, hub.log_end, seconds=60)

    with postgres.hung():
        gate.touch()
        time.sleep(OUTAGE)

    assert sorted(outcome(hub, user) for user in users) == jobs_of_servers(slurm_cluster, users)


@pytest.fixture
def small_disk(public_folder: Path) -> Iterator[Path]:
    """A separate file system with half a megabyte of free space."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    folder = public_folder / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.nightly
def test_the_disk_is_full_when_sbatch_has_answered(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm, small_disk: Path, gate: Path, tmp_path: Path
) -> None:
    """The job id cannot be stored: it is kept in memory, stored as soon as there is space, and the server starts."""
    fill = f'"$real" "$@"; status=$?; cat /dev/zero >{small_disk}/fill 2>/dev/null; exit $status'
    bin_dir = commands(tmp_path / "bin", slurm_cluster.bin_dir, {"sbatch": fill})
    lines = CONFIG.replace("URL", repr(f"sqlite:///{small_disk}/hub.sqlite"))
    lines += f"c.GPUSlurmSpawner.slurm_bin_dir = {str(bin_dir)!r}\n"
    hub = start_light_hub(lines=lines, profiles=PROFILES.replace("GATE", str(gate)))
    start(hub, "liz", "gated")
    wait_until(lambda: "The state of liz is not in the hub's database yet" in hub.log.read_text(), hub.log_end)

    gate.touch()
    # it arrives while the disk is still full
    wait_until(lambda: "POST /hub/api/gpuspawner/report" in hub.log.read_text(), hub.log_end)
    (small_disk / "fill").unlink()

    assert outcome(hub, "liz") == f"job {alive_of(slurm_cluster, ['liz'])[0]}"
    with sqlite3.connect(f"file:{small_disk}/hub.sqlite?mode=ro", uri=True) as database:
        state = json.loads(database.execute("select state from spawners where state like '%job_id%'").fetchone()[0])

    assert state_job_ids(state) == {outcome(hub, "liz").removeprefix("job ")}
    hub.stop()
