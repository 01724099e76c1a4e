"""What the card of a running server shows while the connection to its node is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jupyterhub_gpuspawner.extensions.tunnel import words
from jupyterhub_gpuspawner.extensions.tunnel.server import ServerTunnel
from jupyterhub_gpuspawner.hub.extension import Place, ServerPart
from jupyterhub_gpuspawner.hub.spawners.server import Server, ServerState, kept_with


def parts_of(spawner: Any, server: Server) -> Iterator[ServerPart]:
    """That the server cannot be used now; nothing while it can."""
    tunnel = kept_with(spawner, ServerTunnel)
    if tunnel is not None and server.state is ServerState.RUNNING and tunnel.is_interrupted:
        yield ServerPart("tunnel", Place.NOTICE, "tunnel_card.html", words.INTERRUPTED, words.INTERRUPTED)
