"""A node's report compared with Slurm's answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.hub.report.reader import confirmed
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.units import NodeAllocation
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacedGpu, PlacementDocument

CLAIMED = PlacementDocument(
    job_id="1", node="g1", partition="debug", gpus=(PlacedGpu(2),), ends_at="2026-05-04T20:30:00+00:00"
)
DETAIL = Job(job_id="17", phase=Phase.RUNNING, nodes="g[1-2]", batch_host="g1")


def test_what_slurm_says_goes_over_the_nodes_word() -> None:
    """Job, node, partition and end are Slurm's; what Slurm does not report stays the node's."""
    told = replace(DETAIL, partition="gpu", ends_at=0.0)

    assert confirmed(CLAIMED, told) == replace(
        CLAIMED, job_id="17", partition="gpu", ends_at="1970-01-01T00:00:00+00:00"
    )
    assert confirmed(CLAIMED, DETAIL) == replace(CLAIMED, job_id="17")


MEMORY: dict[str, tuple[Job, int | None, int | None]] = {
    "as allocated on the server's node": (
        replace(DETAIL, allocations=(NodeAllocation("g1", memory_mib=500), NodeAllocation("g2", memory_mib=900))),
        700,
        500,
    ),
    "as requested, where Slurm was not asked for allocations": (DETAIL, 700, 700),
    "not known": (DETAIL, None, None),
}


@pytest.mark.parametrize(("detail", "requested", "memory_mib"), MEMORY.values(), ids=MEMORY.keys())
def test_the_memory_of_the_job(detail: Job, requested: int | None, memory_mib: int | None) -> None:
    """What Slurm has allocated, else what was requested as an amount."""
    assert confirmed(replace(CLAIMED, memory_mib=requested), detail).memory_mib == memory_mib


@pytest.mark.parametrize("name", ["", "g1", "g2", "g2.example.org"])
def test_a_node_of_the_jobs_may_have_its_full_name(name: str) -> None:
    """Or none at all: the server is on the first node."""
    assert confirmed(replace(CLAIMED, node=name), DETAIL) == replace(CLAIMED, job_id="17")


def test_of_a_report_from_elsewhere_nothing_is_kept() -> None:
    """The page says which node it named."""
    problem = "The report names node h9; Slurm says g[1-2]. The rest of it is not shown."
    assert confirmed(replace(CLAIMED, node="h9"), DETAIL) == PlacementDocument(
        job_id="17", node="g1", problems=(problem,)
    )


def test_a_nodes_own_word_on_other_nodes_does_not_count() -> None:
    """Slurm's answer replaces it, even if Slurm reports no other nodes."""
    told = PlacementDocument(node="g1", other_nodes=(NodeGrant("elsewhere", (7,)),))
    detail = Job(job_id="1", phase=Phase.RUNNING, nodes="g1", batch_host="g1")
    assert confirmed(told, detail).other_nodes == ()
