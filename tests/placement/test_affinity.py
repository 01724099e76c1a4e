"""CPUs and memory for the chosen GPUs: as many as promised, nearest first, whole cores, never on a GPU's own memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.placement.choice import aligned, choose_cpus, memory_nodes
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, load
from jupyterhub_gpuspawner.units import format_cpulist, parse_cpulist

MACHINES = Path(__file__).parents[2] / "jupyterhub_gpuspawner" / "demo" / "machines"
K80 = load(str(MACHINES / "k80-2socket.json"))
CPU = load(str(MACHINES / "cpu.json"))
SMT = NodeTopology(
    gpus=(Gpu(0, numa_node=0), Gpu(1, numa_node=1)),
    numa_nodes=(NumaNode(0, (0, 1, 2, 3, 8, 9, 10, 11), 1000, (10, 21)),
                NumaNode(1, (4, 5, 6, 7, 12, 13, 14, 15), 1000, (21, 10))),
    siblings=tuple((cpu, cpu + 8) for cpu in range(8)),
)  # fmt: skip
"""Two sockets of four cores with two threads each; siblings are eight apart."""
INTERLEAVED = NodeTopology(
    gpus=(Gpu(0, numa_node=1),),
    numa_nodes=(NumaNode(0, (0, 2, 4, 6), 1000, (10, 21)), NumaNode(1, (1, 3, 5, 7), 1000, (21, 10))),
)
NPS4 = NodeTopology(
    gpus=tuple(Gpu(n, numa_node=3 - n) for n in range(4)),
    numa_nodes=tuple(
        NumaNode(n, tuple(range(8 * n, 8 * n + 8)), 1000, tuple(10 if m == n else 12 for m in range(4)))
        for n in range(4)
    ),
)  # fmt: skip
"""One socket in four nodes, GPUs in reverse order (Polaris)."""
GRACE = NodeTopology(
    gpus=(Gpu(0, numa_node=0, gpu_numa_id=1),),
    numa_nodes=(NumaNode(0, tuple(range(72)), 480000, (10, 80)), NumaNode(1, (), 97000, (80, 10))),
)
"""GH200: the GPU's memory is a NUMA node without CPUs."""
MEMORYLESS = NodeTopology(
    gpus=(Gpu(0, numa_node=2),),
    numa_nodes=(NumaNode(0, (0, 1), 1000, (10, 12, 32)), NumaNode(2, (2, 3), 0, (12, 10, 32)),
                NumaNode(5, (4, 5), 1000, (32, 32, 10))),
)  # fmt: skip
DGX_NPS4 = NodeTopology(
    gpus=tuple(Gpu(n, numa_node=node) for n, node in enumerate((3, 3, 1, 1, 7, 7, 5, 5))),
    numa_nodes=tuple(
        NumaNode(n, (*range(16 * n, 16 * n + 16), *range(16 * n + 128, 16 * n + 144)), 128000,
                 tuple(10 if n == m else 12 if n // 4 == m // 4 else 32 for m in range(8)))
        for n in range(8)
    ),
    packages=((*range(64), *range(128, 192)), (*range(64, 128), *range(192, 256))),
)  # fmt: skip
"""DGX A100: two packages of four NUMA nodes, of which every other one has GPUs."""
OPTERON = NodeTopology(
    gpus=(Gpu(0, numa_node=0),),
    numa_nodes=(NumaNode(0, (0, 1), 1000, (10, 16, 16)), NumaNode(1, (2, 3), 1000, (16, 10, 16)),
                NumaNode(2, (4, 5, 6, 7), 1000, (16, 16, 10))),
    packages=((0, 1, 2, 3), (4, 5, 6, 7)),
)  # fmt: skip
CPULESS = NodeTopology(
    gpus=(Gpu(0, numa_node=2), Gpu(1, numa_node=3)),
    numa_nodes=(NumaNode(0, (0, 1), 1000, (10, 21, 24, 31)), NumaNode(1, (2, 3), 1000, (21, 10, 31, 24)),
                NumaNode(2, (), 1000, (24, 31, 10, 41)), NumaNode(3, (), 1000, (31, 24, 41, 10))),
    packages=((0, 1), (2, 3)),
)  # fmt: skip


ONE_SIDED = NodeTopology(
    gpus=(Gpu(0, numa_node=1), Gpu(1, numa_node=1)),
    numa_nodes=(NumaNode(0, (0, 1, 2, 3), 1000, (10, 21)), NumaNode(1, (4, 5, 6, 7), 1000, (21, 10))),
    packages=((0, 1, 2, 3), (4, 5, 6, 7)),
)


def without_distances(topology: NodeTopology) -> NodeTopology:
    """The same where the kernel lists no distances."""
    return replace(topology, numa_nodes=tuple(replace(node, distances=()) for node in topology.numa_nodes))


UNKNOWN = NodeTopology(gpus=(Gpu(0, cpus=(4, 5, 6, 7)), Gpu(1)))
"""What a text may show: near CPUs of one GPU, nothing about the other."""


@pytest.mark.parametrize(
    ("machine", "granted", "count", "gpus", "cpus"),
    [
        (K80, "0-23", 4, (0,), "0-3"),
        (K80, "0-23", 4, (2,), "12-15"),
        (K80, "0-3,12-23", 6, (1,), "0-3,12-13"),
        (K80, "0-23", 4, (0, 2), "0-1,12-13"),
        (K80, "0-23", 8, (0, 1, 2), "0-5,12-13"),
        (K80, "0-23", None, (0,), "0-23"),
        (K80, "3-6", 40, (0,), "3-6"),
        (K80, "3,3,4", 3, (0,), "3-4"),
        (K80, "", 4, (0,), ""),
        (K80, "0-23", 0, (0,), ""),
        (CPU, "18-39", 4, (), "20-23"),
        (CPU, "0-25", 22, (), "0-21"),
        (SMT, "0-15", 4, (1,), "4-5,12-13"),
        (SMT, "0-15", 3, (1,), "4-5,12"),
        (SMT, "2,4-5,13,15", 2, (1,), "5,13"),
        (SMT, "2,4-5,13,15", 4, (1,), "4-5,13,15"),
        (INTERLEAVED, "0-7", 3, (0,), "1,3,5"),
        (NPS4, "0-31", 8, (0,), "24-31"),
        (NPS4, "0-31", 10, (0,), "0-1,24-31"),
        (UNKNOWN, "0-7", 3, (0,), "4-6"),
        (UNKNOWN, "0-7", 3, (1,), "0-2"),
    ],
)
def test_cpus(machine: NodeTopology, granted: str, count: int | None, gpus: tuple[int, ...], cpus: str) -> None:
    """The CPUs kept are granted ones, nearest to the GPUs, by whole cores, shared out among the GPUs."""
    granted_cpus = [int(word) for word in granted.split(",")] if granted == "3,3,4" else parse_cpulist(granted)
    assert format_cpulist(choose_cpus(machine, granted=granted_cpus, count=count, gpus=gpus)) == cpus


@pytest.mark.parametrize(
    ("machine", "cpus", "gpus", "nodes"),
    [
        (K80, "0-3", (0,), (0,)),
        (K80, "12-15", (2,), (1,)),
        (K80, "0-3", (2,), (0, 1)),
        (K80, "10-15", (), (1, 0)),
        (K80, "0-23", (3, 0), (0, 1)),
        (CPU, "20-23", (), (1,)),
        (GRACE, "0-7", (0,), (0,)),
        (replace(GRACE, gpus=(Gpu(0, numa_node=0),)), "0-7", (0,), (0,)),
        (MEMORYLESS, "2-3", (0,), (0,)),
        (MEMORYLESS, "2-5", (0,), (0, 5)),
        (UNKNOWN, "0-3", (0,), ()),
    ],
)
def test_memory_nodes(machine: NodeTopology, cpus: str, gpus: tuple[int, ...], nodes: tuple[int, ...]) -> None:
    """Memory comes from the nodes of the CPUs, most CPUs first, then of the GPUs; never a GPU's own."""
    assert memory_nodes(machine, parse_cpulist(cpus), gpus) == nodes


@pytest.mark.parametrize(
    ("machine", "cpus", "gpus", "answer"),
    [
        (K80, "0-3", (0,), True),
        (K80, "0-3", (0, 1), True),
        (K80, "0-3,12-15", (1, 2), True),
        (K80, "0-3", (2,), False),
        (K80, "0-3", (0, 2), False),
        (K80, "0-3,12", (0,), False),
        (K80, "", (0,), None),
        (K80, "0-3", (), None),
        (K80, "0-3,99", (0,), None),
        (GRACE, "0-7", (0,), True),
        # NPS4: nodes 0, 2, 4 and 6 have no GPU
        (DGX_NPS4, "0-63,128-191", (0, 1, 2, 3), True),
        (DGX_NPS4, "0-255", range(8), True),
        (DGX_NPS4, "48-63", (0,), True),
        (DGX_NPS4, "0-15", (0,), True),
        (DGX_NPS4, "0-15", (0, 2), True),
        (DGX_NPS4, "64-79", (0,), False),
        (DGX_NPS4, "0-15", (0, 4), False),
        (DGX_NPS4, "0-15,64-79", (0,), False),
        (replace(DGX_NPS4, packages=()), "0-63,128-191", (0, 1, 2, 3), True),
        (replace(DGX_NPS4, packages=()), "64-79", (0,), False),
        (replace(DGX_NPS4, packages=tuple((cpu,) for cpu in range(256))), "0-15", (0,), True),
        # the same without the kernel's distances, and without packages: only the same node is near for certain
        (without_distances(DGX_NPS4), "0-15", (0,), True),
        (replace(without_distances(DGX_NPS4), packages=()), "0-15", (0,), False),
        (NPS4, "0-7", (0,), True),
        # packages say more than a table in which another socket is hardly farther, as on old Opterons
        (OPTERON, "0-3", (0,), True),
        (OPTERON, "4-7", (0,), False),
        (replace(OPTERON, packages=()), "4-7", (0,), True),
        # GPUs whose node has no CPUs (HBM, CXL): the nearest ones are near
        (CPULESS, "0-1", (0,), True),
        (CPULESS, "2-3", (0,), False),
        (CPULESS, "0-3", (0, 1), True),
        # a package without GPUs: as near as they can be are its CPUs only beside all others
        (ONE_SIDED, "0-7", (0,), True),
        (ONE_SIDED, "2-7", (0, 1), True),
        (ONE_SIDED, "0-3", (0,), False),
        (ONE_SIDED, "0-3,5-7", (0,), False),
        (ONE_SIDED, "4-5", (0,), True),
        (K80, "0-23", (0,), False),
        # a node that the kernel does not list
        (replace(ONE_SIDED, gpus=(Gpu(0, numa_node=7),)), "0-3", (0,), None),
        (replace(ONE_SIDED, gpus=(Gpu(0, numa_node=7, cpus=(4, 5)),)), "0-3", (0,), False),
        (UNKNOWN, "4-5", (0,), None),
        (UNKNOWN, "0-1", (0,), False),
        (UNKNOWN, "0-1", (1,), None),
    ],
)
def test_aligned(machine: NodeTopology, cpus: str, gpus: tuple[int, ...], answer: bool | None) -> None:
    """Each CPU is near a GPU and each GPU near a CPU, in one package or by the kernel's distances.

    Lists of near CPUs may be clipped: they can only disprove it.
    """
    assert aligned(machine, gpus, parse_cpulist(cpus)) is answer
