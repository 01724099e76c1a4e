"""The part of a launch that knows how programs find AMD's GPUs, or Intel's: the variables that name them.

ROCm opens the GPUs that ``ROCR_VISIBLE_DEVICES`` names, in its order. HIP counts inside of these: so do
``HIP_VISIBLE_DEVICES``, ``CUDA_VISIBLE_DEVICES``, which HIP reads where the former is not set, and OpenCL's
``GPU_DEVICE_ORDINAL``. Where gres.conf names no kind of GPU, Slurm sets three of the four to the same numbers, so that
HIP looks for numbers 4 and 5 among two GPUs. After a launch the first names the server's GPUs in the order of their
ring, and those of the others that were set count them from 0.

Intel's programs read ``ZE_AFFINITY_MASK``, which stays as Slurm has set it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.extensions.amd.node import intel, kfd
from jupyterhub_gpuspawner.node import grant
from jupyterhub_gpuspawner.node.hardware import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    from jupyterhub_gpuspawner.placement.topology import NodeTopology

CUDA, ROCR, HIP, OPENCL = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"
ORDER = "CUDA_DEVICE_ORDER"
VARIABLES = (CUDA, ROCR, HIP, OPENCL, ORDER)
_END = ("", "-1", "NoDevFiles", "none", "void")


def entries(text: str | None) -> tuple[str, ...] | None:
    """The entries of a variable up to the first that is none; None where it is not set."""
    if text is None:
        return None
    names: list[str] = []
    for name in (word.strip() for word in text.split(",")):
        if name in _END or name in names:
            break
        names.append(f"GPU-{name[4:].lower()}" if name[:4].lower() == "gpu-" else name)
    return tuple(names)


def named(environ: MutableMapping[str, str]) -> tuple[str, ...] | None:
    """What a HIP program of this job may open, in ROCm's names; None: all that the process may open.

    A second list that equals ROCm's is Slurm's, and no choice among these.
    """
    rocr, inner = entries(environ.get(ROCR)), entries(environ.get(HIP) or environ.get(CUDA))
    if rocr is None:
        return inner if inner is not None else entries(environ.get(OPENCL))
    if inner is None or inner == rocr:
        return rocr
    among = [rocr[int(name)] for name in inner if name.isascii() and name.isdigit() and int(name) < len(rocr)]
    return tuple(among) or rocr


class OtherGpus(Reader):
    """Reads AMD's GPUs, or Intel's, of a node; and translates the variables that name them."""

    doing = "reading AMD's and Intel's GPUs"

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        super().__init__(environ)
        self.before = {name: environ[name] for name in VARIABLES if name in environ}
        self.vendor = ""

    def read(self, topology: NodeTopology, root: str) -> NodeTopology:
        """The node with AMD's GPUs, or Intel's, if it has no others, or the job has AMD's."""
        of_amd, nvidias = kfd.read_gpus(root, topology), len(topology.gpus)
        if not of_amd.gpus:
            return topology if nvidias else intel.read_gpus(root, topology)
        rocm, cuda = entries(self.environ.get(ROCR)), entries(self.environ.get(CUDA))
        if not nvidias or (rocm and not cuda):
            return of_amd
        if rocm and rocm == cuda and any(map(str.isdecimal, cuda)):  # of either: gres.conf may list AMD's first
            return replace(topology, gpus=(), links=(), nic_links=()).with_problem(
                f"Slurm counts this node's GPUs of NVIDIA ({nvidias}) and AMD ({len(of_amd.gpus)}) together; nothing "
                "is chosen among them."
            )
        return topology

    def enter(self, topology: NodeTopology) -> NodeTopology:
        """The variables in CUDA's words, if these are GPUs of another maker."""
        self.vendor = topology.gpus[0].vendor if topology.gpus else ""
        if not self.vendor:
            return topology
        names = named(self.environ) if self.vendor == "amd" else intel.named(self.environ)
        for name in (CUDA, ROCR, HIP, OPENCL):
            self.environ.pop(name, None)
        if names is not None:
            self.environ[CUDA] = ",".join(names)
        elif self.vendor == "amd" and not self._is_clear(topology):
            return replace(topology, gpus=(), links=(), nic_links=()).with_problem(
                "Slurm sets no ROCR_VISIBLE_DEVICES, and ROCm counts this node's GPUs in another order than their bus "
                "ids; nothing is chosen among them."
            )
        return topology

    def in_use(self, topology: NodeTopology, root: str) -> Iterable[tuple[str, int, int, int]] | None:
        """Of AMD's, by bus id."""
        return kfd.in_use(root) if topology.gpus and topology.gpus[0].vendor == "amd" else None

    def _is_clear(self, topology: NodeTopology) -> bool:
        """Whether it is clear what Slurm's numbers mean: all GPUs, or ROCm counts by bus ids, as AutoDetect does."""
        buses = [gpu.pci for gpu in topology.gpus]
        granted = grant.number(self.environ.get("SLURM_GPUS_ON_NODE"))
        outside = not grant.in_job(self.environ) or granted == len(buses)
        return outside or buses == sorted(buses) or len(topology.devices) > len(buses)

    def leave(self) -> None:
        """What ``CUDA_VISIBLE_DEVICES`` now names, in ROCm's words; as before where that is not known."""
        visible = self.environ.get(CUDA)
        if not self.vendor:
            if visible == "" and os.path.isdir(f"/{kfd.NODES}"):
                self.environ[ROCR] = ""  # to HIP an empty list is none
            return
        for name in VARIABLES:
            self.environ.pop(name, None)
        if visible is None or self.vendor == "intel":
            self.environ.update(self.before)
            return
        self.environ[ROCR] = visible
        if ORDER in self.before:
            self.environ[ORDER] = self.before[ORDER]
        counted = ",".join(str(number) for number, _ in enumerate(filter(None, visible.split(","))))
        self.environ.update({name: counted for name in (CUDA, HIP, OPENCL) if name in self.before})
