"""The kinds of GPUs on a node, whole or divided, and the cores and memory that belong to one of each. Pure.

Slurm does not tell which cores are close to a GPU. So a node's cores and memory are divided among its GPUs in equal
parts, and a GPU's part among its MIG devices or shards by their size.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from jupyterhub_gpuspawner.slurm.gpu_model import MEMORY_GB, GpuModel, gpu_model
from jupyterhub_gpuspawner.slurm.snapshot import NodeState, gpus_of
from jupyterhub_gpuspawner.units import Gres

_MIG = re.compile(r"(?P<slices>\d+)g\.(?P<memory>\d+)gb", re.ASCII)
_SEVENTHS, _QUARTERS = 7, 4
"""Slices of a GPU that has MIG: seven (A100, H100 and newer), of an A30 four (NVIDIA's MIG user guide)."""
_OF_A30 = frozenset(((1, 6), (2, 12), (4, 24)))
"""Slices and gigabytes of the A30's profiles, which no GPU with seven slices has."""
_MODELS = frozenset(MEMORY_GB) | frozenset(
    ["a100", "b100", "b200", "b300", "gb200", "gh200", "h100", "h800", "l20", "p40", "p100", "rtx6000", "v100"]
)
"""Names that a site gives to nodes as a feature and that are the model of a GPU there."""
_VENDORS = {
    "NVIDIA": re.compile(r"(?:[ABHKLPTV]|GB|GH)\d{1,3}\w{0,2}(?: .*)?|RTX.*|GTX.*|\d{4}(?:TI)?|Titan.*|Quadro.*"),
    "AMD": re.compile(r"MI\d+\w?"),
}


@dataclass(frozen=True)
class Kind:
    """What a profile can request: a kind of GPU, of MIG device or of shard; or none of them."""

    gres: str = ""
    """``gpu``, ``shard``, or empty: no GPU."""
    type: str = ""
    """Slurm's; empty where gres.conf gives none."""
    feature: str = ""
    """The feature of the nodes that tells GPUs apart that have no type."""

    @property
    def is_slice(self) -> bool:
        """Whether it is a MIG device."""
        return self.gres == "gpu" and _MIG.search(self.type.lower()) is not None

    @property
    def of_slurm(self) -> str:
        """As in Gres of slurm.conf: ``gpu:a100``."""
        return ":".join(filter(None, (self.gres, self.type)))


NO_GPU = Kind()


class Share(NamedTuple):
    """What one node has of a kind, and what belongs to one of them."""

    number: int
    """How many there are; 1 of no GPU."""
    cpus: int
    """CPUs as Slurm counts them, whole cores; at least one core."""
    memory_mib: int
    gpus: int = 0
    """The node's GPUs, whole or divided, among which it is shared out."""
    of_gpu: Fraction = Fraction(1)
    """What one of the kind is of a GPU; of a MIG device, of the part that its like leave of it."""


def shares_of(node: NodeState, *, cpus: int, memory_mib: int) -> Mapping[Kind, Share]:
    """The kinds of a node of which jobs may have so many CPUs and MiB together; of a node without GPUs all of it."""
    return _shares(node.gres, node.features, node.cpus_per_core, cpus, memory_mib)


@lru_cache(maxsize=4096)
def _shares(
    gres: tuple[Gres, ...], features: tuple[str, ...], per_core: int, cpus: int, memory_mib: int
) -> Mapping[Kind, Share]:
    """The same for all nodes that are alike, of which there may be thousands."""
    gpus = gpus_of(gres)
    shards = Counter({one.type or "": one.count for one in gres if one.name == "shard" and one.count})
    slices = {kind: count * _part(kind) for kind, count in gpus.items() if _part(kind)}
    divided = ceil(sum(slices.values()))
    whole = sum(count for kind, count in gpus.items() if kind not in slices)
    if not whole + divided:
        return {NO_GPU: Share(1, _whole_cores(Fraction(cpus), per_core), memory_mib)}

    def share(number: int, of_gpu: Fraction) -> Share:
        part = of_gpu / (whole + divided)
        return Share(number, _whole_cores(cpus * part, per_core), int(memory_mib * part), whole + divided, of_gpu)

    untyped = model_among(features) if "" in gpus else ""
    shares = {}
    for kind, count in gpus.items():
        of_gpu = divided * _part(kind) / sum(slices.values()) if kind in slices else Fraction(1)
        shares[Kind("gpu", kind, "" if kind else untyped)] = share(count, of_gpu)
    for kind, count in shards.items():
        of = gpus.get(kind, whole) or whole  # shards may be untyped where the GPUs are typed
        shares[Kind("shard", kind, "" if kind else untyped)] = share(count, Fraction(of, count))
    return shares


def _part(kind: str) -> Fraction:
    """The part of a GPU that a MIG device is, by its profile; 0 of a whole GPU."""
    profile = _MIG.search(kind.lower())
    if profile is None:
        return Fraction(0)
    slices, memory = int(profile["slices"]), int(profile["memory"])
    return min(Fraction(slices, _QUARTERS if (slices, memory) in _OF_A30 else _SEVENTHS), Fraction(1))


def _whole_cores(cpus: Fraction, per_core: int) -> int:
    """The CPUs of as many whole cores, as Slurm gives them out."""
    return max(1, int(cpus / per_core)) * per_core


def model_among(features: Iterable[str]) -> str:
    """The first feature that is the name of a GPU's model, such as ``a100`` or ``v100-32gb``; empty without one."""
    for feature in features:
        if not {feature.lower(), *re.split("[-_]", feature.lower())}.isdisjoint(_MODELS):
            return feature
    return ""


def model_of(kind: Kind, beside: Iterable[str], features: Iterable[str]) -> GpuModel:
    """The model; its memory is also that in a feature which names the same model (``a100_80gb``), where one does.

    ``beside`` are the types of the other GPUs of its nodes, and ``features`` those that all of its nodes have.
    """
    model = gpu_model(kind.type or kind.feature, beside) if kind.type or kind.feature else GpuModel("GPU")
    if model.memory_gb is None:
        named = [gpu_model(feature) for feature in features]
        sizes = {other.memory_gb for other in named if other.name == model.name and other.memory_gb}
        if len(sizes) == 1:
            return GpuModel(model.name, sizes.pop())
    return model


def with_vendor(model: str) -> str:
    """``NVIDIA A100``; a name that is not a known vendor's stays as it is."""
    return next((f"{vendor} {model}" for vendor, names in _VENDORS.items() if names.fullmatch(model)), model)
