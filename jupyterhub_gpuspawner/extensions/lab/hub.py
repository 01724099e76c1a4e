"""What the hub tells the companion of JupyterLab beside the document of its session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jupyterhub_gpuspawner.extensions.lab.settings import SAVES
from jupyterhub_gpuspawner.hub.extension import HubExtension, ServerPart
from jupyterhub_gpuspawner.hub.extensions import extensions_for
from jupyterhub_gpuspawner.hub.routes import PageTools
from jupyterhub_gpuspawner.hub.spawners.profiles import job_spawner
from jupyterhub_gpuspawner.hub.spawners.server import Server

SHEETS = (
    "tokens",
    *(f"components/{name}" for name in ("page", "icon", "state", "control", "meter", "time", "surface")),
)
"""The stylesheets of the hub's pages that the panel uses."""


def parts_of(spawner: Any, _server: Server) -> Iterator[ServerPart]:
    """When JupyterLab tells a server's end and saves open documents, in minutes before it; and the panel's styles."""
    ours: Any = job_spawner(spawner)
    notices, saves = (tuple(ours.lab_notices), SAVES) if ours is not None else ((), ())
    styles: tuple[str, ...] = ()
    if ours is not None and spawner.hub is not None:  # a program that tries a job is no hub
        folder = PageTools(extensions_for(spawner)).static(spawner.hub.base_url, "")
        styles = tuple(f"{folder}{name}.css" for name in SHEETS)
    yield ServerPart("lab", document={"notices": notices, "saves": saves, "styles": styles})


HUB = HubExtension(parts_of=parts_of)
