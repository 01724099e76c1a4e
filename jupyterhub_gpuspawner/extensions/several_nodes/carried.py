"""What every job carries for ``gpuspawner-run``, and a job on several nodes for the report of its other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyterhub_gpuspawner.batch.carried import Carried, Use
from jupyterhub_gpuspawner.batch.shell import other_nodes
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.wire.documents import Step

NODE = "jupyterhub_gpuspawner.node"
RUN = Step(f"{NODE}.run.command:provide", doing="Providing gpuspawner-run")


def use(request: JobRequest, _settings: Mapping[str, Any]) -> Use:
    """For every job."""
    return Use(
        before=RUN,
        lines=other_nodes() if request.resources.node_count > 1 else "",
    )


CARRIED = Carried((f"{NODE}.other_node", f"{NODE}.run.command", f"{NODE}.run.rank"), use)
