"""``/hub/api/gpuspawner/usage``: what a node reports of its server's use, and who may read it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from jupyterhub.apihandlers import APIHandler
from jupyterhub.scopes import needs_scope
from tornado import web
from tornado.web import stream_request_body

from jupyterhub_gpuspawner.extensions.usage.node.summary import UsageSummary
from jupyterhub_gpuspawner.extensions.usage.use import Use, parse_usage, usage_of, usage_taker
from jupyterhub_gpuspawner.hub.server.report import ReportHandler
from jupyterhub_gpuspawner.hub.web.handlers import RateLimit, server_named
from jupyterhub_gpuspawner.slurm.estimate import utc

VERSION = 1


class SummaryRate(RateLimit):
    """For each server. Ordinarily it sends one in five minutes."""

    burst, per_minute = 10, 10


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
    version: int = VERSION


def usage_document(usage: tuple[Use, ...]) -> UsageDocument:
    """The document of these summaries."""
    return UsageDocument(tuple(TimedSummary(utc(use.since), utc(use.at), use.summary) for use in usage))


@stream_request_body
class UsageReportHandler(ReportHandler):
    """Takes summaries of a server's use; only the server's own token is accepted."""

    rate = SummaryRate
    body_name, plural = "usage summary", "usage summaries"
    parse = staticmethod(parse_usage)
    taker = staticmethod(usage_taker)

    async def post(self) -> None:
        """Keep the summary for an hour; 204, 400 naming the field, or 404 where the server takes none."""
        await super().post()


class UsageHandler(APIHandler):
    """A server's use in the last hour, for everyone with read access to the server."""

    @needs_scope("read:servers")
    async def get(self, user_name: str, server_name: str = "") -> None:
        """The usage document, version 1; 404 where nothing is known."""
        _, spawner = server_named(self, user_name, server_name)
        usage = usage_of(spawner)
        if not usage:
            raise web.HTTPError(404, "Nothing is known of this server's use.")
        self.write(asdict(usage_document(usage)))
