"""``gpuspawner tunnel``: what sshd of the login node may let the hub's key reach."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from jupyterhub_gpuspawner.cli.options import CONFIG, fail, printable
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.extensions.tunnel.settings import TUNNEL, hub_url, port_numbers
from jupyterhub_gpuspawner.extensions.tunnel.ssh import bracketed, is_host
from jupyterhub_gpuspawner.extensions.tunnel.tunnels import reverse_of
from jupyterhub_gpuspawner.site.configuration import load_site


@click.command()
@CONFIG
@click.option("--cluster", default="", metavar="NAME", help="The cluster, if the hub has several. Default: the first.")
def tunnel(*, config: Path, cluster: str) -> None:
    """Print the lines of sshd_config by which the hub's key reaches its servers, and nothing else.

    They name each node's address as Slurm has it, with each port of port_range, and with tunnel_to_hub the address at
    which nodes reach the hub. Write them in place of those of ssh/tunnel_sshd_config, and again when nodes are added.
    """
    site = load_site(config)
    spawner: Any = site.spawner("nobody", cluster=cluster)
    try:
        if not spawner.tunnel:
            raise ConfigError("there is no tunnel.", where=spawner.configured_as(TUNNEL))
        if not spawner.port_range:
            raise ConfigError(
                "sshd has no ranges of ports.",
                where=spawner.configured_as("port_range"),
                hint="Set one that is as short as a node's servers are few, such as 20000-20049.",
            )
        snapshot = asyncio.run(spawner.connection().client.snapshot())
    except GPUSpawnerError as error:
        fail(error)
    listen = ""
    if spawner.tunnel_to_hub:
        back = reverse_of(hub_url(spawner), "", 0)
        listen = f"{bracketed(back.listen)}:{back.port}"
    addresses = dict.fromkeys(node.address for node in snapshot.nodes)
    click.echo("\n".join(map(printable, lines_of(addresses, port_numbers(spawner.port_range), listen))))


def lines_of(addresses: Iterable[str], ports: tuple[int, int], listen: str) -> list[str]:
    """The lines for nodes with these addresses and ports, first and last; ``listen`` is where nodes reach the hub."""
    targets = [
        f"{bracketed(address)}:{port}"
        for address in addresses
        if is_host(address)
        for port in range(ports[0], ports[1] + 1)
    ]
    return [
        f"AllowTcpForwarding {'yes' if listen else 'local'}",
        f"PermitOpen {' '.join(targets) or 'none'}",
        f"PermitListen {listen or 'none'}",
        *(["GatewayPorts clientspecified"] if listen else []),
    ]
