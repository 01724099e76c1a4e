"""What the card of a server shows of its job's other nodes."""

from __future__ import annotations

from dataclasses import replace

from jupyterhub_gpuspawner.extensions.several_nodes.card import NOT_REPORTED, nodes_part
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, to_document
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacedGpu, PlacementDocument


def test_the_other_nodes_of_a_job_are_told() -> None:
    """A job of several nodes has a line for each node other than the server's."""
    placement = PlacementDocument(
        node="g1", other_nodes=(NodeGrant("g2", (0, 1), "k80", 4, 8000), NodeGrant("g3", cpus=1), NodeGrant("g4"))
    )
    part = nodes_part(placement, None, {})

    assert [(name, text) for name, text, _ in part.rows] == [
        ("Network", "weakest link of all nodes: not known\nthe network cards of this node are not known"),
        (
            "Other nodes",
            "g2: GPU 0-1 (K80, 12 GB), 4 CPUs; has not reported\n"
            "g3: 1 CPU; has not reported\ng4: not known; has not reported",
        ),
    ]
    assert part.problems == tuple(NOT_REPORTED.format(node=node) for node in ("g2", "g3", "g4"))


def test_a_node_that_has_reported_has_facts_of_its_own() -> None:
    """Its GPUs, CPUs, network cards, and problems that are not said of the server's node already."""
    topology = to_document(NodeTopology(gpus=(Gpu(0),), source="sysfs+network"))
    other = PlacementDocument(
        node="g2",
        gpus=(PlacedGpu(0, nic="mlx5_0", nic_link="?"),),
        cpus="4-7",
        problems=("Simulated.", "GPU 1 does not respond."),
    )
    bare = replace(other, gpus=(PlacedGpu(0),), node="g3", problems=())
    placement = PlacementDocument(
        node="g1",
        problems=("Simulated.",),
        other_nodes=(NodeGrant("g2", placement=other), NodeGrant("g3", placement=bare)),
        weakest_link_over_nodes="SYS",
    )
    part = nodes_part(placement, None, {"g2": topology, "g3": topology})
    others = list(part.shown())
    second, third = (other.facts for other in others)
    placed = others[0].placement

    assert part.rows[0][1].splitlines()[0] == "weakest link of all nodes: SYS"
    assert (placed.node, second.got, placed.problems) == (
        "g2",
        ("1 \N{MULTIPLICATION SIGN} GPU", "4 CPUs"),
        ("GPU 1 does not respond.",),
    )
    assert second.rows == (
        ("GPUs", "GPU 0: model not known"),
        ("CPUs", "4-7"),
        ("NUMA nodes", "not known"),
        ("Memory policy", "none"),
        ("Aligned", "not known"),
        ("Network", "GPU 0: mlx5_0, link not known"),
    )
    assert dict(third.rows)["Network"] == "this node has no network card that GPUs can use directly"
    assert [(other.placement.node, other.topology) for other in others] == [("g2", topology), ("g3", topology)]
