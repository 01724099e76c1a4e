"""A running server goes on: *More time* (``/hub/gpuspawner/extend/...``) and *Keep* (``/hub/gpuspawner/keep/...``).

Both work without JavaScript; their forms carry JupyterHub's ``_xsrf``.
"""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from tornado import web

from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.hub.api.server.more_time import staff_for
from jupyterhub_gpuspawner.hub.idle.servers import NotKept
from jupyterhub_gpuspawner.hub.pages.server.card import server_card
from jupyterhub_gpuspawner.hub.spawners.server import extend_server, keep_server, refresh_more_time, server_of
from jupyterhub_gpuspawner.hub.text import home
from jupyterhub_gpuspawner.slurm.time_limit import MINUTES_AT_MOST

if TYPE_CHECKING:
    from jupyterhub.spawner import Spawner

PATIENCE = 2.0
"""Seconds for which a page waits for Slurm."""


class _RunningServerPage(BaseHandler):
    """A page about one server."""

    def found(self, user_name: str, server_name: str) -> tuple[Any, Spawner]:
        """The server's user and spawner; raises 404."""
        user: Any = self.find_user(user_name)
        if user is None or server_name not in user.orm_spawners:
            raise web.HTTPError(404, "There is no such server.")
        return user, user.spawners[server_name]


class KeepPage(_RunningServerPage):
    """Keeps a server that is idle. It has no page of its own: the button is on the home page."""

    @web.authenticated
    @needs_scope("servers")
    async def get(self, user_name: str, server_name: str = "") -> None:  # noqa: ARG002 - the route's parts
        """303 to the home page, for those who reload."""
        self.redirect(f"{self.hub.base_url}home", status=HTTPStatus.SEE_OTHER)

    @web.authenticated
    @needs_scope("servers")
    async def post(self, user_name: str, server_name: str = "") -> None:
        """303 to the home page, which shows how the server stands; also where there is nothing to keep it from."""
        _, spawner = self.found(user_name, server_name)
        with suppress(NotKept):
            keep_server(spawner, by=staff_for(self, spawner))
        self.redirect(f"{self.hub.base_url}home", status=HTTPStatus.SEE_OTHER)


class ExtendPage(_RunningServerPage):
    """Gives a server more time; it asks staff for how many minutes."""

    @web.authenticated
    @needs_scope("servers")
    async def get(self, user_name: str, server_name: str = "") -> None:
        """When the server ends, and by how much it can be extended."""
        user, spawner = self.found(user_name, server_name)
        await self._show(user, spawner)

    @web.authenticated
    @needs_scope("servers")
    async def post(self, user_name: str, server_name: str = "") -> None:
        """303 to the home page, or to this page for somebody else's server; this page with the reason if refused."""
        user, spawner = self.found(user_name, server_name)
        try:
            await extend_server(spawner, self._minutes(), by=staff_for(self, spawner))
        except GPUSpawnerError as error:
            if not isinstance(error, RequestError):
                self.log.error("%s is not extended: %s", self.request.path, error)  # noqa: TRY400 - no traceback
            self.set_status(error.status_code)
            await self._show(user, spawner, fault=error.told)
            return
        own = user is self.current_user
        self.redirect(f"{self.hub.base_url}home" if own else self.request.path, status=HTTPStatus.SEE_OTHER)

    def _minutes(self) -> int | None:
        text = self.get_body_argument("minutes", "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 9):
            raise RequestError("The number of minutes must be a whole number.", field="minutes")
        return int(text)

    async def _show(self, user: Any, spawner: Spawner, *, fault: str = "") -> None:
        await refresh_more_time([spawner], patience=PATIENCE)
        card = server_card(server_of(spawner))
        html = await self.render_template(
            "extend.html",
            card=card,
            fault=fault,
            ends=card.left.ends if card.left is not None else None,
            staff=bool(staff_for(self, spawner)),
            minutes_at_most=MINUTES_AT_MOST,
            title=home.of_user(card.title, user.name if user is not self.current_user else ""),
        )
        self.finish(html)
