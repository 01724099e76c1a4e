"""``/hub/gpuspawner/delete/USER/NAME``: a question, and the deletion of a named server that is not running."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from tornado import web

from jupyterhub_gpuspawner.hub.jupyterhub_compat import delete_named_server, display_name
from jupyterhub_gpuspawner.hub.text import home


class DeletePage(BaseHandler):
    """Forgets a named server, as JupyterHub does over REST: its name, its last choice, what its spawner keeps."""

    @web.authenticated
    @needs_scope("delete:servers")
    async def get(self, user_name: str, server_name: str) -> None:
        """What is lost, and a button."""
        user, spawner = self._found(user_name, server_name)
        await self._ask(user, spawner)

    @web.authenticated
    @needs_scope("delete:servers")
    async def post(self, user_name: str, server_name: str) -> None:
        """303 to the home page; 409 where the server is active."""
        user, spawner = self._found(user_name, server_name)
        if spawner.active:
            self.set_status(HTTPStatus.CONFLICT)
            await self._ask(user, spawner)
            return
        await delete_named_server(user, spawner)
        self.redirect(f"{self.hub.base_url}home", status=HTTPStatus.SEE_OTHER)

    def _found(self, user_name: str, server_name: str) -> tuple[Any, Any]:
        user: Any = self.find_user(user_name)
        if user is None or not server_name or server_name not in user.orm_spawners or not self.allow_named_servers:
            raise web.HTTPError(404, "There is no such server.")
        return user, user.spawners[server_name]

    async def _ask(self, user: Any, spawner: Any) -> None:
        title = home.title(spawner.name, display_name(spawner))
        html = await self.render_template(
            "delete.html",
            title=home.of_user(title, user.name if user is not self.current_user else ""),
            active=spawner.active,
        )
        self.finish(html)
