"""The order of a node's GPUs in a ring over several nodes."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.placement.choice import opened
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology

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
    assert opened(NodeTopology(gpus=tuple(Gpu(index) for index in range(4)), links=links), ring) == order
