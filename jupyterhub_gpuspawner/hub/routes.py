"""Every address that this package adds to a hub, and every page of the hub that it takes over."""

from __future__ import annotations

from typing import Any

from jupyterhub.handlers.pages import SpawnHandler
from jupyterhub.handlers.static import CacheControlStaticFilesHandler

from jupyterhub_gpuspawner.hub import handlers
from jupyterhub_gpuspawner.hub.choose_page import ChoosePage
from jupyterhub_gpuspawner.hub.page_tools import STATIC


class StaticFiles(CacheControlStaticFilesHandler):
    """Our stylesheet and script."""


API: list[tuple[Any, ...]] = [*handlers.HANDLERS]
"""Below ``/hub``; they answer in JSON."""

PAGES: list[tuple[Any, ...]] = [
    (r"/gpuspawner/static/(.*)", StaticFiles, {"path": str(STATIC)}),
]
"""Below ``/hub``."""

TAKEN_OVER: dict[type, type] = {SpawnHandler: ChoosePage}
"""A page of JupyterHub's, and the one in its place."""
