"""What every job carries, since its node alone knows whose GPUs it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyterhub_gpuspawner.batch.carried import Carried, Use
from jupyterhub_gpuspawner.profiles.resolve import JobRequest

MODULE = "jupyterhub_gpuspawner.extensions.amd.node.launch"


def use(_request: JobRequest, _settings: Mapping[str, Any]) -> Use:
    """For every job."""
    return Use()


CARRIED = Carried((MODULE,), use, reader=f"{MODULE}:OtherGpus")
