"""Bandwidths of the links between GPUs. Standard library only.

All figures are GB/s, one way. They rank links against each other; they do not predict what a program measures.

* NVLink, per link: 20 (NVLink 1), 25 (2, 3 and 4), 50 (5): NVIDIA's nominal rates of the P100, V100, A100, H100 and
  B200 (their data sheets sum all links, both ways: 160, 300, 600, 900 and 1,800 GB/s). NCCL's ``src/graph/topo.h``
  counts 18, 20, 20, 20.6 and 40.1 as effective, which ranks machines in the same order.
* PCIe 3.0 x16: about 12 between two GPUs behind one switch (NCCL's ``PCI_BW``), then less for each hop:
  switches (PXB), the host bridge (PHB), bridges of one NUMA node (NODE), the link between sockets (SYS: QPI counts 6
  and UPI 10 in NCCL, so 7 is used for both). PCIe 4.0 doubles the PCIe figures, the link between sockets grows less;
  5.0 doubles all of them again. Older than 3.0 counts as 3.0, newer than 5.0 as 5.0.

NVLink bridges of workstation GPUs are slower than their generation suggests (RTX A6000: 14.06 per link), but far
faster than PCIe.
"""

from __future__ import annotations

NVLINK_GBPS = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0, 6: 50.0}
"""GB/s, one way, of one NVLink, by generation."""
PCIE_GBPS = {
    3: {"PIX": 12.0, "PXB": 11.0, "PHB": 10.0, "NODE": 9.0, "SYS": 7.0},
    4: {"PIX": 24.0, "PXB": 22.0, "PHB": 20.0, "NODE": 18.0, "SYS": 12.0},
    5: {"PIX": 48.0, "PXB": 44.0, "PHB": 40.0, "NODE": 36.0, "SYS": 24.0},
}
"""GB/s, one way, by PCIe generation and link level, for x16."""
_PCIE_OF_NVLINK = {1: 3, 2: 3, 3: 4, 4: 5, 5: 5, 6: 5}


def gbps(link: str, *, nvlink_generation: int | None = None, pcie_generation: int | None = None) -> float:
    """Bandwidth in GB/s, one way, of a link word of :mod:`~jupyterhub_gpuspawner.placement.topology`.

    Raises ValueError for any other word. An unknown NVLink generation counts 25 per link, as most have. An unknown PCIe
    generation is inferred from the NVLink generation, or else is 3. ``?`` counts slightly less than the slowest known
    link, so that it is never preferred.
    """
    if link[:2] == "NV" and link[2:].isdigit():
        return int(link[2:]) * NVLINK_GBPS.get(nvlink_generation or 2, 25.0)
    generation = pcie_generation or _PCIE_OF_NVLINK.get(nvlink_generation or 1, 3)
    levels = PCIE_GBPS[min(max(generation, 3), 5)]
    if link == "?":
        return levels["SYS"] - 1.0
    level = {"SOC": "SYS", "X": "PHB"}.get(link, link)
    if level not in levels:
        raise ValueError(f"{link!r} is not a link")
    return levels[level]
