"""Where the facts about a node come from, in order of preference, and how they are merged into one topology.

A topology file replaces all other sources. Otherwise the GPUs are read through NVML, and CPUs, NUMA nodes and the GPUs'
position among them from sysfs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.observe import sysfs
from jupyterhub_gpuspawner.placement.topology import NETWORK, Gpu, NodeTopology, NumaNode, load, to_document
from jupyterhub_gpuspawner.wire.documents import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)


def look(*, node: str, topology_file: str | None, root: str, say: Callable[..., None], network: bool = False) -> None:
    """Read source by source; say what is being read (``doing``), and what is known so far (``topology``).

    ``network``: read the network cards as well (:mod:`.nics`), unless a topology file stands for the node.
    """
    problems: list[str] = []

    def in_report(topology: NodeTopology, *more: str) -> None:
        topology_in_print = in_print(replace(topology, hostname=node, problems=(*topology.problems, *problems, *more)))
        say(topology=to_document(topology_in_print))

    if topology_file:
        say(doing="reading the topology file")
        try:
            in_report(from_file(topology_file, node))
        except (OSError, ValueError) as error:
            problems.append(f"The topology file {topology_file} cannot be used; the hardware was read instead: {error}")
        else:
            return
    say(doing="reading sysfs")
    kernel = sysfs.read(root)
    in_report(kernel)
    say(doing="asking NVML")
    topology, failed = _with_driver(kernel)
    if not failed:
        in_report(topology)
    if network:
        in_report(_networked(topology, root, say), *failed)
    elif failed and kernel.gpus:
        in_report(kernel, *failed)


def _with_driver(kernel: NodeTopology) -> tuple[NodeTopology, tuple[str, ...]]:
    """What kernel and driver know together, and why the driver could not be asked."""
    from jupyterhub_gpuspawner.node.observe import nvml

    try:
        return merged(nvml.read(nodes_with_cpus(kernel.numa_nodes), kernel.devices), kernel), ()
    except nvml.UnavailableError as error:
        return kernel, (f"NVML is not available: {error}",)


def _networked(topology: NodeTopology, root: str, say: Callable[..., None]) -> NodeTopology:
    from jupyterhub_gpuspawner.node.observe import sysfs

    say(doing="reading the network cards")
    return sysfs.with_nics(topology, root)


def in_print(topology: NodeTopology) -> NodeTopology:
    """The topology with all texts of driver and kernel made printable, as a document requires."""
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
        notes=tuple(map(printable, topology.notes)),
    )


def from_file(name: str, node: str) -> NodeTopology:
    """Read the topology file ``name``, in which ``{node}`` is replaced; raises OSError or ValueError.

    Of its source only remains whether it was looked for network cards.
    """
    if "{node}" in name:
        if _NODE_NAME.fullmatch(node) is None:
            raise ValueError(f"{node!r} is not a valid node name")
        name = name.replace("{node}", node)
    topology = load(name)
    has_network = NETWORK in topology.source.split("+")
    return replace(topology, source=f"file+{NETWORK}" if has_network else "file")


def nodes_with_cpus(nodes: Iterable[NumaNode]) -> tuple[int, ...]:
    """NUMA nodes that have CPUs; the others are memory only, often that of a GPU."""
    return tuple(node.id for node in nodes if node.cpus)


def merged(driver: NodeTopology, kernel: NodeTopology) -> NodeTopology:
    """Merge the driver's view of the GPUs into the kernel's view of the node.

    A GPU's NUMA node is taken from the kernel (its PCI device), or else from the driver. CPUs near to a GPU are taken
    from the kernel if it has them: the driver's are clipped to the job's cpuset.
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
        notes=driver.notes,
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
        pcie_width=device.pcie_width if device else None,
        pcie_max_width=device.pcie_max_width if device else None,
    )
