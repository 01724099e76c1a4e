"""What the use of servers adds to a hub."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.usage import metric  # noqa: F401 - tells Prometheus
from jupyterhub_gpuspawner.extensions.usage.api import UsageHandler, UsageReportHandler
from jupyterhub_gpuspawner.extensions.usage.card import parts_of
from jupyterhub_gpuspawner.extensions.usage.use import ServerUsage
from jupyterhub_gpuspawner.hub.extension import HubExtension
from jupyterhub_gpuspawner.hub.web.handlers import server_routes

HUB = HubExtension(
    api=((r"/api/gpuspawner/usage", UsageReportHandler), *server_routes("/api/gpuspawner/usage", UsageHandler)),
    with_server=ServerUsage,
    parts_of=parts_of,
)
