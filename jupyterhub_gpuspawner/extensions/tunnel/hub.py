"""What the tunnel adds to a hub."""

from __future__ import annotations

from typing import Any

from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.extensions.tunnel.part import parts_of
from jupyterhub_gpuspawner.extensions.tunnel.server import ServerTunnel
from jupyterhub_gpuspawner.extensions.tunnel.settings import TUNNEL, hub_url
from jupyterhub_gpuspawner.extensions.tunnel.ssh import tunnel_words
from jupyterhub_gpuspawner.extensions.tunnel.tunnels import Tunnels, reverse_of
from jupyterhub_gpuspawner.hub.extension import HubExtension
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.spawners.server import site_of_hub


def lead_to_hub(app: JupyterHub) -> None:
    """Have the nodes of clusters reach the hub through the first connection to each, where that is set."""
    site: Any = site_of_hub(app)
    if site is None:
        return
    tunnels = state_of(app.tornado_settings).of(Tunnels)
    for name in site.clusters or [""]:
        settings = site.effective(name)
        if settings.tunnel and settings.tunnel_to_hub:
            words = tunnel_words(settings.tunnel, where=TUNNEL)
            tunnels.master(words, 1).wanted.add(reverse_of(hub_url(settings), app.hub.ip, app.hub.port))


HUB = HubExtension(with_server=ServerTunnel, parts_of=parts_of, begin=(lead_to_hub,))
