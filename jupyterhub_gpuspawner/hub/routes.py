"""Every URL that this package adds to a hub, every page of the hub that it replaces, and what templates use.

A URL whose last part is optional has two routes, as in JupyterHub: for an optional group that is absent tornado passes
None, which JupyterHub's ``needs_scope`` would compare with a scope's filter as the text "None".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from jupyterhub.apihandlers.users import SpawnProgressAPIHandler, UserServerAPIHandler
from jupyterhub.handlers.base import UserUrlHandler
from jupyterhub.handlers.pages import HomeHandler, SpawnHandler, SpawnPendingHandler
from jupyterhub.handlers.static import CacheControlStaticFilesHandler
from markupsafe import Markup

from jupyterhub_gpuspawner.hub import times, words
from jupyterhub_gpuspawner.hub.choose.page import ChoosePage
from jupyterhub_gpuspawner.hub.extension import Link, Notice, ServerPart
from jupyterhub_gpuspawner.hub.extensions import HubExtensions
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_admin
from jupyterhub_gpuspawner.hub.server import api as server_api
from jupyterhub_gpuspawner.hub.server import report
from jupyterhub_gpuspawner.hub.server.card import ServerCard, server_cards
from jupyterhub_gpuspawner.hub.server.home import DeletePage, HomePage
from jupyterhub_gpuspawner.hub.server.stop import ServerHandler, StopPage
from jupyterhub_gpuspawner.hub.server.waiting import LogPage, NotRunningPage, ProgressStream, SwitchPage, WaitingPage
from jupyterhub_gpuspawner.hub.spawners.server import Server, contact_of, server_of, with_profiles
from jupyterhub_gpuspawner.hub.web.handlers import server_routes
from jupyterhub_gpuspawner.profiles.profile import Profile

STATIC = Path(__file__).parent / "web" / "static"


class StaticFiles(CacheControlStaticFilesHandler):
    """Our stylesheets and scripts; their URLs change with them, so browsers may keep them."""

    def set_extra_headers(self, path: str) -> None:
        """Without JupyterHub's ``no-cache``, which is for URLs without a version."""

    def get_cache_time(self, path: str, modified: Any, mime_type: str) -> int:  # noqa: ARG002 - tornado's signature
        """In seconds."""
        return int(self.CACHE_MAX_AGE)


API: list[tuple[Any, ...]] = [
    *report.HANDLERS,
    *server_api.HANDLERS,
]
"""Paths below ``/hub`` that answer in JSON."""

PAGES: list[tuple[Any, ...]] = [
    (r"/gpuspawner/static/[0-9a-f]{12}/(.*)", StaticFiles, {"path": str(STATIC)}),
    *server_routes("/gpuspawner/log", LogPage),
    *server_routes("/gpuspawner/stop", StopPage),
    (r"/gpuspawner/delete/([^/]+)/([^/]+)", DeletePage),
    *server_routes("/gpuspawner/switch", SwitchPage),
]
"""Paths of pages below ``/hub``."""

REPLACED: dict[type, type] = {
    HomeHandler: HomePage,
    SpawnHandler: ChoosePage,
    SpawnPendingHandler: WaitingPage,
    UserUrlHandler: NotRunningPage,
    SpawnProgressAPIHandler: ProgressStream,
    UserServerAPIHandler: ServerHandler,
}
"""Handlers of JupyterHub's, and ours that replace them."""


def static_routes(extensions: HubExtensions, prefix: str) -> list[tuple[Any, ...]]:
    """The routes of the stylesheets and scripts of extensions: ``static/VERSION/EXTENSION/FILE``."""
    return [
        (
            rf"{prefix.rstrip('/')}/gpuspawner/static/[0-9a-f]{{12}}/{part.extension.name}/(.*)",
            StaticFiles,
            {"path": str(part.static)},
        )
        for part in extensions
        if part.static.is_dir()
    ]


class PageTools:
    """The namespace ``gpuspawner`` in templates; one for all pages of a hub. Extensions add to it."""

    times = times
    words = words
    is_admin = staticmethod(is_admin)

    def __init__(self, extensions: HubExtensions) -> None:
        self._extensions = extensions

    def __getattr__(self, name: str) -> Any:
        try:
            return self._extensions.page_tools[name]
        except KeyError:
            raise AttributeError(name) from None

    def links(self, parsed_scopes: Mapping[str, object], user: Any) -> list[Link]:
        """What extensions add to the navigation bar for whoever reads the page."""
        return self._extensions.links(parsed_scopes, user)

    def notices(self, user: Any) -> list[Notice]:
        """What is told to whoever reads the page, the newest first."""
        return self._extensions.notices(user)

    @staticmethod
    def cards(user: Any) -> tuple[ServerCard, ...]:
        """The cards of a user's servers, of whatever spawner."""
        return server_cards(map(server_of, user.all_spawners()), contact=contact_of(user.spawner))

    @staticmethod
    def rescue(user: Any, server: Server) -> Profile | None:
        """What makes room where this server of the user's did not start since their home folder is full."""
        full = not server.active and server.ending is not None and server.ending.cause.fault == "home_full"
        profiles = with_profiles(user.spawners[server.name]) if full else None
        return profiles.rescue(server.ending) if profiles is not None else None

    @pass_context
    async def show_part(self, context: Context, part: ServerPart, card: ServerCard, heading: str) -> Markup:
        """The HTML of a part of a card; nothing, with an error in the log, where its template fails."""
        try:
            template = context.environment.get_template(part.template)
            html = await template.render_async(context.get_all(), part=part, card=card, heading=heading)
        except Exception as error:  # noqa: BLE001 - an extension's fault: the card is shown without it
            self._extensions.failed(part.name, part.template, error)
            return Markup()
        return Markup(html)  # noqa: S704 - the template has escaped it

    def card_styles(self) -> tuple[str, ...]:
        """The stylesheets of the parts of cards, for :meth:`static`."""
        return self._extensions.card_styles

    def parts_of(self, page: str) -> list[str]:
        """The templates that extensions add to a page (``form``, ``home``): ``NAME_PAGE.html``."""
        return self._extensions.page_parts(page)

    def static(self, base_url: str, name: str) -> str:
        """Return the URL of a file in ``static/``, or, as ``EXTENSION/FILE``, in that folder of an extension.

        It changes with the files, so that browsers may cache them. The version is a folder of the URL, so that a
        script's relative imports have it as well.
        """
        folders = (STATIC, *(part.static for part in self._extensions))
        return f"{base_url}gpuspawner/static/{_version(folders)}/{name}"


@lru_cache
def _version(folders: tuple[Path, ...]) -> str:
    files = [path for folder in folders if folder.is_dir() for path in sorted(folder.rglob("*")) if path.is_file()]
    return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
