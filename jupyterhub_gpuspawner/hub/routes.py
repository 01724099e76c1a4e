"""Every address that this package adds to a hub, and every page of the hub that it takes over.

An address whose last part may be left out is two routes, as in JupyterHub: of an optional group that is absent tornado
makes None, and JupyterHub's ``needs_scope`` compares that with a scope's filter as the text "None".
"""

from __future__ import annotations

from typing import Any

from jupyterhub.apihandlers.users import SpawnProgressAPIHandler
from jupyterhub.handlers.base import UserUrlHandler
from jupyterhub.handlers.pages import SpawnHandler, SpawnPendingHandler
from jupyterhub.handlers.static import CacheControlStaticFilesHandler

from jupyterhub_gpuspawner.hub.api import profiles, report
from jupyterhub_gpuspawner.hub.api.progress_stream import ProgressStream
from jupyterhub_gpuspawner.hub.page_tools import STATIC
from jupyterhub_gpuspawner.hub.pages.choose.page import ChoosePage
from jupyterhub_gpuspawner.hub.pages.cluster.page import ClusterHandler, ClusterPage
from jupyterhub_gpuspawner.hub.pages.server.log import LogPage
from jupyterhub_gpuspawner.hub.pages.server.stop import StopPage
from jupyterhub_gpuspawner.hub.pages.server.waiting import NotRunningPage, WaitingPage


class StaticFiles(CacheControlStaticFilesHandler):
    """Our stylesheet and script."""


API: list[tuple[Any, ...]] = [
    *report.HANDLERS,
    *profiles.HANDLERS,
    (r"/api/gpuspawner/cluster", ClusterHandler),
]
"""Below ``/hub``; they answer in JSON."""

PAGES: list[tuple[Any, ...]] = [
    (r"/gpuspawner/static/(.*)", StaticFiles, {"path": str(STATIC)}),
    (r"/gpuspawner/cluster", ClusterPage),
    (r"/gpuspawner/log/([^/]+)", LogPage),
    (r"/gpuspawner/log/([^/]+)/([^/]*)", LogPage),
    (r"/gpuspawner/stop/([^/]+)", StopPage),
    (r"/gpuspawner/stop/([^/]+)/([^/]*)", StopPage),
]
"""Below ``/hub``."""

TAKEN_OVER: dict[type, type] = {
    SpawnHandler: ChoosePage,
    SpawnPendingHandler: WaitingPage,
    UserUrlHandler: NotRunningPage,
    SpawnProgressAPIHandler: ProgressStream,
}
"""A handler of JupyterHub's, and the one in its place."""
