"""What every job carries for ``gpuspawner-run``, and a job on several nodes for the report of its other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyterhub_gpuspawner.batch.carried import Carried, Use
from jupyterhub_gpuspawner.extensions.several_nodes.script import other_nodes
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.wire.documents import Step

PACKAGE = "jupyterhub_gpuspawner.extensions.several_nodes.node"
RUN = Step(f"{PACKAGE}.command:provide", doing="Providing gpuspawner-run")


def use(request: JobRequest, _settings: Mapping[str, Any]) -> Use:
    """For every job."""
    return Use(
        before=RUN,
        lines=other_nodes() if request.resources.node_count > 1 else "",
    )


MODULES = tuple(f"{PACKAGE}.{module}" for module in ("command", "nics", "other_node", "rank"))
CARRIED = Carried(MODULES, use, reader=f"{PACKAGE}.nics:NetworkCards")
