"""What a job carries so that its use is sampled beside the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyterhub_gpuspawner.batch.carried import Carried, Use
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.wire.documents import Step

MODULE = "jupyterhub_gpuspawner.extensions.usage.node.sampler"


def use(_request: JobRequest, settings: Mapping[str, Any]) -> Use | None:
    """Unless the site turns it off."""
    interval = settings["usage_interval"]
    return Use(beside=Step(f"{MODULE}:accompany", {"interval": interval})) if interval else None


CARRIED = Carried((MODULE,), use, settings=("usage_interval",))
