"""What a node reports, held against what Slurm says of the job. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.report.other_nodes import other_nodes
from jupyterhub_gpuspawner.units import expand_nodelist
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.jobs.status import JobDetail


def confirmed(claimed: PlacementDocument, detail: JobDetail) -> PlacementDocument:
    """The node's report with Slurm's own facts put over it.

    Where it names a node that is none of the job's, nothing of it is kept but that.
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
        ends_at=detail.ends_at_iso or placement.ends_at,
        problems=problems,
        other_nodes=other_nodes(detail),
    )


def names_a_node_of(detail: JobDetail, claimed: PlacementDocument) -> bool:
    """Whether the report's node is the job's by Slurm's word; a host's full name is as good as its first part."""
    nodes = expand_nodelist(detail.nodes)
    return not claimed.node or claimed.node in nodes or claimed.node.partition(".")[0] in nodes
