"""What the home page shows of a running server, in words and as a picture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.hub.server.card import ServerFacts, got, server_facts
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, load, to_document
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacedGpu, PlacementDocument

MACHINES = Path(__file__).parents[3] / "jupyterhub_gpuspawner" / "demo" / "machines"
K80 = PlacementDocument(
    job_id="12",
    node="g1",
    partition="gpu",
    gpus=(PlacedGpu(index=1, name="Tesla K80", memory_mib=11441, numa_node=0),),
    cpus="0-3",
    memory_mib=8192,
    numa_nodes=(0,),
    memory_policy="preferred:0",
    aligned=True,
    why="The GPU, the cores and the memory are on NUMA node 0.",
    ends_at="2026-05-04T12:30:00+00:00",
)


def test_a_gpu_server_in_words() -> None:
    """What it got, as the form says it, then node, job, GPUs, CPUs, NUMA nodes, memory policy and alignment."""
    assert server_facts(K80, None) == ServerFacts(
        name="g1",
        got=("1 \N{MULTIPLICATION SIGN} K80, 12 GB", "4 CPUs", "8 GiB memory"),
        rows=(
            ("Node", "g1"),
            ("Job", "12, partition gpu"),
            ("GPUs", "GPU 1: Tesla K80, 11,441 MiB, NUMA node 0"),
            ("CPUs", "0-3"),
            ("NUMA nodes", "0"),
            ("Memory policy", "preferred:0"),
            ("Aligned", "yes: The GPU, the cores and the memory are on NUMA node 0."),
        ),
    )


def test_in_a_hub_of_several_clusters_the_job_has_its_cluster() -> None:
    """The same number exists on each."""
    assert dict(server_facts(K80, None, cluster="cedar").rows)["Job"] == "12, partition gpu, cluster cedar"


def test_the_other_nodes_of_a_job_are_counted() -> None:
    """What it has there is told by an extension."""
    placement = PlacementDocument(node="g1", other_nodes=(NodeGrant("g2"), NodeGrant("g3"), NodeGrant("g4")))

    assert got(placement, None) == ("3 more nodes",)


def test_what_is_not_known_is_said_to_be_not_known() -> None:
    """An empty report gives no empty rows and no guesses."""
    facts = server_facts(PlacementDocument(node="c1", problems=("NVML did not answer.",)), None)

    assert facts == ServerFacts(
        name="c1",
        rows=(
            ("Node", "c1"),
            ("GPUs", "none"),
            ("CPUs", "not known"),
            ("NUMA nodes", "not known"),
            ("Memory policy", "none"),
            ("Aligned", "not known"),
        ),
        problems=("NVML did not answer.",),
    )


def test_slices_of_one_gpu_are_told_apart() -> None:
    """As the picture in words names them, whether NVML's name of a device has the profile or not."""
    machine = load(str(MACHINES / "a100-mig.json"))
    gpus = tuple(
        PlacedGpu(gpu.index, gpu.uuid, name=name, memory_mib=gpu.memory_mib, mig=gpu.mig, mig_device=number)
        for number, (gpu, name) in enumerate(zip(machine.gpus[2:5], ("A100", "A100 MIG 1g.10gb", ""), strict=True))
    )
    facts = server_facts(PlacementDocument(node="a1", gpus=gpus), to_document(machine))

    assert dict(facts.rows)["GPUs"].splitlines() == [
        "slice 0 of GPU 2: MIG 1g.10gb of A100, 9,728 MiB",
        "slice 1 of GPU 2: MIG 1g.10gb of A100, 9,728 MiB",
        "slice 2 of GPU 2: MIG 1g.10gb of GPU, 9,728 MiB",
    ]
    assert [name for name, _ in facts.node if name.endswith(", yours")] == [
        f"slice {number} of GPU 2, yours" for number in range(3)
    ]


CORES = NodeTopology(siblings=((0, 4), (1, 5), (2, 6), (3, 7)))
GOT: dict[str, tuple[PlacementDocument, NodeTopology | None, tuple[str, ...]]] = {
    "nothing that is known": (PlacementDocument(cpus="not a list"), CORES, ()),
    "two threads of a core": (PlacementDocument(cpus="0,4"), CORES, ("2 CPUs (1 core)",)),
    "threads of four cores": (PlacementDocument(cpus="0-3"), CORES, ("4 cores",)),
    "CPUs that the topology does not have": (PlacementDocument(cpus="8"), CORES, ("1 CPU",)),
    "two MIG slices": (
        PlacementDocument(gpus=(PlacedGpu(2, name="NVIDIA A100-SXM4-80GB", mig="1g.10gb", memory_mib=9728),) * 2),
        None,
        ("2 x A100 slice, 10 GB",),
    ),
    "GPUs of two kinds": (
        PlacementDocument(gpus=(PlacedGpu(0, name="NVIDIA A100-SXM4-80GB", memory_mib=81559), PlacedGpu(1))),
        None,
        ("1 x A100, 80 GB", "1 x GPU"),
    ),
    "a model with several sizes: what NVML reports": (
        PlacementDocument(gpus=(PlacedGpu(0, name="NVIDIA H100 PCIe", memory_mib=81559),)),
        None,
        ("1 x H100, 80 GB",),
    ),
    "a model's name with the memory of its CPU": (
        PlacementDocument(gpus=(PlacedGpu(0, name="NVIDIA GH200 480GB", memory_mib=97871),)),
        None,
        ("1 x GH200, 96 GB",),
    ),
    "a model of which NVML reports no memory": (
        PlacementDocument(gpus=(PlacedGpu(0, name="Tesla T4"),)),
        None,
        ("1 x T4, 16 GB",),
    ),
}


@pytest.mark.parametrize(("placement", "node", "words"), GOT.values(), ids=GOT.keys())
def test_what_a_server_got(placement: PlacementDocument, node: NodeTopology | None, words: tuple[str, ...]) -> None:
    """GPUs with the memory of their model, cores, memory: in the form's words, and only what is known."""
    assert got(placement, node) == tuple(word.replace(" x ", " \N{MULTIPLICATION SIGN} ") for word in words)


GRANTS = {
    "k80-2socket": ((2, 3), "12-15"),
    "dgx1": ((0, 2, 3), "0-19"),
    "a100-mig": ((1,), "0-3,16"),
    "cpu": ((), "4-7"),
}


def _mig_too() -> list[tuple[str, tuple[int, ...], str]]:
    return [(name, *own) for name, own in GRANTS.items()] + [("a100-mig", (2, 4), "16-17"), ("k80-2socket", (0,), "")]


@pytest.mark.parametrize(("machine", "positions", "cpus"), _mig_too())
def test_picture_and_rows_say_the_same(machine: str, positions: tuple[int, ...], cpus: str) -> None:
    """Node, GPUs, CPUs and whether it is simulated: the same in rows, picture and description of the node."""
    topology = load(str(MACHINES / f"{machine}.json"))
    own = [topology.gpus[position] for position in positions]
    placement = PlacementDocument(
        node="g<1>",
        gpus=tuple(PlacedGpu(gpu.index, gpu.uuid, name=gpu.name, mig=gpu.mig) for gpu in own),
        cpus=cpus,
        simulated=topology.simulated,
    )
    facts = server_facts(placement, to_document(topology))
    rows = dict(facts.rows)
    drawn = BeautifulSoup(facts.picture, "html.parser")

    assert drawn.title is not None
    assert drawn.title.text == "The whole node"
    assert (
        len(drawn.select("rect.gpu.own"))
        == len(re.findall("^(GPU|a slice of GPU) ", rows["GPUs"], re.MULTILINE))
        == len(own)
    )
    ticked = [re.findall("CPUs (.*)", text.text) for text in drawn.select("text.mine")]
    cpulist = ",".join(cpus for matches in ticked for cpus in matches)
    assert format_cpulist(_cpus(cpulist)) == ("" if rows["CPUs"] == "not known" else rows["CPUs"])
    assert ("simulated" in [text.text for text in drawn.select("text")]) is facts.simulated
    in_words = [name.removesuffix(", yours") for name, _ in facts.node if name.endswith(", yours")]
    assert drawn.desc is not None
    assert all(name in drawn.desc.text for name in in_words)
    assert len(in_words) == len(own)


def _cpus(cpulist: str) -> list[int]:
    spans = [part.partition("-") for part in cpulist.split(",") if part]
    return [cpu for low, _, high in spans for cpu in range(int(low), int(high or low) + 1)]


TWO = NodeTopology(
    gpus=(Gpu(0, uuid="GPU-a", numa_node=0), Gpu(1, uuid="GPU-b", numa_node=0)),
    links=(("X", "PIX"), ("PIX", "X")),
    numa_nodes=(NumaNode(0, cpus=(0, 1)),),
)
NOT_DRAWN = {
    "a GPU that the node does not have": (PlacementDocument(node="g1", gpus=(PlacedGpu(0, "GPU-c"),)), TWO),
    "a CPU that the node does not have": (PlacementDocument(node="g1", cpus="0-2"), TWO),
    "CPUs that are no list": (PlacementDocument(node="g1", cpus="all"), TWO),
}


@pytest.mark.parametrize(("placement", "topology"), NOT_DRAWN.values(), ids=NOT_DRAWN.keys())
def test_a_picture_that_would_say_less_is_not_drawn(placement: PlacementDocument, topology: NodeTopology) -> None:
    """Only the rows are shown."""
    facts = server_facts(placement, to_document(topology))
    assert (facts.picture, facts.node, facts.rows[0]) == ("", (), ("Node", "g1"))


def test_a_gpu_without_a_uuid_is_known_by_its_index() -> None:
    """A report without UUIDs is drawn as well."""
    facts = server_facts(PlacementDocument(node="g1", gpus=(PlacedGpu(1),), cpus="0"), to_document(TWO))
    assert "Yours: GPU 1, CPUs 0." in facts.picture


def test_a_topology_that_cannot_be_read_gives_no_picture() -> None:
    """Only the rows are shown."""
    facts = server_facts(PlacementDocument(node="c1"), {"version": 99})

    assert (facts.picture, facts.rows[0]) == ("", ("Node", "c1"))
