"""A server on a node that the hub cannot reach, and that cannot reach the hub: a real hub, Slurm and sshd.

The hub's machine is a network namespace with a route to the login node's address alone; see
tests/fixtures/login_node.py. The nodes have another address of this host, and the hub listens on 127.0.0.1.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
import requests

from jupyterhub_gpuspawner.demo import hub as demo_hub
from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.extensions.tunnel import words
from jupyterhub_gpuspawner.site.config_files import shipped_text
from tests.extensions.tunnel.machines import ip
from tests.fixtures.hubs import needs_proxy
from tests.fixtures.login_node import HUB_UID, LoginNode, login_node, missing
from tests.fixtures.site import own_files
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users, pytest.mark.timeout(300)]

CONFIG = Path(__file__).parents[3] / "docker" / "hub" / "jupyterhub_config.py"
FIRST, LAST = 24000, 24019
"""The ports of servers on the nodes."""
BACK = 25681
"""The port of the login node at which nodes reach the hub."""


class HubElsewhere(HubProcess):
    """A hub on the hub's machine: it is asked at that machine's address."""

    def answers(self) -> bool:
        """Whether the hub answers through its proxy."""
        try:
            return requests.get(f"{self.url}/hub/health", timeout=2).ok
        except requests.RequestException:
            return False


def node_address(machines: LoginNode) -> str:
    """An address of this host to which the hub's machine has no route."""
    return machines.address.replace("10.231.", "10.234.")


@pytest.fixture(scope="module")
def machines(two_users: tuple[str, str], slurm_cluster: PrivateSlurm, site_folder: Path) -> Iterator[LoginNode]:
    """The login node, whose second account forwards, and the nodes behind it."""
    if reason := missing():
        pytest.skip(reason)

    def nodes_at(address: str) -> None:
        for node in slurm_cluster.cluster.nodes:
            slurm_cluster.run("scontrol", "update", f"NodeName={node.name}", f"NodeAddr={address}")

    with ExitStack() as stack:
        login = stack.enter_context(login_node(site_folder / "login", slurm_cluster, two_users))
        address = node_address(login)
        ip("addr", "add", f"{address}/32", "dev", "lo")
        stack.callback(ip, "addr", "del", f"{address}/32", "dev", "lo")
        stack.callback(nodes_at, "127.0.0.1")
        nodes_at(address)
        write_tunnel(login)
        subprocess.run(["usermod", "--password", "*", login.person], check=True)
        login.stop_sshd()
        login.start_sshd()
        yield login


def write_tunnel(login: LoginNode) -> None:
    """The extension's own files with the lines marked SITE changed, for the person's account."""
    first = f"{node_address(login)}:"
    ports = " ".join(f"{first}{port}" for port in range(FIRST, LAST + 1))
    own = login.ssh_config.parent
    with (login.folder / "sshd_config").open("a") as file:
        file.write(
            changed(
                "sshd_config",
                {
                    "User jupyterhub-tunnel": f"User {login.person}",
                    "10.0.1.1:20000 10.0.1.1:20001": ports,
                    "AllowTcpForwarding local": "AllowTcpForwarding yes",
                    "PermitListen none": f"PermitListen {login.address}:{BACK}\n    GatewayPorts clientspecified",
                },
            )
        )
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", own / "tunnel_key"], check=True)
    public = (own / "tunnel_key.pub").read_text().strip()
    with (login.folder / "authorized_keys").open("a") as file:
        keys = {"10.0.0.10": login.hub_address, "ssh-ed25519 AAAA... jupyterhub@hub": public}
        file.write(changed("authorized_keys", keys))
    (own / "tunnel_ssh_config").write_text(
        changed(
            "ssh_config",
            {
                "HostName login.cluster.example": f"HostName {login.address}\n    Port {login.port}",
                "User jupyterhub-tunnel": f"User {login.person}",
                "/etc/jupyterhub/ssh/id_ed25519": f"{own}/tunnel_key",
                "/etc/jupyterhub/ssh/known_hosts": f"{own}/known_hosts",
                "/run/jupyterhub/tunnel-%C": f"{own.parent}/t",
            },
        )
    )
    own_files(own, HUB_UID)


def changed(name: str, values: dict[str, str]) -> str:
    """A file as the extension ships it, with these changes."""
    text = shipped_text(f"ssh/tunnel_{name}")
    for example, value in values.items():
        assert example in text, example
        text = text.replace(example, value)
    return text


@pytest.fixture(scope="module")
def hub(machines: LoginNode, site_folder: Path, public_command: str) -> Iterator[HubProcess]:
    """A hub there with the configuration of docker/hub."""
    needs_proxy()
    folder = site_folder / "hub-behind"
    etc = machines.ssh_config.parents[1]
    (etc / "profiles").mkdir()
    (etc / "courses").mkdir()
    folder.mkdir()
    (etc / "profiles" / "own.yaml").write_text(
        "- {display_name: One, slug: one, slurm: {partition: gpu, gpus: 1, cpus: 1, memory: 100M, time: 0:10:00}, "
        f"command: {public_command}}}\n"
    )
    own = HubElsewhere(
        folder,
        config=folder / "configuration.py",
        prefix=machines.entry,
        environment={"HUB_ETC": str(etc), "HUB_ADDRESS": machines.hub_address},
    )
    own.url = f"http://{machines.hub_address}:{own.ports[0]}"
    own.config.write_text(f"""
load_subconfig({str(demo_hub.CONFIG)!r})
c.GPUSlurmSpawner.slurm_bin_dir = c.GPUSlurmSpawner.req_homedir = ""
load_subconfig({str(CONFIG)!r})
c.GPUProfilesSpawner.profiles_dir_allows = ["command"]
c.GPUSlurmSpawner.wrapper_dir = {str(machines.wrappers)!r}
c.GPUSlurmSpawner.topology_file = {machines.slurm.topology_pattern!r}
c.GPUSlurmSpawner.port_range = "{FIRST}-{LAST}"
c.GPUSlurmSpawner.tunnel = "ssh -F {machines.ssh_config.parent}/tunnel_ssh_config tunnel"
c.GPUSlurmSpawner.tunnel_connections = 1
c.GPUSlurmSpawner.tunnel_to_hub = True
c.Spawner.hub_connect_url = "http://{machines.address}:{BACK}"
c.JupyterHub.hub_ip = "127.0.0.1"
for role in c.JupyterHub.load_roles: role["scopes"].append("proxy")
c.JupyterHub.bind_url = {own.url!r}
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{own.ports[1]}"
c.Spawner.http_timeout = 15
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 60}}
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
watcher.REST_INTERVAL = 1
""")
    own_files(folder, HUB_UID)
    own_files(etc, HUB_UID)
    try:
        with own:
            yield own
    finally:
        for master in masters(machines):
            with suppress(psutil.NoSuchProcess):
                master.kill()


def masters(machines: LoginNode) -> list[psutil.Process]:
    """The hub's connections to nodes."""
    config = f"{machines.ssh_config.parent}/tunnel_ssh_config"
    return [process for process in psutil.process_iter(["cmdline"]) if config in (process.info["cmdline"] or [])]


def answers(hub: HubProcess, person: str) -> bool:
    """Whether the person's server answers through the proxy."""
    with suppress(requests.RequestException, ValueError):
        return bool(requests.get(f"{hub.url}/user/{person}/process", timeout=5).json()["uid"])
    return False


def local_port(hub: HubProcess, person: str) -> int:
    """The port of the hub's machine to which the proxy leads for this person's server; 0: nowhere."""
    routes = hub.api("GET", "/proxy").json()
    target = routes.get(f"/user/{person}/", {}).get("target", "")
    assert target.startswith("http://127.0.0.1:") or not target
    return int(target.rpartition(":")[2] or 0)


def listens(machines: LoginNode, port: int) -> bool:
    """Whether something accepts connections at this port of the hub's machine."""
    return machines.run("sh", "-c", f"ss -Hltn sport = :{port}").stdout.strip() != ""


def test_a_server_starts_on_a_node_that_the_hub_cannot_reach(hub: HubProcess, machines: LoginNode) -> None:
    """It reports and is reached by ssh alone; its port is closed when its route is gone."""
    direct = machines.run("python3", "-c", f"import socket; socket.create_connection(('{node_address(machines)}', 22))")
    placement = hub.spawn(machines.person, {"profile": "one"})
    port = local_port(hub, machines.person)
    opened = listens(machines, port)
    answered = answers(hub, machines.person)
    reports = [line for line in hub.log.read_text().splitlines() if "/hub/api/gpuspawner/report" in line]
    hub.end(machines.person)
    wait_until(lambda: not listens(machines, port), "the port is closed")

    assert "Network is unreachable" in direct.stderr
    assert len(placement["gpus"]) == 1
    assert 26000 <= port <= 27999
    assert (opened, answered) == (True, True)
    assert all(line.endswith(")") or "@127.0.0.1" in line for line in reports)
    assert reports
    assert len(masters(machines)) == 1  # for the way back to the hub


def test_a_restarted_hub_cuts_no_connection(hub: HubProcess, machines: LoginNode) -> None:
    """The ssh that forwards is not the hub's child, and the proxy lives: the server answers all the time."""
    hub.spawn(machines.person, {"profile": "one"})
    assert answers(hub, machines.person)
    port, before = local_port(hub, machines.person), [process.pid for process in masters(machines)]
    hub.kill()
    answered = answers(hub, machines.person)
    hub.start()
    after = [process.pid for process in masters(machines)]
    server = hub.server(machines.person)

    assert port
    assert answered
    assert answers(hub, machines.person)
    assert server is not None
    assert server["ready"]
    assert (local_port(hub, machines.person), after) == (port, before)

    hub.end(machines.person)
    wait_until(lambda: not listens(machines, port), "the port is closed")


@pytest.mark.nightly
def test_a_login_node_that_goes_away_ends_no_server(hub: HubProcess, machines: LoginNode) -> None:
    """Neither while the hub runs nor when it is restarted meanwhile; the card says it; all is back by itself."""
    person = Visitor(hub, machines.person)
    hub.spawn(machines.person, {"profile": "one"})
    machines.stop_sshd()
    wait_until(lambda: words.INTERRUPTED in person.look("/hub/home").text, "the card says it")
    answered = answers(hub, machines.person)
    hub.kill()
    hub.start()
    machines.start_sshd()
    wait_until(lambda: answers(hub, machines.person), "the server is back")
    server = hub.server(machines.person)
    wait_until(lambda: words.INTERRUPTED not in person.look("/hub/home").text, "the card says it")

    assert not answered
    assert server is not None
    assert server["ready"]

    hub.end(machines.person)


@pytest.mark.nightly
def test_check_tries_the_way_there_and_back(hub: HubProcess, machines: LoginNode) -> None:
    """With a small job, beside a hub that runs and with its connection, or without one."""
    config = hub.write_configuration()
    command = ("gpuspawner", "check", "-f", str(config), "--user", machines.person, "--submit")
    beside = machines.run(*command, "--profile", "one")
    before = [process.pid for process in masters(machines)]
    hub.kill()
    for master in masters(machines):
        master.kill()
    try:
        alone = machines.run(*command, "--profile", "one")
        after = masters(machines)
    finally:
        hub.start()

    assert [of_tunnel(done.stdout) for done in (beside, alone)] == [ALL_IN_ORDER, ALL_IN_ORDER], beside.stdout
    assert len(before) == 1
    assert after == []


ALL_IN_ORDER = [
    "ok    c.GPUSlurmSpawner.tunnel: the login node of `SSH` accepts the connection",
    "ok    c.GPUSlurmSpawner.tunnel_ports: no other account can sign in to this machine and listen there",
    "the ways to the hub and back are in order",
]


def of_tunnel(printed: str) -> list[str]:
    """The lines about the tunnel, without paths."""
    lines = [re.sub("`ssh .*`", "`SSH`", line) for line in printed.splitlines()]
    ways = "the ways to the hub and back are in order"
    return sorted(line for line in lines if "tunnel" in line) + [ways for line in lines if ways in line]


@pytest.mark.nightly
def test_a_place_that_sshd_does_not_permit_is_named(hub: HubProcess, machines: LoginNode) -> None:
    """In the hub's log for administrators, and by check; the user reads that there is no connection."""
    config = machines.folder / "sshd_config"
    text = config.read_text()
    command = ("gpuspawner", "check", "-f", str(hub.write_configuration()), "--user", machines.person, "--submit")
    try:
        config.write_text(re.sub("PermitOpen .*", "PermitOpen 192.0.2.1:1", text))
        restart(machines)
        checked = machines.run(*command, "--profile", "one")
        failed = start(hub, machines.person)
    finally:
        config.write_text(text)
        restart(machines)

    refused = f"The login node closes each connection to {node_address(machines)}, port "
    assert "the hub has no connection to its node" in failed
    assert refused in hub.log.read_text()
    assert [line for line in checked.stdout.splitlines() if "[node-unreachable]" in line and refused in line]


def restart(machines: LoginNode) -> None:
    """Have sshd read its configuration, in connections that there are, too."""
    machines.stop_sshd()
    machines.start_sshd()


def start(hub: HubProcess, person: str) -> str:
    """Start the person's server, and return the message with which that fails."""
    hub.api("POST", f"/users/{person}")
    answer = hub.api("POST", f"/users/{person}/server", {"profile": "one"})
    return str(answer.json()["message"])
