"""A hub of an earlier commit is killed, and this one takes up all that it had begun: no server is lost.

The earlier hub runs from its own tree, with its own configuration of the demo and with the same database.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.hub import words
from tests.fixtures.hubs import COMMAND, LIGHT, NO_SPAWN_WAIT, needs_proxy, new_hub
from tests.fixtures.postgres import PrivatePostgres, missing
from tests.fixtures.slurm import hanging
from tests.hub.servers import alive, job_id, start, stored
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.slurm, pytest.mark.hub]

EARLIER = "b2e43398"
"""The commit before the core was cut free of its extensions. The next release takes its place."""
ROOT = Path(__file__).parents[2]
PROFILES = f"""{LIGHT}
- display_name: Takes a minute
  slug: minute
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: [/bin/bash, -c, "sleep 45; exec {COMMAND.strip("[]").replace(",", "")}"]
"""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the earlier commit."""
    archive = tmp_path_factory.mktemp("earlier") / "tree.tar"
    asked = ("git", "archive", "-o", str(archive), EARLIER, "jupyterhub_gpuspawner")
    done = subprocess.run(asked, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this copy has no commit {EARLIER}: {done.stderr.strip()}")
    subprocess.run(["tar", "-x", "-f", archive, "-C", archive.parent], check=True)
    return archive.parent


@dataclass
class Upgraded:
    """A hub that can be the earlier one, or this one."""

    hub: HubProcess
    earlier: Path
    environment: dict[str, str]

    def run(self, package: Path) -> None:
        """Start the hub of this tree."""
        config = package / "jupyterhub_gpuspawner" / "demo" / "jupyterhub_config.py"
        lines = self.hub.config.read_text().splitlines()[1:]
        self.hub.config.write_text("\n".join((f"load_subconfig({str(config)!r})", *lines, "")))
        self.environment["PYTHONPATH"] = str(package)
        self.hub.start()


@pytest.fixture(params=["sqlite", "Postgres"])
def upgraded(
    request: pytest.FixtureRequest, slurm_cluster: PrivateSlurm, earlier: Path, tmp_path: Path, public_folder: Path
) -> Iterator[Upgraded]:
    """The earlier hub, which runs."""
    needs_proxy()
    environment = {}
    with ExitStack() as stack:
        if request.param == "Postgres":
            if (reason := missing()) is not None:
                pytest.skip(f"no private Postgres: {reason}")
            postgres = stack.enter_context(PrivatePostgres(public_folder / "postgres-of-two-hubs"))
            environment["GPUSPAWNER_DEMO_DATABASE"] = postgres.url
        lines = f"{NO_SPAWN_WAIT}\nc.GPUSlurmSpawner.slurm_timeout = 3\nc.JupyterHub.cleanup_servers = False"
        hub = new_hub(slurm_cluster, tmp_path / "hub", lines=lines, profiles=PROFILES, environment=environment)
        variables = dict(hub.environment)
        hub.environment = variables
        stack.callback(hub.stop)
        upgraded = Upgraded(hub, earlier, variables)
        upgraded.run(earlier)
        yield upgraded
        for user in hub.api("GET", "/users?state=active").json():
            for server in user["servers"]:
                hub.end(user["name"], server)


def test_servers_that_run_wait_start_or_are_kept_are_taken_up(upgraded: Upgraded, slurm_cluster: PrivateSlurm) -> None:
    """Each keeps its job, its place and its report; a start goes on, and nothing is submitted twice."""
    hub = upgraded.hub
    for user, profile, server in (("ada", "light", ""), ("ada", "light", "named"), ("bea", "k80-node", "")):
        hub.spawn(user, {"profile": profile}, server=server)
    start(hub, "cleo", "k80-node")
    start(hub, "dan", "minute")
    jobs = {user: job_id(hub, user) for user in ("ada", "bea", "cleo", "dan")}
    placed = hub.api("GET", "/gpuspawner/placement/bea").json()
    before = stored(hub, "bea")
    with hanging(slurm_cluster):
        start(hub, "eve", "light")
        eve = Visitor(hub, "eve")
        wait_until(lambda: words.FOR_LATER in eve.pending().text, hub.log_end, seconds=60)
        hub.kill()
    upgraded.run(ROOT)
    now = {user: job_id(hub, user) for user in jobs}
    after = hub.api("GET", "/gpuspawner/placement/bea").json()

    assert now == jobs
    assert {name: after[name] for name in placed} == placed
    assert set(before) - set(stored(hub, "bea")) == set()
    for path in ("ada", "ada/named", "bea"):
        assert requests.get(f"{hub.url}/user/{path}/api", timeout=10).json() == {"stand-in": True}
    hub.wait("dan", ready=True)
    assert hub.server("cleo")["pending"] == "spawn"  # type: ignore[index]
    assert words.WAITING in Visitor(hub, "cleo").pending().text
    hub.end("bea")
    hub.wait("cleo", ready=True)
    assert {user: job_id(hub, user) for user in ("ada", "cleo", "dan")} == {
        user: job for user, job in jobs.items() if user != "bea"
    }
    assert hub.server("eve") is None  # the earlier hub stored nothing of a start that it kept
    assert [line for line in alive(slurm_cluster) if "/eve/" in line] == []
    hub.spawn("eve", {"profile": "light"})
    hub.spawn("bea", {"profile": "light"})
