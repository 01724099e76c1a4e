"""Every URL that this package adds to a hub, and every page of the hub that it replaces.

A URL whose last part is optional has two routes, as in JupyterHub: for an optional group that is absent tornado passes
None, which JupyterHub's ``needs_scope`` would compare with a scope's filter as the text "None".
"""

from __future__ import annotations

from typing import Any

from jupyterhub.apihandlers.users import SpawnProgressAPIHandler, UserServerAPIHandler
from jupyterhub.handlers.base import UserUrlHandler
from jupyterhub.handlers.pages import HomeHandler, SpawnHandler, SpawnPendingHandler
from jupyterhub.handlers.static import CacheControlStaticFilesHandler

from jupyterhub_gpuspawner.hub.choose import profiles
from jupyterhub_gpuspawner.hub.choose.page import ChoosePage
from jupyterhub_gpuspawner.hub.cluster.page import ClusterHandler, ClusterPage, FleetHandler
from jupyterhub_gpuspawner.hub.course import api as course
from jupyterhub_gpuspawner.hub.course.page import CourseEvents, CoursePage, CoursesPage
from jupyterhub_gpuspawner.hub.messages import api as messages
from jupyterhub_gpuspawner.hub.page_tools import STATIC
from jupyterhub_gpuspawner.hub.server import more_time, report, session, usage
from jupyterhub_gpuspawner.hub.server.home import DeletePage, HomePage
from jupyterhub_gpuspawner.hub.server.progress_stream import ProgressStream
from jupyterhub_gpuspawner.hub.server.start_stop import ServerHandler
from jupyterhub_gpuspawner.hub.server.stop import ExtendPage, KeepPage, StopPage
from jupyterhub_gpuspawner.hub.server.switch import SwitchPage
from jupyterhub_gpuspawner.hub.server.waiting import LogPage, NotRunningPage, WaitingPage


class StaticFiles(CacheControlStaticFilesHandler):
    """Our stylesheets and scripts; their URLs change with them, so browsers may keep them."""

    def set_extra_headers(self, path: str) -> None:
        """Without JupyterHub's ``no-cache``, which is for URLs without a version."""

    def get_cache_time(self, path: str, modified: Any, mime_type: str) -> int:  # noqa: ARG002 - tornado's signature
        """In seconds."""
        return int(self.CACHE_MAX_AGE)


API: list[tuple[Any, ...]] = [
    *report.HANDLERS,
    *profiles.HANDLERS,
    *course.HANDLERS,
    *messages.HANDLERS,
    *more_time.HANDLERS,
    *session.HANDLERS,
    *usage.HANDLERS,
    (r"/api/gpuspawner/cluster", ClusterHandler),
    (r"/api/gpuspawner/fleet", FleetHandler),
]
"""Paths below ``/hub`` that answer in JSON."""

PAGES: list[tuple[Any, ...]] = [
    (r"/gpuspawner/static/[0-9a-f]{12}/(.*)", StaticFiles, {"path": str(STATIC)}),
    (r"/gpuspawner/cluster", ClusterPage),
    (r"/gpuspawner/courses", CoursesPage),
    (r"/gpuspawner/course/([^/]+)", CoursePage),
    (r"/gpuspawner/course/([^/]+)/events", CourseEvents),
    (r"/gpuspawner/log/([^/]+)", LogPage),
    (r"/gpuspawner/log/([^/]+)/([^/]*)", LogPage),
    (r"/gpuspawner/stop/([^/]+)", StopPage),
    (r"/gpuspawner/stop/([^/]+)/([^/]*)", StopPage),
    (r"/gpuspawner/extend/([^/]+)", ExtendPage),
    (r"/gpuspawner/extend/([^/]+)/([^/]*)", ExtendPage),
    (r"/gpuspawner/keep/([^/]+)", KeepPage),
    (r"/gpuspawner/keep/([^/]+)/([^/]*)", KeepPage),
    (r"/gpuspawner/delete/([^/]+)/([^/]+)", DeletePage),
    (r"/gpuspawner/switch/([^/]+)", SwitchPage),
    (r"/gpuspawner/switch/([^/]+)/([^/]*)", SwitchPage),
]
"""Paths of pages below ``/hub``."""

TAKEN_OVER: dict[type, type] = {
    HomeHandler: HomePage,
    SpawnHandler: ChoosePage,
    SpawnPendingHandler: WaitingPage,
    UserUrlHandler: NotRunningPage,
    SpawnProgressAPIHandler: ProgressStream,
    UserServerAPIHandler: ServerHandler,
}
"""Handlers of JupyterHub's, and ours that replace them."""
