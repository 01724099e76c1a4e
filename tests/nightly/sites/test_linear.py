"""Whole nodes only (SelectType=select/linear): each server has a node for itself, and Slurm assigns it no GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import (
    DEMO_CLUSTER,
    ClusterDescription,
    SimulatedNode,
    SimulatedPartition,
    SlurmFailed,
    whole_gpus,
)
from tests.fixtures.hubs import start_hub
from tests.fixtures.slurm import ChangedSlurm
from tests.hub.servers import environment
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, granted, profiles
from tests.nightly.sites.promises import Filled, fill, submit
from tests.standins.resources import resolved

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

WITH_CORES, *_ = DEMO_CLUSTER.nodes
WITHOUT: SimulatedNode = replace(WITH_CORES, gpus=(whole_gpus("k80", range(4)),))
CLUSTER = ClusterDescription(
    (WITHOUT, replace(WITHOUT, name="g2"), replace(WITH_CORES, name="g3")),
    (SimulatedPartition("gpu", ("g1", "g2"), default=True), SimulatedPartition("cores", ("g3",))),
    name="linear",
)


def change(text: str) -> str:
    """Have Slurm give out whole nodes, and memory by itself."""
    return text.replace("select/cons_tres", "select/linear").replace("CR_Core_Memory", "CR_Memory")


@pytest.fixture(scope="module")
def site(needs_slurm: None, public_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two nodes whose gres.conf has no ``Cores=``, and one whose has."""
    with ExitStack() as stack:
        slurm = stack.enter_context(ChangedSlurm(CLUSTER, public_folder / "linear", change))
        hub = start_hub(stack, slurm, tmp_path_factory.mktemp("hub"), lines=CONFIG, profiles=profiles())
        yield Site(hub, slurm, findings=("whole-nodes",))


class TestMainJob(MainJob):
    """The main job, which has a node for itself."""

    def test_placed(self, site: Site, server: str) -> None:
        """Of the node that Slurm granted, the server has two GPUs that belong together, and cores beside them."""
        placement = site.hub.api("GET", f"/gpuspawner/placement/{site.user}").json()
        held = granted(site.slurm, server)
        assert (held["cpus"], held["gpus"], placement["node"]) == ("0-23", [], held["node"])
        assert ([gpu["index"] for gpu in placement["gpus"]], placement["cpus"]) == ([0, 1], "0-3")
        assert (placement["problems"], environment(site.hub, site.user)["CUDA_VISIBLE_DEVICES"]) == ([], "0,1")


@pytest.mark.parametrize(
    "resources", [{"gpus": 1, "gpu_type": "k80", "cpus": 4, "memory": 600}, {"cpus": 1}, {"cpus": 24, "memory": 20000}]
)
def test_what_starts_is_what_was_promised(site: Site, resources: dict[str, Any]) -> None:
    """One server on each node, by the form and by the number of seats."""
    assert fill(site.slurm, resolved("gpu", time=600, **resources)) == Filled(2, 2, 2)


def test_gpus_with_cores_of_their_own_are_refused(site: Site) -> None:
    """As check says: a whole node has other cores, too."""
    with pytest.raises(SlurmFailed, match="Requested node configuration is not available"):
        submit(site.slurm, resolved("cores", time=600, gpus=1, gpu_type="k80", cpus=4))
