"""Which profiles are the most like a choice: what is offered instead of one that does not start now. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.gpu_model import gpu_model


def closest(wanted: Resources, offered: Mapping[str, Resources]) -> list[str]:
    """The names of those that request something else than ``wanted``, the closest one first.

    For GPUs: the same model, or at least as much GPU memory; then other GPUs; then none. Without GPUs: others without
    GPUs first. Among these the number of GPUs that is nearest to what was asked for, then that of nodes, then of
    cores, then the given order.
    """
    others = {name: _distance(wanted, resources) for name, resources in offered.items() if resources != wanted}
    return sorted(others, key=others.__getitem__)


def _distance(request: Resources, offered: Resources) -> tuple[int, int, int, int]:
    wanted, count = _count(request), _count(offered)
    kind = (0 if _as_powerful(request, offered) else 1) if wanted and count else 0 if wanted == count else 2
    nodes = abs(request.node_count - offered.node_count)
    cores = abs(request.cpus - offered.cpus) if request.cpus and offered.cpus else 0
    return kind, abs(wanted - count), nodes, cores


def _count(resources: Resources) -> int:
    """GPUs in all; a request for shards counts as one, since they are parts of a GPU."""
    return (resources.gpus or min(resources.shards or 0, 1)) * resources.node_count


def _as_powerful(wanted_resources: Resources, offered: Resources) -> bool:
    """Whether each GPU is of the same model, or has at least as much memory; any GPU will do where none was named."""
    if bool(wanted_resources.shards) != bool(offered.shards):
        return False
    if not wanted_resources.gpu_type:
        return True
    if not offered.gpu_type:
        return False
    wanted, model = gpu_model(wanted_resources.gpu_type), gpu_model(offered.gpu_type)
    if wanted.name == model.name and None in (wanted.memory_gb, model.memory_gb):
        return True
    return wanted.memory_gb is not None and model.memory_gb is not None and model.memory_gb >= wanted.memory_gb
