"""The choice of GPUs: exact under its objective, the same every time, and right on machines whose best answer is known."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Iterator

import pytest

from jupyterhub_gpuspawner.bandwidth import gbps
from jupyterhub_gpuspawner.placement import Choice, choose
from jupyterhub_gpuspawner.topology import Gpu, NodeTopology, NumaNode, load

MACHINES = Path(__file__).parent.parent / "jupyterhub_gpuspawner" / "demo" / "machines"


def node(links: str, nodes: str, *, nvlink: int | None = None, pcie: int = 3) -> NodeTopology:
    """A machine from the rows of its matrix and each GPU's NUMA node; ten CPUs a node, 0-9 on the first."""
    homes = [int(each) for each in nodes.split()]
    ids = sorted(set(homes))
    return NodeTopology(
        gpus=tuple(Gpu(i, numa_node=home, nvlink_generation=nvlink, pcie_generation=pcie) for i, home in enumerate(homes)),
        links=tuple(tuple(row.split()) for row in links.strip().splitlines()),
        numa_nodes=tuple(
            NumaNode(each, tuple(range(10 * n, 10 * n + 10)), 1000, tuple(10 if m == n else 21 for m in range(len(ids))))
            for n, each in enumerate(ids)
        ),
    )


def bridged(pairs: str, word: str, nodes: str, *, near: str, across: str, pcie: int = 4) -> NodeTopology:
    """A machine of PCIe GPUs, some of them joined in pairs."""
    homes = nodes.split()
    joined = {frozenset((int(pair[0]), int(pair[1]))) for pair in pairs.split()}
    rows = [
        ["X" if a == b else word if frozenset((a, b)) in joined else near if homes[a] == homes[b] else across
         for b in range(len(homes))]
        for a in range(len(homes))
    ]  # fmt: skip
    return node("\n".join(" ".join(row) for row in rows), nodes, nvlink=3, pcie=pcie)


DGX1V = """
X   NV1 NV1 NV2 NV2 SYS SYS SYS
NV1 X   NV2 NV1 SYS NV2 SYS SYS
NV1 NV2 X   NV2 SYS SYS NV1 SYS
NV2 NV1 NV2 X   SYS SYS SYS NV1
NV2 SYS SYS SYS X   NV1 NV1 NV2
SYS NV2 SYS SYS NV1 X   NV2 NV1
SYS SYS NV1 SYS NV1 NV2 X   NV2
SYS SYS SYS NV1 NV2 NV1 NV2 X
"""
NAMED = {
    "dgx1v": node(DGX1V, "0 0 0 0 1 1 1 1", nvlink=2),
    "dgx1p": node(DGX1V.replace("NV2", "NV1"), "0 0 0 0 1 1 1 1", nvlink=1),
    "pcie-pairs": bridged("01 23 45 67", "PIX", "0 0 0 0 1 1 1 1", near="PHB", across="SYS", pcie=3),
    "k80-2socket": load(str(MACHINES / "k80-2socket.json")),
    "dgx1": load(str(MACHINES / "dgx1.json")),
    "a100-mig": load(str(MACHINES / "a100-mig.json")),
    "dgx-a100": bridged("", "", "3 3 1 1 7 7 5 5", near="NV12", across="NV12"),
    "nps4-bridges": bridged("01 23 45 67", "NV4", "3 2 1 0 7 6 5 4", near="SYS", across="SYS"),
    "a100-bridges": bridged("02 13 45 67", "NV12", "0 0 0 0 1 1 1 1", near="NODE", across="SYS"),
    "a100-cross-bridge": bridged("03 12 45", "NV12", "0 0 0 1 1 1", near="NODE", across="SYS"),
    "rtx4090-all-sys": bridged("", "", "0 0 0 0 1 1 1 1", near="SYS", across="SYS"),
}


@pytest.mark.parametrize(
    ("machine", "free", "count", "gpus", "weakest", "ring", "mean"),
    [
        ("dgx1v", "01234567", 2, (0, 3), "NV2", 50.0, 50.0),
        ("dgx1v", "01234567", 3, (0, 2, 3), "NV1", 25.0, 41.67),
        ("dgx1v", "01234567", 4, (0, 1, 2, 3), "NV1", 25.0, 37.5),
        ("dgx1v", "01234567", 8, (0, 3, 2, 1, 5, 6, 7, 4), "NV2", 50.0, 24.43),
        # The pair score of go-gpuallocator takes 4,5 (NV1) here to keep a better partition.
        ("dgx1v", "3457", 2, (4, 7), "NV2", 50.0, 50.0),
        ("dgx1v", "2456", 2, (5, 6), "NV2", 50.0, 50.0),
        ("dgx1p", "01234567", 4, (0, 1, 2, 3), "NV1", 20.0, 20.0),
        ("dgx1", "1467", 3, (4, 6, 7), "NV1", 20.0, 20.0),
        ("pcie-pairs", "1234567", 2, (2, 3), "PIX", 12.0, 12.0),
        ("pcie-pairs", "0124567", 3, (0, 1, 2), "PHB", 10.0, 10.67),
        ("k80-2socket", "0123", 2, (0, 1), "PIX", 12.0, 12.0),
        ("k80-2socket", "123", 2, (2, 3), "PIX", 12.0, 12.0),
        ("k80-2socket", "0123", 4, (0, 1, 2, 3), "SYS", 7.0, 8.67),
        ("dgx-a100", "01234567", 2, (0, 1), "NV12", 300.0, 300.0),
        ("dgx-a100", "12345", 2, (2, 3), "NV12", 300.0, 300.0),
        ("dgx-a100", "1234567", 4, (2, 3, 4, 5), "NV12", 300.0, 300.0),
        ("nps4-bridges", "1234567", 2, (2, 3), "NV4", 100.0, 100.0),
        ("a100-bridges", "01234567", 2, (0, 2), "NV12", 300.0, 300.0),
        ("a100-bridges", "01234567", 4, (0, 2, 1, 3), "NODE", 18.0, 112.0),
        ("a100-cross-bridge", "012345", 2, (1, 2), "NV12", 300.0, 300.0),
        ("a100-cross-bridge", "12345", 2, (1, 2), "NV12", 300.0, 300.0),
        ("rtx4090-all-sys", "01234567", 4, (0, 1, 2, 3), "SYS", 12.0, 12.0),
        ("rtx4090-all-sys", "234567", 4, (4, 5, 6, 7), "SYS", 12.0, 12.0),
    ],
)
def test_known_best_set(
    machine: str, free: str, count: int, gpus: tuple[int, ...], weakest: str, ring: float, mean: float
) -> None:
    """The set, its order and its figures on a machine whose optimum is known."""
    choice = choose(NAMED[machine], granted=[int(each) for each in free], count=count)
    assert (choice.gpus, choice.weakest_link, choice.ring_gbps, choice.mean_gbps) == (gpus, weakest, ring, mean)


@pytest.mark.parametrize(
    ("machine", "free", "cpus", "gpu"),
    [
        ("k80-2socket", "0123", range(0, 4), 0),
        ("k80-2socket", "0123", range(12, 16), 2),
        ("k80-2socket", "0123", (0, 1, 12, 13, 14), 2),
        ("k80-2socket", "012", (), 2),
        ("nps4-bridges", "01234567", range(0, 4), 3),
        ("a100-bridges", "0123567", (), 5),
        ("a100-bridges", "01234567", range(10, 20), 4),
        ("dgx1v", "0134567", (), 1),
        ("a100-mig", "012345", range(16, 20), 2),
        ("rtx4090-all-sys", "4567", (), 4),
    ],
)
def test_one_gpu(machine: str, free: str, cpus: range, gpu: int) -> None:
    """One GPU is the nearest to the CPUs; among those one without a partner, so that no fast pair is broken."""
    assert choose(NAMED[machine], granted=[int(each) for each in free], count=1, cpus=cpus).gpus == (gpu,)
