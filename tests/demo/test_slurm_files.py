"""The configuration files of the private Slurm, and the demo's cluster, which matches its topology files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    DEMO_CLUSTER,
    MACHINES,
    ClusterDescription,
    Layout,
    SimulatedNode,
    SimulatedPartition,
    cgroup_conf,
    gres_conf,
    mig_devices,
    slurm_conf,
    whole_gpus,
)
from jupyterhub_gpuspawner.placement.topology import NodeTopology, load

CLUSTER = ClusterDescription(
    nodes=(
        SimulatedNode(
            "m1",
            machine="a100-mig",
            sockets=2,
            cores_per_socket=16,
            memory_mib=512000,
            gpus=(whole_gpus("a100", [0], cores="0-15"), mig_devices("1g.10gb", 1, [21, 30])),
            features=("a100", "mig"),
        ),
        SimulatedNode("c1", machine="cpu", sockets=1, cores_per_socket=4, threads=2, memory_mib=8000),
    ),
    partitions=(SimulatedPartition("gpu", ("m1",)), SimulatedPartition("batch", ("c1",), default=True)),
)
LAYOUT = Layout(Path("/p"), hostname="head", user="root", controller_port=6817, node_ports={"m1": 7001, "c1": 7002})


def test_a_line_of_gres_conf_for_each_gpu() -> None:
    """Whole GPUs have one device file, MIG devices three; cores appear only if they are given."""
    assert gres_conf(CLUSTER, LAYOUT).splitlines() == [
        "AutoDetect=off",
        "NodeName=m1 Name=gpu Type=a100 File=/p/dev/m1/nvidia0 Cores=0-15",
        "NodeName=m1 Name=gpu Type=1g.10gb "
        "MultipleFiles=/p/dev/m1/nvidia1,/p/dev/m1/nvidia-cap21,/p/dev/m1/nvidia-cap22",
        "NodeName=m1 Name=gpu Type=1g.10gb "
        "MultipleFiles=/p/dev/m1/nvidia1,/p/dev/m1/nvidia-cap30,/p/dev/m1/nvidia-cap31",
    ]


def test_lines_of_ones_own_replace_those_of_the_gpus() -> None:
    """They are written for the node, with the paths of its device files."""
    node = replace(CLUSTER.nodes[0], gres_lines=("Name=gpu Type=a100 File=/dev/nvidia0 Cores=0-15",))
    assert gres_conf(replace(CLUSTER, nodes=(node,)), LAYOUT).splitlines() == [
        "AutoDetect=off",
        "NodeName=m1 Name=gpu Type=a100 File=/p/dev/m1/nvidia0 Cores=0-15",
    ]


def test_nodes_and_partitions_stand_in_slurm_conf() -> None:
    """Each node has its own port on this host and its hardware; GPUs are counted by type."""
    lines = slurm_conf(CLUSTER, LAYOUT).splitlines()
    assert [line for line in lines if line.startswith(("NodeName", "PartitionName"))] == [
        "NodeName=m1 NodeAddr=127.0.0.1 NodeHostname=head Port=7001 Sockets=2 CoresPerSocket=16 ThreadsPerCore=1 "
        "RealMemory=512000 Gres=gpu:a100:1,gpu:1g.10gb:2 Feature=a100,mig State=UNKNOWN",
        "NodeName=c1 NodeAddr=127.0.0.1 NodeHostname=head Port=7002 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 "
        "RealMemory=8000 State=UNKNOWN",
        "PartitionName=gpu Nodes=m1 Default=NO DefaultTime=01:00:00 MaxTime=1-00:00:00 State=UP",
        "PartitionName=batch Nodes=c1 Default=YES DefaultTime=01:00:00 MaxTime=1-00:00:00 State=UP",
    ]


@pytest.mark.parametrize(
    ("version", "text"),
    [((22, 5), ""), ((23, 2), "CgroupPlugin=disabled\n"), ((24, 11), "CgroupPlugin=disabled\n")],
)
def test_cgroups_are_off_in_every_version(version: tuple[int, int], text: str) -> None:
    """The value that disables them was added in Slurm 23.02; before that, no file is needed."""
    assert cgroup_conf(version) == text


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


def test_every_node_is_in_one_partition() -> None:
    """Every node is in a partition, and exactly one partition is the default."""
    named = [name for partition in DEMO_CLUSTER.partitions for name in partition.nodes]
    assert sorted(named) == sorted(node.name for node in DEMO_CLUSTER.nodes)
    assert [partition.default for partition in DEMO_CLUSTER.partitions].count(True) == 1
