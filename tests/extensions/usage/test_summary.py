"""The use of a server's GPUs, in words."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.usage.node.summary import gpu_memory_used

USED: dict[tuple[tuple[int | None, int | None], ...], str] = {
    (): "",
    ((None, 11441),): "",
    ((0, 11441),): "0 of 12 GB",
    ((5632, 11441),): "5.9 of 12 GB",
    ((11441, 11441),): "12 of 12 GB",
    ((9728, 9728),): "10 of 10 GB",
    ((5632, 11441), (5632, 11441)): "12 of 24 GB",
    ((5632, 11441), (None, 11441)): "",
    ((1024, None),): "1.0 GB",
    ((1024, None), (5632, 11441)): "6.9 GB",
}


def test_memory_in_use_is_a_part_of_the_size_in_the_name() -> None:
    """So a full GPU is full; of one whose size is not known, or among several, what the driver counts is said."""
    assert {gpus: gpu_memory_used(*gpus) for gpus in USED} == USED
