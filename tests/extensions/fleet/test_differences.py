"""Nodes that differ from most of their siblings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.extensions.fleet.differences import Difference, Kind, differences
from jupyterhub_gpuspawner.extensions.fleet.node_record import NodeRecord, merged
from jupyterhub_gpuspawner.placement.topology import NodeTopology, NumaNode
from tests.extensions.fleet.nodes import ADDRESSES, DAY, only, record, seen_often, topology, view, with_gpu, with_link

SIBLINGS = [record("g2"), record("g3")]
WHOLE = topology("g1")
UNLIKE: dict[str, tuple[NodeTopology, Difference]] = {
    "an NVLink is down": (
        with_link(WHOLE, 0, 1, "NV1"),
        Difference(Kind.LINKS, (f"{ADDRESSES[0]} - {ADDRESSES[1]}",), "NV1", "NV2", 2),
    ),
    "all NVLinks are down": (
        with_link(with_link(WHOLE, 0, 1, "SYS"), 2, 3, "SYS"),
        Difference(
            Kind.LINKS, (f"{ADDRESSES[0]} - {ADDRESSES[1]}", f"{ADDRESSES[2]} - {ADDRESSES[3]}"), "SYS", "NV2", 2
        ),
    ),
    "half the PCIe lanes": (
        with_gpu(WHOLE, 2, pcie_width=8),
        Difference(Kind.WIDTH, (ADDRESSES[2],), "8", "16", 2),
    ),
    "an older PCIe generation": (
        with_gpu(WHOLE, 2, pcie_generation=2),
        Difference(Kind.GENERATION, (ADDRESSES[2],), "2", "3", 2),
    ),
    "another model": (
        with_gpu(WHOLE, 1, name="Tesla V100-SXM2-32GB"),
        Difference(Kind.MODEL, (ADDRESSES[1],), "Tesla V100-SXM2-32GB", "Tesla V100-SXM2-16GB", 2),
    ),
    "another NUMA node": (
        with_gpu(WHOLE, 3, numa_node=0),
        Difference(Kind.NUMA, (ADDRESSES[3],), "0", "1", 2),
    ),
    "a memory module is missing": (
        replace(WHOLE, numa_nodes=(WHOLE.numa_nodes[0], NumaNode(1, (4, 5, 6, 7), 32500))),
        Difference(Kind.NODE_MEMORY, ("1",), "32 GiB", "64 GiB", 2),
    ),
    "another driver": (replace(WHOLE, driver="535.104"), Difference(Kind.DRIVER, (), "535.104", "550.90", 2)),
    "a device fewer on the bus": (
        replace(only(WHOLE, 0, 1, 2), devices=ADDRESSES[:3]),
        Difference(Kind.GPUS, (), "3", "4", 2),
    ),
    "a NIC elsewhere": (
        replace(WHOLE, nics=("mlx5_0",), nic_links=(("SYS", "SYS", "PIX", "NODE"),)),
        Difference(Kind.NICS, (f"mlx5_0 - {ADDRESSES[3]}",), "NODE", "PIX", 2),
    ),
}


def test_a_fault_of_gpus_is_one_also_of_a_node_without_siblings() -> None:
    """It is gone with the first report that has none."""
    whole = replace(WHOLE, gpus=tuple(replace(gpu, fault="GPU is lost") for gpu in WHOLE.gpus[:2]) + WHOLE.gpus[2:])
    [difference] = differences([record("g1", whole)])["g1"]

    assert difference == Difference(Kind.FAULT, ADDRESSES[:2], "GPU is lost")
    assert str(difference) == f"{ADDRESSES[0]}, {ADDRESSES[1]}: GPU is lost"
    assert differences([merged(record("g1", whole), view("g1", WHOLE))]) == {"g1": ()}


@pytest.mark.parametrize(("job_topology", "difference"), UNLIKE.values(), ids=UNLIKE.keys())
def test_a_node_that_differs(job_topology: NodeTopology, difference: Difference) -> None:
    """One difference for each kind and value, with what the siblings have; the siblings have none."""
    nic = {"nics": ("mlx5_0",), "nic_links": (("SYS", "SYS", "PIX", "PIX"),)}
    siblings = [record(name, topology(name, **nic)) for name in ("g2", "g3")] if job_topology.nics else SIBLINGS

    assert differences([seen_often("g1", job_topology), *siblings]) == {"g1": (difference,), "g2": (), "g3": ()}


def test_a_gpu_that_is_gone_needs_no_siblings() -> None:
    """With the day on which it was last seen."""
    lost = merged(record("g1"), view("g1", only(WHOLE, 0, 1, 3), at=2 * DAY, granted=1))

    assert differences([lost]) == {
        "g1": (Difference(Kind.GONE, (ADDRESSES[2],), seen="Tesla V100-SXM2-16GB", since=DAY),)
    }


@pytest.mark.parametrize(
    "nodes",
    [
        [record("g1", only(WHOLE, 0, 1)), *SIBLINGS],
        [record("g1", replace(WHOLE, driver="", links=())), *SIBLINGS],
        [record("g1", with_gpu(WHOLE, 0, pcie_width=None, memory_mib=None, numa_node=None)), *SIBLINGS],
        [seen_often("g1", with_gpu(WHOLE, 0, pcie_width=8)), record("g2")],
        [seen_often("g1", with_gpu(WHOLE, 0, pcie_width=8))],
        [
            seen_often("g1", with_gpu(WHOLE, 0, pcie_width=8)),
            seen_often("g4", with_gpu(topology("g4"), 0, pcie_width=4)),
            record("g2"),
        ],
        [record("g1", with_gpu(WHOLE, 0, pcie_width=8)), *SIBLINGS],
        [seen_often("g1", with_gpu(WHOLE, 0, pcie_width=32)), *SIBLINGS],
        [record("g1", replace(WHOLE, driver="535.104"), gres="gpu:a100:4"), *SIBLINGS],
        [record("g1", replace(WHOLE, numa_nodes=(WHOLE.numa_nodes[0], NumaNode(1, (4, 5, 6, 7), 64800)))), *SIBLINGS],
        [
            record(name, replace(topology(name), numa_nodes=(NumaNode(0, tuple(range(8)), memory),)))
            for name, memory in (("g1", 515_800), ("g2", 516_200), ("g3", 516_210))
        ],
    ],
    ids=[
        "two GPUs have not been seen",
        "a driver without NVML",
        "facts of a GPU are not known",
        "two nodes differ from each other",
        "no siblings",
        "no majority",
        "fewer lanes in one view: the GPU may have been idle",
        "more lanes than its siblings",
        "another GPU type in Slurm",
        "the kernel keeps more memory to itself",
        "the kernel keeps more of 512 GiB to itself",
    ],
)
def test_what_is_no_difference(nodes: list[NodeRecord]) -> None:
    """What is not known, and what no majority of siblings agrees on."""
    assert set(differences(nodes).values()) == {()}


def test_a_nic_that_is_missing_is_named() -> None:
    """And one that no sibling has."""
    siblings = [record(name, topology(name, nics=("mlx5_0", "mlx5_1"))) for name in ("g2", "g3")]
    one = record("g1", topology("g1", nics=("mlx5_0", "mlx5_7")))

    assert [str(difference) for difference in differences([one, *siblings])["g1"]] == [
        "mlx5_1: NIC missing, which 2 siblings have",
        "mlx5_7: NIC present, which 2 siblings lack",
    ]
