"""Which choice has more memory than a job had. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.gpu_model import gpu_model


@dataclass(frozen=True)
class Choice:
    """What a user may choose on the form."""

    name: str
    """The profile's."""
    options: Mapping[str, str]
    """The user options, with the profile's slug."""
    resources: Resources
    """What its job requests."""


def larger(wanted: Resources, memory: int, choices: Iterable[Choice]) -> Choice | None:
    """The smallest choice with more than ``memory`` MiB on a node, GPUs of the same kind and as many nodes as wanted.

    Of several the one whose number of GPUs is the nearest, and then the first. All of a node's memory is the most.
    """
    more = [
        choice
        for choice in choices
        if _memory(choice.resources) > memory
        and _kind(choice.resources) == _kind(wanted)
        and choice.resources.node_count == wanted.node_count
    ]
    number = wanted.gpus or wanted.shards or 0
    return min(
        more,
        key=lambda choice: (
            _memory(choice.resources),
            abs((choice.resources.gpus or choice.resources.shards or 0) - number),
        ),
        default=None,
    )


def _memory(resources: Resources) -> float:
    """MiB on a node; 0 where Slurm decides it."""
    if resources.memory is None:
        return 0
    return resources.memory or math.inf


def _kind(resources: Resources) -> tuple[bool, bool, str]:
    """Whether it has GPUs, or parts of them, and of which model; a type without a number is one GPU."""
    whole, parts = bool(resources.gpus or (resources.gpu_type and not resources.shards)), bool(resources.shards)
    return whole, parts, gpu_model(resources.gpu_type).name if resources.gpu_type and (whole or parts) else ""
