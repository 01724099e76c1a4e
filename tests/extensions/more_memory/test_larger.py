"""The choice that has more memory than a job had."""

from __future__ import annotations

from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.more_memory.larger import Choice, larger
from jupyterhub_gpuspawner.profiles.resources import Resources

CHOICES: dict[str, dict[str, Any]] = {
    "small": {"memory": "4G", "cpus": 2},
    "large": {"memory": "64G", "cpus": 8},
    "medium": {"memory": "16G", "cpus": 4},
    "two nodes": {"memory": "8G", "nodes": 2},
    "whole node": {"memory": "0", "exclusive": True},
    "as Slurm likes": {"cpus": 1},
    "K80": {"memory": "8G", "gpus": 1, "gpu_type": "k80"},
    "four K80": {"memory": "32G", "gpus": 4, "gpu_type": "k80"},
    "K80, more": {"memory": "32G", "gpu_type": "nvidia_tesla_k80"},
    "P100": {"memory": "64G", "gpus": 1, "gpu_type": "p100"},
    "any GPU": {"memory": "16G", "gpus": 1},
    "any GPU, more": {"memory": "24G", "gpus": 2},
    "slice": {"memory": "16G", "gpus": 1, "gpu_type": "1g.10gb"},
    "shard": {"memory": "6G", "shards": 1},
    "more shards": {"memory": "12G", "shards": 2},
}
LARGER = {
    "the next size": ("small", 4096, "medium"),
    "what the job had counts": ("small", 20_000, "large"),
    "all of a node at last": ("large", 65_536, "whole node"),
    "as many nodes": ("two nodes", 8192, None),
    "the number of GPUs that is the nearest": ("K80", 8192, "K80, more"),
    "GPUs of the same kind": ("four K80", 32_768, None),
    "none of another model": ("P100", 65_536, None),
    "any GPU": ("any GPU", 16_384, "any GPU, more"),
    "a slice of a GPU": ("slice", 16_384, None),
    "parts of GPUs": ("shard", 6144, "more shards"),
}


@pytest.mark.parametrize(("wanted", "memory", "proposed"), LARGER.values(), ids=LARGER.keys())
def test_the_smallest_choice_with_more_memory_is_proposed(wanted: str, memory: int, proposed: str | None) -> None:
    """With GPUs of the same kind, on as many nodes; where none has more, nothing is."""
    resources = {name: Resources(**values) for name, values in CHOICES.items()}

    choice = larger(resources[wanted], memory, [Choice(name, {}, request) for name, request in resources.items()])

    assert (choice.name if choice is not None else None) == proposed
