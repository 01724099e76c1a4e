"""Jobs belong to the user who signed in: a hub that runs as root, and two real accounts."""

from __future__ import annotations

import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests

from jupyterhub_gpuspawner.batch.job import LOG_FOLDER
from jupyterhub_gpuspawner.demo.hub import SINGLEUSER, HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import offer
from tests.fixtures.users import processes_of
from tests.hub.visitor import Visitor

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users]


@pytest.fixture(scope="module")
def hub(users_hub: HubProcess, public_command: str) -> HubProcess:
    """A hub that runs as root and submits jobs as its users."""
    slurm = "{partition: gpu, gpus: 1, gpu_type: k80, cpus: 1, memory: 1G, time: 0:10:00}"
    profiles = f"""
- display_name: One K80
  slug: one
  slurm: {slurm}
  environment: {{setup: "echo the course begins"}}
  command: {public_command}
- display_name: Fails
  slug: fails
  slurm: {slurm}
  environment: {{setup: "umask 077; echo the disk is full; exit 3"}}
  command: {public_command}
- {{display_name: JupyterLab, slug: lab, slurm: {slurm}}}
"""
    offer(users_hub, "users", profiles)
    return users_hub


@pytest.fixture(scope="module")
def visitor(hub: HubProcess, two_users: tuple[str, str]) -> Visitor:
    """The first user, signed in before there is a server to which the hub would redirect."""
    return Visitor(hub, two_users[0])


@pytest.fixture(scope="module")
def servers(hub: HubProcess, two_users: tuple[str, str], visitor: Visitor) -> Iterator[dict[str, dict[str, str]]]:
    """For a server of each user, its placement on the hub and the environment of its process."""
    servers_of_users = {}
    for user in two_users:
        placement = hub.spawn(user, {"profile": "one"})
        variables = requests.get(f"{hub.url}/user/{user}/environ", timeout=10).json()
        servers_of_users[user] = {**variables, "GPUS": str(placement["gpus"][0]["index"]), "NODE": placement["node"]}
    yield servers_of_users
    for user in two_users:
        hub.end(user)


def as_user(user: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a command as this user."""
    return subprocess.run(["runuser", "-u", user, "--", *argv], capture_output=True, text=True, check=False, timeout=60)


def command_line(process: psutil.Process) -> str:
    """A process's command line; empty if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def test_two_users_jobs_on_one_node_get_different_gpus(
    servers: dict[str, dict[str, str]], slurm_cluster: PrivateSlurm
) -> None:
    """Placement, environment and `scontrol show job -d` agree for both, and no GPU is allocated twice."""
    by_slurm = {}
    for variables in servers.values():
        record = slurm_cluster.run("scontrol", "show", "job", "-d", variables["SLURM_JOB_ID"])
        grant = re.search(r"UserId=(\S+)\(.*Nodes=(\S+) .*IDX:(\d+)\)", record, re.DOTALL)
        assert grant is not None, record
        by_slurm[grant[1]] = (grant[2], grant[3], grant[3])

    assert {
        user: (variables["NODE"], variables["GPUS"], variables["CUDA_VISIBLE_DEVICES"])
        for user, variables in servers.items()
    } == by_slurm
    assert len({gpu for _, gpu, _ in by_slurm.values()}) == 2
    assert {node for node, _, _ in by_slurm.values()} == {"g1"}


def test_a_servers_token_is_in_nobody_elses_reach(
    hub: HubProcess, servers: dict[str, dict[str, str]], slurm_cluster: PrivateSlurm, public_folder: Path
) -> None:
    """The token is in no script, job record, command line or hub log, nor in files or processes others can read."""
    (first, variables), (second, _) = servers.items()
    token, job = variables["JUPYTERHUB_API_TOKEN"], variables["SLURM_JOB_ID"]
    mine = processes_of(first)
    slurms = {
        "record": slurm_cluster.run("scontrol", "show", "job", "-d", job),
        "script": slurm_cluster.run("scontrol", "write", "batch_script", job, "-"),
    }
    searched = as_user(second, "grep", "--recursive", "--files-with-matches", "--text", token, str(public_folder))
    readings = [as_user(second, "cat", f"/proc/{process.pid}/environ") for process in mine]

    assert len(token) >= 32
    assert f"JobId={job} " in slurms["record"]
    assert "GPUSPAWNER_LAUNCHER" in slurms["script"]
    assert [name for name, text in slurms.items() if token in text] == []
    assert [process.pid for process in psutil.process_iter() if token in command_line(process)] == []
    assert token not in hub.log.read_text()
    assert searched.stdout == ""
    assert mine
    assert {(process.stdout, process.returncode) for process in readings} == {("", 1)}


def test_a_servers_log_is_shown_to_its_user(
    hub: HubProcess, servers: dict[str, dict[str, str]], two_users: tuple[str, str], visitor: Visitor
) -> None:
    """Pages of running servers and failed starts show the log; a link to another user's file is not followed."""
    first, second = two_users
    running = visitor.look(f"/hub/gpuspawner/log/{first}")
    failed = visitor.start({"profile": "fails"}, server="second")
    if "spawn-pending" in failed.url:
        hub.wait(first, "second", ready=False)
        failed = visitor.pending("second")
    after = visitor.look(f"/hub/gpuspawner/log/{first}/second")
    log = Path(pwd.getpwnam(first).pw_dir) / LOG_FOLDER / f"jupyterhub-{servers[first]['SLURM_JOB_ID']}.log"
    secret = Path(pwd.getpwnam(second).pw_dir) / "secret"
    secret.write_text("of somebody else\n")
    secret.chmod(0o600)
    shutil.chown(secret, second, second)
    backup = log.rename(log.with_suffix(".kept"))
    log.symlink_to(secret)
    linked = visitor.look(f"/hub/gpuspawner/log/{first}")
    backup.replace(log)

    assert "the course begins" in running.text
    assert failed.status == 500
    assert [page.url for page in (failed, after) if "the disk is full" not in page.text] == []
    assert linked.status == 200
    assert "of somebody else" not in linked.text


@pytest.mark.nightly
def test_jupyterlab_runs_as_a_real_user(hub: HubProcess, two_users: tuple[str, str]) -> None:
    """A real JupyterLab server runs in a job of the user."""
    user = two_users[0]
    tried = as_user(user, str(SINGLEUSER), "--version")
    if tried.returncode != 0:
        pytest.skip(f"{user} cannot run {SINGLEUSER}: {tried.stderr.strip()[-200:]}")
    hub.spawn(user, {"profile": "lab"}, server="lab")
    headers = {"Authorization": f"token {hub.token}"}
    status = requests.get(f"{hub.url}/user/{user}/lab/api/status", headers=headers, timeout=30)
    processes = psutil.process_iter(["username", "cmdline"])  # those of tests that run beside this one come and go
    owners = {
        process.info["username"] for process in processes if str(SINGLEUSER) in " ".join(process.info["cmdline"] or [])
    }

    assert status.status_code == 200
    assert user in owners

    hub.end(user, "lab")
