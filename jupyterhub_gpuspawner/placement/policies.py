"""The names of the policies for GPUs and for memory. Standard library only: the launcher reads them on the node.

How they are applied: GPUs and CPUs in :mod:`~jupyterhub_gpuspawner.placement.choice`, memory in
:mod:`~jupyterhub_gpuspawner.node.binding`.
"""

from __future__ import annotations

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
"""How GPUs and CPUs are chosen; the names are those of kubelet's Topology Manager."""
MEMORY_POLICIES = ("none", "preferred", "bind")
"""How memory is bound to NUMA nodes (set_mempolicy(2))."""
