"""What availability adds to a hub."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.availability import api, words
from jupyterhub_gpuspawner.extensions.availability.forecast import forecast_for
from jupyterhub_gpuspawner.extensions.availability.instead import AlternativesPage, InsteadPage, below_wait
from jupyterhub_gpuspawner.extensions.availability.model.capacity import warm
from jupyterhub_gpuspawner.extensions.availability.queue import InQueue
from jupyterhub_gpuspawner.hub.extension import HubExtension
from jupyterhub_gpuspawner.hub.web.handlers import server_routes

HUB = HubExtension(
    api=tuple(api.HANDLERS),
    pages=(
        *server_routes("/gpuspawner/instead", InsteadPage),
        *server_routes("/gpuspawner/alternatives", AlternativesPage),
    ),
    forecast=forecast_for,
    prepare=warm,
    below_wait=below_wait,
    with_server=InQueue,
    page_tools={"availability": words},
)
