"""``GET /hub/api/gpuspawner/session/picture``: the picture of the node of a running server, for itself."""

from __future__ import annotations

import base64
import hashlib

from tornado import web

from jupyterhub_gpuspawner.extensions.picture import drawing
from jupyterhub_gpuspawner.extensions.picture.card import picture_of
from jupyterhub_gpuspawner.hub.server.api import OwnServerHandler
from jupyterhub_gpuspawner.hub.spawners.server import server_of

_STYLE = base64.b64encode(hashlib.sha256(drawing.STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE}'; sandbox"
"""The Content-Security-Policy of the picture: an image and nothing else."""


class PictureHandler(OwnServerHandler):
    """For the token of a running server, which JupyterLab's companion uses."""

    async def get(self) -> None:
        """As SVG; 404 where there is none."""
        server = server_of(self.own_spawner(), with_start=False)
        picture = picture_of(server.placement, server.topology) if server.placement is not None else None
        if picture is None:
            raise web.HTTPError(404, "There is no picture of this node.")
        self.set_header("Content-Type", "image/svg+xml")
        self.set_header("Content-Security-Policy", POLICY)
        self.write(drawing.by_itself(str(picture.svg)))
