"""A hub whose machine has no route to the nodes, with a login node that has: on this host.

The hub's machine is a network namespace with a route to the login node's address alone; see
tests/fixtures/login_node.py. The nodes have another address of this host, and the hub listens on 127.0.0.1.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import requests

from jupyterhub_gpuspawner.demo import hub as demo_hub
from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.site.config_files import shipped_text
from tests.extensions.tunnel.machines import ip
from tests.fixtures.login_node import HUB_UID, LoginNode, login_node
from tests.fixtures.site import own_files

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


@contextmanager
def far_nodes(folder: Path, slurm: PrivateSlurm, users: Sequence[str], *, far: bool = True) -> Iterator[LoginNode]:
    """The login node, whose second account forwards, and the nodes behind it, or with ``far=False`` at its address."""

    def nodes_at(address: str) -> None:
        for node in slurm.cluster.nodes:
            slurm.run("scontrol", "update", f"NodeName={node.name}", f"NodeAddr={address}")

    with ExitStack() as stack:
        login = stack.enter_context(login_node(folder, slurm, users))
        address = node_address(login)
        ip("addr", "add", f"{address}/32", "dev", "lo")
        stack.callback(ip, "addr", "del", f"{address}/32", "dev", "lo")
        stack.callback(nodes_at, "127.0.0.1")
        nodes_at(address if far else login.address)
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


@contextmanager
def far_hub(machines: LoginNode, folder: Path, command: str, *, far: bool = True) -> Iterator[HubProcess]:
    """A hub there with the configuration of docker/hub; servers are this command, in YAML."""
    etc = machines.ssh_config.parents[1]
    (etc / "profiles").mkdir()
    (etc / "courses").mkdir()
    folder.mkdir()
    (etc / "profiles" / "own.yaml").write_text(
        "- {display_name: One, slug: one, slurm: {partition: gpu, gpus: 1, cpus: 1, memory: 100M, time: 0:10:00}, "
        f"command: {command}}}\n"
    )
    own = HubElsewhere(
        folder,
        config=folder / "configuration.py",
        prefix=machines.entry,
        environment={"HUB_ETC": str(etc), "HUB_ADDRESS": machines.hub_address},
    )
    own.url = f"http://{machines.hub_address}:{own.ports[0]}"
    tunnel = f"""
c.GPUSlurmSpawner.tunnel = "ssh -F {machines.ssh_config.parent}/tunnel_ssh_config tunnel"
c.GPUSlurmSpawner.tunnel_connections = 1
c.GPUSlurmSpawner.tunnel_to_hub = True
c.Spawner.hub_connect_url = "http://{machines.address}:{BACK}"
"""
    own.config.write_text(f"""
load_subconfig({str(demo_hub.CONFIG)!r})
c.GPUSlurmSpawner.slurm_bin_dir = c.GPUSlurmSpawner.req_homedir = ""
load_subconfig({str(CONFIG)!r})
c.GPUProfilesSpawner.profiles_dir_allows = ["command"]
c.GPUSlurmSpawner.wrapper_dir = {str(machines.wrappers)!r}
c.GPUSlurmSpawner.topology_file = {machines.slurm.topology_pattern!r}
c.GPUSlurmSpawner.port_range = "{FIRST}-{LAST}"
c.JupyterHub.hub_ip = {"127.0.0.1" if far else machines.hub_address!r}
{tunnel if far else ""}
for role in c.JupyterHub.load_roles: role["scopes"].append("proxy")
c.JupyterHub.bind_url = {own.url!r}
c.JupyterHub.hub_bind_url = "http://{"127.0.0.1" if far else machines.hub_address}:{own.ports[1]}"
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


def answers(hub: HubProcess, person: str) -> bool:
    """Whether the person's server answers through the proxy."""
    with suppress(requests.RequestException, ValueError):
        return bool(requests.get(f"{hub.url}/user/{person}/process", timeout=5).json()["uid"])
    return False


def masters(machines: LoginNode) -> list[psutil.Process]:
    """The hub's connections to nodes."""
    config = f"{machines.ssh_config.parent}/tunnel_ssh_config"
    return [process for process in psutil.process_iter(["cmdline"]) if config in (process.info["cmdline"] or [])]
