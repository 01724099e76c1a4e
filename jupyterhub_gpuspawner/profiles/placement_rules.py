"""How the launcher places a server on its node, as set by a profile; the values are those of the launch plan."""

from __future__ import annotations

from typing import Annotated, Literal

from jupyterhub_gpuspawner.profiles.schema import Frozen, whole

BINDING = ("restricted", "single-numa-node")
"""Policies that only Slurm can satisfy, since a job cannot exchange what it was allocated."""

CLAIM_FOLDER = """Folder for the locks by which servers claim GPUs (`placement.claim` of a profile): owned by root with
mode 1777, and shared by all jobs of a node, which `/tmp` and `/dev/shm` are not if they are private to each job."""
"""Help text of the setting."""


class PlacementRules(Frozen):
    """Placement of a server on its node. A field that is left out has the site's setting."""

    policy: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = None
    """How strictly GPUs, CPUs and memory must be near each other. The last two values are requested from Slurm."""
    memory_policy: Literal["none", "preferred", "bind"] | None = None
    """How the memory is bound to the NUMA nodes of the chosen GPUs."""
    claim: Annotated[int, whole(1, 1024)] | None = None
    """GPUs that the server claims on its node; for clusters where Slurm allocates none or servers share them."""
