"""What the home page shows of a running server."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.hub.server.card import ServerFacts, got, node_facts, server_facts
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.placement.topology import NodeTopology, load, to_document
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
    assert server_facts(Server(placement=K80)) == ServerFacts(
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
    facts = server_facts(Server(placement=K80, cluster="cedar"))

    assert facts is not None
    assert dict(facts.rows)["Job"] == "12, partition gpu, cluster cedar"


def test_the_other_nodes_of_a_job_are_counted() -> None:
    """What it has there is told by an extension."""
    placement = PlacementDocument(node="g1", other_nodes=(NodeGrant("g2"), NodeGrant("g3"), NodeGrant("g4")))

    assert got(placement, None) == ("3 more nodes",)


def test_what_is_not_known_is_said_to_be_not_known() -> None:
    """An empty report gives no empty rows and no guesses."""
    facts = server_facts(Server(placement=PlacementDocument(node="c1")))

    assert facts == ServerFacts(
        rows=(
            ("Node", "c1"),
            ("GPUs", "none"),
            ("CPUs", "not known"),
            ("NUMA nodes", "not known"),
            ("Memory policy", "none"),
            ("Aligned", "not known"),
        ),
    )


def test_slices_of_one_gpu_are_told_apart() -> None:
    """Whether NVML's name of a device has the profile or not."""
    machine = load(str(MACHINES / "a100-mig.json"))
    gpus = tuple(
        PlacedGpu(gpu.index, gpu.uuid, name=name, memory_mib=gpu.memory_mib, mig=gpu.mig, mig_device=number)
        for number, (gpu, name) in enumerate(zip(machine.gpus[2:5], ("A100", "A100 MIG 1g.10gb", ""), strict=True))
    )
    facts = node_facts(PlacementDocument(node="a1", gpus=gpus), to_document(machine))

    assert dict(facts.rows)["GPUs"].splitlines() == [
        "slice 0 of GPU 2: MIG 1g.10gb of A100, 9,728 MiB",
        "slice 1 of GPU 2: MIG 1g.10gb of A100, 9,728 MiB",
        "slice 2 of GPU 2: MIG 1g.10gb of GPU, 9,728 MiB",
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
