"""``/hub/home``: the cards of a person's servers, and a form for one more."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from jupyterhub.handlers.pages import HomeHandler
from tornado import web
from tornado.httputil import url_concat

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.hub.pages.server.new_name import new_server_name
from jupyterhub_gpuspawner.hub.pages.server.switch import as_query, parse_choice_query
from jupyterhub_gpuspawner.hub.spawners.server import refresh_more_time, server_of
from jupyterhub_gpuspawner.hub.spawners.stop_record import server_title
from jupyterhub_gpuspawner.hub.text import home

if TYPE_CHECKING:
    from collections.abc import Awaitable

UNUSED_LINK = "link"
"""Query parameter: the choice of a link that was not used, since a server was there, as a query of the form."""
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
            namespace["unused_link"] = self._unused_link(namespace["user"])
        return super().render_template(name, sync=sync, **namespace)

    def _unused_link(self, user: Any) -> tuple[str, str]:
        """What is said of a link that was not used, and its address; both empty where there is none."""
        choice = parse_choice_query(self.get_query_argument(UNUSED_LINK, ""))
        name = self.get_query_argument("server", "")
        spawner = user.spawners.get(name)
        if not choice or spawner is None:
            return "", ""
        form = f"{self.hub.base_url}spawn/{user.escaped_name}/{quote(name, safe='')}".rstrip("/")
        title = server_title(server_of(spawner, with_start=False))
        said = home.LINK_UNUSED.format(server=title) if spawner.active else home.LINK_USABLE
        there = self.get_query_argument("next", "")  # JupyterHub checks where it leads when it follows it
        return said, url_concat(f"{form}?{as_query(choice)}", {"next": there} if there else {})


def _named(user: Any) -> int:
    return len(set(user.orm_spawners) - {""})
