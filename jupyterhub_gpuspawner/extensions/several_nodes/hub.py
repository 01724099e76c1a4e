"""What jobs on several nodes add to a hub."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.several_nodes.card import parts_of
from jupyterhub_gpuspawner.extensions.several_nodes.reports import OtherNodes
from jupyterhub_gpuspawner.hub.extension import HubExtension

HUB = HubExtension(with_server=OtherNodes, parts_of=parts_of)
