"""A hub whose machine has no Slurm, no munge and no accounts of users, in front of a cluster that it reaches by ssh.

The login node has a real sshd with the files of `gpuspawner files --ssh`, real sudo and a real Slurm. The hub's machine
is a network namespace and a mount namespace of this host; see tests/fixtures/login_node.py for what that leaves out.
"""

from __future__ import annotations

import json
import pwd
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hub_elsewhere import hub_elsewhere, nodes_at
from tests.fixtures.hubs import needs_proxy
from tests.fixtures.login_node import LoginNode, login_node, missing
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users, pytest.mark.timeout(600)]

PATIENCE = 120.0
FIFTY = """
import asyncio, json, sys
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.commands import command_prefix, fixed_prefix

async def main(query, wrappers, person):
    client = SlurmClient(
        Installation(wrapper_dir=wrappers, query_prefix=fixed_prefix(query, where="query_prefix"), timeout=60)
    )
    prefix = command_prefix(f"{query} sudo -n -u {{username}}", person)
    script = "#!/bin/sh\\n#SBATCH --hold --output=/dev/null --comment=fifty\\nexit\\n"
    jobs = [await client.submit(script, prefix=prefix)]  # opens the connection, if it has just ended
    jobs += await asyncio.gather(*(client.submit(script, prefix=prefix) for _ in range(49)))
    seen = await client.jobs(jobs)
    await asyncio.gather(*(client.cancel(job, prefix=prefix) for job in jobs))
    print(json.dumps([len(set(jobs)), len(seen), sorted({each.user for each in seen.values()})]))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def machines(two_users: tuple[str, str], slurm_cluster: PrivateSlurm, site_folder: Path) -> Iterator[LoginNode]:
    """The login node, and the hub's machine, which reaches the nodes by the login node's address."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with ExitStack() as stack:
        node = stack.enter_context(login_node(site_folder / "login", slurm_cluster, two_users))
        stack.enter_context(nodes_at(slurm_cluster, node.address))
        imported = node.run(sys.executable, "-c", "import jupyterhub_gpuspawner.hub.spawners.slurm")
        if imported.returncode != 0:
            pytest.skip(f"another account cannot run {sys.executable}: {imported.stderr[-200:]}")
        yield node


@pytest.fixture(scope="module")
def hub(machines: LoginNode, site_folder: Path, public_command: str) -> Iterator[HubProcess]:
    """A hub there with the configuration of docker/hub, in another time zone than the login node."""
    needs_proxy()
    folder, zone = site_folder / "hub-elsewhere", {"TZ": "Asia/Kolkata"}
    lines = "c.JupyterHub.cleanup_servers = c.JupyterHub.cleanup_proxy = True"
    with hub_elsewhere(machines, folder, public_command, lines, environment=zone) as started:
        yield started


def test_the_hubs_machine_has_neither_slurm_nor_accounts(machines: LoginNode) -> None:
    """What the other tests of this module rest on."""
    commands = machines.run("sh", "-c", "command -v sbatch squeue scontrol sinfo; ls -d /etc/slurm* /etc/munge; id -un")
    account = machines.run("getent", "passwd", machines.person)

    assert (commands.stdout.split(), account.returncode) == (["jupyterhub"], 2)
    assert machines.run("ls", str(machines.slurm.folder)).stdout == ""


def test_a_server_starts_as_the_person_and_stops(hub: HubProcess, machines: LoginNode) -> None:
    """Its account, home and end are the cluster's; the placement is reported; the hub has no account for it."""
    began = time.time()
    placement = hub.spawn(machines.person, {"profile": "one"})
    address = f"{hub.url}/user/{machines.person}"
    process = requests.get(f"{address}/process", timeout=10).json()
    variables = requests.get(f"{address}/environ", timeout=10).json()
    account = pwd.getpwnam(machines.person)
    ends = datetime.fromisoformat(placement["ends_at"].replace("Z", "+00:00")).astimezone(timezone.utc)

    assert (placement["job_id"], len(placement["gpus"])) == (variables["SLURM_JOB_ID"], 1)
    assert (process["uid"], process["folder"], variables["HOME"], variables["USER"]) == (
        account.pw_uid,
        account.pw_dir,
        account.pw_dir,
        machines.person,
    )
    assert abs(ends.timestamp() - began - 600) < PATIENCE

    hub.end(machines.person)
    wait_until(
        lambda: variables["SLURM_JOB_ID"] not in machines.slurm.run("squeue", "-h", "-o", "%i").split(),
        "the job is cancelled",
        seconds=PATIENCE,
    )


def test_check_finds_all_in_order_and_a_host_key_that_is_not(hub: HubProcess, machines: LoginNode) -> None:
    """From the hub's machine, with the hub's configuration; an unknown key is named, and nobody is asked."""
    check = ("gpuspawner", "check", "-f", str(hub.write_configuration()))
    fine = machines.run(*check)
    known_hosts = machines.ssh_config.parent / "known_hosts"
    text = known_hosts.read_text()
    try:
        known_hosts.write_text("")
        machines.run("ssh", "-F", str(machines.ssh_config), "-O", "exit", "login")
        unknown = machines.run(*check)
    finally:
        known_hosts.write_text(text)

    assert (fine.returncode, fine.stderr) == (0, "")
    assert f"ok    query_prefix: Slurm is asked as {machines.account}" in fine.stdout.splitlines()
    assert [line for line in fine.stdout.splitlines() if line.startswith("WRONG")] == []
    assert unknown.returncode == 3
    assert "the login node's host key is unknown, or not the one that was recorded" in unknown.stdout


@pytest.mark.nightly
def test_a_login_node_that_goes_away_takes_no_server_along(hub: HubProcess, machines: LoginNode) -> None:
    """The page says that Slurm does not answer; a start is kept; when the node is back, all goes on."""
    person = Visitor(hub, machines.person)
    hub.spawn(machines.person, {"profile": "one"})
    machines.stop_sshd()
    try:
        wait_until(
            lambda: "Slurm is not responding" in person.look("/hub/home").text, "the page says so", seconds=PATIENCE
        )
        wait_until(lambda: "servers are kept" in hub.log.read_text(), "the log says so", seconds=PATIENCE)
        hub.api("POST", f"/users/{machines.account}")
        response = hub.api("POST", f"/users/{machines.account}/server", {"profile": "one"})
        server = hub.server(machines.person)
    finally:
        machines.start_sshd()
    wait_until(lambda: "Slurm is responding again" in hub.log.read_text(), "the hub asks again", seconds=PATIENCE)
    wait_until(
        lambda: "Slurm is not responding" not in person.look("/hub/home").text, "the page says so", seconds=PATIENCE
    )

    assert server is not None
    assert server["ready"]
    assert response.status_code == 202
    assert f"The start of {machines.account} is kept until Slurm answers" in hub.log.read_text()
    assert "the login node cannot be reached by ssh" in hub.log.read_text()

    # that account may start nothing there, which sudo says as soon as it is reached again
    wait_until(lambda: f"The start of {machines.account} failed" in hub.log.read_text(), hub.log_end, seconds=PATIENCE)

    hub.end(machines.person)


@pytest.mark.nightly
def test_fifty_submissions_share_a_connection(machines: LoginNode) -> None:
    """Within the limits of the shipped files, all at once as far as the hub lets them."""
    log = machines.folder / "sshd.log"
    before = log.read_text().count("Accepted publickey")

    done = machines.run(sys.executable, "-c", FIFTY, machines.query_prefix, str(machines.wrappers), machines.person)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [50, 50, [machines.person]]
    assert log.read_text().count("Accepted publickey") - before <= 1


REFUSED = {
    "a command": ["id"],
    "a shell": ["sh", "-c", "id"],
    "another script": ["/bin/cat", "/etc/passwd"],
    "a user's script without a user": ["{wrappers}/submit"],
    "arguments": ["{wrappers}/query", "id"],
    "another folder": ["sudo", "-n", "-u", "{person}", "/usr/bin/submit"],
    "a uid": ["sudo", "-n", "-u", "'#0'", "{wrappers}/submit"],
    "an option": ["sudo", "-n", "-u", "-i", "{wrappers}/submit"],
    "a user's script for another command": ["sudo", "-n", "-u", "{person}", "{wrappers}/query"],
    "two commands": ["{wrappers}/query;", "id"],
    "another operator": ["sudo", "-n", "-u", "{person}", "{wrappers}/extend"],
    "no command": [],
    "open quotes": ["'{wrappers}/query"],
}


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
def test_the_hubs_key_runs_the_scripts_and_nothing_else(machines: LoginNode, words: list[str]) -> None:
    """Whatever somebody who has the key sends; sudo is not even asked."""
    sent = [word.format(wrappers=machines.wrappers, person=machines.person) for word in words]
    done = machines.run("ssh", "-F", str(machines.ssh_config), "login", *sent, stdin="id\0")

    assert (done.returncode, done.stdout, done.stderr) == (1, "", "gate: the hub may not run this\n")


def test_the_hubs_key_opens_no_way_into_the_network(machines: LoginNode) -> None:
    """No forwarding, with a connection of its own."""
    done = machines.run("ssh", "-F", str(machines.ssh_config), "-S", "none", "-W", "127.0.0.1:22", "login")

    assert done.returncode != 0
    assert re.search("administratively prohibited|forwarding failed", done.stderr) or done.stdout == ""


def test_a_name_with_characters_of_a_shell_is_a_name(machines: LoginNode) -> None:
    """It reaches sudo as one word, which knows no such user."""
    script = (
        "import asyncio, sys\n"
        "from jupyterhub_gpuspawner.slurm.commands import Installation\n"
        "from jupyterhub_gpuspawner.slurm.commands import command_prefix\n"
        "prefix = command_prefix(sys.argv[1] + ' sudo -n -u {username}', 'x;touch${IFS}y')\n"
        "run = Installation(wrapper_dir=sys.argv[2]).run('sbatch', wrapper='submit', prefix=prefix, stdin='x')\n"
        "print(asyncio.run(run).stderr)\n"
    )
    done = machines.run(sys.executable, "-c", script, machines.query_prefix, str(machines.wrappers))

    assert "unknown user x;touch${IFS}y" in done.stdout + done.stderr
