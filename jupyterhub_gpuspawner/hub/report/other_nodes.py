"""What a job of several nodes has on the nodes beside the server's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.wire.documents import LIST_LIMIT, NodeGrant

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.jobs.status import JobDetail, NodeAllocation


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
