"""What the home page says of a running server."""

from __future__ import annotations

from datetime import datetime, timezone

from bs4 import BeautifulSoup

from jupyterhub_gpuspawner.hub.pages import ServerFacts, server_facts
from jupyterhub_gpuspawner.topology import Gpu, NodeTopology, NumaNode, to_document
from jupyterhub_gpuspawner.wire import NodeGrant, PlacedGpu, PlacementDocument

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=timezone.utc)


def test_a_gpu_server_in_words() -> None:
    """Node, job, GPUs, cores, NUMA nodes, memory policy, alignment and end, in this order."""
    placement = PlacementDocument(
        job_id="12",
        node="g1",
        partition="gpu",
        gpus=(PlacedGpu(index=1, name="Tesla K80", memory_mib=11441, numa_node=0),),
        cpus="0-3",
        numa_nodes=(0,),
        memory_policy="preferred:0",
        aligned=True,
        why="The GPU, the cores and the memory are on NUMA node 0.",
        ends_at="2026-05-04T12:30:00+00:00",
    )

    assert server_facts(placement, None, now=NOW) == ServerFacts(
        rows=(
            ("Node", "g1"),
            ("Job", "12, partition gpu"),
            ("GPUs", "GPU 1: Tesla K80, 11 GiB, NUMA node 0"),
            ("Cores", "0-3"),
            ("NUMA nodes", "0"),
            ("Memory policy", "preferred:0"),
            ("Aligned", "yes: The GPU, the cores and the memory are on NUMA node 0."),
            ("Ends", "2026-05-04 12:30 UTC (in 2 h 30 min)"),
        ),
        problems=(),
        simulated=False,
        picture="",  # type: ignore[arg-type]
    )


def test_the_other_nodes_of_a_job_are_told() -> None:
    """A job of several nodes has a line for each node beside the server's."""
    placement = PlacementDocument(
        node="g1", other_nodes=(NodeGrant("g2", (0, 1), "k80", 4, 8000), NodeGrant("g3", cpus=1), NodeGrant("g4"))
    )
    rows = dict(server_facts(placement, None, now=NOW).rows)
    assert rows["Other nodes"] == "g2: GPU 0-1 (k80), 4 CPUs\ng3: 1 CPU\ng4: not known"


def test_what_is_not_known_is_said_to_be_not_known() -> None:
    """An empty report gives no empty row and no invention."""
    facts = server_facts(PlacementDocument(node="c1", problems=("NVML did not answer.",)), None, now=NOW)

    assert facts.rows == (
        ("Node", "c1"),
        ("GPUs", "none"),
        ("Cores", "not known"),
        ("NUMA nodes", "not known"),
        ("Memory policy", "none"),
        ("Aligned", "not known"),
    )
    assert facts.problems == ("NVML did not answer.",)


def test_a_gpu_server_is_drawn_with_its_own_gpus_and_cores() -> None:
    """The node's picture has a mark on what is the server's, and the node's name for screen readers."""
    topology = to_document(
        NodeTopology(
            gpus=(Gpu(0, uuid="GPU-a", numa_node=0), Gpu(1, uuid="GPU-b", numa_node=0)),
            links=(("X", "PIX"), ("PIX", "X")),
            numa_nodes=(NumaNode(0, cpus=(0, 1)),),
        )
    )
    placement = PlacementDocument(node="g<1>", gpus=(PlacedGpu(index=1, uuid="GPU-b"),), cpus="0")
    drawn = BeautifulSoup(server_facts(placement, topology, now=NOW).picture, "html.parser")

    assert drawn.title is not None
    assert drawn.title.text == "Node g<1>"
    assert drawn.desc is not None
    assert drawn.desc.text == "2 GPUs, 2 CPUs. Yours: GPU 1, CPUs 0."


def test_a_topology_that_cannot_be_read_gives_no_picture() -> None:
    """The rows stand; nothing is drawn of what is not understood."""
    facts = server_facts(PlacementDocument(node="c1"), {"version": 99}, now=NOW)

    assert (facts.picture, facts.rows[0]) == ("", ("Node", "c1"))
