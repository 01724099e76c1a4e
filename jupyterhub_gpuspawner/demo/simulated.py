"""The description of a simulated cluster: nodes, their GPUs and partitions; and the demo's cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class SimulatedGPUs:
    """GPUs of one type on a node, with the same cores: one or more lines of gres.conf(5)."""

    type: str
    """As in ``--gres=gpu:TYPE:n``; a MIG profile's name for MIG devices."""
    devices: tuple[tuple[str, ...], ...]
    """For each GPU, the names of its device files in ``/dev``; a MIG device has three."""
    cores: str = ""
    """The cores closest to them, in Slurm's numbering (``0-11``); empty: no affinity."""


def whole_gpus(gpu_type: str, numbers: Iterable[int], cores: str = "") -> SimulatedGPUs:
    """GPUs that are not partitioned; ``numbers`` are their minor device numbers."""
    return SimulatedGPUs(gpu_type, tuple((f"nvidia{number}",) for number in numbers), cores)


def mig_devices(profile: str, number: int, capabilities: Iterable[int], cores: str = "") -> SimulatedGPUs:
    """MIG devices of GPU ``number``, each with the capability files of its GPU instance and its compute instance."""
    files = ((f"nvidia{number}", f"nvidia-cap{first}", f"nvidia-cap{first + 1}") for first in capabilities)
    return SimulatedGPUs(profile, tuple(files), cores)


@dataclass(frozen=True)
class SimulatedNode:
    """One node: its name in Slurm, and the hardware that slurmd reports."""

    name: str
    machine: str
    """The stem of its topology file in ``demo/machines/``."""
    sockets: int
    cores_per_socket: int
    memory_mib: int
    gpus: tuple[SimulatedGPUs, ...] = ()
    threads: int = 1
    features: tuple[str, ...] = ()
    gres_lines: tuple[str, ...] = ()
    """Lines of gres.conf instead of those that ``gpus`` imply; ``/dev`` in them stands for the node's device files."""


@dataclass(frozen=True)
class SimulatedPartition:
    """A partition; one of the cluster's partitions should be the default."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    max_time: str = "1-00:00:00"


@dataclass(frozen=True)
class ClusterDescription:
    """A whole simulated cluster."""

    nodes: tuple[SimulatedNode, ...]
    partitions: tuple[SimulatedPartition, ...]
    name: str = "demo"


DEMO_CLUSTER = ClusterDescription(
    nodes=(
        SimulatedNode(
            "g1",
            machine="k80-2socket",
            sockets=2,
            cores_per_socket=12,
            memory_mib=64000,
            gpus=(whole_gpus("k80", range(2), cores="0-11"), whole_gpus("k80", range(2, 4), cores="12-23")),
            features=("k80",),
        ),
        SimulatedNode(
            "d1",
            machine="dgx1",
            sockets=2,
            cores_per_socket=20,
            memory_mib=512000,
            gpus=(whole_gpus("p100", range(4), cores="0-19"), whole_gpus("p100", range(4, 8), cores="20-39")),
            features=("p100", "nvlink"),
        ),
        SimulatedNode(
            "m1",
            machine="a100-mig",
            sockets=2,
            cores_per_socket=16,
            memory_mib=512000,
            gpus=(
                whole_gpus("a100", range(2), cores="0-15"),
                mig_devices("1g.10gb", 2, (21, 30, 39, 48), cores="16-31"),
            ),
            features=("a100", "mig"),
        ),
        SimulatedNode("c1", machine="cpu", sockets=2, cores_per_socket=20, memory_mib=190000, features=("cpu",)),
        SimulatedNode("c2", machine="cpu", sockets=2, cores_per_socket=20, memory_mib=190000, features=("cpu",)),
    ),
    partitions=(
        SimulatedPartition("gpu", ("g1", "d1", "m1")),
        SimulatedPartition("batch", ("c1", "c2"), default=True),
    ),
)
"""A workshop's K80 node, a DGX-1, an A100 node with one GPU partitioned by MIG, and two nodes without GPUs."""
