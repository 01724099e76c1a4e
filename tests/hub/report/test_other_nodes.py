"""A job of several nodes: the server on the first, and what it has on the others."""

from __future__ import annotations

import json

import pytest

from jupyterhub_gpuspawner.hub.report.reader import ReportError, other_nodes, parse_placement
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.units import Gres, NodeAllocation
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacementDocument


def test_nodes_beside_the_servers() -> None:
    """Every node except the batch host, with Slurm's GPUs and counts; GPUs of different types have no common name."""
    detail = Job(
        job_id="1",
        phase=Phase.RUNNING,
        batch_host="g1",
        allocations=(
            NodeAllocation("g1", (0, 1), 4000, (Gres("gpu", "k80", 2, (0, 1)),)),
            NodeAllocation("g2", (0, 1, 2), 6000, (Gres("gpu", "k80", 2, (2, 3)),)),
            NodeAllocation("m1", (4,), 500, (Gres("gpu", "a100", 1, (0,)), Gres("gpu", "1g.10gb", 1, (5,)))),
            NodeAllocation("c1", (0,), 100),
        ),
    )
    found = other_nodes(detail)
    assert found == (
        NodeGrant("g2", (2, 3), "k80", 3, 6000),
        NodeGrant("m1", (0, 5), None, 1, 500),
        NodeGrant("c1", (), None, 1, 100),
    )
    placement = PlacementDocument(node="g1", other_nodes=found)
    assert parse_placement(json.loads(json.dumps(placement.to_json()))) == placement


@pytest.mark.parametrize(
    ("grant", "fault"),
    [
        ({"gpus": [0]}, "node: Field required"),
        ({"node": "g2", "gpus": [-1]}, "gpus[0]: Input should be greater than or equal to 0"),
        ({"node": "g2\n"}, "node: must be printable text"),
        ({"node": "g2", "gpus": [0] * 65}, "gpus: List should have at most 64 items after validation, not 65"),
        ({"node": "g2", "gpus": 2}, "gpus: Input should be a valid list"),
        ({"node": "g2", "cores": 4}, "cores: Extra inputs are not permitted"),
    ],
)
def test_a_document_with_odd_nodes_is_refused(grant: dict[str, object], fault: str) -> None:
    """The refusal names the field."""
    with pytest.raises(ReportError) as refused:
        parse_placement({"other_nodes": [grant]})
    assert str(refused.value) == f"placement.other_nodes[0].{fault}"
