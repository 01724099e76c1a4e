"""The demo's cluster matches its topology files."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, MACHINES, SimulatedNode
from jupyterhub_gpuspawner.placement.topology import NodeTopology, load


def topology(node: SimulatedNode) -> NodeTopology:
    return load(str(MACHINES / f"{node.machine}.json"))


@pytest.mark.parametrize("node", DEMO_CLUSTER.nodes, ids=lambda node: node.name)
def test_a_node_is_its_machine(node: SimulatedNode) -> None:
    """Sockets, cores and memory of a node in Slurm are within those of its topology file."""
    machine = topology(node)
    assert len(machine.packages) == node.sockets
    assert [len(package) for package in machine.packages] == [node.cores_per_socket * node.threads] * node.sockets
    assert node.memory_mib <= sum(each.memory_mib or 0 for each in machine.numa_nodes)


@pytest.mark.parametrize("node", DEMO_CLUSTER.nodes, ids=lambda node: node.name)
def test_gpus_stand_in_slurms_order(node: SimulatedNode) -> None:
    """The n-th GPU of gres.conf is the n-th of the topology file: same device, same closest cores, MIG or not."""
    described = [
        (files[0], tuple(parse_cpulist(group.cores)), len(files) > 1) for group in node.gpus for files in group.devices
    ]
    found = [(f"nvidia{gpu.minor}", tuple(gpu.cpus), gpu.mig is not None) for gpu in topology(node).gpus]
    assert described == found
