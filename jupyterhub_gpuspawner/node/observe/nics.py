"""Read the network cards that GPUs can use directly from sysfs, and how near each is to each GPU.

These are the cards with a driver for InfiniBand, RoCE or EFA (``/sys/class/infiniband``), or Slingshot
(``/sys/class/cxi``). A device's path in ``/sys/devices`` names the PCI bridges above it, which gives the link words of
``nvidia-smi topo -m``: ``PIX`` behind one switch, ``PXB`` behind several, ``PHB`` below one host bridge, then ``NODE``
and ``SYS`` by NUMA node. Only a job on several nodes reads them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.placement.topology import NETWORK

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.placement.topology import NodeTopology

_CLASSES = ("infiniband", "cxi")
_MOST = 64
"""Cards that are read at most; machines have up to sixteen."""


def with_nics(topology: NodeTopology, root: str = "/") -> NodeTopology:
    """The topology with the node's network cards, unless it has some already."""
    source = f"{topology.source}+{NETWORK}" if topology.source else NETWORK
    if topology.nics:
        return replace(topology, source=source)
    cards = _cards(root)
    numa = tuple(_numa_node(path) for path in cards.values())
    devices = [os.path.realpath(os.path.join(root, "sys/bus/pci/devices", gpu.pci)) for gpu in topology.gpus]
    links = tuple(
        tuple(
            _link(card, device, near, gpu.numa_node)
            if gpu.pci and os.path.exists(device)
            else _by_numa(near, gpu.numa_node)
            for gpu, device in zip(topology.gpus, devices)
        )
        for card, near in zip(cards.values(), numa)
    )
    return replace(topology, nics=tuple(cards), nic_links=links, nic_numa=numa, source=source)


def _cards(root: str) -> dict[str, str]:
    """Names of the cards with the paths of their PCI devices; of several ports of one device only the first."""
    cards: dict[str, str] = {}
    for kind in _CLASSES:
        folder = os.path.join(root, "sys/class", kind)
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            path = os.path.realpath(os.path.join(folder, name, "device"))
            if os.path.isdir(path) and path not in cards.values() and len(cards) < _MOST:
                cards[name] = path
    return cards


def _numa_node(path: str) -> int | None:
    try:
        with open(os.path.join(path, "numa_node"), encoding="ascii") as file:
            number = int(file.read())
    except (OSError, ValueError):
        return None
    return number if number >= 0 else None


def _link(card: str, gpu: str, near: int | None, numa_node: int | None) -> str:
    """The link word of two PCI devices, by their paths below ``/sys/devices``."""
    one, other = card.split(os.sep), gpu.split(os.sep)
    shared = next((n for n, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    above = one[shared - 1] if shared else ""
    if above.startswith("pci"):  # the host bridge
        return "PHB"
    if ":" in above:  # a bridge, or a port of a switch
        return "PIX" if max(len(one), len(other)) - shared <= 2 else "PXB"
    return _by_numa(near, numa_node)


def _by_numa(near: int | None, numa_node: int | None) -> str:
    if near is None or numa_node is None:
        return "?"
    return "NODE" if near == numa_node else "SYS"
