"""The network card beside a GPU, and the weakest link of several nodes."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.extensions.several_nodes.node.network import (
    NearestNic,
    has_no_nic,
    nearest_nic,
    rotate_to_slowest_link,
    weakest,
)
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology

TWO_GPUS = (Gpu(0, numa_node=0), Gpu(1, numa_node=None))
NEAREST: dict[str, tuple[NodeTopology, NearestNic | None]] = {
    "the fastest link": (
        NodeTopology(gpus=TWO_GPUS, nics=("a", "b", "c"), nic_links=(("SYS", "X"), ("PXB", "X"), ("PXB", "X"))),
        NearestNic("b", "PXB"),
    ),
    "by NUMA node, if links are not known": (
        NodeTopology(gpus=TWO_GPUS, nics=("a", "b"), nic_numa=(1, 0)),
        NearestNic("b", "NODE"),
    ),
    "on another NUMA node": (NodeTopology(gpus=TWO_GPUS, nics=("a",), nic_numa=(1,)), NearestNic("a", "SYS")),
    "nothing is known but its name": (NodeTopology(gpus=TWO_GPUS, nics=("a",)), NearestNic("a", "?")),
    "no card": (NodeTopology(gpus=TWO_GPUS), None),
}


@pytest.mark.parametrize(("topology", "expected"), NEAREST.values(), ids=NEAREST.keys())
def test_the_nearest_card(topology: NodeTopology, expected: NearestNic | None) -> None:
    """Link words count before NUMA nodes; of equal links the first."""
    assert nearest_nic(topology, 0) == expected


@pytest.mark.parametrize(
    ("links", "slowest"),
    [
        (("NV4", "PIX", "PHB"), "PHB"),
        (("NV4", "NV2"), "NV2"),
        (("PIX", None), None),
        (("PIX", "?"), None),
        ((), None),
    ],
)
def test_the_weakest_link(links: tuple[str | None, ...], slowest: str | None) -> None:
    """It is not known if one link is not."""
    assert weakest(links) == slowest


@pytest.mark.parametrize(
    ("topology", "none"),
    [
        (NodeTopology(source="nvml+sysfs+network"), True),
        (NodeTopology(source="nvml+sysfs"), False),
        (NodeTopology(source="nvml+sysfs+network", nics=("a",)), False),
    ],
)
def test_no_card_and_no_knowledge_differ(topology: NodeTopology, none: bool) -> None:
    """A node has none only if the kernel was asked."""
    assert has_no_nic(topology) is none


# --- the order of a node's GPUs in a ring over several nodes --------------------------------------


PAIRS = (
    ("X", "NV2", "SYS", "SYS"),
    ("NV2", "X", "PIX", "SYS"),
    ("SYS", "PIX", "X", "NV2"),
    ("SYS", "SYS", "NV2", "X"),
)


@pytest.mark.parametrize(
    ("links", "ring", "order"),
    [
        (PAIRS, (0, 1, 2, 3), (0, 1, 2, 3)),
        (PAIRS, (1, 2, 3, 0), (0, 1, 2, 3)),
        (PAIRS, (2, 1, 0, 3), (3, 2, 1, 0)),
        (PAIRS, (3, 1), (3, 1)),
        (PAIRS, (2,), (2,)),
        ((), (0, 1, 2, 3), (0, 1, 2, 3)),
    ],
)
def test_the_ring_is_opened_at_its_slowest_link(
    links: tuple[tuple[str, ...], ...], ring: tuple[int, ...], order: tuple[int, ...]
) -> None:
    """Since the network is used there; a ring of equal links stays as it is."""
    assert (
        rotate_to_slowest_link(NodeTopology(gpus=tuple(Gpu(index) for index in range(4)), links=links), ring) == order
    )
