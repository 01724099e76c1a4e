"""Intel's data centre GPUs, as far as the kernel's PCI files tell: which NUMA node each is beside."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.hardware import cpus_in, number_in, pci_link, text_of
from jupyterhub_gpuspawner.placement.topology import Gpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.placement.topology import NodeTopology

_INTEL, _DISPLAY = "0x8086", "0x0380"
"""Their class is that of a display controller without VGA, which a processor's own graphics have."""
_FOLDER = "sys/bus/pci/devices"


def named(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The numbers of the GPUs in ``ZE_AFFINITY_MASK``, whose tiles are ``0.1``; None where it is not set."""
    text = environ.get("ZE_AFFINITY_MASK")
    if text is None:
        return None
    return tuple(dict.fromkeys(word.strip().partition(".")[0] for word in text.split(",") if word.strip()))


def read_gpus(root: str, kernel: NodeTopology) -> NodeTopology:
    """The node with Intel's GPUs in the order of their bus ids."""
    folder = os.path.join(root, _FOLDER)
    try:
        listed = sorted(os.listdir(folder))
    except OSError:
        return kernel
    nodes = {node.id: node.cpus for node in kernel.numa_nodes}
    gpus: list[Gpu] = []
    for pci in listed:
        path = os.path.join(folder, pci)
        if text_of(path, "vendor") != _INTEL or text_of(path, "class")[:6] != _DISPLAY:
            continue
        number = number_in(path, "numa_node")
        node = number if number in nodes else next(iter(nodes)) if len(nodes) == 1 else None
        cpus = cpus_in(path, "local_cpulist") if node is None else nodes[node]
        gpus.append(Gpu(len(gpus), pci=pci.lower(), name="Intel GPU", numa_node=node, cpus=cpus, vendor="intel"))
    paths = [os.path.realpath(os.path.join(folder, gpu.pci)) for gpu in gpus]
    links = tuple(
        tuple(
            "X" if a == b else pci_link(paths[a], paths[b], one.numa_node, other.numa_node)
            for b, other in enumerate(gpus)
        )
        for a, one in enumerate(gpus)
    )
    return replace(kernel, gpus=tuple(gpus), links=links, devices=tuple(gpu.pci for gpu in gpus)) if gpus else kernel
