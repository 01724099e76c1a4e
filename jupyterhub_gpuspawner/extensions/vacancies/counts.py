"""How many GPUs of each kind are free, in use and out of service, without nodes, people or reasons. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from jupyterhub_gpuspawner.slurm.estimate import utc
from jupyterhub_gpuspawner.slurm.gpu_model import gpu_model
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, free_gpus_of, gpus_of

VERSION = 1
NOT_PRIVATE = frozenset({"cloud"})
"""Words of PrivateData that show more, not less."""


@dataclass(frozen=True)
class GPUCount:
    """The GPUs of one kind on one cluster."""

    cluster: str
    """Empty in a hub that names none."""
    kind: str
    """Such as ``A100, 40 GB`` or ``A100 slice, 10 GB``."""
    free: int
    """Not in use, on nodes in service, whoever may use them."""
    in_use: int
    out_of_service: int
    as_of: str
    """When Slurm said so: ISO 8601, UTC."""


@dataclass(frozen=True)
class FreeGPUsDocument:
    """The GPUs of all clusters that may be shown, by cluster and kind."""

    gpus: tuple[GPUCount, ...] = ()
    version: int = VERSION


def count_gpus(cluster: str, snapshot: ClusterSnapshot) -> tuple[GPUCount, ...] | None:
    """The GPUs of a cluster by kind; None where Slurm keeps something private (PrivateData)."""
    if snapshot.config.private_data - NOT_PRIVATE:
        return None
    free, used, out = Counter[str](), Counter[str](), Counter[str]()
    for node in snapshot.nodes:
        gpus = gpus_of(node.gres)
        unused = free_gpus_of(gpus, node.gres_used)
        for gres_type, number in gpus.items():
            kind = str(gpu_model(gres_type, gpus)) if gres_type else "GPU"
            used[kind] += number - unused[gres_type]
            (free if node.usable else out)[kind] += unused[gres_type]
    as_of = utc(snapshot.taken_at)
    return tuple(
        GPUCount(cluster, kind, free[kind], used[kind], out[kind], as_of) for kind in sorted({*free, *used, *out})
    )
