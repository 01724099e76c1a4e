"""``POST /hub/gpuspawner/stop/...``: *Stop* for any server of a user, also without JavaScript.

JupyterHub stops servers only over REST, with a method that HTML forms do not have. The form carries JupyterHub's
``_xsrf``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from tornado import web

from jupyterhub_gpuspawner.hub.jupyterhub_compat import last_start

if TYPE_CHECKING:
    from jupyterhub.spawner import Spawner

CANCELLED = 10.0
"""Seconds after which a cancelled start is no longer waited for; as long as a Slurm command may take."""
_LOOK = 0.05


class StopPage(BaseHandler):
    """Stops a server that is running or starting, then redirects to the page that belongs to the button."""

    @web.authenticated
    @needs_scope("delete:servers")
    async def post(self, user_name: str, server_name: str = "") -> None:
        """303 to the home page, or with ``back=server`` to the server's own; stopping twice is as stopping once."""
        user: Any = self.find_user(user_name)
        if user is None or server_name not in user.orm_spawners:
            raise web.HTTPError(404, "There is no such server.")
        await stop_server(self, user, server_name)
        back = f"{self.hub.base_url}home"
        if self.get_body_argument("back", "") == "server":
            back = f"{pending_url(self.hub.base_url, user, server_name)}?stopped=1"
        self.redirect(back, status=303)


def pending_url(base_url: str, user: Any, server_name: str) -> str:
    """The address of the page of a server that is starting, stopping, or not running."""
    return f"{base_url}spawn-pending/{user.escaped_name}/{quote(server_name, safe='')}".rstrip("/")


async def stop_server(handler: BaseHandler, user: Any, server_name: str) -> None:
    """Stop a server that runs, or cancel its start with its job; it may still be stopping afterwards."""
    spawner = user.spawners[server_name]
    if spawner.pending == "spawn":
        await _cancel_start(spawner)
    # as in JupyterHub's own handler: poll_and_notify() cleans up after a server that has died
    if spawner.ready and await spawner.poll_and_notify() is not None:
        pass
    elif spawner.active and not spawner.pending:
        await handler.stop_single_user(user, server_name)


async def _cancel_start(spawner: Spawner) -> None:
    start = last_start(spawner)  # JupyterHub's own handler cancels it, too
    if start is not None:
        start.cancel()
    for _ in range(round(CANCELLED / _LOOK)):
        if spawner.pending != "spawn":
            return
        await asyncio.sleep(_LOOK)
