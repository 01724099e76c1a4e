"""``POST /hub/api/gpuspawner/usage`` and ``GET /hub/api/gpuspawner/usage/{user}/{server}``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from jupyterhub.apihandlers import APIHandler
from jupyterhub.scopes import needs_scope
from tornado import web
from tornado.web import stream_request_body

from jupyterhub_gpuspawner.hub.report.reader import ReportError, parse_usage
from jupyterhub_gpuspawner.hub.server.report import ReportHandler
from jupyterhub_gpuspawner.hub.spawners.server import server_of, usage_taker
from jupyterhub_gpuspawner.hub.web.rate_limit import RateLimit
from jupyterhub_gpuspawner.wire.documents import UsageSummary  # noqa: TC001 - the reference reads the types

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.hub.report.usage import Use

VERSION = 1

SUMMARIES = RateLimit(burst=10, per_minute=10)
"""For each server. Ordinarily it sends one in five minutes."""


@dataclass(frozen=True)
class TimedSummary:
    """A summary, and the time that it is about."""

    begins_at: str
    """ISO 8601, UTC, by the hub's clock."""
    ends_at: str
    """When the hub got it."""
    use: UsageSummary


@dataclass(frozen=True)
class UsageDocument:
    """What a server has used in the last hour; the last summary has its use now."""

    summaries: tuple[TimedSummary, ...] = ()
    """Oldest first."""

    def to_json(self) -> dict[str, Any]:
        """The JSON document."""
        return {"version": VERSION, **asdict(self)}


def usage_document(usage: tuple[Use, ...]) -> UsageDocument:
    """The document of these summaries."""
    return UsageDocument(tuple(TimedSummary(_utc(use.since), _utc(use.at), use.summary) for use in usage))


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="seconds")


@stream_request_body
class UsageReportHandler(ReportHandler):
    """Takes summaries of a server's use; only the server's own token is accepted."""

    limit = SUMMARIES
    what = "usage summary"

    async def post(self) -> None:
        """Keep the summary for an hour; 204, 400 naming the field, or 404 where the server takes none."""
        await super().post()

    def take(self) -> None:
        """Give the summary to the server's spawner; raises HTTPError."""
        accept = usage_taker(self.reporting())
        if accept is None:
            raise web.HTTPError(404, "This server does not accept usage summaries.")
        try:
            summary = parse_usage(self.body)
        except ReportError as error:
            raise web.HTTPError(400, "%s", error) from error
        try:
            accept(summary)
        except ReportError as error:
            raise web.HTTPError(409, "%s", error) from error


class UsageHandler(APIHandler):
    """A server's use in the last hour, for everyone with read access to the server."""

    @needs_scope("read:servers")
    async def get(self, user_name: str, server_name: str = "") -> None:
        """The usage document, version 1; 404 where nothing is known."""
        user = self.find_user(user_name)
        if user is None or server_name not in user.spawners:
            raise web.HTTPError(404, "There is no such server.")
        usage = server_of(user.spawners[server_name], with_start=False).usage
        if not usage:
            raise web.HTTPError(404, "Nothing is known of this server's use.")
        self.write(json.dumps(usage_document(usage).to_json()))


HANDLERS = [
    (r"/api/gpuspawner/usage", UsageReportHandler),
    (r"/api/gpuspawner/usage/([^/]+)", UsageHandler),
    (r"/api/gpuspawner/usage/([^/]+)/([^/]*)", UsageHandler),
]
