"""With PrivateData=jobs, Slurm hides users' jobs from the hub: it starts no server, and keeps all that run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo import hub as demo_hub
from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import ClusterDescription, PrivateSlurm, SimulatedNode, SimulatedPartition
from tests.fixtures.hubs import FILES_MAY_SAY_ALL, STAND_IN
from tests.hub.test_sudo import CONFIG, PYTHON, Site
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users]

CLUSTER = ClusterDescription(
    nodes=(SimulatedNode("c1", machine="cpu", sockets=2, cores_per_socket=20, memory_mib=190000),),
    partitions=(SimulatedPartition("batch", ("c1",), default=True),),
    name="private",
)


class PrivateJobs(PrivateSlurm):
    """A Slurm in which users see only their own jobs."""

    def _write_files(self) -> None:
        super()._write_files()
        self.conf.write_text(f"{self.conf.read_text()}PrivateData=jobs\n")


@pytest.fixture(scope="module")
def private(needs_slurm: None, site_folder: Path) -> Iterator[PrivateSlurm]:
    """A Slurm with one node and PrivateData=jobs."""
    with PrivateJobs(CLUSTER, site_folder / "private") as slurm:
        yield slurm


@pytest.fixture(scope="module")
def site(two_users: tuple[str, str], private: PrivateSlurm, site_folder: Path) -> Site:
    """The hub's account with sudo and the wrapper scripts, as an admin sets them up."""
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0 or shutil.which("sudo") is None or not Path(PYTHON).exists():
        pytest.skip(f"needs sudo, {PYTHON} and a mount namespace: {tried.stderr.strip()}")
    account, person = two_users
    wrappers = site_folder / "private-libexec"
    wrappers.mkdir()
    for script in (CONFIG / "wrappers").iterdir():
        text = script.read_text().replace("/usr/bin/s", f"{private.bin_dir}/s")
        text = text.replace('"LANG": "C.UTF-8"}', f'"LANG": "C.UTF-8", "SLURM_CONF": "{private.conf}"}}')
        (wrappers / script.name).write_text(text)
        (wrappers / script.name).chmod(0o755)
    sudoers = site_folder / "private-sudoers"
    text = (CONFIG / "sudoers").read_text().replace("HUB = jupyterhub", f"HUB = {account}")
    sudoers.write_text(
        text.replace("%notebookusers", f"%{person}").replace("/usr/local/libexec/gpuspawner", str(wrappers))
    )
    sudoers.chmod(0o440)
    return Site(account, person, wrappers, sudoers, private)


@pytest.fixture
def hub(site: Site, site_folder: Path) -> Iterator[HubProcess]:
    """A hub that runs as this account and polls its servers every second."""
    if shutil.which("configurable-http-proxy") is None:
        pytest.skip("configurable-http-proxy is not on the PATH")
    folder = site_folder / f"private-hub-{time.monotonic_ns()}"
    (folder / "profiles").mkdir(parents=True)
    server = site_folder / f"private-{STAND_IN.name}"
    shutil.copy(STAND_IN, server)
    server.chmod(0o644)
    slurm = "{partition: batch, cpus: 1, memory: 100M, time: 0:10:00}"
    (folder / "profiles" / "own.yaml").write_text(
        f"- {{display_name: One, slug: one, slurm: {slurm}, command: [{PYTHON}, {server}]}}\n"
    )
    config = folder / "jupyterhub_config.py"
    config.write_text(f"""
load_subconfig({str(demo_hub.CONFIG)!r})
{FILES_MAY_SAY_ALL}
c.GPUSlurmSpawner.exec_prefix = "sudo -n -u {{username}}"
c.GPUSlurmSpawner.wrapper_dir = {str(site.wrappers)!r}
c.GPUSlurmSpawner.req_homedir = ""
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
watcher.REST_INTERVAL = 1.0
c.Spawner.poll_interval = 1
""")
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, site.hub)
    own = HubProcess(
        folder,
        config=config,
        prefix=site.entry,
        environment={
            **site.slurm.environment,
            "GPUSPAWNER_DEMO_SLURM": site.slurm.bin_dir,
            "GPUSPAWNER_DEMO_TOPOLOGY": site.slurm.topology_pattern,
            "SUDOERS": str(site.sudoers),
        },
    )
    with own:
        yield own
    for job in site.slurm.run("squeue", "-h", "-o", "%i").split():
        site.slurm.run("scancel", job)
    wait_until(lambda: not site.slurm.run("squeue", "-h"))


def ready(hub: HubProcess, name: str) -> bool:
    """Whether the hub has a ready server for this user."""
    servers = hub.api("GET", f"/users/{name}").json()["servers"]
    return bool(servers) and all(server["ready"] for server in servers.values())


def hide_jobs(slurm: PrivateSlurm, *, hidden: bool) -> None:
    """Change PrivateData of the running slurmctld."""
    text = slurm.conf.read_text().replace("PrivateData=jobs\n", "")
    slurm.conf.write_text(f"{text}PrivateData=jobs\n" if hidden else text)
    slurm.run("scontrol", "reconfigure")
    wanted = "jobs" if hidden else "none"
    wait_until(lambda: re.search(rf"PrivateData += {wanted}\b", slurm.run("scontrol", "show", "config")))


def test_a_start_is_refused_and_its_page_says_why(hub: HubProcess, site: Site) -> None:
    """The hub could not tell whether the job waits, runs or has ended; nothing is submitted."""
    hub.api("POST", f"/users/{site.person}")
    answer = hub.api("POST", f"/users/{site.person}/server", {"profile": "one"})

    assert (answer.status_code, answer.json()["message"].partition(". ")[0]) == (
        500,
        "The hub cannot start this server: it is not set up correctly",
    )
    assert "Slurm does not show the hub the jobs of its users (PrivateData=jobs)." in hub.log.read_text()
    assert site.slurm.run("squeue", "-h") == ""


def test_a_running_server_is_kept_whatever_slurm_shows(hub: HubProcess, site: Site) -> None:
    """PrivateData is set while servers run: the hub learns nothing of them, also after a restart."""
    hide_jobs(site.slurm, hidden=False)
    hub.spawn(site.person, {"profile": "one"})
    job = requests.get(f"{hub.url}/user/{site.person}/environ", timeout=10).json()["SLURM_JOB_ID"]
    hide_jobs(site.slurm, hidden=True)
    wait_until(lambda: "Slurm does not show the hub the jobs of its users." in hub.log.read_text(), seconds=60)
    kept = ready(hub, site.person)
    hub.restart()
    wait_until(lambda: hub.log.read_text().count("running servers are kept") == 2, seconds=90)  # each hub says it once

    assert kept
    assert ready(hub, site.person)
    assert site.slurm.run("squeue", "-h", "-o", "%i %T") == f"{job} RUNNING"

    hub.end(site.person)
    wait_until(lambda: not site.slurm.run("squeue", "-h"))


def test_check_says_so(site: Site, site_folder: Path) -> None:
    """The command warns the hub's own account; root sees all jobs."""
    config = site_folder / "private-check.py"
    config.write_text(
        'c.JupyterHub.spawner_class = "gpu-slurm"\n'
        'c.GPUSlurmSpawner.exec_prefix = "sudo -n -u {username}"\n'
        f"c.GPUSlurmSpawner.slurm_bin_dir = {site.slurm.bin_dir!r}\n"
    )
    words = (str(Path(sys.executable).parent / "gpuspawner"), "check", "--config", str(config))
    account = site.run(*words, environment=site.slurm.environment)
    root = subprocess.run(
        words, env={"PATH": "/usr/bin:/bin", **site.slurm.environment}, capture_output=True, check=False
    )
    said = f"PrivateData hides the users' jobs from {site.hub}".encode()
    assert said in account.stdout, account
    assert account.returncode != 0
    assert b"PrivateData" not in root.stdout + root.stderr
