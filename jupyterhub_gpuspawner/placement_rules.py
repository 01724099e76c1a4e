"""How the launcher is to place a server on its node, as a profile says it; the words are those of the launch plan."""

from __future__ import annotations

from typing import Literal

from jupyterhub_gpuspawner.schema import Frozen

BINDING = ("restricted", "single-numa-node")
"""Policies that only Slurm can fulfil: inside a job nothing can be swapped."""


class PlacementRules(Frozen):
    """Left out: the site's setting."""

    policy: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = None
    """How strictly GPUs, CPUs and memory must be near each other. The last two are asked of Slurm."""
    memory_policy: Literal["none", "preferred", "bind"] | None = None
    """How the memory is bound to the NUMA nodes of the chosen GPUs."""
