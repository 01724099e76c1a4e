"""The picture on a server's card: it says what the rows say, and is not drawn where it would say something else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from jupyterhub_gpuspawner.extensions.picture.card import picture_of
from jupyterhub_gpuspawner.hub.server.card import node_facts
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, load, to_document
from jupyterhub_gpuspawner.units import format_cpulist
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument

MACHINES = Path(__file__).parents[3] / "jupyterhub_gpuspawner" / "demo" / "machines"

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
    """GPUs, CPUs and whether it is simulated: the same in rows, picture and description of the node."""
    topology = load(str(MACHINES / f"{machine}.json"))
    own = [topology.gpus[position] for position in positions]
    placement = PlacementDocument(
        node="g<1>",
        gpus=tuple(PlacedGpu(gpu.index, gpu.uuid, name=gpu.name, mig=gpu.mig) for gpu in own),
        cpus=cpus,
        simulated=topology.simulated,
    )
    facts = node_facts(placement, to_document(topology))
    picture = picture_of(placement, to_document(topology))
    assert picture is not None
    rows = dict(facts.rows)
    drawn = BeautifulSoup(picture.svg, "html.parser")

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
    assert ("simulated" in [text.text for text in drawn.select("text")]) is placement.simulated
    in_words = [name.removesuffix(", yours") for name, _ in picture.in_words if name.endswith(", yours")]
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
    assert picture_of(placement, to_document(topology)) is None


def test_a_gpu_without_a_uuid_is_known_by_its_index() -> None:
    """A report without UUIDs is drawn as well."""
    picture = picture_of(PlacementDocument(node="g1", gpus=(PlacedGpu(1),), cpus="0"), to_document(TWO))

    assert picture is not None
    assert "Yours: GPU 1, CPUs 0." in picture.svg


def test_slices_of_one_gpu_are_told_apart() -> None:
    """In the picture in words as in the card's rows."""
    machine = load(str(MACHINES / "a100-mig.json"))
    gpus = tuple(
        PlacedGpu(gpu.index, gpu.uuid, mig=gpu.mig, mig_device=number) for number, gpu in enumerate(machine.gpus[2:5])
    )
    picture = picture_of(PlacementDocument(node="a1", gpus=gpus), to_document(machine))

    assert picture is not None
    assert [name for name, _ in picture.in_words if name.endswith(", yours")] == [
        f"slice {number} of GPU 2, yours" for number in range(3)
    ]


def test_a_topology_that_cannot_be_read_gives_no_picture() -> None:
    """Only the rows are shown."""
    assert picture_of(PlacementDocument(node="c1"), {"version": 99}) is None
