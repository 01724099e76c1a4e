"""The order of a node's GPUs in a ring over several nodes. Pure, standard library only: ranks use it on their nodes.

Within one node a ring is closed: its last GPU sends to its first. In a ring over several nodes the last GPU of a node
sends to the first one of the next node, by the network; the link from the last to the first GPU of a node is not used.
So the ring of each node is opened at its slowest link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.placement.link_bandwidth import gbps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.placement.topology import NodeTopology


def opened(topology: NodeTopology, ring: Sequence[int]) -> tuple[int, ...]:
    """The GPUs of ``ring`` (positions), turned so that its slowest link is the one from the last to the first.

    If several links are equally slow, the ring is turned as little as possible.
    """
    speeds = [_gbps(topology, ring[n - 1], ring[n]) for n in range(len(ring))]
    start = speeds.index(min(speeds)) if len(ring) > 2 else 0
    return (*ring[start:], *ring[:start])


def _gbps(topology: NodeTopology, a: int, b: int) -> float:
    one, two = topology.gpus[a], topology.gpus[b]
    return gbps(
        topology.link(a, b),
        nvlink_generation=_lower(one.nvlink_generation, two.nvlink_generation),
        pcie_generation=_lower(one.pcie_generation, two.pcie_generation),
    )


def _lower(one: int | None, two: int | None) -> int | None:
    return one if two is None else two if one is None else min(one, two)
