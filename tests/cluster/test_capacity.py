"""Capacity is computed once for each snapshot."""

from __future__ import annotations

import gc
import weakref

from jupyterhub_gpuspawner.cluster.capacity import capacity_of
from tests.snapshots import cluster, node


def test_capacity_is_computed_once_and_goes_with_its_snapshot() -> None:
    """An equal snapshot has its own; nothing keeps a snapshot or its capacity once it is no longer used."""
    first, second = cluster(node("g1", "gpu:k80:4")), cluster(node("g1", "gpu:k80:4"))
    assert capacity_of(first) is capacity_of(first)
    assert capacity_of(second) is not capacity_of(first)
    capacity, snapshot = weakref.ref(capacity_of(first)), weakref.ref(first)
    del first
    gc.collect()
    assert (snapshot(), capacity()) == (None, None)
