"""Grants compared with what was free."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.fleet.health import Grant, GrantSummary, judge_grant, summarize
from jupyterhub_gpuspawner.placement.topology import NodeTopology, load
from tests.extensions.fleet.nodes import topology

DGX1V = load(str(Path(__file__).parents[2] / "data" / "machines" / "dgx1v.json"))


@pytest.mark.parametrize(
    ("node", "granted", "free", "across", "loss"),
    [
        (topology(), (0, 1), {2, 3}, False, 0.0),
        (topology(), (0, 2), {1, 3}, True, 86.0),
        (topology(), (0, 2), {3}, True, 86.0),
        (topology(), (0, 2), set(), False, 0.0),
        (topology(), (0, 1, 2), {3}, False, 0.0),
        (topology(), (0,), {1, 2, 3}, None, None),
        (DGX1V, (0, 1), {3}, False, 50.0),
        (DGX1V, (0, 4), {1}, True, 0.0),
    ],
    ids=[
        "the linked pair",
        "a GPU of each socket, though both had two",
        "a GPU of each socket, though one had two",
        "nothing else was free",
        "three never fit one socket",
        "a single GPU has no ring",
        "one NVLink instead of two",
        "two NVLinks across sockets",
    ],
)
def test_a_grant_is_compared_with_the_free_gpus(
    node: NodeTopology, granted: tuple[int, ...], free: set[int], across: bool | None, loss: float | None
) -> None:
    """The best ring among those that Slurm could choose from, and whether one socket had room."""
    grant = Grant("7", "g1", 1.0, len(granted))
    verdict = judge_grant(node, granted, free, aligned=True, grant=grant)

    expected = (grant.aligned, None, None) if loss is None else (True, across, loss)
    assert (verdict.aligned, verdict.across, verdict.loss) == expected


def test_without_numa_nodes_sockets_are_not_known() -> None:
    """Then only the ring is compared."""
    node = topology(numa_nodes=(), packages=())
    verdict = judge_grant(node, (0, 2), {1, 3}, aligned=None, grant=Grant("7", "g1", 1.0, 2))
    assert (verdict.across, verdict.loss) == (None, 86.0)


def test_grants_in_figures() -> None:
    """Counts have the number of grants of which the answer is known beside them."""
    grants = [
        Grant("1", "g1", 1.0, 1, aligned=True),
        Grant("2", "g1", 1.0, 2, aligned=False, across=True, loss=86.0),
        Grant("3", "g1", 1.0, 2, aligned=True, across=False, loss=0.0),
        Grant("4", "g1", 1.0, 2),
    ]
    assert summarize(grants) == GrantSummary(
        grants=4, misaligned=1, alignment_known=3, compared=2, off_ring=1, across=1, mean_loss=43.0, worst_loss=86.0
    )
    assert summarize([]) == GrantSummary()
    assert [Grant(**json.loads(json.dumps(asdict(grant)))) for grant in grants] == grants
