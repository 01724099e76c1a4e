"""Compares what a node reports with what Slurm reports of the job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.units import expand_nodelist
from jupyterhub_gpuspawner.wire.documents import LIST_LIMIT, NodeGrant, PlacementDocument

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.jobs.status import JobDetail, NodeAllocation


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


def other_nodes(detail: JobDetail) -> tuple[NodeGrant, ...]:
    """The job's nodes except the first, in Slurm's order; at most as many as a placement holds."""
    others = [allocation for allocation in detail.allocations if allocation.node != detail.batch_host]
    return tuple(map(_grant, others[:LIST_LIMIT]))


def _grant(allocation: NodeAllocation) -> NodeGrant:
    gpus = [gres for gres in allocation.gres if gres.name == "gpu"]
    types = {gres.type for gres in gpus}
    return NodeGrant(
        node=allocation.node,
        gpus=tuple(sorted({index for gres in gpus for index in gres.indices}))[:LIST_LIMIT],
        gpu_type=types.pop() if len(types) == 1 else None,
        cpus=len(allocation.cpu_ids),
        memory_mib=allocation.memory_mib,
    )


def in_words(grant: NodeGrant) -> str:
    """Such as ``g2: GPU 0-1 (k80), 4 CPUs; has not reported``; GPUs by Slurm's index."""
    kind = f" ({grant.gpu_type})" if grant.gpu_type else ""
    gpus = f"GPU {format_cpulist(grant.gpus)}{kind}" if grant.gpus else ""
    cpus = f"{grant.cpus} CPU{'s' if grant.cpus > 1 else ''}" if grant.cpus else ""
    silent = "" if grant.placement is not None else "; has not reported"
    return f"{grant.node}: {', '.join(filter(None, (gpus, cpus))) or 'not known'}{silent}"
