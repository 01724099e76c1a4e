"""What the picture of a node adds to a hub."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.picture import card
from jupyterhub_gpuspawner.extensions.picture.api import PictureHandler
from jupyterhub_gpuspawner.hub.extension import HubExtension

HUB = HubExtension(
    api=((r"/api/gpuspawner/session/picture", PictureHandler),),
    with_server=card.NodePicture,
    parts_of=card.parts_of,
    page_tools={"picture": card},
)
