"""How the launcher is to place a server on its node, as a profile says it; the words are those of the launch plan."""

from __future__ import annotations

from typing import Annotated, Literal

from jupyterhub_gpuspawner.profiles.schema import Frozen, whole

BINDING = ("restricted", "single-numa-node")
"""Policies that only Slurm can fulfil: inside a job nothing can be swapped."""

CLAIM_FOLDER = """Where servers leave the locks by which they claim GPUs (`placement.claim` of a profile): a folder of
root's with mode 1777 that all jobs of a node share, and not private to each, as `/tmp` and `/dev/shm` may be."""
"""Help of the setting that names it."""


class PlacementRules(Frozen):
    """Left out: the site's setting."""

    policy: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = None
    """How strictly GPUs, CPUs and memory must be near each other. The last two are asked of Slurm."""
    memory_policy: Literal["none", "preferred", "bind"] | None = None
    """How the memory is bound to the NUMA nodes of the chosen GPUs."""
    claim: Annotated[int, whole(1, 1024)] | None = None
    """GPUs that the server claims on its node, where Slurm hands none out, or several servers share those it does."""
