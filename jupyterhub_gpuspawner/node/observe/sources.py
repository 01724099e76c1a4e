"""The sources of what is known about a node, from the best to the least, and how they become one.

A topology file stands in for all of them. Else NVML through pynvml, or ``nvidia-smi`` where NVML cannot be had, tells
of the GPUs, and sysfs of CPUs, NUMA nodes and the GPUs' place among them.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.observe import sysfs
from jupyterhub_gpuspawner.node.observe.errors import UnavailableError
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, load, to_document
from jupyterhub_gpuspawner.wire.documents import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)


def look(*, node: str, topology_file: str | None, root: str, say: Callable[..., None]) -> None:
    """Say, source by source, what is being read (``doing``) and what is known so far (``topology``)."""
    problems: list[str] = []

    def told(topology: NodeTopology, *more: str) -> None:
        known = in_print(replace(topology, hostname=node, problems=(*topology.problems, *problems, *more)))
        say(topology=to_document(known))

    if topology_file:
        say(doing="reading the topology file")
        try:
            told(from_file(topology_file, node))
        except (OSError, ValueError) as error:
            problems.append(f"The topology file {topology_file} is of no use, the hardware was read instead: {error}")
        else:
            return
    say(doing="reading sysfs")
    kernel = sysfs.read(root)
    told(kernel)
    failed = []
    for name, read in (("NVML", _nvml), ("nvidia-smi", _nvidia_smi)):
        say(doing=f"asking {name}")
        try:
            told(merged(read(kernel), kernel))
        except UnavailableError as error:
            failed.append(f"{name} cannot be had: {error}")
        else:
            return
    if kernel.gpus:
        told(kernel, *failed)


def in_print(topology: NodeTopology) -> NodeTopology:
    """With every text of a driver's or the kernel's as a document may hold it."""
    return replace(
        topology,
        gpus=tuple(
            replace(
                gpu,
                uuid=printable(gpu.uuid),
                pci=printable(gpu.pci),
                name=printable(gpu.name),
                mig=None if gpu.mig is None else printable(gpu.mig),
            )
            for gpu in topology.gpus
        ),
        nics=tuple(map(printable, topology.nics)),
        driver=printable(topology.driver),
        problems=tuple(dict.fromkeys(map(printable, topology.problems))),
    )


def from_file(name: str, node: str) -> NodeTopology:
    """The topology file ``name``, with ``{node}`` in it replaced; raises OSError or ValueError."""
    if "{node}" in name:
        if _NODE_NAME.fullmatch(node) is None:
            raise ValueError(f"{node!r} is no node name to look up a file by")
        name = name.replace("{node}", node)
    return replace(load(name), source="file")


def _nvml(kernel: NodeTopology) -> NodeTopology:
    if find_spec("pynvml") is None:
        raise UnavailableError("this Python has no pynvml")
    from jupyterhub_gpuspawner.node.observe import nvml

    return nvml.read(nodes_with_cpus(kernel.numa_nodes))


def _nvidia_smi(_: NodeTopology) -> NodeTopology:
    if not any(os.access(os.path.join(path, "nvidia-smi"), os.X_OK) for path in os.get_exec_path()):
        raise UnavailableError("there is no such command")
    from jupyterhub_gpuspawner.node.observe import nvidia_smi

    return nvidia_smi.read()


def nodes_with_cpus(nodes: Iterable[NumaNode]) -> tuple[int, ...]:
    """NUMA nodes that a GPU can be near to; those without CPUs are memory alone, often a GPU's own."""
    return tuple(node.id for node in nodes if node.cpus)


def merged(driver: NodeTopology, kernel: NodeTopology) -> NodeTopology:
    """What the driver says of its GPUs, put into what the kernel says of the node.

    A GPU's NUMA node is the kernel's word (the PCI device's), else the driver's; the kernel's CPUs near to it are the
    whole truth where the driver's are clipped to the job's cpuset.
    """
    devices = {gpu.pci: gpu for gpu in kernel.gpus if gpu.pci}
    return replace(
        kernel,
        gpus=tuple(_merged_gpu(gpu, devices.get(gpu.pci), kernel) for gpu in driver.gpus),
        links=driver.links,
        nics=driver.nics,
        nic_links=driver.nic_links,
        nic_numa=driver.nic_numa,
        source=f"{driver.source}+{kernel.source}",
        driver=driver.driver or kernel.driver,
        problems=(*kernel.problems, *driver.problems),
    )


def _merged_gpu(gpu: Gpu, device: Gpu | None, kernel: NodeTopology) -> Gpu:
    nodes = {node.id: node for node in kernel.numa_nodes}
    numa_node = device.numa_node if device is not None and device.numa_node is not None else gpu.numa_node
    if numa_node is None and len(nodes) == 1:
        numa_node = next(iter(nodes))
    cpus = device.cpus if device is not None and device.cpus else gpu.cpus
    if numa_node in nodes:
        cpus = nodes[numa_node].cpus
    return replace(
        gpu,
        numa_node=numa_node,
        cpus=cpus,
        name=gpu.name or (device.name if device else ""),
        minor=gpu.minor if gpu.minor is not None or device is None else device.minor,
    )
