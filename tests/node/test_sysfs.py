"""The kernel's view of a node, from trees made here: sysfs and procfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.node import hardware
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode
from jupyterhub_gpuspawner.units import parse_cpulist


class Tree:
    """A root folder with the files that the kernel would show."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def node(self, number: int, cpulist: str, distance: str = "", mib: int | None = None) -> None:
        path = f"sys/devices/system/node/node{number}"
        self.write(f"{path}/cpulist", cpulist)
        self.write(f"{path}/distance", distance)
        if mib is not None:
            self.write(f"{path}/meminfo", f"Node {number} MemTotal:       {mib * 1024} kB\nNode {number} MemFree: 1 kB")

    def cpu(self, number: int, siblings: str, package: int) -> None:
        path = f"sys/devices/system/cpu/cpu{number}/topology"
        self.write(f"{path}/thread_siblings_list", siblings)
        self.write(f"{path}/physical_package_id", package)

    def online(self, cpulist: str) -> None:
        self.write("sys/devices/system/cpu/online", cpulist)

    def width(self, address: str, now: int, most: int) -> None:
        for name, lanes in (("current_link_width", now), ("max_link_width", most)):
            self.write(f"sys/bus/pci/devices/{address}/{name}", lanes)

    def pci(
        self, address: str, *, vendor: str = "0x10de", kind: str = "0x030200", numa: int = -1, cpulist: str = ""
    ) -> None:
        path = f"sys/bus/pci/devices/{address}"
        for name, text in (("vendor", vendor), ("class", kind), ("numa_node", numa), ("local_cpulist", cpulist)):
            self.write(f"{path}/{name}", text)


EVEN_ODD = ((0, 2, 4, 6), (1, 3, 5, 7))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_root_without_files_is_an_unknown_node(tmp_path: Path) -> None:
    """No exception, and no invented values."""
    assert hardware.read(str(tmp_path)) == NodeTopology(
        source="sysfs", problems=("The kernel lists no NUMA nodes in /sys/devices/system/node.",)
    )


def test_the_two_socket_k80_node(tree: Tree) -> None:
    """Two sockets of two CPUs, four GPUs, the driver's own facts."""
    tree.online("0-3")
    tree.node(0, "0-1", "10 21", 32768)
    tree.node(1, "2-3", "21 10", 32768)
    for cpu in range(4):
        tree.cpu(cpu, str(cpu), cpu // 2)
    for n, address in enumerate(("0000:05:00.0", "0000:06:00.0", "0000:85:00.0", "0000:86:00.0")):
        tree.pci(address, numa=n // 2, cpulist=f"{n // 2 * 2}-{n // 2 * 2 + 1}")
        facts = f"Model: \t\t Tesla K80\nGPU UUID: \t GPU-{n}\nDevice Minor: \t {3 - n}"
        tree.write(f"proc/driver/nvidia/gpus/{address}/information", facts)
    tree.write(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul\nGCC version: 9",
    )

    assert hardware.read(str(tree.root)) == NodeTopology(
        gpus=(
            Gpu(0, "GPU-0", "0000:05:00.0", "Tesla K80", numa_node=0, cpus=(0, 1), minor=3),
            Gpu(1, "GPU-1", "0000:06:00.0", "Tesla K80", numa_node=0, cpus=(0, 1), minor=2),
            Gpu(2, "GPU-2", "0000:85:00.0", "Tesla K80", numa_node=1, cpus=(2, 3), minor=1),
            Gpu(3, "GPU-3", "0000:86:00.0", "Tesla K80", numa_node=1, cpus=(2, 3), minor=0),
        ),
        numa_nodes=(NumaNode(0, (0, 1), 32768, (10, 21)), NumaNode(1, (2, 3), 32768, (21, 10))),
        siblings=((0,), (1,), (2,), (3,)),
        packages=((0, 1), (2, 3)),
        devices=("0000:05:00.0", "0000:06:00.0", "0000:85:00.0", "0000:86:00.0"),
        source="sysfs",
        driver="470.57.02",
    )


def test_pcie_lanes_in_use_and_at_most(tree: Tree) -> None:
    """A device that has fallen off the bus reports lanes that no device has: then they are not known."""
    for address, now in (("0000:05:00.0", 8), ("0000:06:00.0", 255), ("0000:07:00.0", 0)):
        tree.pci(address)
        tree.width(address, now, 16)

    lanes = [(gpu.pcie_width, gpu.pcie_max_width) for gpu in hardware.read(str(tree.root)).gpus]
    assert lanes == [(8, 16), (None, 16), (None, 16)]


def test_only_nvidia_display_devices_are_gpus(tree: Tree) -> None:
    """Not its audio function, its NVSwitches, nor another maker's."""
    tree.pci("0000:07:00.0", kind="0x030000")
    tree.pci("0000:07:00.1", kind="0x040300")
    tree.pci("0000:08:00.0", kind="0x068000")
    tree.pci("0000:03:00.0", vendor="0x1a03", kind="0x030000")

    assert [gpu.pci for gpu in hardware.read(str(tree.root)).gpus] == ["0000:07:00.0"]


@pytest.mark.parametrize(("nodes", "expected"), [((0,), 0), ((0, 1), None), ((), None)])
def test_a_gpu_whose_node_the_firmware_hides(tree: Tree, nodes: tuple[int, ...], expected: int | None) -> None:
    """``numa_node`` -1 means the only node there is, or else unknown."""
    for node in nodes:
        tree.node(node, str(node), " ".join("10" for _ in nodes))
    tree.pci("0000:07:00.0", numa=-1)

    assert [gpu.numa_node for gpu in hardware.read(str(tree.root)).gpus] == [expected]


def test_reversed_sparse_and_empty_nodes(tree: Tree) -> None:
    """Ids are the kernel's, with gaps; a node without CPUs is there; distances stand in the order of the ids."""
    tree.online("0-3")
    tree.node(8, "0-1", "40 10 80", 1024)
    tree.node(0, "2-3", "10 40 80", 1024)
    tree.node(252, "", "80 80 10", 512)
    tree.pci("0004:04:00.0", numa=8)

    read = hardware.read(str(tree.root))

    assert read.numa_nodes == (
        NumaNode(0, (2, 3), 1024, (10, 40, 80)),
        NumaNode(8, (0, 1), 1024, (40, 10, 80)),
        NumaNode(252, (), 512, (80, 80, 10)),
    )
    assert [(gpu.pci, gpu.numa_node) for gpu in read.gpus] == [("0004:04:00.0", 8)]


@pytest.mark.parametrize(
    ("online", "cpus", "siblings", "packages"),
    [
        ("0-7", {n: (f"{n % 4},{n % 4 + 4}", n % 2) for n in range(8)}, ((0, 4), (1, 5), (2, 6), (3, 7)), EVEN_ODD),
        ("0-1,3", {0: ("0,2", 0), 1: ("1,3", 0), 3: ("1,3", 0)}, ((0,), (1, 3)), ((0, 1, 3),)),
        ("0-3", {0: ("0,2", 0)}, (), ((0,),)),
    ],
    ids=["hyperthreads are one core", "an offline CPU is not there", "with some cores unknown, threads count as cores"],
)
def test_cores_and_packages(
    tree: Tree,
    online: str,
    cpus: dict[int, tuple[str, int]],
    siblings: tuple[tuple[int, ...], ...],
    packages: tuple[tuple[int, ...], ...],
) -> None:
    """By siblings and package of each CPU that is online; packages are in the order of their numbers."""
    tree.online(online)
    tree.node(0, "0-7")
    for cpu, (core, package) in cpus.items():
        tree.cpu(cpu, core, package)

    read = hardware.read(str(tree.root))

    assert (read.siblings, read.packages) == (siblings, packages)
    assert read.numa_nodes == (NumaNode(0, parse_cpulist(online)),)


@pytest.mark.parametrize("text", ["garbage", "0-", "5-2", "-1", "", "1,,2"])
def test_a_damaged_list_is_no_list(tree: Tree, text: str) -> None:
    """A file that does not hold a CPU list costs its CPUs only."""
    tree.node(0, text, "ten", None)

    assert hardware.read(str(tree.root)).numa_nodes == (NumaNode(0),)


def test_this_machine() -> None:
    """Of the real /sys: every CPU that this process may use is in a node."""
    import os

    read = hardware.read()
    cpus = {cpu for node in read.numa_nodes for cpu in node.cpus}

    assert not read.numa_nodes or os.sched_getaffinity(0) <= cpus
