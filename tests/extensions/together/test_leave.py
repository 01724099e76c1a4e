"""A hub that leaves for batchspawner and wrapspawner by docs/howto/leave.md, and comes back: what runs is kept."""

from __future__ import annotations

import pwd
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo import hub as demo_hub
from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.docs.follow import ROOT, blocks, commands, section
from tests.fixtures.hubs import FILES_MAY_SAY_ALL, NO_SPAWN_WAIT, needs_proxy, new_hub
from tests.fixtures.site import PYTHON
from tests.hub.servers import job_id, start, state
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users]

BLOCKS = tuple(blocks((ROOT / "docs" / "howto" / "leave.md").read_text("utf-8")))
WITHOUT_PROFILES, WITH_PROFILES, TUPLES = (text for kind, text in BLOCKS if kind == "python")
(DROP,) = (text for kind, text in BLOCKS if kind == "sql")
((LIST_JOBS, _),) = (command for kind, text in BLOCKS if kind == "console" for command in commands(text))
HERE = section("howto/migrate-from-batchspawner.md", "Servers that run")
(SHUT_DOWN, _), (LIST_LOST, _) = (command for _, text in blocks(HERE) for command in commands(text))
BATCHSPAWNER_SINGLEUSER = Path(sys.executable).with_name("batchspawner-singleuser")
SECONDS = 2
"""After which batchspawner's hub gives up a server that does not answer."""
COMMON = f"""
{NO_SPAWN_WAIT}
c.JupyterHub.cleanup_servers = False
c.Spawner.pre_spawn_hook = None
c.Spawner.args = []
"""
OURS = f"""
{COMMON}
{FILES_MAY_SAY_ALL}
c.GPUSlurmSpawner.dangerously_run_servers_as_root = False
c.GPUSlurmSpawner.exec_prefix = "sudo -n -E -u {{username}}"
c.GPUSlurmSpawner.req_homedir = ""
c.SlurmSpawner.req_partition = "batch"
c.SlurmSpawner.req_memory = "100M"
c.SlurmSpawner.req_runtime = "0:10:00"
c.JupyterHub.load_roles += [{{"name": "teachers", "scopes": ["custom:gpuspawner:teach"]}}]
from jupyterhub_gpuspawner.hub import lost_jobs
lost_jobs.CONFIRMED_AFTER = 1.0
"""
MORE_TUPLES = """
c.JupyterHub.cleanup_servers = True
held = {"req_partition": "batch", "req_options": "--hold"}
c.ProfilesSpawner.profiles.append(("Held", "held", "batchspawner.SlurmSpawner", held))
"""
PROFILES = """
- {{display_name: One GPU, slug: one-gpu, command: {command},
   slurm: {{partition: batch, memory: 100M, time: "0:10:00"}}}}
- {{display_name: All GPUs, slug: all, command: {command},
   slurm: {{partition: gpu, gpus: 4, gpu_type: k80, memory: 100M, time: "0:10:00"}}}}
"""


@dataclass(frozen=True)
class Leaving:
    """A hub that is started by one configuration after another, with one database."""

    hub: HubProcess
    slurm: PrivateSlurm
    site: str
    """batchspawner's settings of this site."""

    def run(self, *lines: str) -> None:
        """Stop it, and start it by the demo's configuration with these lines."""
        self.hub.stop()
        self.hub.config.write_text("\n".join((f"load_subconfig({str(demo_hub.CONFIG)!r})", *lines, "")))
        self.hub.start()

    def runs(self, *servers: str) -> list[str]:
        """Those of these servers that the proxy leads to."""
        return [server for server in servers if self._serves(server)]

    def _serves(self, server: str) -> bool:
        answer = requests.get(f"{self.hub.url}/user/{server}/api", timeout=10, allow_redirects=False)
        return answer.status_code == 200 and answer.json() == {"stand-in": True}

    def does(self, command: str) -> list[str]:
        """What a command of a guide prints."""
        address = "https://hub.example.org"
        assert command.startswith("squeue ") or address in command
        done = subprocess.run(
            ["sh", "-c", command.replace(address, self.hub.url)],
            env={"PATH": f"{self.slurm.bin_dir}:/usr/bin:/bin", "TOKEN": self.hub.token, **self.slurm.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.splitlines()

    def listed(self) -> set[str]:
        """The jobs that the guide's command lists."""
        return {line.split()[0] for line in self.does(LIST_JOBS)}

    def tables(self, script: str = "") -> set[str]:
        """The tables of this package in the database, once this was executed."""
        with closing(sqlite3.connect(self.hub.folder / "hub.sqlite")) as database:
            database.executescript(script)
            names = database.execute("select name from sqlite_master where type = 'table'").fetchall()
        return {name for (name,) in names if name.startswith("gpuspawner")}


@pytest.fixture
def leaving(
    two_users: tuple[str, str], slurm_cluster: PrivateSlurm, public_command: str, public_folder: Path, tmp_path: Path
) -> Iterator[Leaving]:
    """A hub of this package, whose users have accounts; it is not started yet."""
    needs_proxy()
    asked = ("runuser", "-u", two_users[0], "--", sys.executable, "-c", "import batchspawner.singleuser")
    tried = subprocess.run(asked, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"another account cannot run {sys.executable}: {tried.stderr[-200:]}")
    stand_in = Path(public_command.strip("[]").split(", ")[1])
    server = public_folder / "singleuser"
    server.write_text(f"#!{PYTHON}\n{stand_in.read_text()}")
    server.chmod(server.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    commands_of = f"{slurm_cluster.bin_dir}/"
    site = f"""
{COMMON}
c.SlurmSpawner.exec_prefix = "sudo -n -E -u {{username}}"
c.SlurmSpawner.batch_submit_cmd = "{commands_of}sbatch --parsable"
c.SlurmSpawner.batch_query_cmd = "{commands_of}squeue -h -j {{job_id}} -o '%T %B'"
c.SlurmSpawner.batch_cancel_cmd = "{commands_of}scancel {{job_id}}"
c.SlurmSpawner.batchspawner_singleuser_cmd = {str(BATCHSPAWNER_SINGLEUSER)!r}
c.SlurmSpawner.req_srun = ""
c.SlurmSpawner.state_exechost_exp = "127.0.0.1"  # the names of the nodes are the private Slurm's alone
c.Spawner.environment = {dict(slurm_cluster.environment)!r}
c.Spawner.cmd = [{str(server)!r}]
c.Spawner.http_timeout = {SECONDS}
for role in c.JupyterHub.load_roles:
    role["scopes"].append("shutdown")
"""
    hub = new_hub(slurm_cluster, tmp_path / "hub", profiles=PROFILES.format(command=public_command))
    leaving = Leaving(hub, slurm_cluster, site)
    yield leaving
    hub.stop()
    for job in slurm_cluster.run("squeue", "-h", "-u", ",".join(two_users), "-o", "%i").split():
        slurm_cluster.run("scancel", job)


def test_servers_are_kept_on_the_way_back_and_again_on_the_way_here(
    leaving: Leaving, two_users: tuple[str, str], public_command: str
) -> None:
    """Those of both spawners, by both older ones; what waits is cancelled, and what is lost is listed."""
    hub, slurm, (ann, bob) = leaving.hub, leaving.slurm, two_users
    command = f"c.Spawner.cmd = {public_command.strip('[]').split(', ')!r}"
    leaving.run(OURS, command, 'c.JupyterHub.spawner_class = "gpu-slurm"')
    hub.spawn(ann, {}, server="plain")
    plain = job_id(hub, ann, "plain")
    leaving.run(OURS)
    hub.spawn(ann, {"profile": "one-gpu"})
    hub.spawn(bob, {"profile": "all"}, server="all")
    start(hub, bob, "all", "waits")
    profiled, whole, waits = job_id(hub, ann), job_id(hub, bob, "all"), job_id(hub, bob, "waits")
    mine = (ann, f"{ann}/plain", f"{bob}/all")
    assert leaving.listed() == {plain, profiled, whole, waits}
    assert leaving.runs(*mine) == [*mine]

    leaving.run(leaving.site, WITHOUT_PROFILES)
    assert state(slurm, waits) == "CANCELLED"
    assert leaving.runs(*mine) == [*mine]
    assert leaving.listed() == {plain, profiled, whole}
    hub.end(ann)
    assert state(slurm, profiled) == "CANCELLED"

    tuples = TUPLES.replace('"req_gres": "gpu:1", ', "").replace('"gpu"', '"batch"')
    leaving.run(leaving.site, WITH_PROFILES, tuples, MORE_TUPLES)
    assert leaving.runs(*mine) == [*mine[1:]]
    hub.end(ann, "plain")
    assert state(slurm, plain) == "CANCELLED"
    hub.api("POST", server_path(ann, "anew"), {"profile": "one-gpu"})
    hub.wait(ann, "anew", ready=True)
    anew = hub.server(ann, "anew")["state"]["child_state"]["job_id"]  # type: ignore[index]
    assert leaving.runs(f"{ann}/anew") == [f"{ann}/anew"]
    assert leaving.listed() == {whole}

    start(hub, ann, "held", "held")
    (lost,) = wait_until(lambda: leaving.does(LIST_LOST), hub.log_end)
    assert leaving.does(SHUT_DOWN) == ['{"message": "Shutting down Hub"}']
    assert hub.process is not None
    hub.process.wait(30)
    hub.stop()
    assert leaving.tables() - leaving.tables(DROP) != set()
    assert leaving.tables() == set()
    leaving.run(OURS)
    wait_until(lambda: leaving.runs(f"{ann}/anew", f"{bob}/all") == [f"{ann}/anew", f"{bob}/all"], hub.log_end)
    assert hub.api("GET", f"/gpuspawner/placement/{bob}/all").json()["job_id"] == whole
    visitor = Visitor(hub, ann)
    card = visitor.look("/hub/home").text
    assert "one-gpu (server anew) running" in card
    assert re.search(r"It runs on c1 until \S.* UTC ?\. It was started before this hub was changed\.", card), card
    log = visitor.look(f"/hub/gpuspawner/log/{ann}/anew").text
    assert f" {pwd.getpwnam(ann).pw_dir}/jupyterhub_slurmspawner_{anew}.log " in log
    assert hub.server(ann, "held") is None
    assert leaving.does(LIST_LOST) == [lost]
    slurm.run("scancel", lost.split()[0])
    hub.end(ann, "anew")
    hub.end(bob, "all")
    assert [state(slurm, job) for job in (anew, whole)] == ["CANCELLED", "CANCELLED"]
    hub.spawn(ann, {"profile": "one-gpu"})
    hub.end(ann)
