"""A real Slurm of four nodes with four GPUs each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.extensions.several_nodes.four_nodes import CLUSTER
from tests.node.conftest import own_descriptors

__all__ = ["four_nodes", "own_descriptors"]


@pytest.fixture(scope="session")
def four_nodes(needs_slurm: None, public_folder: Path) -> Iterator[PrivateSlurm]:
    """The cluster of all tests of gpuspawner-run; a module's server on it ends with the module."""
    with PrivateSlurm(CLUSTER, public_folder / "four") as slurm:
        yield slurm
