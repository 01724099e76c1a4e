"""Read the network cards that GPUs can use directly from sysfs, and how near each is to each GPU.

These are the cards with a driver for InfiniBand, RoCE or EFA (``/sys/class/infiniband``), or Slingshot
(``/sys/class/cxi``). A device's path in ``/sys/devices`` names the PCI bridges above it, which gives the link words of
``nvidia-smi topo -m``: ``PIX`` behind one switch, ``PXB`` behind several, ``PHB`` below one host bridge, then ``NODE``
and ``SYS`` by NUMA node. Only a job on several nodes reads them.
"""

from __future__ import annotations

import os
from dataclasses import replace

from jupyterhub_gpuspawner.extensions.several_nodes.node.rdma import read_devices, with_usable_nics
from jupyterhub_gpuspawner.node.hardware import Reader, number_in, pci_link
from jupyterhub_gpuspawner.placement.topology import NETWORK, NodeTopology

_CLASSES = ("infiniband", "cxi")
_MOST = 64
"""Cards that are read at most; machines have up to sixteen."""


class NetworkCards(Reader):
    """Reads them in a job on several nodes, and outside of jobs."""

    doing = "reading the network cards"

    def read(self, topology: NodeTopology, root: str) -> NodeTopology:
        """The topology with the cards, which a server on one node does not need."""
        return topology if self.environ.get("SLURM_JOB_NUM_NODES") == "1" else with_nics(topology, root)


def with_nics(topology: NodeTopology, root: str = "/") -> NodeTopology:
    """The topology with the node's network cards, unless it has some already."""
    source = f"{topology.source}+{NETWORK}" if topology.source else NETWORK
    if topology.nics:
        return replace(topology, source=source)
    cards = _cards(root)
    numbers = [number_in(path, "numa_node") for path in cards.values()]
    numa = tuple(None if number is None or number < 0 else number for number in numbers)
    devices = [os.path.realpath(os.path.join(root, "sys/bus/pci/devices", gpu.pci)) for gpu in topology.gpus]
    links = tuple(
        tuple(
            pci_link(card, device if gpu.pci and os.path.exists(device) else "", near, gpu.numa_node)
            for gpu, device in zip(topology.gpus, devices)
        )
        for card, near in zip(cards.values(), numa)
    )
    found = replace(topology, nics=tuple(cards), nic_links=links, nic_numa=numa, source=source)
    return with_usable_nics(found, read_devices(root))


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
