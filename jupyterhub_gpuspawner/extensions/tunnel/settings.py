"""Settings of ``c.GPUSlurmSpawner`` about the way to nodes that the hub cannot reach."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from traitlets import Bool, HasTraits, Unicode

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.tunnel.ssh import tunnel_words
from jupyterhub_gpuspawner.hub.site.slurm_settings import Count, PortRange

TUNNEL, TO_HUB = "tunnel", "tunnel_to_hub"
PORTS_AT_MOST = 2000
"""Ports of ``tunnel_ports``: one connection serves that many forwards."""


class TunnelSettings(HasTraits):
    """How the hub reaches servers, and they the hub, where there is no route between them."""

    tunnel = Unicode(
        "",
        config=True,
        help="""The ssh that connects to a login node from which the nodes can be reached, such as
        `ssh -F /etc/jupyterhub/ssh/tunnel_ssh_config tunnel`; its configuration has a ControlPath. The hub keeps such
        connections up, and forwards a port of its own machine to each server. It is split into words, without a shell.
        Empty: the hub and its proxy connect to the nodes themselves.""",
    )
    tunnel_ports = PortRange(
        "26000-27999",
        config=True,
        help="""Ports of 127.0.0.1 on the hub's machine for these forwards, at most 2,000: two for each server, which
        gets another one when its connection was lost. They must be outside of
        `/proc/sys/net/ipv4/ip_local_port_range`. Nobody else can listen there: the hub holds them.""",
    ).tag(of_the_hub=True)
    tunnel_connections = Count(
        4,
        low=1,
        high=16,
        config=True,
        help="""Connections to the login node. ssh looks at each of a connection's channels for whatever arrives on one
        of them: have one for every fifty servers.""",
    )
    tunnel_to_hub = Bool(
        default_value=False,
        config=True,
        help="""Whether nodes reach the hub through the tunnel, too: `c.Spawner.hub_connect_url` is then an address and
        a port of the login node, such as `http://10.0.0.20:25681`, which are forwarded to the hub. Its sshd needs
        `GatewayPorts clientspecified`. Leave `c.JupyterHub.hub_connect_url` alone, which the proxy uses, too.""",
    )

    @staticmethod
    def check_settings(settings: Any) -> None:
        """Raise ConfigError for settings with which no server would be reached."""
        tunnel_words(settings.tunnel, where=settings.configured_as(TUNNEL))
        first, last = port_numbers(settings.tunnel_ports)
        if last - first >= PORTS_AT_MOST or not first:
            raise ConfigError(
                f"{settings.tunnel_ports!r} must be 1 to {PORTS_AT_MOST} ports.",
                where=settings.configured_as("tunnel_ports"),
            )
        if settings.tunnel_to_hub:
            where = settings.configured_as(TO_HUB)
            if not settings.tunnel:
                raise ConfigError("there is no tunnel.", where=where, hint="Set tunnel, too.")
            url = urlsplit(hub_url(settings))
            if not url.hostname or not url.port:
                raise ConfigError(
                    "the spawner's hub_connect_url must be an address and a port of the login node.",
                    where=where,
                    hint='Set c.Spawner.hub_connect_url, such as to "http://10.0.0.20:25681".',
                )


def port_numbers(text: str) -> tuple[int, int]:
    """The first and the last port of a range; 0 where it is empty."""
    first, _, last = text.partition("-")
    return int(first or 0), int(last or 0)


def hub_url(settings: Any) -> str:
    """The URL at which jobs look for the hub; empty where it is the hub's own."""
    return str(settings.hub_connect_url or "")
