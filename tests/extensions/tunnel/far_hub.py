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

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.extensions.tunnel.machines import changed, ip, processes_with
from tests.fixtures.hub_elsewhere import hub_elsewhere, nodes_at
from tests.fixtures.login_node import HUB_UID, LoginNode, login_node
from tests.fixtures.site import own_files

FIRST, LAST = 24000, 24019
"""The ports of servers on the nodes."""
BACK = 25681
"""The port of the login node at which nodes reach the hub."""


def node_address(machines: LoginNode) -> str:
    """An address of this host to which the hub's machine has no route."""
    return machines.address.replace("10.231.", "10.234.")


@contextmanager
def far_nodes(folder: Path, slurm: PrivateSlurm, users: Sequence[str], *, far: bool = True) -> Iterator[LoginNode]:
    """The login node, whose second account forwards, and the nodes behind it, or with ``far=False`` at its address."""
    with ExitStack() as stack:
        login = stack.enter_context(login_node(folder, slurm, users))
        address = node_address(login)
        ip("addr", "add", f"{address}/32", "dev", "lo")
        stack.callback(ip, "addr", "del", f"{address}/32", "dev", "lo")
        stack.enter_context(nodes_at(slurm, address if far else login.address))
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


@contextmanager
def far_hub(
    machines: LoginNode, folder: Path, command: str, *, far: bool = True, more: str = ""
) -> Iterator[HubProcess]:
    """A hub there with the configuration of docker/hub, and ``more`` lines; servers are this command, in YAML."""
    hub_ip = "127.0.0.1" if far else machines.hub_address
    tunnel = f"""
c.GPUSlurmSpawner.tunnel = "ssh -F {machines.ssh_config.parent}/tunnel_ssh_config tunnel"
c.GPUSlurmSpawner.tunnel_connections = 1
c.GPUSlurmSpawner.tunnel_to_hub = True
c.Spawner.hub_connect_url = "http://{machines.address}:{BACK}"
"""
    lines = f"""
c.GPUSlurmSpawner.port_range = "{FIRST}-{LAST}"
c.JupyterHub.hub_ip = {hub_ip!r}
{tunnel if far else ""}
for role in c.JupyterHub.load_roles: role["scopes"].append("proxy")
c.Spawner.http_timeout = 15
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 60}}
{more}
"""
    try:
        with hub_elsewhere(machines, folder, command, lines, hub_ip=hub_ip) as hub:
            yield hub
    finally:
        for process in [*masters(machines), *processes_with(str(machines.ssh_config.parent.parent / "tunnel-ports"))]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def answers(hub: HubProcess, person: str) -> bool:
    """Whether the person's server answers through the proxy."""
    with suppress(requests.RequestException, ValueError):
        return bool(requests.get(f"{hub.url}/user/{person}/process", timeout=5).json()["uid"])
    return False


def masters(machines: LoginNode) -> list[psutil.Process]:
    """The hub's connections to nodes."""
    config = f"{machines.ssh_config.parent}/tunnel_ssh_config"
    return [process for process in psutil.process_iter(["cmdline"]) if config in (process.info["cmdline"] or [])]
