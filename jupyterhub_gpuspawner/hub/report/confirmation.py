"""Compares what a node reports with what Slurm reports of the job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.report.other_nodes import other_nodes
from jupyterhub_gpuspawner.units import expand_nodelist
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.jobs.status import JobDetail


def confirmed(claimed: PlacementDocument, detail: JobDetail) -> PlacementDocument:
    """The placement that the node claims, with Slurm's facts in place of the node's.

    Its memory is what the hub requested, unless ``detail`` has the job's allocations.
    If the node that it names is not one of the job's, the rest of the claim is dropped and a problem says so.
    """
    placement, problems = claimed, claimed.problems
    if not names_a_node_of(detail, claimed):
        placement = PlacementDocument()
        problems = (f"The report names node {claimed.node}; Slurm says {detail.nodes}. The rest of it is not shown.",)
    return replace(
        placement,
        job_id=detail.job_id,
        node=detail.batch_host,
        partition=detail.partition or placement.partition,
        memory_mib=_allocated_mib(detail) or claimed.memory_mib,
        ends_at=detail.ends_at_iso or placement.ends_at,
        problems=problems,
        other_nodes=other_nodes(detail),
    )


def _allocated_mib(detail: JobDetail) -> int:
    return sum(each.memory_mib for each in detail.allocations if each.node == detail.batch_host)


def names_a_node_of(detail: JobDetail, claimed: PlacementDocument) -> bool:
    """Whether the report names a node of the job; it may use the node's full host name, or none at all."""
    nodes = expand_nodelist(detail.nodes)
    return not claimed.node or claimed.node in nodes or claimed.node.partition(".")[0] in nodes
