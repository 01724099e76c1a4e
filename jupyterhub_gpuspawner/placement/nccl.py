"""What NCCL is told of a node: the NICs nearest to GPUs, and a topology file. Pure, standard library only.

NCCL reads the PCI tree below ``/sys`` by itself, and knows more than is said here. The file is for machines that hide
it. Its format is that of ``src/graph/xml.cc`` in NCCL, version 1: processors with the PCI devices below them, bridges
being PCI devices with devices inside. Links by NVLink are not in the file, since NCCL gets them from the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jupyterhub_gpuspawner.placement.topology import NodeTopology

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
