"""What belongs to one GPU, MIG device or shard of a node."""

from __future__ import annotations

from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.init.devices import Kind, model_of, shares_of, with_vendor
from tests.snapshots import node

GIB = 1024
SHARES: dict[str, tuple[dict[str, Any], dict[str, tuple[int, int, int]]]] = {
    "no GPU": ({"gres": ""}, {"": (1, 64, 512)}),
    "whole GPUs": ({"gres": "gpu:a100:4"}, {"gpu:a100": (4, 16, 128)}),
    "GPUs that do not divide the cores": ({"gres": "gpu:a100:6"}, {"gpu:a100": (6, 10, 85)}),
    "hardware threads: whole cores alone": (
        {"gres": "gpu:a100:6", "cpus_per_core": 2},
        {"gpu:a100": (6, 10, 85)},
    ),
    "more GPUs than cores": ({"gres": "gpu:k80:8", "cpus": 4}, {"gpu:k80": (8, 1, 64)}),
    "two models": ({"gres": "gpu:a100:2,gpu:v100:2"}, {"gpu:a100": (2, 16, 128), "gpu:v100": (2, 16, 128)}),
    "without a type": ({"gres": "gpu:2"}, {"gpu": (2, 32, 256)}),
    "seven slices of one GPU beside three": (
        {"gres": "gpu:h100:3,gpu:1g.10gb:7"},
        {"gpu:h100": (3, 16, 128), "gpu:1g.10gb": (7, 2, 18)},
    ),
    "slices of two sizes share one GPU": (
        {"gres": "gpu:3g.20gb:1,gpu:2g.10gb:2"},
        {"gpu:3g.20gb": (1, 27, 219), "gpu:2g.10gb": (2, 18, 146)},
    ),
    "slices that leave some of a GPU get all that is beside it": (
        {"gres": "gpu:a100:1,gpu:1g.5gb:4"},
        {"gpu:a100": (1, 32, 256), "gpu:1g.5gb": (4, 8, 64)},
    ),
    "an A30 has four slices": ({"gres": "gpu:a30_1g.6gb:8"}, {"gpu:a30_1g.6gb": (8, 8, 64)}),
    "shards of typed GPUs": (
        {"gres": "gpu:t4:2,shard:t4:8"},
        {"gpu:t4": (2, 32, 256), "shard:t4": (8, 8, 64)},
    ),
    "shards without a type": ({"gres": "gpu:t4:2,shard:4"}, {"gpu:t4": (2, 32, 256), "shard": (4, 16, 128)}),
    "other resources": ({"gres": "nic:2,license_server:1"}, {"": (1, 64, 512)}),
}
"""Of a node with 64 CPUs and 512 GiB: by kind how many there are, and the CPUs and GiB of one, rounded down."""


@pytest.mark.parametrize(("of_node", "expected"), SHARES.values(), ids=SHARES.keys())
def test_a_node_is_divided(of_node: dict[str, Any], expected: dict[str, tuple[int, int, int]]) -> None:
    """In equal parts for its GPUs, and a GPU's part by the size of its slices or by its shards."""
    machine = node("g1", **{"cpus": 64, "memory_mib": 512 * GIB, **of_node})

    shares = shares_of(machine, cpus=machine.cpus, memory_mib=machine.memory_mib)

    assert {
        kind.of_slurm: (share.number, share.cpus, share.memory_mib // GIB) for kind, share in shares.items()
    } == expected
    for kind, share in shares.items():  # each GPU's part goes to it or to its slices, once
        if kind.gres != "shard":
            assert share.number * share.memory_mib <= machine.memory_mib


@pytest.mark.parametrize(
    ("kind", "features", "name"),
    [
        (Kind("gpu", "a100"), (), "A100"),
        (Kind("gpu", "a100"), ("a100_80gb", "ib"), "A100, 80 GB"),
        (Kind("gpu", "a100"), ("a100_80gb", "a100_40gb"), "A100"),
        (Kind("gpu", "a100"), ("v100_32gb",), "A100"),
        (Kind("gpu", "nvidia_h100_80gb_hbm3"), (), "H100, 80 GB"),
        (Kind("gpu", "", "v100-32gb"), (), "V100, 32 GB"),
        (Kind("gpu"), ("ib",), "GPU"),
    ],
)
def test_the_model_is_named_by_type_and_features(kind: Kind, features: tuple[str, ...], name: str) -> None:
    """A feature gives the memory only if it names the same model, and one size alone."""
    assert str(model_of(kind, (), features)) == name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("A100", "NVIDIA A100"),
        ("GH200", "NVIDIA GH200"),
        ("RTX 3090", "NVIDIA RTX 3090"),
        ("L40S", "NVIDIA L40S"),
        ("MI250X", "AMD MI250X"),
        ("GPU", "GPU"),
        ("ve", "ve"),
    ],
)
def test_a_vendor_is_named_where_it_is_known(model: str, name: str) -> None:
    """Any other name stays as the site has it."""
    assert with_vendor(model) == name
