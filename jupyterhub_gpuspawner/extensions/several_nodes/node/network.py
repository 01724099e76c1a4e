"""The network cards beside GPUs, the weakest link of a job on several nodes, and what NCCL is told of a node. Pure.

Between nodes a GPU's data leaves through a network card. NCCL gives each GPU the card with the shortest way to it
(``NCCL_CROSS_NIC`` and ``src/graph/search.cc``), so the link to that card is part of every ring over several nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.placement.choice import link_gbps
from jupyterhub_gpuspawner.placement.topology import NETWORK, gbps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jupyterhub_gpuspawner.placement.topology import NodeTopology


UNKNOWN = "?"


@dataclass(frozen=True)
class NearestNic:
    """A GPU's network card."""

    name: str
    link: str
    """The link word between the two; ``?`` if it is not known."""


def nearest_nic(topology: NodeTopology, gpu: int) -> NearestNic | None:
    """The card with the fastest link to the GPU at position ``gpu``, the first of equals; None if no card is known."""
    ways = [NearestNic(name, _link(topology, nic, gpu)) for nic, name in enumerate(topology.nics)]
    return max(ways, key=lambda path: gbps(path.link), default=None)


def _link(topology: NodeTopology, nic: int, gpu: int) -> str:
    """The link word; where only NUMA nodes are known, ``NODE`` within one and ``SYS`` between two."""
    if topology.nic_links:
        return topology.nic_links[nic][gpu]
    near, other = topology.gpus[gpu].numa_node, topology.nic_numa[nic] if topology.nic_numa else None
    if near is None or other is None:
        return UNKNOWN
    return "NODE" if near == other else "SYS"


def has_no_nic(topology: NodeTopology) -> bool:
    """Whether the kernel was asked and knows no network card that GPUs could use directly."""
    return not topology.nics and NETWORK in topology.source.split("+")


def rotate_to_slowest_link(topology: NodeTopology, ring: Sequence[int]) -> tuple[int, ...]:
    """The GPUs of ``ring`` (positions), turned so that its slowest link is the one from the last to the first.

    In a ring over several nodes that link is not used: the last GPU of a node sends to the first one of the next node,
    by the network. If several links are equally slow, the ring is turned as little as possible.
    """
    speeds = [link_gbps(topology, ring[n - 1], ring[n]) for n in range(len(ring))]
    start = speeds.index(min(speeds)) if len(ring) > 2 else 0
    return (*ring[start:], *ring[:start])


def weakest(links: Iterable[str | None]) -> str | None:
    """The slowest of these link words; None if there is none, or if one of them is not known."""
    words = list(links)
    if not words or any(word in (None, UNKNOWN) for word in words):
        return None
    return min((word for word in words if word is not None), key=gbps)


# What NCCL is told of a node: the NICs nearest to GPUs, and a topology file.
#
# NCCL reads the PCI tree below ``/sys`` by itself, and knows more than is said here. The file is for machines that hide
# it. Its format is that of ``src/graph/xml.cc`` in NCCL, version 1: processors with the PCI devices below them, bridges
# being PCI devices with devices inside. Links by NVLink are not in the file, since NCCL gets them from the driver.

_LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
"""PCIe paths, the shortest first; the last two are the same."""
_SPEEDS = {3: "8 GT/s", 4: "16 GT/s", 5: "32 GT/s", 6: "64 GT/s"}
"""Transfer rate of a PCIe lane, by generation, in NCCL's words."""
_GPU, _BRIDGE, _NIC = "0x030200", "0x060400", "0x020700"
"""PCI classes: 3D controller, bridge, InfiniBand controller."""


def nearest_nics(topology: NodeTopology, gpus: Sequence[int]) -> tuple[str, ...]:
    """The NICs with the shortest path to each of ``gpus`` (positions), in the node's order; empty if not known."""
    near: set[int] = set()
    for gpu in gpus:
        words = [row[gpu] for row in topology.nic_links]
        if not words or any(word not in _LEVELS for word in words):
            return ()
        ranks = [min(_LEVELS.index(word), _LEVELS.index("SYS")) for word in words]
        near |= {n for n, rank in enumerate(ranks) if rank == min(ranks)}
    return tuple(nic for n, nic in enumerate(topology.nics) if n in near)


def topology_file(topology: NodeTopology, nic_pci: Mapping[str, str], processor: Mapping[str, str]) -> str:
    """The topology file of a node; empty if too little is known of it.

    Needed are each GPU's PCI bus id, NUMA node and PCIe generation. ``nic_pci`` has the PCI bus ids of those NICs whose
    path is to be in the file; ``processor`` has the attributes of every ``<cpu>``: ``arch``, ``vendor``, ``familyid``
    and ``modelid``.
    """
    if not topology.gpus or not all(
        gpu.pci and gpu.numa_node is not None and gpu.pcie_generation in _SPEEDS and gpu.mig is None
        for gpu in topology.gpus
    ):
        return ""
    bridges = 0
    lines = ['<system version="1">']
    attributes = "".join(f' {name}="{value}"' for name, value in processor.items())
    for node in topology.numa_nodes:
        lines.append(f'  <cpu numaid="{node.id}" affinity="{_mask(node.cpus)}"{attributes}>')
        for group in _groups(topology, [n for n, gpu in enumerate(topology.gpus) if gpu.numa_node == node.id]):
            speed = _SPEEDS[min(topology.gpus[gpu].pcie_generation or 3 for gpu in group)]
            link = f'link_speed="{speed}" link_width="16"'
            nics = [nic_pci[nic] for nic in _beside(topology, group) if nic in nic_pci]
            devices = [(topology.gpus[gpu].pci, _GPU) for gpu in group] + [(pci, _NIC) for pci in nics]
            inside = [f'<pci busid="{pci}" class="{kind}" {link}/>' for pci, kind in devices]
            if len(inside) > 1:
                bridges += 1
                # A bus id that no device has, as the files of cloud providers have them.
                lines.append(f'    <pci busid="ffff:ff:{bridges:02x}.0" class="{_BRIDGE}" {link}>')
                lines += [f"      {element}" for element in inside]
                lines.append("    </pci>")
            else:
                lines += [f"    {element}" for element in inside]
        lines.append("  </cpu>")
    return "\n".join([*lines, "</system>", ""])


def _groups(topology: NodeTopology, gpus: Iterable[int]) -> list[list[int]]:
    """GPUs below one bridge together. GPUs with NVLink may be so, too: then a NIC beside both shows it."""
    groups: list[list[int]] = []
    for gpu in gpus:
        mine = next(
            (group for group in groups if any(_below_one_bridge(topology, gpu, other) for other in group)), None
        )
        if mine is None:
            groups.append([gpu])
        else:
            mine.append(gpu)
    return groups


def _below_one_bridge(topology: NodeTopology, a: int, b: int) -> bool:
    near = ("PIX", "PXB")
    return topology.link(a, b) in near or any(row[a] in near and row[b] in near for row in topology.nic_links)


def _beside(topology: NodeTopology, group: Sequence[int]) -> list[str]:
    """NICs below the bridge of the group."""
    rows = zip(topology.nics, topology.nic_links)
    return [nic for nic, row in rows if any(row[gpu] in ("PIX", "PXB") for gpu in group)]


def _mask(cpus: Iterable[int]) -> str:
    """CPUs as a mask in 32-bit words, as in ``/sys/devices/system/node/node0/cpumap``."""
    bits = sum(1 << cpu for cpu in cpus)
    words = [f"{bits >> shift & 0xFFFFFFFF:08x}" for shift in range(0, max(bits.bit_length(), 1), 32)]
    return ",".join(reversed(words))
