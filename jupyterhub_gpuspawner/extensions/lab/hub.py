"""What the hub tells the companion of JupyterLab beside the document of its session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jupyterhub_gpuspawner.extensions.lab.settings import SAVES
from jupyterhub_gpuspawner.hub.extension import HubExtension, ServerPart
from jupyterhub_gpuspawner.hub.spawners.profiles import job_spawner
from jupyterhub_gpuspawner.hub.spawners.server import Server


def parts_of(spawner: Any, _server: Server) -> Iterator[ServerPart]:
    """The minutes before a server's end at which JupyterLab tells it, and at which it saves open documents."""
    ours: Any = job_spawner(spawner)
    notices, saves = (tuple(ours.lab_notices), SAVES) if ours is not None else ((), ())
    yield ServerPart("lab", document={"notices": notices, "saves": saves})


HUB = HubExtension(parts_of=parts_of)
