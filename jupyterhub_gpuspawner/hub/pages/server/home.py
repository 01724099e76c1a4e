"""``/hub/home``: the cards of a person's servers, and a form for one more."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from jupyterhub.handlers.pages import HomeHandler
from tornado import web
from tornado.httputil import url_concat

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.hub.pages.server.new_name import new_server_name
from jupyterhub_gpuspawner.hub.spawners.server import refresh_more_time
from jupyterhub_gpuspawner.hub.text import home

if TYPE_CHECKING:
    from collections.abc import Awaitable

PATIENCE = 2.0
"""Seconds for which the page waits for Slurm."""


class HomePage(HomeHandler):
    """JupyterHub's page; its POST leads to the form of a new named server, also without JavaScript."""

    name_fault = ""
    """Why the name cannot be taken."""
    typed = ""
    """The name as it was typed."""

    @web.authenticated
    async def get(self) -> None:
        """JupyterHub's, once it is known how far servers can be extended."""
        await self._show()

    async def _show(self) -> None:
        await refresh_more_time(self.current_user.all_spawners(), patience=PATIENCE)
        await cast("Awaitable[None]", super().get())

    @web.authenticated
    async def post(self) -> None:
        """303 to the new server's form; 400 and this page again for a name that is refused, or one too many."""
        self.typed = self.get_body_argument("name", "")
        user: Any = self.current_user
        try:
            name, display_name = await self._new_name(user)
        except RequestError as error:
            self.name_fault = error.message
            self.set_status(HTTPStatus.BAD_REQUEST)
            await self._show()
            return
        address = f"{self.hub.base_url}spawn/{user.escaped_name}/{name}"
        shown = {"display_name": display_name} if display_name != name else {}
        self.redirect(url_concat(address, shown), status=HTTPStatus.SEE_OTHER)

    async def _new_name(self, user: Any) -> tuple[str, str]:
        """Name and display name of the new server; raises RequestError."""
        if not self.allow_named_servers:
            raise web.HTTPError(400, "Named servers are not enabled.")
        name, display_name = new_server_name(self.typed)
        if name in user.orm_spawners:
            raise RequestError(home.NAME_TAKEN.format(name=display_name), field="name")
        limit, number = await self.get_current_user_named_server_limit(), _named(user)
        if 0 < limit <= number:
            raise RequestError(home.NOT_MORE.format(number=number, limit=limit), field="name")
        return name, display_name

    def render_template(self, name: str, sync: bool = False, **namespace: Any) -> Any:  # noqa: FBT001, FBT002 - its signature
        """JupyterHub's, with what the form for a new server shows."""
        if name == "home.html":
            number = _named(namespace["user"])
            namespace.update(name_fault=self.name_fault, typed=self.typed, named_servers=number)
        return super().render_template(name, sync=sync, **namespace)


def _named(user: Any) -> int:
    return len(set(user.orm_spawners) - {""})
