"""``/hub/gpuspawner/extend/...`` and ``/hub/api/gpuspawner/servers/.../extend``: more time for a running server.

The page works without JavaScript; its form carries JupyterHub's ``_xsrf``.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import Scope, needs_scope
from jupyterhub.spawner import Spawner
from tornado import web

from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.extensions.more_time.extending import extend_server
from jupyterhub_gpuspawner.extensions.more_time.part import part_of
from jupyterhub_gpuspawner.hub.extension import MINUTES_AT_MOST
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_admin
from jupyterhub_gpuspawner.hub.server.api import RunningServerHandler, staff_for
from jupyterhub_gpuspawner.hub.server.card import server_card
from jupyterhub_gpuspawner.hub.spawners.server import refresh_servers, server_of
from jupyterhub_gpuspawner.hub.web.handlers import permitted, server_named, title_for


def extends_without_limit(handler: BaseHandler) -> bool:
    """Whether what staff may add to one server holds not for whoever sends the request.

    They are administrators, and those who may start and stop everybody's servers.
    """
    return is_admin(handler.parsed_scopes) or handler.parsed_scopes.get("servers") is Scope.ALL


class ExtendPage(BaseHandler):
    """Gives a server more time; it asks staff for how many minutes."""

    @web.authenticated
    @needs_scope("servers")
    async def get(self, user_name: str, server_name: str = "") -> None:
        """When the server ends, and by how much it can be extended."""
        user, spawner = server_named(self, user_name, server_name)
        await self._show(user, spawner)

    @web.authenticated
    @needs_scope("servers")
    async def post(self, user_name: str, server_name: str = "") -> None:
        """303 to the home page, or to this page for somebody else's server; this page with the reason if refused."""
        user, spawner = server_named(self, user_name, server_name)
        try:
            by, unlimited = staff_for(self, spawner), extends_without_limit(self)
            await extend_server(spawner, self._minutes(), by=by, unlimited=unlimited)
        except GPUSpawnerError as error:
            if not isinstance(error, RequestError):
                self.log.error("%s is not extended: %s", self.request.path, error)
            self.set_status(error.status_code)
            await self._show(user, spawner, fault=error.for_user)
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
        await refresh_servers([spawner])
        server = server_of(spawner)
        card = server_card(server)
        html = await self.render_template(
            "extend.html",
            card=card,
            shown=part_of(server).shown,
            fault=fault,
            ends=card.left.ends if card.left is not None else None,
            staff=bool(staff_for(self, spawner)),
            minutes_at_most=MINUTES_AT_MOST,
            title=title_for(self, user, card.title),
        )
        self.finish(html)


class MoreTimeHandler(RunningServerHandler):
    """More time for a running server; for whoever may start and stop it, and for the server's own token.

    A request of an administrator, of who teaches the server's course, or of who has the scope `servers` for more than
    this server does not count as one of the extensions that its profile allows. All of these together, without
    administrators and those who have that scope for everybody, extend one server by 24 h at most.
    """

    @permitted
    async def get(self, user_name: str, server_name: str = "") -> None:
        """By how much it can be extended now: `possible`, `seconds`, `uses_left`, `reason`, `words`, ..."""
        spawner = self.spawner_of(user_name, server_name)
        await refresh_servers([spawner])
        self.write(_document(spawner))

    @permitted
    async def post(self, user_name: str, server_name: str = "") -> None:
        """Extend it by what its profile says, or by `{"minutes": 30}`; 409 with the `reason` if not possible.

        The answer is as for GET, with `extended`: the seconds that were added, which may be fewer.
        """
        spawner = self.spawner_of(user_name, server_name)
        try:
            by, unlimited = staff_for(self, spawner), extends_without_limit(self)
            done = await extend_server(spawner, self._minutes(), by=by, unlimited=unlimited)
        except GPUSpawnerError as error:
            self.refuse(error)
            return
        await refresh_servers([spawner])
        self.write({**_document(spawner), "extended": done.seconds})

    def _minutes(self) -> int | None:
        body = self.limited_body()
        if body is None:
            return None
        minutes = body.get("minutes") if isinstance(body, dict) else body
        if not isinstance(body, dict) or set(body) - {"minutes"} or not (minutes is None or type(minutes) is int):
            raise web.HTTPError(400, 'The body must be empty or {"minutes": 30}.')
        return minutes


def _document(spawner: Spawner) -> dict[str, Any]:
    """What can be had now, version 1; ``possible`` is false where it is not offered, without a ``reason``."""
    return dict(part_of(server_of(spawner)).document["more_time"])
