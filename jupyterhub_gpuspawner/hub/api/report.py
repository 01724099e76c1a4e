"""``POST /hub/api/gpuspawner/report`` and ``GET /hub/api/gpuspawner/placement/{user}/{server}``."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from jupyterhub.apihandlers import APIHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.user import User
from sqlalchemy.exc import SQLAlchemyError
from tornado import web
from tornado.web import stream_request_body

from jupyterhub_gpuspawner.hub.api.rate_limit import RateLimit
from jupyterhub_gpuspawner.hub.jupyterhub_compat import came_with_token
from jupyterhub_gpuspawner.hub.report.node_report import ReportTooEarly
from jupyterhub_gpuspawner.hub.report.reader import ReportError, parse_report
from jupyterhub_gpuspawner.hub.site.database import fault, roll_back
from jupyterhub_gpuspawner.hub.spawners.server import report_taker, server_of
from jupyterhub_gpuspawner.wire.documents import REPORT_LIMIT

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


REPORTS = RateLimit(burst=10, per_minute=10)
"""Of one server. A launcher sends one report, and six where the hub has trouble taking it."""

BODY_TIMEOUT = 10.0
"""Seconds for a report's body; the launcher gives up a try after five."""


DATABASE_RETRY = 2.0
"""Seconds after which a launcher asks again where the hub's database did not answer."""


@stream_request_body
class ReportHandler(APIHandler):
    """Takes the launcher's report, from the server's own token and from nobody else.

    JupyterHub takes a token that could not be looked up for one that does not exist. Here that is 503, since the server
    of a report that is refused is never reached.

    A body that is too large is refused before it is read. Every other one is read to its end first: a hub that hangs up
    in the middle of a body is no answer to a client, and a 503 to one behind a proxy.
    """

    async def prepare(self) -> None:
        """Refuse by its head a request that is too large; 413."""
        self._body = bytearray()
        if _announced(self.request.headers.get("Content-Length", "")) > REPORT_LIMIT:
            raise web.HTTPError(413, f"A report is at most {REPORT_LIMIT} bytes.")
        # a body without an announced length: tornado closes the connection past this
        self.request.connection.set_max_body_size(REPORT_LIMIT)
        # one that does not come: tornado closes the connection then
        self.request.connection.set_body_timeout(BODY_TIMEOUT)
        try:
            await super().prepare()
        except SQLAlchemyError as error:  # of the token's scopes
            self._not_looked_up(error)

    _looked_up = True
    """Whether it is known whose token this is, or that it is nobody's."""

    async def get_current_user(self) -> Any:
        """The token's user; None for no token of this hub's. Raises what JupyterHub then takes for None."""
        try:
            return await super().get_current_user()
        except Exception:
            self._looked_up = False
            raise

    def _not_looked_up(self, error: SQLAlchemyError) -> None:
        self._looked_up = False
        self.log.warning("A report has to wait for the hub's database: %s", fault(error))
        roll_back(self.db)

    def data_received(self, chunk: bytes) -> None:
        """Keep a part of the body, of which there is at most a report's."""
        self._body += chunk

    async def post(self) -> None:
        """Store the report with the server that the token belongs to; 204, or 400 naming the field."""
        try:
            if self._looked_up:
                self._take()
        except SQLAlchemyError as error:
            self._not_looked_up(error)
        if not self._looked_up:
            self._later(503, DATABASE_RETRY, "The hub cannot look up that token now.")
        self.set_status(204)

    def _take(self) -> None:
        accept = report_taker(self._reporting())
        if accept is None:
            raise web.HTTPError(404, "That server takes no report.")
        try:
            report = parse_report(bytes(self._body))
        except ReportError as error:
            raise web.HTTPError(400, "%s", error) from error
        try:
            accept(report)
        except ReportTooEarly as error:
            self._later(503, 1.0, str(error))
        except ReportError as error:
            raise web.HTTPError(409, "%s", error) from error

    def _reporting(self) -> Any:
        """The spawner whose server reports, None for one that is gone; 403 for anyone else, 429 for one too often."""
        user = self.current_user
        if not came_with_token(self) or not isinstance(user, User):
            raise web.HTTPError(403, "A report needs the server's own token.")
        name = reporting_server(self.expanded_scopes, user.name)
        if name is None:
            raise web.HTTPError(403, "A report needs the token of one server.")
        self._later(429, REPORTS.wait((user.name, name)), "That server reports too often.")
        return user.spawners.get(name)

    def _later(self, status: int, seconds: float, sentence: str) -> None:
        """Refuse with the time after which to come again; nothing where that is now."""
        if seconds > 0:
            refusal = web.HTTPError(status, "%s", sentence)
            # JupyterHub's write_error sends these
            refusal.headers = {"Retry-After": str(math.ceil(seconds))}  # type: ignore[attr-defined]
            raise refusal


def _announced(length: str) -> int:
    """The Content-Length; 0 for what tornado will refuse by itself."""
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0


class PlacementHandler(APIHandler):
    """Tells where a server runs and what it got, to whoever may read that server."""

    @needs_scope("read:servers")
    async def get(self, user_name: str, server_name: str = "") -> None:
        """The placement document, version 1; 404 where there is none."""
        user = self.find_user(user_name)
        if user is None or server_name not in user.spawners:
            raise web.HTTPError(404, "There is no such server.")
        placement = server_of(user.spawners[server_name], with_start=False).placement
        if placement is None:
            raise web.HTTPError(404, "That server has not reported its placement.")
        self.write(json.dumps(placement.to_json()))


HANDLERS = [
    (r"/api/gpuspawner/report", ReportHandler),
    (r"/api/gpuspawner/placement/([^/]+)", PlacementHandler),
    (r"/api/gpuspawner/placement/([^/]+)/([^/]*)", PlacementHandler),
]
