"""What the search for idle servers adds to a hub."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.idle.pages import KeepHandler, KeepPage
from jupyterhub_gpuspawner.extensions.idle.part import letters, parts_of
from jupyterhub_gpuspawner.extensions.idle.times import TABLE
from jupyterhub_gpuspawner.extensions.idle.watch import begin_idle
from jupyterhub_gpuspawner.hub.extension import HubExtension
from jupyterhub_gpuspawner.hub.web.handlers import server_routes

HUB = HubExtension(
    tables=(TABLE,),
    begin=(begin_idle,),
    api=tuple(server_routes("/api/gpuspawner/servers", KeepHandler, end="/keep")),
    pages=tuple(server_routes("/gpuspawner/keep", KeepPage)),
    letters=letters,
    parts_of=parts_of,
)
