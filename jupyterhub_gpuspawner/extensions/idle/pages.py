"""``/hub/gpuspawner/keep/...`` and ``/hub/api/gpuspawner/servers/.../keep``: *Keep*, for a server that is idle.

The button is on the card, and works without JavaScript; its form carries JupyterHub's ``_xsrf``.
"""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import Any

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from tornado import web

from jupyterhub_gpuspawner.extensions.idle.policy import IdleServer
from jupyterhub_gpuspawner.extensions.idle.servers import NotKept, idle_server, keep_server
from jupyterhub_gpuspawner.hub.server.api import RunningServerHandler, staff_for
from jupyterhub_gpuspawner.hub.spawners.server import server_of
from jupyterhub_gpuspawner.hub.web.handlers import permitted, server_named
from jupyterhub_gpuspawner.slurm.estimate import utc


class KeepPage(BaseHandler):
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
        _, spawner = server_named(self, user_name, server_name)
        with suppress(NotKept):
            keep_server(spawner, by=staff_for(self, spawner))
        self.redirect(f"{self.hub.base_url}home", status=HTTPStatus.SEE_OTHER)


class KeepHandler(RunningServerHandler):
    """How a server stands by the idle policy, and keeping it; permitted as for more time."""

    @permitted
    async def get(self, user_name: str, server_name: str = "") -> None:
        """How it stands: `state`, `since`, `due_at`, `action`, `told`, `seen`, and what *Keep* does."""
        spawner = self.spawner_of(user_name, server_name)
        idle = idle_server(spawner, server_of(spawner, with_start=False))
        if idle is None:
            raise web.HTTPError(404, "Nothing is known of this server's being idle.")
        self.write(idle_document(idle))

    @permitted
    async def post(self, user_name: str, server_name: str = "") -> None:
        """Leave it alone for as long as its profile says; 409 if it is not idle, or cannot be kept again.

        The answer is as for GET, with `kept`, in seconds.
        """
        spawner = self.spawner_of(user_name, server_name)
        try:
            server = keep_server(spawner, by=staff_for(self, spawner))
        except NotKept as error:
            self.refuse(error)
            return
        self.write({**idle_document(server), "kept": server.rule.keep_by})


def idle_document(server: IdleServer) -> dict[str, Any]:
    """How a server stands by the idle policy, version 1. Times are ISO 8601, durations in seconds."""
    verdict, unused = server.verdict, server.unused
    return {
        "version": 1,
        "state": verdict.state.value,
        "since": utc(verdict.since),
        "due_at": utc(verdict.due_at),
        "action": server.rule.action.value,
        "told": server.is_announced,
        "seen": {
            "gpus": server.gpus,
            "until": utc(unused.seen),
            "most": unused.most,
            "held_mib": unused.held_mib,
        }
        if unused is not None
        else None,
        "keep": {"seconds": server.rule.keep_by, "uses_left": server.keeps_left},
    }
