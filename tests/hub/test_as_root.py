"""A hub that runs as root: its servers are their persons', whatever runs sbatch, or there are none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import IN_THE_END, LIGHT, NO_SPAWN_WAIT, StartHub, needs_proxy, new_hub
from tests.fixtures.site import AS_USERS
from tests.hub.servers import job_id, start
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users]

NO_PREFIX = """
c.GPUSlurmSpawner.exec_prefix = ""
c.GPUSlurmSpawner.dangerously_run_servers_as_root = False
"""
AS_ANOTHER = """#!/bin/sh
# named as a program that runs a command as the account after -u, which this one does not
shift 2
exec {command} "$@"
"""


def profiles(command: str) -> str:
    """Two profiles: of the person's own server."""
    return re.sub("command: .*", f"command: {command}", LIGHT)


def owners(slurm: PrivateSlurm, user: str) -> set[tuple[str, str]]:
    """Owner and state of each job of this person's server that Slurm has not ended."""
    rows = (line.split("|") for line in slurm.run("squeue", "-h", "-o", "%u|%T|%k").splitlines())
    return {(owner, state) for owner, state, comment in rows if f"/{user}/" in comment}


def test_sudo_in_the_submit_command(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm, two_users: tuple[str, str], public_command: str
) -> None:
    """By one changed line of a configuration for batchspawner a server is its person's."""
    sbatch = f"{slurm_cluster.bin_dir}/sbatch" if slurm_cluster.bin_dir else "sbatch"
    command = (
        f'c.SlurmSpawner.batch_submit_cmd = "sudo -n -E -u {{username}} {sbatch} --parsable --gres=gpu:k80:1 -p gpu"'
    )
    hub = start_light_hub(AS_USERS + NO_PREFIX + command, profiles(public_command))
    user = two_users[0]
    placement = hub.spawn(user, {"profile": "light"})

    assert len(placement["gpus"]) == 1
    assert owners(slurm_cluster, user) == {(user, "RUNNING")}
    hub.end(user)


def test_a_hub_whose_servers_would_be_roots_does_not_start(slurm_cluster: PrivateSlurm, tmp_path: Path) -> None:
    """The last line of its log names the setting, and what would be right."""
    needs_proxy()
    hub = new_hub(slurm_cluster, tmp_path, lines=NO_PREFIX)
    with pytest.raises(Exception, match="The hub did not start"):
        hub.start()

    assert "c.GPUSlurmSpawner.exec_prefix: servers of all users would run as root. Set it to what runs" in hub.log_end()


ANOTHERS = {
    "root's, by a program of the site's": ("as-user", "env", "root"),
    "root's, by what should be the person's": ("sudo", "env", "root"),
    "a neighbour's": ("sudo", "/usr/sbin/runuser -u {other} --", "{other}"),
}


@pytest.mark.parametrize(("program", "command", "owner"), ANOTHERS.values(), ids=ANOTHERS.keys())
def test_a_job_of_another_account_is_cancelled(
    start_light_hub: StartHub,
    slurm_cluster: PrivateSlurm,
    two_users: tuple[str, str],
    public_command: str,
    tmp_path: Path,
    program: str,
    command: str,
    owner: str,
) -> None:
    """The start fails: a sentence for the person, and one in the log, which names both accounts."""
    user, other = two_users
    owner, script = owner.format(other=other), tmp_path / program
    script.write_text(AS_ANOTHER.format(command=command.format(other=other)))
    script.chmod(0o755)
    prefix = f'c.GPUSlurmSpawner.exec_prefix = "{script} -u {{username}}"'
    hub = start_light_hub("\n".join((AS_USERS, IN_THE_END, prefix)), profiles(public_command))
    hub.api("POST", f"/users/{user}")
    answer = hub.api("POST", f"/users/{user}/server", {"profile": "light"})

    assert "The server was stopped: it ran under another account than yours." in answer.json()["message"]
    log = hub.log.read_text()
    assert re.search(
        rf"exec_prefix: job \d+ of '{user}' runs as '{owner}', and must run as '{user}'; it is cancelled\. Find out",
        log,
    )
    wait_until(lambda: not owners(slurm_cluster, user), lambda: owners(slurm_cluster, user))


def test_servers_of_roots_from_before_are_named_and_can_be_stopped(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm, two_users: tuple[str, str], public_command: str
) -> None:
    """After the prefix was set: one that runs is kept until its stop, and one that waits is cancelled at once."""
    runs, waits = two_users
    hub = start_light_hub(NO_SPAWN_WAIT, profiles(public_command))
    hub.spawn(runs, {"profile": "light"})
    slurm_cluster.run("scontrol", "update", "NodeName=ALL", "State=DRAIN", "Reason=full")
    try:
        start(hub, waits, "k80-node")
        job_id(hub, waits)
        hub.kill()
        assert hub.config is not None
        hub.config.write_text(hub.config.read_text() + AS_USERS)
        hub.start()
        wait_until(lambda: not owners(slurm_cluster, waits), hub.log_end)
    finally:
        slurm_cluster.run("scontrol", "update", "NodeName=ALL", "State=RESUME")

    assert owners(slurm_cluster, runs) == {("root", "RUNNING")}
    wait_until(lambda: re.search(rf"Job \d+ of {runs} is root's: ", hub.log.read_text()), hub.log_end)
    hub.end(runs)
    wait_until(lambda: not owners(slurm_cluster, runs), hub.log_end)
