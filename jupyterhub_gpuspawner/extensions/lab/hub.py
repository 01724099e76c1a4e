"""What the hub tells the companion of JupyterLab beside the document of its session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tornado import web

from jupyterhub_gpuspawner.extensions.lab.settings import SAVES
from jupyterhub_gpuspawner.hub.extensions import HubExtension, ServerPart
from jupyterhub_gpuspawner.hub.server.api import OwnServerHandler
from jupyterhub_gpuspawner.hub.server.card import server_facts
from jupyterhub_gpuspawner.hub.spawners.profiles import job_spawner
from jupyterhub_gpuspawner.hub.spawners.server import Server, server_of


class PictureHandler(OwnServerHandler):
    """The picture of the node of a running server, for itself."""

    async def get(self) -> None:
        """As SVG; 404 where there is none."""
        server = server_of(self.own_spawner(), with_start=False)
        picture = server_facts(server.placement, server.topology).picture if server.placement is not None else ""
        if not picture:
            raise web.HTTPError(404, "There is no picture of this node.")
        self.set_header("Content-Type", "image/svg+xml")
        self.write(str(picture))


def parts_of(spawner: Any, _server: Server) -> Iterator[ServerPart]:
    """The minutes before a server's end at which JupyterLab tells it, and at which it saves open documents."""
    ours: Any = job_spawner(spawner)
    notices, saves = (tuple(ours.lab_notices), SAVES) if ours is not None else ((), ())
    yield ServerPart("lab", document={"notices": notices, "saves": saves})


HUB = HubExtension(api=((r"/api/gpuspawner/session/picture", PictureHandler),), parts_of=parts_of)
