"""The node's topology, as far as it can be observed within a time limit.

The hardware is read in a child process (:mod:`~jupyterhub_gpuspawner.node.child`), which reports each result as soon as
it has it. A driver that hangs therefore costs only what it alone knows. A topology file replaces all other sources.
Otherwise the GPUs are read through NVML (:mod:`.nvml`), CPUs, NUMA nodes and the GPUs' position among them from
``/sys`` and ``/proc``, and the rest by what extensions bring (:class:`Reader`).

The root folder is a parameter, so that a recorded tree can be read like a machine. Sources: the kernel's
``Documentation/ABI/stable/sysfs-devices-node``, ``Documentation/admin-guide/cputopology.rst``,
``Documentation/ABI/testing/sysfs-bus-pci``; NVIDIA's driver README on ``/proc/driver/nvidia``.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.placement.topology import (
    NETWORK,
    NO_NVML,
    TEXT_LIMIT,
    Gpu,
    NodeTopology,
    NumaNode,
    from_document,
    load,
    to_document,
)
from jupyterhub_gpuspawner.units import parse_cpulist

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping, Sequence

    from jupyterhub_gpuspawner.node.child import Say


class Reader:
    """What an extension reads of the hardware beside the kernel's files and NVML. This one reads nothing.

    Its class is made with the launch's environment, at the beginning of each launch. ``read`` is called in the child,
    ``enter`` and ``leave`` in the launcher itself.
    """

    doing = "reading the hardware"

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self.environ = environ

    def read(self, topology: NodeTopology, root: str) -> NodeTopology:  # noqa: ARG002 - this one reads nothing
        """The topology with what is read below ``root``."""
        return topology

    def enter(self, topology: NodeTopology) -> NodeTopology:
        """Before GPUs are chosen: name in ``CUDA_VISIBLE_DEVICES`` what a variable of another maker's GPUs names."""
        return topology

    def in_use(self, topology: NodeTopology, root: str) -> Iterable[tuple[str, int, int, int]] | None:  # noqa: ARG002
        """For each GPU its UUID or PCI bus id, how many processes use it, MiB in use, MiB of all; None: NVML knows."""
        return None

    def leave(self) -> None:
        """At the end, whatever has failed: name in these variables what ``CUDA_VISIBLE_DEVICES`` then names."""


def observe(
    *, node: str, topology_file: str | None, deadline: float, root: str = "/", readers: Sequence[Reader] = ()
) -> NodeTopology:
    """What is known of ``node`` after at most ``deadline`` seconds; what is not known is a sentence in ``problems``.

    ``root`` is the folder under which ``/sys`` and ``/proc`` are read. ``readers`` read more of the hardware.
    Raises OSError if no child process can be started.
    """
    documents, finished = child.ask_documents(
        lambda say: _read_in_child(say, node=node, topology_file=topology_file, root=root, readers=readers), deadline
    )
    best, doing, failed = NodeTopology(hostname=node), "starting", ""
    for document in documents:
        doing = document.get("doing", doing)
        failed = document.get("failed", failed)
        best = from_document(document["topology"]) if "topology" in document else best
    if failed:
        return best.with_problem(f"Reading the hardware failed while {doing}: {failed}")
    if not finished:
        # a driver that is slow is no fault of the GPUs: without persistence mode it starts anew for each program
        return best.with_problem(f"Reading the hardware timed out after {deadline:g} s while {doing}.")
    if doing != "done":
        return best.with_problem(f"Reading the hardware ended unexpectedly while {doing}.")
    return best


def _without_driver(topology: NodeTopology, fault: str) -> NodeTopology:
    """The topology of a node with GPUs whose driver cannot be asked."""
    return replace(topology, gpus=tuple(replace(gpu, fault=fault[:TEXT_LIMIT]) for gpu in topology.gpus))


def _read_in_child(say: Say, *, node: str, topology_file: str | None, root: str, readers: Sequence[Reader]) -> None:
    """The child's part: say what is being read (``doing``), and topologies, each better than the one before."""
    try:
        _read_sources(say, node, topology_file, root, readers)
        say(doing="done")
    except Exception as error:  # noqa: BLE001 - said to the parent, which continues without
        say(failed=f"{type(error).__name__}: {error}")


def _read_sources(say: Say, node: str, topology_file: str | None, root: str, readers: Sequence[Reader]) -> None:
    problems: list[str] = []

    def in_report(topology: NodeTopology) -> None:
        sentences = tuple(dict.fromkeys((*topology.problems, *problems)))
        say(topology=to_document(replace(topology, hostname=node, problems=sentences)))

    if topology_file:
        say(doing="reading the topology file")
        try:
            return in_report(from_file(topology_file, node))
        except (OSError, ValueError) as error:
            problems.append(f"The topology file {topology_file} cannot be used; the hardware was read instead: {error}")

    def with_readers(topology: NodeTopology) -> NodeTopology:
        for reader in readers:
            say(doing=reader.doing)
            topology = reader.read(topology, root)
        in_report(topology)
        return topology

    say(doing="reading sysfs")
    topology = read(root)
    in_report(topology)
    if any(gpu.vendor for gpu in with_readers(topology).gpus):
        return None  # of which NVML knows nothing
    say(doing="asking NVML")
    from jupyterhub_gpuspawner.node import nvml

    try:
        topology = merged(nvml.read(nodes_with_cpus(topology.numa_nodes), topology.devices), topology)
        in_report(topology)
    except (OSError, nvml.NvmlError) as error:
        if topology.gpus:
            problems.append(f"{NO_NVML}: {error}")
            topology = _without_driver(topology, f"{NO_NVML}: {error}")
            in_report(topology)
    with_readers(topology)
    return None


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
        gpus=tuple(_merged_gpu(gpu, devices.get(gpu.pci), kernel) for gpu in _with_bus_ids(driver.gpus, devices)),
        links=driver.links,
        nics=driver.nics,
        nic_links=driver.nic_links,
        nic_numa=driver.nic_numa,
        source=f"{driver.source}+{kernel.source}",
        driver=driver.driver or kernel.driver,
        problems=(*kernel.problems, *driver.problems),
        notes=driver.notes,
    )


def _with_bus_ids(gpus: tuple[Gpu, ...], devices: Iterable[str]) -> tuple[Gpu, ...]:
    """A GPU that is lost cannot say which it is: it is the device that no other GPU is, where there is one such."""
    others = sorted(set(devices) - {gpu.pci for gpu in gpus})
    nameless = [gpu for gpu in gpus if not gpu.pci]
    if len(others) != len(nameless):
        return gpus
    bus_ids = iter(others)  # in the order of the index
    return tuple(gpu if gpu.pci else replace(gpu, pci=next(bus_ids)) for gpu in gpus)


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


_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)
_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")
"""VGA controller and 3D controller."""


def read(root: str = "/") -> NodeTopology:
    """What the kernel knows about the node whose file systems are under ``root``; missing files are no error."""
    nodes, problems = _numa_nodes(root)
    siblings, packages = _cores(root)
    gpus = _gpus(root, nodes)
    return NodeTopology(
        gpus=gpus,
        devices=tuple(gpu.pci for gpu in gpus),
        numa_nodes=nodes,
        siblings=siblings,
        packages=packages,
        source="sysfs",
        driver=_driver(root),
        problems=problems,
    )


def text_of(*parts: str) -> str:
    """A small file's text, stripped; empty if it cannot be read."""
    try:
        with open(os.path.join(*parts), encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def number_in(*parts: str) -> int | None:
    try:
        return int(text_of(*parts))
    except ValueError:
        return None


def cpus_in(*parts: str) -> tuple[int, ...]:
    try:
        return parse_cpulist(text_of(*parts))
    except ValueError:
        return ()


def numbers_in(folder: str, prefix: str) -> list[int]:
    """Numbers of the entries ``prefix<number>`` of a folder, sorted; none if there is no such folder."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return []
    tails = (entry[len(prefix) :] for entry in entries if entry.startswith(prefix))
    return sorted(int(tail) for tail in tails if tail.isdecimal())


def _numa_nodes(root: str) -> tuple[tuple[NumaNode, ...], tuple[str, ...]]:
    folder = os.path.join(root, "sys/devices/system/node")
    online = cpus_in(root, "sys/devices/system/cpu/online")
    ids = numbers_in(folder, "node")
    if not ids:
        return (), ("The kernel lists no NUMA nodes in /sys/devices/system/node.",)
    nodes = []
    for number in ids:
        path = os.path.join(folder, f"node{number}")
        cpus = cpus_in(path, "cpulist")
        words = text_of(path, "distance").split()
        distances = tuple(int(word) for word in words) if all(word.isdigit() for word in words) else ()
        nodes.append(
            NumaNode(
                id=number,
                cpus=tuple(cpu for cpu in cpus if cpu in online) if online else cpus,
                memory_mib=_memory_mib(text_of(path, "meminfo")),
                distances=distances if len(distances) == len(ids) else (),
            )
        )
    return tuple(nodes), ()


def _memory_mib(meminfo: str) -> int | None:
    for line in meminfo.splitlines():
        words = line.split()
        if "MemTotal:" in words and words[-1] == "kB" and words[-2].isdigit():
            return int(words[-2]) // 1024
    return None


def _cores(root: str) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """Groups of CPUs that share a core, and CPUs of each package; empty if they are not known for all CPUs."""
    folder = os.path.join(root, "sys/devices/system/cpu")
    online = cpus_in(folder, "online") or tuple(numbers_in(folder, "cpu"))
    cores: dict[tuple[int, ...], None] = {}
    packages: dict[int, list[int]] = {}
    for cpu in online:
        topology = os.path.join(folder, f"cpu{cpu}", "topology")
        core = cpus_in(topology, "thread_siblings_list") or cpus_in(topology, "core_cpus_list")
        if core:
            cores[tuple(c for c in core if c in online)] = None
        package = number_in(topology, "physical_package_id")
        if package is not None and package >= 0:
            packages.setdefault(package, []).append(cpu)
    whole = sum(len(core) for core in cores) == len(online)
    return (
        tuple(sorted(cores)) if whole else (),
        tuple(tuple(packages[number]) for number in sorted(packages)),
    )


def _gpus(root: str, nodes: tuple[NumaNode, ...]) -> tuple[Gpu, ...]:
    """NVIDIA's display devices in the order of their bus ids, as NVML and Slurm count too."""
    folder = os.path.join(root, "sys/bus/pci/devices")
    try:
        devices = sorted(os.listdir(folder))
    except OSError:
        return ()
    gpus: list[Gpu] = []
    for device in devices:
        path = os.path.join(folder, device)
        if text_of(path, "vendor") != _NVIDIA or text_of(path, "class")[:6] not in _DISPLAY_CLASSES:
            continue
        facts = _driver_facts(text_of(root, "proc/driver/nvidia/gpus", device, "information"))
        minor = facts.get("Device Minor", "")
        uuid = facts.get("GPU UUID", "")
        gpus.append(
            Gpu(
                index=len(gpus),
                uuid=uuid if uuid.startswith("GPU-") and "?" not in uuid else "",
                pci=device.lower(),
                name=facts.get("Model", ""),
                numa_node=_numa_of(number_in(path, "numa_node"), nodes),
                cpus=cpus_in(path, "local_cpulist"),
                minor=int(minor) if minor.isdigit() else None,
                pcie_width=_lanes(path, "current_link_width"),
                pcie_max_width=_lanes(path, "max_link_width"),
            )
        )
    return tuple(gpus)


def _lanes(*parts: str) -> int | None:
    """The width of a PCIe link; a device that has fallen off the bus reports 0 or 255 lanes."""
    number = number_in(*parts)
    return number if number is not None and 0 < number <= 64 else None


def _numa_of(number: int | None, nodes: tuple[NumaNode, ...]) -> int | None:
    """The PCI device's NUMA node; -1 (virtual machines, some firmware) is node 0 on a one-node host, else unknown."""
    if number is not None and number >= 0:
        return number
    return nodes[0].id if len(nodes) == 1 else None


def _driver_facts(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _driver(root: str) -> str:
    """``535.104.05`` from ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  …``; empty where unknown."""
    for word in text_of(root, "proc/driver/nvidia/version").split():
        if word[:1].isdigit() and "." in word:
            return word
    return ""


def pci_link(device: str, gpu: str, near: int | None, numa_node: int | None) -> str:
    """The link word of two PCI devices by the bridges above them, or else by their NUMA nodes; ``?`` if not known.

    ``device``, ``gpu``: their paths below ``/sys/devices``, which name these bridges; empty where not known.
    """
    one, other = device.split(os.sep), gpu.split(os.sep)
    shared = next((n for n, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    above = one[shared - 1] if shared else ""
    if above.startswith("pci"):  # the host bridge
        return "PHB"
    if ":" in above:  # a bridge, or a port of a switch
        return "PIX" if max(len(one), len(other)) - shared <= 2 else "PXB"
    if near is None or numa_node is None:
        return "?"
    return "NODE" if near == numa_node else "SYS"
