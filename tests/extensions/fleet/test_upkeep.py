"""What a server's report says of its node, beside what Slurm says."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.extensions.fleet.health import Grant
from jupyterhub_gpuspawner.extensions.fleet.node_record import merged
from jupyterhub_gpuspawner.extensions.fleet.upkeep import report_of
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.placement.topology import NodeTopology, to_document
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot, NodeState
from jupyterhub_gpuspawner.units import parse_gres
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument
from tests.extensions.fleet.nodes import GRES, only, topology, with_gpu

WHOLE = topology("g1")


def server(*positions: int, job_topology: NodeTopology = WHOLE, aligned: bool | None = True) -> Server:
    """A server on g1 with these GPUs."""
    gpus = tuple(PlacedGpu(n, gpu.uuid, gpu.pci) for n, gpu in enumerate(WHOLE.gpus) if n in positions)
    placement = PlacementDocument(job_id="7", node="g1", gpus=gpus, aligned=aligned)
    return Server("ada", job_id="7", placement=placement, topology=to_document(job_topology))


def snapshot(used: str, held: int, gres: str = GRES) -> ClusterSnapshot:
    """The cluster shortly after job 7 has started with ``held`` GPUs; ``used`` are the node's in use."""
    node = NodeState("g1", gres=parse_gres(gres), gres_used=parse_gres(used))
    job = ClusterJob("7", Phase.RUNNING, nodes=("g1",), gpus=parse_gres(f"gpu:v100:{held}"))
    return ClusterSnapshot(nodes=(node,), jobs=(job,))


def grant(server: Server, cluster: ClusterSnapshot | None) -> Grant | None:
    """The grant that is recorded for the server, without its time."""
    report = report_of(server, cluster)
    assert report is not None
    verdict = report.judge(merged(None, report.view))
    return verdict and replace(verdict, at=0.0)


UNJUDGED = Grant("7", "g1", 0.0, 2, aligned=True)


@pytest.mark.parametrize(
    ("positions", "cluster", "expected"),
    [
        ((0, 2), snapshot("gpu:v100:2(IDX:0,2)", 2), replace(UNJUDGED, across=True, loss=86.0)),
        ((0, 2), snapshot("gpu:v100:4(IDX:0-3)", 2), replace(UNJUDGED, across=False, loss=0.0)),
        ((0, 1), snapshot("gpu:v100:3(IDX:0-2)", 2), replace(UNJUDGED, across=False, loss=0.0)),
        ((0, 2), None, UNJUDGED),
        ((0, 2), ClusterSnapshot(), UNJUDGED),
        ((0, 2), snapshot("gpu:v100:2(IDX:1,3)", 2), UNJUDGED),
        ((0, 2), snapshot("gpu:v100:2", 2), UNJUDGED),
        ((0, 2), snapshot("gpu:v100:4(IDX:0-3)", 4), UNJUDGED),
        ((0, 2), snapshot("gpu:v100:2(IDX:0,2),shard:1(1/4,0/4,0/4,0/4)", 2), UNJUDGED),
        ((), snapshot("gpu:v100:0(IDX:N/A)", 0), None),
    ],
    ids=[
        "better ones were free",
        "no other was free",
        "the best pair",
        "Slurm did not answer",
        "Slurm does not know the node",
        "Slurm names other GPUs",
        "Slurm only counts GPUs",
        "the server uses a part of what it was granted",
        "a GPU is shared",
        "no GPU",
    ],
)
def test_a_grant_is_judged_where_the_free_gpus_are_known(
    positions: tuple[int, ...], cluster: ClusterSnapshot | None, expected: Grant | None
) -> None:
    """Otherwise it is only counted."""
    assert grant(server(*positions), cluster) == expected


@pytest.mark.parametrize(("age", "late"), [(60, False), (7200, True)])
def test_a_job_that_started_long_ago_is_not_judged_by_what_is_free_now(age: float, late: bool) -> None:
    """As when the hub was down meanwhile; others held the better GPUs, perhaps, when it started."""
    job = Job("7", Phase.RUNNING, starts_at=time.time() - age)
    cluster = snapshot("gpu:v100:2(IDX:0,2)", 2)
    report = report_of(replace(server(0, 2), job=job), cluster)

    assert report is not None
    assert report.late is late
    assert grant(replace(server(0, 2), job=job), cluster) == (
        UNJUDGED if late else replace(UNJUDGED, across=True, loss=86.0)
    )


def test_a_confined_job_alone_is_not_judged() -> None:
    """It does not know how the other GPUs are linked; after others have been there, the record does."""
    confined = server(0, 2, job_topology=only(WHOLE, 0, 2))
    cluster = snapshot("gpu:v100:2(IDX:0,2)", 2)
    assert grant(confined, cluster) == UNJUDGED

    report = report_of(confined, cluster)
    before = report_of(server(0, 1), snapshot("gpu:v100:2(IDX:0-1)", 2))
    assert report is not None
    assert before is not None
    verdict = report.judge(merged(merged(None, before.view), report.view))
    assert verdict is not None
    assert (verdict.across, verdict.loss) == (True, 86.0)


def test_the_configuration_is_kept_as_slurm_prints_it() -> None:
    """With the sockets that gres.conf names."""
    report = report_of(server(0, 1), snapshot("gpu:v100:2(IDX:0-1)", 2))
    assert report is not None
    assert (report.view.gres, report.view.granted, report.view.node) == ("gpu:v100:4(S:0-1)", 2, "g1")


@pytest.mark.parametrize(
    "silent_server",
    [
        Server("ada", job_id="7"),
        replace(server(0), topology=None),
        replace(server(0), topology={"version": 1, "gpus": "all"}),
        replace(server(0), placement=PlacementDocument()),
    ],
    ids=["no placement", "no topology", "not a topology", "no node"],
)
def test_a_server_that_says_nothing_of_its_node(silent_server: Server) -> None:
    """There is nothing to keep."""
    assert report_of(silent_server, None) is None


def test_a_report_is_that_of_the_servers_user_in_our_words() -> None:
    """Whose it is comes from the hub, not from the node; what is wrong with a GPU is not told in the node's words."""
    report = report_of(server(0, job_topology=with_gpu(WHOLE, 0, fault="Buy a new GPU at http://evil.example")), None)

    assert report is not None
    assert (report.view.user, report.view.topology.gpus[0].fault) == ("ada", "The driver reports a fault of it.")
