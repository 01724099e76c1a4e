"""``POST /hub/api/gpuspawner/report`` and ``GET /hub/api/gpuspawner/placement/{user}/{server}``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from jupyterhub.apihandlers import APIHandler
from jupyterhub.scopes import needs_scope
from tornado import web

from jupyterhub_gpuspawner.wire import REPORT_LIMIT, ReportError, parse_report

if TYPE_CHECKING:
    from collections.abc import Iterable

_SERVER_SCOPE = "access:servers!server="


def reporting_server(scopes: Iterable[str], user: str) -> str | None:
    """The name of the one server whose own token holds ``scopes``; None if it is no server's token of ``user``.

    A server's token carries ``access:servers!server=<user>/<name>`` for itself and for no other. That
    survives a restart of the hub; comparing with ``spawner.api_token`` does not.
    """
    servers = {scope[len(_SERVER_SCOPE) :] for scope in scopes if scope.startswith(_SERVER_SCOPE)}
    if len(servers) != 1:
        return None
    owner, _, name = servers.pop().partition("/")
    return name if owner == user else None


class ReportHandler(APIHandler):
    """Takes the launcher's report, from the server's own token and from nobody else."""

    @web.authenticated
    async def post(self) -> None:
        """Store the report with the server that the token belongs to; 204, or 400 naming the field."""
        user = self.current_user
        if not getattr(self, "_token_authenticated", False) or not hasattr(user, "spawners"):
            raise web.HTTPError(403, "A report needs the server's own token.")
        name = reporting_server(self.expanded_scopes, user.name)
        if name is None:
            raise web.HTTPError(403, "A report needs the token of one server.")
        if len(self.request.body) > REPORT_LIMIT:
            raise web.HTTPError(413, f"A report is at most {REPORT_LIMIT} bytes.")
        spawner = user.spawners.get(name)
        accept = getattr(spawner, "accept_report", None)
        if accept is None:
            raise web.HTTPError(404, "That server takes no report.")
        try:
            report = parse_report(self.request.body)
        except ReportError as error:
            raise web.HTTPError(400, "%s", error) from error
        try:
            accept(report)
        except ReportError as error:
            raise web.HTTPError(409, "%s", error) from error
        self.set_status(204)


class PlacementHandler(APIHandler):
    """Tells where a server runs and what it got, to whoever may read that server."""

    @needs_scope("read:servers")
    async def get(self, user_name: str, server_name: str = "") -> None:
        """The placement document, version 1; 404 where there is none."""
        server_name = server_name or ""
        user = self.find_user(user_name)
        if user is None or server_name not in user.spawners:
            raise web.HTTPError(404, "There is no such server.")
        placement = getattr(user.spawners[server_name], "placement", None)
        if placement is None:
            raise web.HTTPError(404, "That server has not reported its placement.")
        self.write(json.dumps(placement.to_json()))


HANDLERS = [
    (r"/api/gpuspawner/report", ReportHandler),
    (r"/api/gpuspawner/placement/([^/]+)(?:/([^/]*))?", PlacementHandler),
]
