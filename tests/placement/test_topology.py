"""The topology type and its document: what goes in comes out, and a fault is named by its field."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.placement.topology import (
    Gpu,
    NodeTopology,
    NumaNode,
    from_document,
    is_link,
    load,
    to_document,
)

MACHINES = Path(__file__).parents[2] / "jupyterhub_gpuspawner" / "demo" / "machines"
NODE = NodeTopology(
    hostname="g1",
    gpus=(Gpu(0, "GPU-a", "0000:07:00.0", "Tesla K80", 11441, 0, (0, 1)),
          Gpu(1, uuid="MIG-b", mig="1g.10gb", gpu_numa_id=4)),
    links=(("X", "NV12"), ("NV12", "X")),
    numa_nodes=(NumaNode(0, (0, 1), 1000, (10, 21)), NumaNode(8, (2, 3), None, (21, 10))),
    siblings=((0, 1), (2, 3)),
    packages=((0, 1, 2, 3),),
    nics=("mlx5_0",),
    nic_links=(("PIX", "?"),),
    nic_numa=(None,),
    source="nvml",
    problems=("One thing is not known.",),
)  # fmt: skip


def test_document_comes_back_as_it_was() -> None:
    """Writing a topology as JSON and reading it gives the same topology."""
    assert from_document(json.loads(json.dumps(to_document(NODE)))) == NODE


def test_document_of_an_older_version_of_this_form_is_read() -> None:
    """Missing fields are unknown, and lists of CPUs are lists of numbers."""
    assert from_document({"version": 1, "gpus": [{"index": 3}]}) == NodeTopology(gpus=(Gpu(3),))
    nodes = [{"id": 0, "cpus": [0, 1]}]
    older = {"version": 1, "gpus": [{"index": 0, "cpus": [1]}], "numa_nodes": nodes, "siblings": [[0, 1]]}
    assert from_document(older) == NodeTopology(
        gpus=(Gpu(0, cpus=(1,)),), numa_nodes=(NumaNode(0, (0, 1)),), siblings=((0, 1),)
    )


def test_lists_of_cpus_are_texts() -> None:
    """A GPU's are left out where they are those of its NUMA node, and come back."""
    document = to_document(NODE)

    assert document["version"] == 2
    assert (document["siblings"], document["packages"]) == (("0-1", "2-3"), ("0-3",))
    assert [node["cpus"] for node in document["numa_nodes"]] == ["0-1", "2-3"]
    assert [gpu.get("cpus") for gpu in document["gpus"]] == [None, ""]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("version", 3, "version: must be 1 or 2, not 3"),
        ("version", True, "version: must be 1 or 2, not True"),
        ("colour", "red", "colour: no such field; fields are devices, driver, gpus, hostname, "),
        ("hostname", 5, "hostname: must be printable text of at most 500 characters"),
        ("hostname", "a\nb", "hostname: must be printable text of at most 500 characters"),
        ("simulated", 1, "simulated: must be true or false"),
        ("gpus", {}, "gpus: must be a list of at most 128"),
        ("gpus", ["a"], "gpus[0]: must be an object"),
        ("gpus", [{}], "gpus[0]: "),
        ("gpus", [{"index": -1}], "gpus[0].index: must be a whole number from 0 to 1023"),
        ("gpus", [{"index": True}], "gpus[0].index: must be a whole number from 0 to 1023"),
        ("gpus", [{"index": 0, "size": 1}], "gpus[0].size: no such field; fields are cpus, fault, gpu_numa_id, "),
        ("gpus", [{"index": 0}, {"index": 1, "cpus": ["0-3"]}],
         "gpus[1].cpus[0]: must be a whole number from 0 to 65535"),
        ("numa_nodes", [{"id": 0, "memory_mib": 1.5}],
         "numa_nodes[0].memory_mib: must be a whole number from 0 to 1099511627776, or null"),
        ("numa_nodes", [{"id": 0}, {"id": 0}], "numa_nodes must have different ids"),
        ("numa_nodes", [{"id": 0, "distances": [10, 21]}], "distances of a NUMA node must be 1 numbers, or none"),
        ("links", [["X", "FAST"], ["FAST", "X"]],
         "links[0][1]: 'FAST' is not a link; links are NV1 to NV99, XGMI1 to XGMI99, X, PIX, PXB, PHB, "),
        ("links", [["X", "PIX"]], "links must be a square of 2 GPUs"),
        ("links", [["X", "PIX"], ["SYS", "X"]], "link 1-0 is SYS one way and PIX the other"),
        ("links", [["PIX", "X"], ["X", "PIX"]], "link 0-0 is PIX, not X"),
        ("nic_links", [["PIX"]], "nic_links must be 1 rows of 2 GPUs"),
        ("nic_numa", [0, 1], "nic_numa must name a node, or null, for each of 1 NICs"),
    ],
)  # fmt: skip
def test_fault_is_named_by_its_field(path: str, value: Any, message: str) -> None:
    """A document with one invalid value is rejected; the error names the field and what would be valid."""
    with pytest.raises(ValueError) as caught:
        from_document({**to_document(NODE), path: value})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("document", [None, [], "topology", {}])
def test_other_documents_are_refused(document: Any) -> None:
    """Other documents are rejected by their version."""
    with pytest.raises(ValueError, match="version: must be 1 or 2, not None"):
        from_document(document)


@pytest.mark.parametrize(
    ("word", "valid"),
    [("X", True), ("NV1", True), ("NV18", True), ("SYS", True), ("SOC", True), ("?", True), ("NV", False),
     ("NV0", False), ("NV100", False), ("NV²", False), ("nv1", False), ("OK", False), ("", False)],
)  # fmt: skip
def test_link_words(word: str, valid: bool) -> None:
    """The link words are nvidia-smi's, and no others."""
    assert is_link(word) is valid


def test_a_problem_is_said_once() -> None:
    """The same sentence twice is one problem."""
    assert NODE.with_problem("One thing is not known.", "Another.").problems == ("One thing is not known.", "Another.")


@pytest.mark.parametrize("name", ["k80-2socket", "dgx1", "a100-mig", "cpu"])
def test_demo_machine_is_whole(name: str) -> None:
    """Each machine of the demo is marked as simulated and complete: GPUs, CPUs, memory, distances, NICs."""
    machine = load(str(MACHINES / f"{name}.json"))
    cpus = sorted(cpu for node in machine.numa_nodes for cpu in node.cpus)
    nodes = {node.id: node for node in machine.numa_nodes}
    assert (machine.simulated, machine.source, machine.problems) == (True, "file", ())
    assert cpus == list(range(len(cpus)))
    assert sorted(cpu for package in machine.packages for cpu in package) == cpus
    assert sorted(cpu for core in machine.siblings for cpu in core) == cpus
    assert all(node.memory_mib and len(node.distances) == 2 for node in machine.numa_nodes)
    assert len({gpu.uuid for gpu in machine.gpus}) == len(machine.gpus)
    assert all(gpu.uuid.startswith("MIG-" if gpu.mig else "GPU-") and gpu.pci and gpu.name for gpu in machine.gpus)
    assert all(gpu.memory_mib and gpu.cpus == nodes[gpu.numa_node or 0].cpus for gpu in machine.gpus)
    assert "?" not in {word for row in machine.links + machine.nic_links for word in row}
    assert len(machine.nic_links) == len(machine.nic_numa) == len(machine.nics)


def test_the_k80_node_is_the_one_of_the_workshop() -> None:
    """Two sockets of 12 cores and 32 GB, distances 10 and 21, a K80 board each, the InfiniBand card at the second."""
    machine = load(str(MACHINES / "k80-2socket.json"))
    assert machine.numa_nodes == (
        NumaNode(0, tuple(range(12)), 32768, (10, 21)),
        NumaNode(1, tuple(range(12, 24)), 32768, (21, 10)),
    )
    assert [(gpu.index, gpu.name, gpu.memory_mib, gpu.numa_node) for gpu in machine.gpus] == [
        (0, "Tesla K80", 11441, 0),
        (1, "Tesla K80", 11441, 0),
        (2, "Tesla K80", 11441, 1),
        (3, "Tesla K80", 11441, 1),
    ]
    assert machine.links == (
        ("X", "PIX", "SYS", "SYS"),
        ("PIX", "X", "SYS", "SYS"),
        ("SYS", "SYS", "X", "PIX"),
        ("SYS", "SYS", "PIX", "X"),
    )
    assert (machine.nics, machine.nic_links, machine.nic_numa) == (("mlx4_0",), (("SYS", "SYS", "PHB", "PHB"),), (1,))


def test_a_problem_that_quotes_anything_can_be_sent() -> None:
    """Control characters and length of a problem don't make the document unreadable."""
    sent = from_document(to_document(NODE.with_problem("bad\x1b[4m\n" + "x" * 600)))
    assert sent.problems[1] == "bad [4m " + "x" * 491 + "…"


def test_unknown_links_are_unknown() -> None:
    """Without a matrix every link is ``?``, but the one of a GPU to itself."""
    bare = replace(NODE, links=())
    assert (bare.link(0, 1), bare.link(1, 1), bare.numa_node_of_cpu(2), bare.numa_node_of_cpu(9)) == ("?", "X", 8, None)
