"""The network card beside each GPU, and the weakest link of a job on several nodes. Pure.

Between nodes a GPU's data leaves through a network card. NCCL gives each GPU the card with the shortest way to it
(``NCCL_CROSS_NIC`` and ``src/graph/search.cc``), so the link to that card is part of every ring over several nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jupyterhub_gpuspawner.placement.ring import gbps
from jupyterhub_gpuspawner.placement.topology import NETWORK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyterhub_gpuspawner.placement.topology import NodeTopology


UNKNOWN = "?"


class NearestNic(NamedTuple):
    """A GPU's network card."""

    name: str
    link: str
    """The link word between the two; ``?`` if it is not known."""


def nearest_nic(topology: NodeTopology, gpu: int) -> NearestNic | None:
    """The card with the fastest link to the GPU at position ``gpu``, the first of equals; None if no card is known."""
    ways = [NearestNic(name, _link(topology, nic, gpu)) for nic, name in enumerate(topology.nics)]
    return max(ways, key=lambda path: gbps(path.link), default=None)


def _link(topology: NodeTopology, nic: int, gpu: int) -> str:
    """The link word; where only NUMA nodes are known, ``NODE`` within one and ``SYS`` between two."""
    if topology.nic_links:
        return topology.nic_links[nic][gpu]
    near, other = topology.gpus[gpu].numa_node, topology.nic_numa[nic] if topology.nic_numa else None
    if near is None or other is None:
        return UNKNOWN
    return "NODE" if near == other else "SYS"


def has_no_nic(topology: NodeTopology) -> bool:
    """Whether the kernel was asked and knows no network card that GPUs could use directly."""
    return not topology.nics and NETWORK in topology.source.split("+")


def weakest(links: Iterable[str | None]) -> str | None:
    """The slowest of these link words; None if there is none, or if one of them is not known."""
    words = list(links)
    if not words or any(word in (None, UNKNOWN) for word in words):
        return None
    return min((word for word in words if word is not None), key=gbps)
