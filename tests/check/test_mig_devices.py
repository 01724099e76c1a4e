"""Several MIG devices for one server: a CUDA program uses one of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check import profiles
from jupyterhub_gpuspawner.check.run import findings, line
from jupyterhub_gpuspawner.slurm.snapshot import NodeState
from jupyterhub_gpuspawner.units import Gres
from tests.check.sites import context
from tests.snapshots import recorded_snapshot

TWO = (
    "warn  profile g: slurm.gpus: the request is for 2 MIG devices; a CUDA program uses one of them at a time. "
    "Request one, of a larger MIG profile. [mig-several]"
)
REQUESTS = {
    '"gpus": 2, "gpu_type": "1g.10gb"': [TWO],
    '"gpus": 2, "gpu_type": "a100l.2g.20gb"': [TWO],
    '"gpus": 2, "gpu_type": "1c.3g.40gb"': [TWO],
    '"gpus": 2, "gpu_type": "nvidia_a100_1g.5gb"': [TWO],
    '"gpus": 1, "gpu_type": "1g.10gb"': [],
    '"gpu_type": "1g.10gb"': [],
    '"gpus": 2, "gpu_type": "a100"': [],
    '"gpus": 2': [],
    '"shards": 2, "gpu_type": "1g.10gb"': [],
    '"cpus": 2': [],
}


@pytest.mark.parametrize(("slurm", "lines"), REQUESTS.items())
def test_several_mig_devices_are_a_warning(tmp_path: Path, slurm: str, lines: list[str]) -> None:
    """By the type that the profile names."""
    profile = f'{{"display_name": "G", "slurm": {{"partition": "gpu", {slurm}}}}}'
    where = context(tmp_path, f"c.GPUProfilesSpawner.profiles = [{profile}]")

    assert [line(finding) for finding in asyncio.run(findings(where, [profiles.check_slices]))] == lines


@pytest.mark.parametrize(
    ("gres", "lines"),
    [
        ((Gres("gpu", "1g.10gb", 4),), [TWO]),
        ((Gres("gpu", "1g.10gb", 4), Gres("gpu", "2g.20gb", 1)), [TWO]),
        ((Gres("gpu", "1g.10gb", 4), Gres("gpu", "a100", 2)), []),
        ((Gres("gpu", None, 4),), []),
        ((Gres("shard", "1g.10gb", 4),), []),
    ],
)
def test_without_a_type_the_nodes_of_the_partition_say_what_it_gets(
    tmp_path: Path, gres: tuple[Gres, ...], lines: list[str]
) -> None:
    """Only where they have nothing but slices."""
    snapshot = recorded_snapshot("22.05")
    nodes = [replace_gres(node, gres) for node in snapshot.nodes]
    profile = '{"display_name": "G", "slurm": {"partition": "gpu", "gpus": 2}}'
    where = context(
        tmp_path, f"c.GPUProfilesSpawner.profiles = [{profile}]", snapshot=replace(snapshot, nodes=tuple(nodes))
    )

    assert [line(finding) for finding in asyncio.run(findings(where, [profiles.check_slices]))] == lines


def replace_gres(node: NodeState, gres: tuple[Gres, ...]) -> NodeState:
    """The same node with these devices, in the partition of the request."""
    return node._replace(gres=gres, partitions=("gpu",))
