"""Whether nodes are told an address at which they can reach the hub, and the hub can reach the nodes.

A job gets the hub's address in ``JUPYTERHUB_API_URL``. JupyterHub makes it from hub_connect_url, hub_connect_ip,
hub_bind_url or hub_ip, in this order; the spawner's own hub_connect_url comes first (jupyterhub/objects.py).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.report.reach import resolved
from jupyterhub_gpuspawner.site.configuration import application

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.cluster.snapshot import NodeState

LOOPBACK = Code(
    "hub-address-loopback",
    "Nodes are told a loopback address of the hub, or the hub listens on one alone, and there are nodes on other "
    "machines.",
)
FOREIGN = Code(
    "hub-address-foreign", "The hub's settings have it listen on an address that this machine does not have."
)
UNRESOLVED = Code(
    "node-unresolved", "This machine cannot resolve the address of a node, so it reaches no server there."
)
SAMPLE = 8
"""Nodes that are looked at, one for each partition at least."""
_ANY = ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
_SETTINGS = ("hub_connect_url", "hub_connect_ip", "hub_bind_url", "hub_ip")
_AWAY = frozenset(("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "FUTURE", "CLOUD", "DOWN"))
"""States of nodes whose address may not be known yet."""


@dataclass(frozen=True)
class HubAddress:
    """Where the hub listens, and where nodes look for it."""

    told: str
    """The URL of the hub's API that a job gets."""
    setting: str
    """The setting that decides it, such as ``c.JupyterHub.hub_ip``."""
    listens: str
    """The address that the hub binds; empty for all of the machine's, and for a Unix socket."""
    port: int

    @property
    def host(self) -> str:
        """The host of :attr:`told`."""
        return urlsplit(self.told).hostname or ""


def hub_address(context: Context) -> HubAddress:
    """Work out the hub's addresses as JupyterHub does; raises ConfigError."""
    config, hub = context.site.config, application(context.site.config).hub
    spawner: Any = context.slurm_site
    told, setting = str(hub.api_url), "c.JupyterHub.hub_ip"
    for name in _SETTINGS:
        if config.JupyterHub.get(name):
            setting = f"c.JupyterHub.{name}"
            break
    if spawner.hub_connect_url is not None:
        told = spawner.hub_connect_url.rstrip("/") + urlsplit(told).path
        setting = spawner.configured_as("hub_connect_url")
    own = spawner.environment.get("JUPYTERHUB_API_URL")
    if isinstance(own, str):
        told, setting = own, spawner.configured_as("environment")
    listens = "" if hub.ip in _ANY else str(hub.ip)
    return HubAddress(told, setting, listens, int(hub.port or 0))


async def check_address(context: Context) -> list[Finding]:
    """Compare the hub's address with those of the nodes."""
    if context.snapshot is None:
        return []
    try:
        hub = hub_address(context)
    except ConfigError:  # which the check of names reports
        return []
    found: list[Finding] = []
    elsewhere: list[tuple[str, str]] = []
    for node in _sample(context):
        addresses = await resolved(node.address)
        if not addresses:
            found.append(
                UNRESOLVED.warning(
                    f"node {node.name}",
                    f"this machine cannot resolve {node.address!r}, the node's address in Slurm (NodeAddr).",
                    "Add the name to DNS or to /etc/hosts of the hub's machine: the hub's proxy connects to it.",
                )
            )
        elif not any(map(is_own, addresses)):
            elsewhere.append((node.name, addresses[0]))
    if elsewhere:
        found += _of_loopback(hub, *elsewhere[0])
    if hub.listens and not is_loopback(hub.listens) and not _is_own_host(await resolved(hub.listens)):
        found.append(
            FOREIGN.warning(
                f"c.JupyterHub.{'hub_bind_url' if context.site.config.JupyterHub.get('hub_bind_url') else 'hub_ip'}",
                f"the hub would listen on {hub.listens}, which is not an address of this machine: a hub that is "
                "started here exits.",
                "Use an address that `ip address` lists, and hub_connect_ip if nodes reach the hub at another one.",
            )
        )
    return found


def _of_loopback(hub: HubAddress, node: str, address: str) -> list[Finding]:
    fix = f"Set c.JupyterHub.hub_ip to the address of this machine in the cluster's network{_suggested(address)}."
    if is_loopback(hub.host):
        return [
            LOOPBACK.error(
                hub.setting,
                f"nodes are told to reach the hub at {hub.told}, which on {node} is {node} itself: no server could "
                "report to the hub.",
                fix,
            )
        ]
    if is_loopback(hub.listens) and _is_own_host((hub.host,)) and urlsplit(hub.told).port == hub.port:
        return [
            LOOPBACK.error(
                "c.JupyterHub.hub_ip",
                f"the hub listens on {hub.listens} alone, and {node} is told to reach it at {hub.told}.",
                fix,
            )
        ]
    return []


def _sample(context: Context) -> Sequence[NodeState]:
    """Some nodes that are up: the first one of each partition, then others."""
    snapshot = context.snapshot
    if snapshot is None:
        return ()
    nodes = {each.name: each for each in snapshot.nodes if each.address and not each.states & _AWAY}
    firsts = [next((name for name in each.nodes if name in nodes), None) for each in snapshot.partitions]
    names = dict.fromkeys(name for name in (*firsts, *nodes) if name is not None)
    return [nodes[name] for name in list(names)[:SAMPLE]]


def is_loopback(host: str) -> bool:
    """Whether a host is the machine that asks, whichever that is."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_own(address: str) -> bool:
    """Whether this machine has an address: whether a socket can be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _is_own_host(hosts: Sequence[str]) -> bool:
    """The same for addresses; a name that is not resolved is taken for this machine's."""
    return not hosts or any(is_own(each) for each in hosts)


def _suggested(node: str) -> str:
    """``, such as ADDRESS``: the one from which this machine reaches a node; empty if there is no route."""
    family = socket.AF_INET6 if ":" in node else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((node, 9))  # of UDP: chooses a route, and sends nothing
            own = str(probe.getsockname()[0])
    except OSError:
        return ""
    return "" if is_loopback(own) else f", such as {own}"
