"""What a job whose profile claims GPUs carries to its node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyterhub_gpuspawner.batch.carried import Carried, Use
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.wire.documents import Step

FOLDER = "/var/tmp"
"""Folder for the locks by which servers claim GPUs (``placement.claim``): shared by all jobs of a node, which /tmp and
/dev/shm are not if they are private to each job."""
MODULE = "jupyterhub_gpuspawner.extensions.claims.node.claim"


def use(request: JobRequest, _settings: Mapping[str, Any]) -> Use | None:
    """For a profile with ``placement.claim``."""
    return Use(choose=Step(f"{MODULE}:Claimant", {"folder": FOLDER})) if request.placement.claim else None


CARRIED = Carried((MODULE,), use)
