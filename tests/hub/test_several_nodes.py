"""A server on four nodes of four GPUs: what each node's launcher reports, and nodes that do not report."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.simulated import (
    ClusterDescription,
    SimulatedNode,
    SimulatedPartition,
    whole_gpus,
)
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.hub.conftest import start_hub

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

STAND_IN = Path(__file__).parents[1] / "standins" / "single_user.py"
NODES = ("g1", "g2", "g3", "g4")
GPUS = (whole_gpus("k80", range(2), cores="0-11"), whole_gpus("k80", range(2, 4), cores="12-23"))
CLUSTER = ClusterDescription(
    tuple(SimulatedNode(name, "k80-2socket", 2, 12, 64000, GPUS) for name in NODES),
    (SimulatedPartition("gpu", NODES, default=True),),
    name="several",
)
PROFILES = f"""
- display_name: Four nodes
  slug: four
  slurm: {{partition: gpu, nodes: 4, gpus: 4, cpus: 4, memory: 1G, time: "0:10:00"}}
  command: [{sys.executable}, {STAND_IN}]
"""


@pytest.fixture(scope="module")
def slurm(needs_slurm: None, public_folder: Path) -> Iterator[PrivateSlurm]:
    """Four nodes; the network cards of three are known, and one of these has none."""
    with PrivateSlurm(CLUSTER, public_folder / "several") as slurm:
        for node, cards in (("g1", 2), ("g2", 1), ("g3", 0)):
            file = slurm.folder / "topology" / f"{node}.json"
            topology = json.loads(file.read_text())
            topology["source"] = "file+network"
            topology["nics"] = [f"mlx5_{n}" for n in range(cards)]
            topology["nic_numa"] = list(range(cards))
            topology["nic_links"] = [["PHB" if gpu // 2 == n else "SYS" for gpu in range(4)] for n in range(cards)]
            file.write_text(json.dumps(topology))
        yield slurm


@pytest.fixture(scope="module")
def hub(slurm: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with ExitStack() as stack:
        yield start_hub(stack, slurm, tmp_path_factory.mktemp("hub"), profiles=PROFILES)


def reported(hub: HubProcess, user: str, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The placement once it has enough of the other nodes' reports; the last one after a minute."""
    for _ in range(240):
        placement: dict[str, Any] = hub.api("GET", f"/gpuspawner/placement/{user}").json()
        if enough(placement):
            break
        time.sleep(0.25)
    return placement


def nodes(placement: dict[str, Any]) -> list[str]:
    return [grant["node"] for grant in placement["other_nodes"] if grant["placement"] is not None]


def test_each_node_has_its_placement(hub: HubProcess) -> None:
    """GPUs, CPUs and network cards of four nodes; where a card is not known, the weakest link is not known, either."""
    hub.spawn("ada", {"profile": "four"})
    placement = reported(hub, "ada", lambda each: len(nodes(each)) == 3)
    hub.end("ada")

    print(json.dumps(placement, indent=1))
    assert placement["node"] == "g1"
    assert nodes(placement) == ["g2", "g3", "g4"]
