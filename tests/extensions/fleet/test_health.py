"""Nodes whose gres.conf contradicts what was seen, and the health of all nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.extensions.fleet.differences import Contradiction, Fault, contradictions
from jupyterhub_gpuspawner.extensions.fleet.health import Grant, health
from jupyterhub_gpuspawner.extensions.fleet.node_record import NodeRecord
from jupyterhub_gpuspawner.placement.topology import NumaNode
from jupyterhub_gpuspawner.units import parse_gres
from tests.extensions.fleet.nodes import DAY, only, record, seen_often, topology, with_gpu

WHOLE = topology("g1")
NPS2 = replace(WHOLE, numa_nodes=tuple(NumaNode(n, (2 * n, 2 * n + 1)) for n in range(4)))
ON_ONE = with_gpu(with_gpu(WHOLE, 2, numa_node=0), 3, numa_node=0)


@pytest.mark.parametrize(
    ("node_record", "gres", "expected"),
    [
        (record("g1"), "gpu:v100:4(S:0-1)", ()),
        (record("g1"), "gpu:v100:4", (Contradiction(Fault.NO_CORES, "", "0-1"),)),
        (record("g1"), "gpu:v100:4(S:0)", (Contradiction(Fault.SOCKETS, "0", "0-1"),)),
        (record("g1"), "gpu:v100:3(S:0-1)", (Contradiction(Fault.COUNT, "3", "4"),)),
        (record("g1", only(WHOLE, 0)), "gpu:v100:2,gpu:1g.5gb:14", ()),
        (record("g1", only(WHOLE, 0)), "gpu:v100:3", ()),
        (record("g1", with_gpu(WHOLE, 3, name="NVIDIA DGX Display")), "gpu:v100:3(S:0-1)", ()),
        (
            record("g1", with_gpu(WHOLE, 3, name="NVIDIA DGX Display")),
            "gpu:v100:2(S:0-1)",
            (Contradiction(Fault.COUNT, "2", "4"),),
        ),
        (record("g1", only(WHOLE, 0)), "gpu:v100:5", (Contradiction(Fault.COUNT, "5", "4"),)),
        (record("g1"), "", ()),
        (record("g1", ON_ONE), "gpu:v100:4", ()),
        (record("g1", ON_ONE), "gpu:v100:4(S:1)", (Contradiction(Fault.SOCKETS, "1", "0"),)),
        (record("g1", only(WHOLE, 0, 1)), "gpu:v100:4", ()),
        (record("g1", NPS2), "gpu:v100:4(S:0-1)", ()),
        (record("g1", replace(NPS2, packages=((0, 1, 2, 3), (4, 5, 6, 7)))), "gpu:v100:4(S:0)", ()),
        (record("g1", replace(WHOLE, numa_nodes=(), packages=())), "gpu:v100:4", ()),
    ],
    ids=[
        "as seen",
        "no Cores=",
        "one socket too few",
        "one GPU too few",
        "Slurm counts MIG devices",
        "one GPU too few, perhaps one for a display",
        "a GPU for a display",
        "a GPU for a display, and one too few",
        "one GPU too many",
        "Slurm has no GPUs there",
        "all GPUs on one socket need no Cores=",
        "the wrong socket",
        "not all GPUs have been seen",
        "NUMA nodes as sockets",
        "packages as sockets",
        "sockets are not known",
    ],
)
def test_slurms_configuration_against_what_was_seen(
    node_record: NodeRecord, gres: str, expected: tuple[Contradiction, ...]
) -> None:
    """Only what is certain: a node of which not all was seen contradicts nothing but a number."""
    assert tuple(contradictions(node_record, parse_gres(gres))) == expected


def test_the_health_of_a_fleet_in_words() -> None:
    """The node that differs comes first, with what the lines of gres.conf would gain."""
    records = [record("g2"), record("g3"), seen_often("g1", with_gpu(WHOLE, 0, pcie_width=8), gres="gpu:v100:4")]
    records = [replace(node_record, gres="gpu:v100:4") for node_record in records[:2]] + records[2:]
    grants = [
        Grant("2", "g1", DAY, 2, aligned=False, across=True, loss=86.0),
        Grant("3", "g1", DAY, 2, aligned=True, across=False, loss=0.0),
    ]
    fleet_health = health(records, grants, {"g1": parse_gres("gpu:v100:4"), "g2": parse_gres("gpu:v100:4(S:0-1)")})

    one, two, three = fleet_health.nodes
    assert [(node.node, node.ill, node.siblings, node.seen) for node in fleet_health.nodes] == [
        ("g1", True, 2, "4 of 4 GPUs seen, by 10 jobs that agree"),
        ("g2", False, 2, "4 of 4 GPUs seen, by 1 job"),
        ("g3", False, 2, "4 of 4 GPUs seen, by 1 job"),
    ]
    assert [str(difference) for difference in one.differences] == ["0000:07:00.0: PCIe lanes 8; 2 siblings have 16"]
    assert [str(contradiction) for contradiction in one.contradictions] == [
        "gres.conf names no Cores=, though the GPUs are on sockets 0-1"
    ]
    assert one.gains == (
        "The lines of gpuspawner fleet --gres-conf g1 tell Slurm the sockets of the GPUs and their links, which "
        "helps servers with Slurm 22.05, and with 24.11 and 26.05 if gpus_option is 'gpus'; so far at least 1 job lost "
        "by it."
    )
    assert str(one.grants) == (
        "2 jobs: 1 of 2 with cores away from their GPUs; 1 of 2 with a slower ring than was free (over all, 43 % "
        "slower on average, 86 % at worst); 1 of 2 on several sockets though one had room"
    )
    assert [node.gains for node in (two, three)] == ["", ""]
    assert str(two.grants) == "no jobs with GPUs yet"


def test_without_slurm_its_last_known_configuration_counts() -> None:
    """That of each node's last report."""
    node_record = record("g1", gres="gpu:v100:4")
    assert [node.contradictions for node in health([node_record], [], None).nodes] == [
        (Contradiction(Fault.NO_CORES, "", "0-1"),)
    ]
    assert [node.contradictions for node in health([node_record], [], {}).nodes] == [()]
