"""AMD's machines, read from the kernel's files: links, names, memory, NUMA nodes, and what is chosen on them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.node.report import fit
from jupyterhub_gpuspawner.placement.choice import choose, choose_cpus, link_gbps
from jupyterhub_gpuspawner.placement.topology import NumaNode, from_document, to_document
from jupyterhub_gpuspawner.units import format_cpulist
from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacedGpu, PlacementDocument
from tests.extensions.amd.machines import MACHINES, MI250X_LINKS, built, read, recorded, write

KNOWN = {
    "Frontier": ("AMD Instinct MI250X", 65536, (3, 3, 1, 1, 0, 0, 2, 2), 50),
    "ARCHER2": ("AMD Instinct MI210", 65536, (0, 1, 2, 3), 50),
    "8 MI300X": ("AMD Instinct MI300X", 196608, (0, 0, 0, 0, 1, 1, 1, 1), 64),
    "8 MI325X": ("AMD Instinct MI325X", 262144, (0, 0, 0, 0, 1, 1, 1, 1), 64),
    "8 MI355X, a driver without bandwidths": ("AMD Instinct MI355X", 294912, (0, 0, 0, 0, 1, 1, 1, 1), 77),
    "4 MI300A": ("AMD Instinct MI300A", 131072, (0, 1, 2, 3), 64),
    "2 MI100 with a bridge": ("AMD Instinct MI100", 32768, (0, 0), 50),
    "4 GPUs of PCIe": ("AMD Instinct MI210", 65536, (0, 0, 1, 1), 50),
    "a Vega in a desktop": ("AMD gfx900", 8192, (0,), None),
}
"""Name, MiB, NUMA nodes, and the rate of one XGMI link."""


@pytest.mark.parametrize("name", MACHINES)
def test_the_gpus_of_a_machine(name: str, tmp_path: Path) -> None:
    """Their names are the products', and their numbers ROCm's; the document that travels says the same."""
    topology = built(tmp_path, name)

    assert {(gpu.name, gpu.memory_mib) for gpu in topology.gpus} == {KNOWN[name][:2]}
    assert tuple(gpu.numa_node for gpu in topology.gpus) == KNOWN[name][2]
    assert {gpu.xgmi_gbps for gpu in topology.gpus} == {KNOWN[name][3]}
    assert [(gpu.index, gpu.pci) for gpu in topology.gpus] == [
        (n, pci) for n, (pci, _) in enumerate(MACHINES[name].gpus)
    ]
    assert (topology.source, topology.problems) == ("kfd+sysfs", ())
    assert from_document(to_document(topology)) == topology


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ARCHER2", {"X", "XGMI1"}),
        ("8 MI300X", {"X", "XGMI1"}),
        ("8 MI325X", {"X", "XGMI1"}),
        ("8 MI355X, a driver without bandwidths", {"X", "XGMI1"}),
        ("4 MI300A", {"X", "XGMI2"}),
        ("2 MI100 with a bridge", {"X", "XGMI1"}),
        ("4 GPUs of PCIe", {"X", "PIX", "NODE", "SYS"}),
        ("a Vega in a desktop", {"X"}),
    ],
)
def test_the_links_of_a_machine(name: str, words: set[str], tmp_path: Path) -> None:
    """By the kernel's table of XGMI, and else by the PCI bridges above two GPUs."""
    topology = built(tmp_path, name)

    assert {topology.link(a, b) for a in range(len(topology.gpus)) for b in range(len(topology.gpus))} == words


def test_the_links_of_an_mi250x_node(tmp_path: Path) -> None:
    """Each has its number of links; a pair of the hive that has none is reached by way of another GPU."""
    topology = built(tmp_path, "Frontier")

    for a, row in enumerate(MI250X_LINKS):
        for b, count in enumerate(row):
            assert topology.link(a, b) == ("X" if a == b else f"XGMI{count}" if count else "XGMI")
    assert [link_gbps(topology, 0, n) for n in (1, 6, 2, 3)] == [200.0, 100.0, 50.0, 25.0]


@pytest.mark.parametrize(
    ("granted", "count", "gpus", "weakest"),
    [
        (range(8), 2, (0, 1), "XGMI4"),
        ((0, 2, 3, 6), 2, (2, 3), "XGMI4"),
        ((0, 2, 5, 6), 2, (0, 6), "XGMI2"),
        (range(8), 4, None, "XGMI1"),
        (range(8), 8, None, "XGMI1"),
        ((3,), 1, (3,), None),
    ],
)
def test_what_is_chosen_on_an_mi250x_node(
    granted: tuple[int, ...], count: int, gpus: tuple[int, ...] | None, weakest: str | None, tmp_path: Path
) -> None:
    """The two halves of a package before others; four and eight in a ring of direct links."""
    topology = built(tmp_path, "Frontier")

    best = choose(topology, granted=tuple(granted), count=count)

    assert best.weakest_link == weakest
    assert gpus is None or tuple(sorted(best.gpus)) == gpus
    if count > 2:
        ring = [topology.link(a, b) for a, b in zip(best.gpus, (*best.gpus[1:], best.gpus[0]), strict=True)]
        assert "XGMI" not in ring


@pytest.mark.parametrize(
    ("gpu", "cores"),
    [(0, "48-55"), (1, "56-63"), (2, "16-23"), (3, "24-31"), (4, "0-7"), (5, "8-15"), (6, "32-39"), (7, "40-47")],
)
def test_the_cores_beside_half_an_mi250x(gpu: int, cores: str, tmp_path: Path) -> None:
    """Those of its L3 cache, which Frontier's and LUMI's user guides name; also where the other half is hidden."""
    everything = tuple(range(128))
    topology = built(tmp_path / "all", "Frontier")
    alone = built(tmp_path / "alone", "Frontier", hidden=[n for n in range(8) if n != gpu])

    assert format_cpulist(choose_cpus(topology, granted=everything, count=16, gpus=[gpu])).partition(",")[0] == cores
    assert len(alone.gpus) == 1
    assert len(alone.devices) == 8
    assert alone.gpus[0].cpus == topology.gpus[gpu].cpus


def test_odd_firmware_names_no_cache(tmp_path: Path) -> None:
    """Four halves on one NUMA node with two caches: they share the node's cores."""
    topology = built(tmp_path / "right", "Frontier")
    for pci in ("0000:d9:00.0", "0000:de:00.0"):
        write(tmp_path / "right", f"sys/bus/pci/devices/{pci}/numa_node", 0)

    odd = read(tmp_path / "right")

    assert [gpu.numa_node for gpu in odd.gpus] == [3, 3, 1, 1, 0, 0, 0, 0]
    assert {gpu.cpus for gpu in odd.gpus[4:]} == {odd.numa_nodes[0].cpus}
    assert odd.gpus[:4] == topology.gpus[:4]


def test_recorded_mi210s_of_two_hives(tmp_path: Path) -> None:
    """ROCm counts in the kernel's order, not in that of the bus ids; without PCI's files the kernel's links tell."""
    for node in (0, 1):
        write(tmp_path, f"sys/devices/system/node/node{node}/cpulist", f"{64 * node}-{64 * node + 63}")
    topology = recorded(tmp_path, "mi210-2x4")

    assert [gpu.pci[5:7] for gpu in topology.gpus] == ["63", "43", "03", "26", "e3", "c3", "83", "a3"]
    assert [gpu.numa_node for gpu in topology.gpus] == [0] * 4 + [1] * 4
    hives = [[topology.link(a, b) for b in range(8)] for a in range(8)]
    assert hives[0] == ["X", "XGMI1", "XGMI1", "XGMI1", "SYS", "SYS", "SYS", "SYS"]
    assert tuple(sorted(choose(topology, granted=(0, 3, 4, 5, 7), count=3).gpus)) == (4, 5, 7)


@pytest.mark.parametrize(
    ("name", "partitions", "of_one", "memory"), [("mi300x-cpx", 63, 8, {None}), ("mi308x-cpx", 32, 4, {49152, 49136})]
)
def test_recorded_partitions(name: str, partitions: int, of_one: int, memory: set[int | None], tmp_path: Path) -> None:
    """Each has a bus id of its own and no UUID, since ROCm finds none by that of the package, which they share."""
    topology = recorded(tmp_path, name)

    assert len(topology.gpus) == len({gpu.pci for gpu in topology.gpus}) == partitions
    assert {gpu.uuid for gpu in topology.gpus} == {""}
    assert {gpu.memory_mib for gpu in topology.gpus} == memory
    first = [topology.link(0, b) for b in range(partitions)]
    assert first == ["X"] + ["PKG"] * (of_one - 1) + ["XGMI1"] * (partitions - of_one)
    granted = (0, of_one, of_one + 1, 2 * of_one)
    assert tuple(sorted(choose(topology, granted=granted, count=2).gpus)) == (of_one, of_one + 1)


def test_a_recorded_vega_of_an_old_kernel(tmp_path: Path) -> None:
    """Without domain, hive or bandwidth."""
    topology = recorded(tmp_path, "vega-1")

    assert [(gpu.name, gpu.memory_mib, gpu.pci) for gpu in topology.gpus] == [
        ("AMD Instinct MI25", 16368, "0000:19:00.0")
    ] * 2


@pytest.mark.parametrize("name", ["Frontier", "8 MI300X", "4 MI300A"])
def test_a_damaged_tree_costs_only_what_it_says(name: str, tmp_path: Path) -> None:
    """Without links, memory banks, PCI's files or properties, and with NUMA nodes of -1."""
    whole = built(tmp_path, name)
    first = len(MACHINES[name].numa_cpus)
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    shutil.rmtree(nodes / str(first) / "io_links")
    (nodes / str(first + 1) / "mem_banks/0/properties").write_text("size_in_bytes lots\n")
    (nodes / str(first + 2) / "properties").write_text("\0\nsimd_count\nsimd_count 4 4\n")
    for pci, _ in MACHINES[name].gpus:
        (tmp_path / "sys/bus/pci/devices" / pci / "numa_node").write_text("-1\n")

    topology = read(tmp_path)

    kept = [n for n in range(len(whole.gpus)) if n != 2]
    assert [gpu.pci for gpu in topology.gpus] == [whole.gpus[n].pci for n in kept]
    assert {gpu.numa_node for gpu in topology.gpus} == {None}
    assert [gpu.memory_mib for gpu in topology.gpus] == [whole.gpus[n].memory_mib for n in kept]
    assert [gpu.uuid for gpu in topology.gpus] == [whole.gpus[n].uuid for n in kept]
    assert topology.links == tuple(tuple(whole.link(a, b) for b in kept) for a in kept)


def test_a_node_without_these_gpus(tmp_path: Path) -> None:
    """Nothing is read, and nothing invented."""
    topology = read(tmp_path)

    assert (topology.gpus, topology.devices) == ((), ())


def test_a_whole_node_in_partitions_is_reported_with_its_topology(tmp_path: Path) -> None:
    """Each partition is a GPU of the node, and here one of the server's as well."""
    topology = recorded(tmp_path, "mi300x-cpx")
    turns = tuple(tuple(range(n, 384, 2)) for n in (0, 1))
    gpus = tuple(replace(gpu, numa_node=n // 32, cpus=turns[n // 32]) for n, gpu in enumerate(topology.gpus))
    nodes = tuple(NumaNode(n, cpus, 1_000_000, (10, 32)) for n, cpus in enumerate(turns))
    siblings = tuple((core, core + 192) for core in range(192))
    node = replace(topology, gpus=gpus, numa_nodes=nodes, siblings=siblings, packages=turns)
    placed = tuple(PlacedGpu(gpu.index, "", gpu.pci, gpu.name, 24576, gpu.numa_node) for gpu in gpus)

    report = fit(NodeReport(0, PlacementDocument(job_id="7", node="g1", gpus=placed), to_document(node)))

    assert report.placement.problems == ()
    assert report.topology is not None
    assert from_document(report.topology) == node
