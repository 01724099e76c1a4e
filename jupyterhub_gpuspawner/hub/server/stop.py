"""``/hub/gpuspawner/stop/...``: *Stop* for any server that a person may stop, also without JavaScript.

JupyterHub stops servers only over REST, with a method that HTML forms do not have. The form carries JupyterHub's
``_xsrf``. :class:`ServerHandler` is JupyterHub's REST, which notes who asked for a stop.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from tornado import web

from jupyterhub_gpuspawner.hub.extensions import extensions_of
from jupyterhub_gpuspawner.hub.job.cause import Kind
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_admin
from jupyterhub_gpuspawner.hub.server.api import leads_user
from jupyterhub_gpuspawner.hub.spawners.server import Server, server_of, server_title, stop_record
from jupyterhub_gpuspawner.hub.spawners.stopping import note_stopper, stop_server
from jupyterhub_gpuspawner.hub.times import parse_time
from jupyterhub_gpuspawner.hub.web.handlers import (
    StartHandler,
    as_query,
    form_url,
    parse_choice_query,
    pending_url,
    server_named,
    title_for,
)
from jupyterhub_gpuspawner.words import duration


class StopPage(BaseHandler):
    """Asks before it stops a server that is running; says afterwards what happened to somebody else's."""

    @web.authenticated
    @needs_scope("delete:servers")
    async def get(self, user_name: str, server_name: str = "") -> None:
        """What is lost, and a button; or that nothing is running."""
        user, spawner = server_named(self, user_name, server_name)
        await self._show(user, server_of(spawner))

    @web.authenticated
    @needs_scope("delete:servers")
    async def post(self, user_name: str, server_name: str = "") -> None:
        """303 to where the button was, to a ``link``, or to this page. A second stop changes nothing.

        ``back`` says where it was: ``home``, ``server``, or a page of the navigation bar, by its path below ``/hub``.
        This page is for somebody else's server.
        """
        user, spawner = server_named(self, user_name, server_name)
        by = self.current_user.name if user is not self.current_user else ""
        if not await stop_as(self, user, server_name, by=by):
            self.set_status(HTTPStatus.INTERNAL_SERVER_ERROR)
            await self._show(user, server_of(spawner), failed=True)
            return
        back, link = self.get_body_argument("back", ""), self.get_body_argument("link", "")
        there = f"{self.hub.base_url}home"
        if link and not by:
            there = f"{form_url(self.hub.base_url, user, server_name)}?{as_query(parse_choice_query(link))}"
        elif back == "server":
            there = f"{pending_url(self.hub.base_url, user, server_name)}?stopped=1"
        elif back in (entry.path for part in extensions_of(self.settings) for entry in part.adds.links):
            there = f"{self.hub.base_url}{back}"
        elif by:
            there = self.request.path
        self.redirect(there, status=HTTPStatus.SEE_OTHER)

    async def _show(self, user: Any, server: Server, *, failed: bool = False) -> None:
        placement = server.placement
        since = parse_time(placement.started_at) if placement is not None and placement.started_at else None
        html = await self.render_template(
            "stop.html",
            own=user is self.current_user,
            failed=failed,
            server=server,
            link=self.get_argument("link", ""),
            title=title_for(self, user, server_title(server)),
            waits=server.waits_in_line,
            ran=duration(time.time() - since.timestamp()) if since is not None else "",
            since=since,
        )
        self.finish(html)


async def stop_as(handler: BaseHandler, user: Any, server_name: str, *, by: str = "") -> bool:
    """Stop a server for the sender of a request; False if it still runs afterwards.

    It may still be stopping. Its card then says that it was stopped, and by whom (``by``) where that is not its user.
    """
    spawner = user.spawners[server_name]
    server = server_of(spawner)
    stopper = stopper_of(handler, user)
    record = stop_record(server, at=time.time(), by=by, stopper=stopper)

    async def stop() -> bool:
        await handler.stop_single_user(user, server_name)
        return not spawner.ready or bool(spawner.pending)

    return await stop_server(spawner, record, stop)


def stopper_of(handler: BaseHandler, owner: Any) -> Kind:
    """As what the sender of a request acts who may stop a server of ``owner``."""
    requester: Any = handler.current_user
    if requester.kind == "service":
        return Kind.CULLED
    if requester.name == owner.name:
        return Kind.STOPPED_BY_USER
    if is_admin(handler.parsed_scopes):
        return Kind.STOPPED_BY_ADMIN
    return Kind.STOPPED_BY_INSTRUCTOR if leads_user(handler, owner) else Kind.STOPPED_BY_OTHER_USER


class ServerHandler(StartHandler):
    """JupyterHub's REST of one server; the session's record says who stopped it."""

    @needs_scope("delete:servers")
    async def delete(self, user_name: str, server_name: str = "") -> None:
        """Stop a server, or cancel its start; with `remove`, delete a named server.

        JupyterHub gives a start a second to end, and answers 500 where it takes longer.
        """
        user: Any = self.find_user(user_name)
        spawner = user.spawners.get(server_name) if user is not None else None
        remove = bool((self.get_json_body() or {}).get("remove", False))
        if spawner is not None and spawner.active and (self.allow_named_servers if server_name else not remove):

            async def stop() -> bool:
                await self.stop_single_user(user, server_name)
                return True

            await stop_server(spawner, None, stop)
            if remove and spawner.pending in ("spawn", "check"):  # it is stopped when that has ended
                raise web.HTTPError(HTTPStatus.CONFLICT, "The server is being stopped. This takes a few seconds.")
            if not remove and spawner.pending != "rename":  # JupyterHub would make another spawner now
                self.set_header("Content-Type", "text/plain")
                self.set_status(HTTPStatus.ACCEPTED if spawner.pending else HTTPStatus.NO_CONTENT)
                return
        await super().delete(user_name, server_name)

    async def stop_single_user(self, user: Any, server_name: str = "") -> Any:
        """JupyterHub calls this once it has checked that the requester may stop the server."""
        note_stopper(user.spawners[server_name], stopper_of(self, user))
        return await super().stop_single_user(user, server_name)
