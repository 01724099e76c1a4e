"""Reading the hardware: which source counts, what is merged, what a driver that hangs costs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.node.hardware import merged, observe
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, as_line, from_document, load
from tests.node.conftest import StandinNvml
from tests.node.test_sysfs import Tree
from tests.standins.nvml import describe

MACHINES = Path(jupyterhub_gpuspawner.__file__).parent / "demo" / "machines"
_OBSERVE = """
import json, sys
from jupyterhub_gpuspawner.node.hardware import observe
from jupyterhub_gpuspawner.placement.topology import to_document
print(json.dumps(to_document(observe(**json.loads(sys.argv[1])))))
"""


def read_node(environ: dict[str, str] | None = None, **arguments: Any) -> NodeTopology:
    """What a process of its own sees."""
    wanted = {"node": "n1", "topology_file": None, "deadline": 20, **arguments}
    done = subprocess.run(
        [sys.executable, "-c", _OBSERVE, json.dumps(wanted)],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path), **(environ or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return from_document(json.loads(done.stdout))


@pytest.fixture
def k80_tree(tmp_path: Path) -> Path:
    """The kernel's side of the two-socket K80 node."""
    tree = Tree(tmp_path / "root")
    tree.online("0-23")
    for node in (0, 1):
        tree.node(node, f"{node * 12}-{node * 12 + 11}", "10 21" if node == 0 else "21 10", 32768)
    for cpu in range(24):
        tree.cpu(cpu, str(cpu), cpu // 12)
    for gpu in load(str(MACHINES / "k80-2socket.json")).gpus:
        tree.pci(gpu.pci, numa=gpu.numa_node or 0)
    return tree.root


@pytest.fixture
def k80_driver(standin: StandinNvml) -> dict[str, str]:
    """The driver's side of it, as the environment that brings it."""
    standin.machine.write_text(describe(load(str(MACHINES / "k80-2socket.json"))))
    return standin.environ


def test_driver_and_kernel_together_are_the_machine(k80_tree: Path, k80_driver: dict[str, str]) -> None:
    """GPUs and links come from NVML, CPUs and NUMA nodes from sysfs."""
    machine = load(str(MACHINES / "k80-2socket.json"))

    topology = read_node(k80_driver, root=str(k80_tree))

    assert [(g.uuid, g.pci, g.numa_node, g.memory_mib) for g in machine.gpus] == [
        (g.uuid, g.pci, g.numa_node, g.memory_mib) for g in topology.gpus
    ]
    assert (machine.links, machine.packages, machine.siblings) == (topology.links, topology.packages, topology.siblings)
    assert [(n.id, n.cpus, n.distances) for n in machine.numa_nodes] == [
        (n.id, n.cpus, n.distances) for n in topology.numa_nodes
    ]
    assert (topology.source, topology.hostname, topology.problems) == ("nvml+sysfs", "n1", ())


@pytest.mark.parametrize("call", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetName"])
def test_a_driver_that_hangs_costs_its_own_facts_and_the_deadline(
    k80_tree: Path, k80_driver: dict[str, str], call: str
) -> None:
    """The kernel's data are there, and the problem says what timed out."""
    with Path(k80_driver["STANDIN_NVML"]).open("a") as file:
        file.write(f"fail {call} hang -1\n")

    topology = read_node(k80_driver, root=str(k80_tree), deadline=1)

    assert [gpu.pci for gpu in topology.gpus] == [gpu.pci for gpu in load(str(MACHINES / "k80-2socket.json")).gpus]
    assert len(topology.numa_nodes) == 2
    assert topology.problems == ("Reading the hardware timed out after 1 s while asking NVML.",)
    assert {gpu.fault for gpu in topology.gpus} == {""}


def test_a_node_without_gpus_is_no_problem(tmp_path: Path) -> None:
    """If the kernel shows no NVIDIA device, a missing driver is not reported."""
    tree = Tree(tmp_path)
    tree.online("0-1")
    tree.node(0, "0-1", "10")

    topology = read_node(root=str(tmp_path))

    assert (topology.gpus, topology.numa_nodes, topology.problems) == ((), (NumaNode(0, (0, 1), None, (10,)),), ())


def test_gpus_without_any_driver_are_told_with_the_reason(k80_tree: Path) -> None:
    """The kernel's list of devices stands."""
    topology = read_node(root=str(k80_tree))

    assert [gpu.numa_node for gpu in topology.gpus] == [0, 0, 1, 1]
    assert topology.links == ()
    assert [problem.partition(":")[0] for problem in topology.problems] == ["NVML is not available"]
    assert {gpu.fault for gpu in topology.gpus} == {*topology.problems}


def test_a_lost_gpu_is_the_device_that_is_no_other(k80_tree: Path, k80_driver: dict[str, str]) -> None:
    """NVML does not say its bus id, by which the node's records know it."""
    with Path(k80_driver["STANDIN_NVML"]).open("a") as file:
        file.write("fail nvmlDeviceGetHandleByIndex_v2 15 2\n")

    topology = read_node(k80_driver, root=str(k80_tree))

    assert [gpu.pci for gpu in topology.gpus] == [gpu.pci for gpu in load(str(MACHINES / "k80-2socket.json")).gpus]
    assert [(gpu.uuid == "", gpu.fault) for gpu in topology.gpus] == [
        (False, ""),
        (False, ""),
        (True, "GPU is lost"),
        (False, ""),
    ]


def test_a_topology_file_stands_in_for_the_hardware(tmp_path: Path) -> None:
    """``{node}`` is the node's name; what the file says is all there is."""
    shutil.copy(MACHINES / "dgx1.json", tmp_path / "d1.json")

    topology = observe(node="d1", topology_file=f"{tmp_path}/{{node}}.json", deadline=20)

    machine = load(str(MACHINES / "dgx1.json"))
    assert (machine.gpus, machine.links, machine.numa_nodes) == (topology.gpus, topology.links, topology.numa_nodes)
    assert (topology.hostname, topology.source, topology.simulated) == ("d1", "file", machine.simulated)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        ("{", "Expecting property name"),
        ("[]", "version: must be 1"),
        ('{"version": 1, "gpu": []}', "gpu: no such field"),
        ('{"version": 1, "gpus": [{}]}', "index"),
    ],
)
def test_a_topology_file_of_no_use_leaves_the_hardware(tmp_path: Path, content: str | None, reason: str) -> None:
    """The problem is reported, and the hardware is read instead."""
    path = tmp_path / "n1.json"
    if content is not None:
        path.write_text(content)

    topology = observe(node="n1", topology_file=str(path), deadline=20, root=str(tmp_path))

    assert topology.source == "sysfs"
    assert topology.problems[-1].startswith(f"The topology file {path} cannot be used; the hardware was read instead:")
    assert reason in topology.problems[-1]


@pytest.mark.parametrize("node", ["../../etc/passwd", "a/b", "", ".hidden", "a b"])
def test_a_strange_node_name_opens_no_file(tmp_path: Path, node: str) -> None:
    """What is put in the place of ``{node}`` is a host name and nothing else."""
    topology = observe(node=node, topology_file=f"{tmp_path}/{{node}}.json", deadline=20, root=str(tmp_path))

    assert "is not a valid node name" in topology.problems[-1]


def test_a_file_that_never_opens_is_given_up(tmp_path: Path) -> None:
    """The time limit holds for a file system that hangs, as for a driver."""
    os.mkfifo(tmp_path / "n1.json")

    topology = observe(node="n1", topology_file=str(tmp_path / "n1.json"), deadline=0.5)

    assert topology == NodeTopology(
        hostname="n1",
        problems=("Reading the hardware timed out after 0.5 s while reading the topology file.",),
    )


def test_a_text_that_no_document_holds_costs_nothing(k80_tree: Path) -> None:
    """Control characters in a driver's answer, and far too much of them."""
    facts = "Model: \t Tesla\x1b[31m K80" + "!" * 600
    address = load(str(MACHINES / "k80-2socket.json")).gpus[0].pci
    Tree(k80_tree).write(f"proc/driver/nvidia/gpus/{address}/information", facts)

    topology = read_node(root=str(k80_tree))

    assert len(topology.gpus) == 4
    assert topology.gpus[0].name == as_line("Tesla\x1b[31m K80" + "!" * 600)


def test_merging_takes_each_fact_from_who_knows_it() -> None:
    """The PCI device's node over the driver's; the node's CPUs over a list that is clipped to the job's cpuset."""
    nodes = (NumaNode(0, (0, 1)), NumaNode(1, (2, 3)))
    kernel = NodeTopology(
        gpus=(
            Gpu(0, pci="0000:05:00.0", numa_node=0, cpus=(0, 1)),
            Gpu(1, pci="0000:06:00.0", name="K80", minor=5),
            Gpu(2, pci="0000:07:00.0", numa_node=1),
        ),
        numa_nodes=nodes,
        source="sysfs",
        driver="1",
        problems=("k",),
    )
    driver = NodeTopology(
        gpus=(Gpu(0, "GPU-6", "0000:06:00.0", numa_node=1, cpus=(2,)), Gpu(1, "GPU-5", "0000:05:00.0", numa_node=1)),
        links=(("X", "PIX"), ("PIX", "X")),
        source="nvml",
        driver="2",
        problems=("d",),
    )

    assert merged(driver, kernel) == NodeTopology(
        gpus=(
            Gpu(0, "GPU-6", "0000:06:00.0", "K80", numa_node=1, cpus=(2, 3), minor=5),
            Gpu(1, "GPU-5", "0000:05:00.0", numa_node=0, cpus=(0, 1)),
        ),
        links=(("X", "PIX"), ("PIX", "X")),
        numa_nodes=nodes,
        source="nvml+sysfs",
        driver="2",
        problems=("k", "d"),
    )
