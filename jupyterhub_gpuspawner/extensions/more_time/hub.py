"""What more time adds to a hub."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.more_time.extending import ServerTime
from jupyterhub_gpuspawner.extensions.more_time.pages import ExtendPage, MoreTimeHandler
from jupyterhub_gpuspawner.extensions.more_time.part import parts_of
from jupyterhub_gpuspawner.hub.extension import HubExtension
from jupyterhub_gpuspawner.hub.web.handlers import server_routes

HUB = HubExtension(
    api=tuple(server_routes("/api/gpuspawner/servers", MoreTimeHandler, end="/extend")),
    pages=tuple(server_routes("/gpuspawner/extend", ExtendPage)),
    with_server=ServerTime,
    parts_of=parts_of,
)
