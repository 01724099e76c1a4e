"""What a node is made of: GPUs, NUMA nodes, links. Pure, stdlib only: it travels to the compute node.

A GPU is named by its UUID and PCI bus id. ``index`` is its NVML index on that node, at
that moment, and only good for people and for ``CUDA_VISIBLE_DEVICES`` of programs that insist on numbers.

Anything may be unknown: ``None`` says so, never a guess. A :class:`NodeTopology` carries
``problems``: one sentence for each thing that could not be learned.

Link words are those of ``nvidia-smi topo -m``: ``X`` (self), ``NV<n>`` (n NVLinks), ``PIX``, ``PXB``,
``PHB``, ``NODE``, ``SYS`` (older drivers: ``SOC``), and ``?`` where it is not known.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Mapping, Optional, Tuple

VERSION = 1


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one MIG device, as the node's driver names it."""

    index: int
    """NVML index on this node (PCI order); for a MIG device that of its parent."""
    uuid: str = ""
    """``GPU-…`` or ``MIG-…``; empty where unknown."""
    pci: str = ""
    """PCI bus id, lower case, four-digit domain: ``0000:07:00.0``; empty where unknown."""
    name: str = ""
    memory_mib: Optional[int] = None
    numa_node: Optional[int] = None
    """Kernel number of the NUMA node nearest to it (not the GPU's own memory node)."""
    cpus: Tuple[int, ...] = ()
    """CPUs (kernel numbers) near to it, as far as known; may be clipped by a cpuset."""
    mig: Optional[str] = None
    """MIG profile name such as ``1g.10gb``; None for a whole GPU."""
    minor: Optional[int] = None
    """n of ``/dev/nvidia<n>``; not the index."""
    nvlink_generation: Optional[int] = None


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node by its kernel number (P#); CPUs by kernel number."""

    id: int
    cpus: Tuple[int, ...] = ()
    memory_mib: Optional[int] = None
    distances: Tuple[int, ...] = ()
    """To every node, in the order of :attr:`NodeTopology.numa_nodes`; empty where unknown."""


@dataclass(frozen=True)
class NodeTopology:
    """A node as far as it is known.

    ``links[a][b]`` is the link word between the devices ``gpus[a]`` and ``gpus[b]`` (positions, not
    indices); square, symmetric, ``X`` on the diagonal; empty where nothing is known.
    """

    hostname: str = ""
    gpus: Tuple[Gpu, ...] = ()
    links: Tuple[Tuple[str, ...], ...] = ()
    numa_nodes: Tuple[NumaNode, ...] = ()
    siblings: Tuple[Tuple[int, ...], ...] = ()
    """Groups of CPUs that are one core; empty where unknown (then each CPU counts as a core)."""
    packages: Tuple[Tuple[int, ...], ...] = ()
    """CPUs of each package (socket); empty where unknown."""
    nics: Tuple[str, ...] = ()
    nic_links: Tuple[Tuple[str, ...], ...] = ()
    """``nic_links[n][g]``: the link word between ``nics[n]`` and ``gpus[g]``; empty where unknown."""
    nic_numa: Tuple[Optional[int], ...] = ()
    source: str = ""
    """Where it was learned: ``nvml``, ``nvidia-smi``, ``sysfs``, ``file``, joined by ``+``."""
    simulated: bool = False
    driver: str = ""
    problems: Tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.links:
            size = len(self.gpus)
            if len(self.links) != size or any(len(row) != size for row in self.links):
                raise ValueError(f"links must be a square of {size} GPUs")
            for a in range(size):
                for b in range(a):
                    if self.links[a][b] != self.links[b][a]:
                        raise ValueError(f"link {a}-{b} is {self.links[a][b]} one way and {self.links[b][a]} the other")

    def link(self, a: int, b: int) -> str:
        """The link word between the GPUs at positions ``a`` and ``b``; ``?`` where unknown."""
        if a == b:
            return "X"
        return self.links[a][b] if self.links else "?"

    def numa_node_of_cpu(self, cpu: int) -> Optional[int]:
        """Kernel number of the NUMA node that holds ``cpu``; None where unknown."""
        for node in self.numa_nodes:
            if cpu in node.cpus:
                return node.id
        return None

    def with_problem(self, *sentences: str) -> NodeTopology:
        """The same node with more said about what is not known."""
        return replace(self, problems=self.problems + tuple(s for s in sentences if s not in self.problems))


def to_document(topology: NodeTopology) -> dict[str, Any]:
    """The topology as a JSON document, version 1; CPU lists stay lists of numbers."""
    return {"version": VERSION, **asdict(topology)}


def from_document(document: Mapping[str, Any]) -> NodeTopology:
    """Read a topology document; raises ValueError that names the field at fault."""
    if document.get("version") != VERSION:
        raise ValueError(f"version: {document.get('version')!r} is not {VERSION}")
    known = set(NodeTopology.__dataclass_fields__)
    unknown = sorted(set(document) - known - {"version"})
    if unknown:
        raise ValueError(f"{unknown[0]}: no such field; fields are {', '.join(sorted(known))}")
    values = {key: document[key] for key in known if key in document}
    try:
        values["gpus"] = tuple(Gpu(**{**g, "cpus": tuple(g.get("cpus", ()))}) for g in document.get("gpus", ()))
        values["numa_nodes"] = tuple(
            NumaNode(**{**n, "cpus": tuple(n.get("cpus", ())), "distances": tuple(n.get("distances", ()))})
            for n in document.get("numa_nodes", ())
        )
        for key in ("links", "siblings", "packages", "nic_links"):
            values[key] = tuple(tuple(row) for row in document.get(key, ()))
        for key in ("nics", "nic_numa", "problems"):
            values[key] = tuple(document.get(key, ()))
    except TypeError as error:
        raise ValueError(str(error)) from error
    return NodeTopology(**values)


def load(path: str) -> NodeTopology:
    """Read a topology file (JSON); raises OSError or ValueError."""
    with open(path, encoding="utf-8") as file:
        return from_document(json.load(file))
