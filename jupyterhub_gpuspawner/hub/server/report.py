"""What a node reports of its server and asks of it, and who may read its placement: below ``/hub/api/gpuspawner``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jupyterhub.apihandlers import APIHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.user import User
from sqlalchemy.exc import SQLAlchemyError
from tornado import web
from tornado.web import stream_request_body

from jupyterhub_gpuspawner.errors import ReportError
from jupyterhub_gpuspawner.hub.report.server_report import ReportTooEarly, parse_report, parse_turn
from jupyterhub_gpuspawner.hub.site.database import fault, roll_back
from jupyterhub_gpuspawner.hub.spawners.profiles import job_spawner
from jupyterhub_gpuspawner.hub.spawners.rival import WithRival
from jupyterhub_gpuspawner.hub.spawners.server import server_of
from jupyterhub_gpuspawner.hub.web.handlers import RateLimit, RESTHandler, own_server, server_named, server_routes
from jupyterhub_gpuspawner.placement.topology import LIST_LIMIT
from jupyterhub_gpuspawner.units import expand_nodelist
from jupyterhub_gpuspawner.wire.documents import REPORT_LIMIT, NodeReport, TurnQuestion

REPORTS_OF_A_NODE = 3
"""Added to the burst for each other node of the server's job: its report, and two more tries."""

BODY_TIMEOUT = 10.0
"""Seconds for a report's body to arrive; the launcher gives up a try after five."""


DATABASE_RETRY = 2.0
"""Seconds after which a launcher is asked to try again while the hub's database is not responding."""


class ReportRate(RateLimit):
    """For each server. A launcher sends one report, and up to six where the hub has trouble taking it."""

    burst, per_minute = 10, 10


def report_taker(spawner: Any) -> Callable[[NodeReport], None] | None:
    """What takes a launcher's report for this server; None for a spawner that takes none."""
    ours = job_spawner(spawner)
    return ours.accept_report if ours is not None else None


def other_nodes_of(spawner: Any) -> int:
    """How many nodes its job has beside the server's, as requested or, where that is not known, as granted."""
    ours = job_spawner(spawner)
    if ours is None:
        return 0
    if ours.request is not None:
        return ours.request.resources.node_count - 1
    job = ours.watch.status
    return max(0, len(expand_nodelist(job.nodes)) - 1) if job is not None else 0


@stream_request_body
class ReportHandler(RESTHandler):
    """Takes the launcher's report; only the server's own token is accepted.

    JupyterHub treats a token that could not be looked up like one that does not exist. Here that is 503, because a
    server whose report is refused would never be reached.

    A body that is too large is refused before it is read. Every other body is read to its end first: a client sees a
    connection that is closed in the middle of its body as no response, and behind a proxy as 503.
    """

    rate: type[RateLimit] = ReportRate
    body_limit = REPORT_LIMIT
    body_name, plural = "report", "reports"
    parse: Callable[[bytes], Any] = staticmethod(parse_report)
    taker: Callable[[Any], Callable[[Any], None] | None] = staticmethod(report_taker)

    async def prepare(self) -> None:
        """Refuse a request that announces too large a body; 413."""
        self._body = bytearray()
        if _announced(self.request.headers.get("Content-Length", "")) > REPORT_LIMIT:
            self.refuse_large_body()
        # for a body without an announced length: beyond this, tornado closes the connection
        self.request.connection.set_max_body_size(REPORT_LIMIT)
        # for a body that does not arrive: after this, tornado closes the connection
        self.request.connection.set_body_timeout(BODY_TIMEOUT)
        try:
            await super().prepare()
        except SQLAlchemyError as error:  # while looking up the token's scopes
            self._not_looked_up(error)

    _looked_up = True
    """Whether the token could be looked up, valid or not."""

    async def get_current_user(self) -> Any:
        """The token's user; None for an unknown token. JupyterHub treats what this raises like None."""
        try:
            return await super().get_current_user()
        except Exception:
            self._looked_up = False
            raise

    def _not_looked_up(self, error: SQLAlchemyError) -> None:
        self._looked_up = False
        self.log.warning("A %s is delayed by the hub's database: %s", self.body_name, fault(error))
        roll_back(self.db)

    def data_received(self, chunk: bytes) -> None:
        """Keep a part of the body; tornado limits its total size."""
        self._body += chunk

    async def post(self) -> None:
        """Store the report with the server that the token belongs to; 204, or 400 naming the field."""
        try:
            if self._looked_up:
                self.take()
        except SQLAlchemyError as error:
            self._not_looked_up(error)
        if not self._looked_up:
            self.try_later(503, DATABASE_RETRY, "The hub cannot look up this token at the moment.")
        self.set_status(204)

    def take(self) -> None:
        """Give the body to the server's spawner; raises HTTPError or SQLAlchemyError."""
        accept = self.taker(self.reporting())
        if accept is None:
            raise web.HTTPError(404, f"This server does not accept {self.plural}.")
        try:
            document = self.parse(bytes(self._body))
        except ReportError as error:
            raise web.HTTPError(400, "%s", error) from error
        try:
            accept(document)
        except ReportTooEarly as error:
            self.try_later(503, 1.0, str(error))
        except ReportError as error:
            raise web.HTTPError(409, "%s", error) from error

    def reporting(self) -> Any:
        """The reporting server's spawner, None if it is gone; raises 403 for another token, 429 beyond the limit."""
        name, user = own_server(self), self.current_user
        if name is None or not isinstance(user, User):
            raise web.HTTPError(403, f"A {self.body_name} needs the server's own token.")
        spawner = user.spawners.get(name)
        more = min(other_nodes_of(spawner), LIST_LIMIT) * REPORTS_OF_A_NODE if spawner is not None else 0
        self.limited(self.rate, (user.name, name), "This server reports too often.", more=more)
        return spawner


def _announced(length: str) -> int:
    """The Content-Length; 0 for values that tornado itself refuses."""
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0


class PlacementHandler(APIHandler):
    """A server's placement, for everyone with read access to the server."""

    @needs_scope("read:servers")
    async def get(self, user_name: str, server_name: str = "") -> None:
        """The placement document, version 1; 404 where there is none."""
        _, spawner = server_named(self, user_name, server_name)
        placement = server_of(spawner, with_start=False).placement
        if placement is None:
            raise web.HTTPError(404, "This server has not reported its placement.")
        self.write(placement.to_json())


class TurnRate(RateLimit):
    """For each server; its two jobs ask every few seconds until it is decided which of them runs it."""

    burst, per_minute = 30, 60


def turn_taker(spawner: Any) -> Callable[[TurnQuestion], None] | None:
    """What decides for this server; None for a spawner that submits no second job."""
    return spawner.take_turn if isinstance(spawner, WithRival) else None


class TurnHandler(ReportHandler):
    """Tells a job whether it runs the server: 204, or 409 where another one does, 503 until it is decided."""

    rate = TurnRate
    body_name, plural = "question", "questions"
    parse = staticmethod(parse_turn)
    taker = staticmethod(turn_taker)


HANDLERS: list[tuple[str, type]] = [
    (r"/api/gpuspawner/report", ReportHandler),
    (r"/api/gpuspawner/turn", TurnHandler),
    *server_routes("/api/gpuspawner/placement", PlacementHandler),
]
