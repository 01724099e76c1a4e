"""AMD's GPUs of a node, from the kernel's files alone: ``/sys/class/kfd``, which ROCm itself reads, and PCI's.

A GPU's position and index is its number to ROCm: it counts those that this process may open, in the order of the
kernel's nodes, which need not be that of the bus ids. A device cgroup makes a hidden GPU's files unreadable, so that it
drops out by itself.

Links: the kernel lists one between any two GPUs of a hive, adjacent or not; its weight says whether it is direct (15),
by way of other GPUs (30, 45), between two partitions of one package (13) or of two (41). The number of links is
``max_bandwidth`` divided by ``min_bandwidth``, as in RCCL; some drivers leave both 0. Sources: ``kfd_topology.c`` and
``kfd_crat.c`` of Linux, ``amd_filter_device.cpp`` of ROCr, ``rocm_smi_wrap.cc`` of RCCL.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.hardware import cpus_in, nodes_with_cpus, number_in, numbers_in, pci_link, text_of
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NODES = "sys/class/kfd/kfd/topology/nodes"
PROCESSES = "sys/class/kfd/kfd/proc"
DEVICES = "sys/bus/pci/devices"
AMD = "0x1002"
CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""Those of display controllers, and of processing accelerators, which MI300 is."""
NAMES = {
    0x66A0: "Instinct MI60", 0x66A1: "Instinct MI50", 0x66AF: "Radeon VII", 0x6860: "Instinct MI25",
    0x738C: "Instinct MI100", 0x738E: "Instinct MI100",
    0x7408: "Instinct MI250X", 0x740C: "Instinct MI250", 0x740F: "Instinct MI210", 0x7410: "Instinct MI210",
    0x74A0: "Instinct MI300A", 0x74A1: "Instinct MI300X", 0x74A2: "Instinct MI308X", 0x74A5: "Instinct MI325X",
    0x74A8: "Instinct MI308X", 0x74A9: "Instinct MI300X", 0x74B5: "Instinct MI300X", 0x74B6: "Instinct MI308X",
    0x74B9: "Instinct MI325X", 0x74BD: "Instinct MI300X",
    0x75A0: "Instinct MI350X", 0x75A3: "Instinct MI355X", 0x75B0: "Instinct MI350X", 0x75B3: "Instinct MI355X",
}  # fmt: skip
"""By PCI device id, for the many GPUs whose files have no name (``product_name``)."""
MI250X = 0x7408
XGMI_GBPS = {90008: 50, 90010: 50, 90400: 64, 90401: 64, 90402: 64, 90500: 77}
"""GB/s of one XGMI link, one way, by ``gfx_target_version``: 25 GT/s, 32 GT/s and 38.4 GT/s, 16 lanes."""
PCIE = {"8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""Generations by GT/s."""
_XGMI = 11
"""The kernel's type of a link."""


@dataclass(frozen=True)
class KfdLink:
    """A link from one of the kernel's nodes to another."""

    kind: int
    weight: int
    slowest: int
    """One link's bandwidth, in MB/s; 0 where the driver does not say."""
    all_links: int


@dataclass(frozen=True)
class KfdGpu:
    """A GPU, or a partition of one, as the kernel lists it."""

    node: int
    facts: Mapping[str, int]
    links: Mapping[int, KfdLink]
    """By the other node."""
    memory_mib: int | None
    gpu_id: int | None = None
    """The kernel's name of it in the files of processes."""

    @property
    def device(self) -> str:
        """PCI bus id of the device, of which a partition is a part."""
        return f"{self.pci[:-1]}0" if self.pci else ""

    @property
    def pci(self) -> str:
        """PCI bus id; a partition's has its number as the function. Empty where it is not known."""
        location = self.facts.get("location_id", 0)
        function = location >> 28 or location & 7
        bus, slot = location >> 8 & 0xFF, location >> 3 & 0x1F
        return f"{self.facts.get('domain', 0):04x}:{bus:02x}:{slot:02x}.{function & 7}" if location else ""


def read_gpus(root: str, kernel: NodeTopology) -> NodeTopology:
    """The node with AMD's GPUs in the place of all others; without any where the kernel shows none.

    ``kernel``: its NUMA nodes and CPUs.
    """
    found = list(_gpus(os.path.join(root, NODES)))
    if not found:
        return replace(kernel, gpus=(), links=(), devices=())
    listed = set(_display_devices(root)) | {gpu.pci for gpu in found if gpu.pci}
    gpus = tuple(_gpu(index, gpu, found, kernel, root) for index, gpu in enumerate(found))
    known = replace(
        kernel,
        gpus=_beside_their_caches(gpus, found, kernel, root),
        links=(),
        devices=tuple(sorted(listed)),
        source="kfd+sysfs",
        driver=text_of(root, "sys/module/amdgpu/version"),
    )
    return replace(known, links=_links(found, known.gpus, root))


def in_use(root: str) -> Iterator[tuple[str, int, int, int]]:
    """For each GPU its bus id, how many processes have memory of it, MiB in use, and MiB of all.

    The kernel lists processes of all users. Partitions of one package share what is in use of its memory: 0.
    """
    found = list(_gpus(os.path.join(root, NODES)))
    processes = [os.path.join(root, PROCESSES, str(number)) for number in numbers_in(os.path.join(root, PROCESSES), "")]
    for gpu in found:
        path = _path(gpu, root)
        whole = [other.device for other in found].count(gpu.device) == 1
        used, total = (number_in(path, f"mem_info_vram_{name}") or 0 for name in ("used", "total"))
        holders = sum(bool(number_in(process, f"vram_{gpu.gpu_id}")) for process in processes)
        yield gpu.pci, holders, used >> 20 if whole else 0, total >> 20


def _gpus(folder: str) -> Iterator[KfdGpu]:
    for node in numbers_in(folder, ""):
        path = os.path.join(folder, str(node))
        facts = _properties(path)
        if not facts.get("simd_count"):
            continue  # a processor, or a GPU of another job
        links = {}
        for kind in ("p2p_links", "io_links"):
            for number in numbers_in(os.path.join(path, kind), ""):
                link = _properties(os.path.join(path, kind, str(number)))
                if "node_to" in link:
                    links[link["node_to"]] = KfdLink(
                        link.get("type", 0),
                        link.get("weight", 0),
                        link.get("min_bandwidth", 0),
                        link.get("max_bandwidth", 0),
                    )
        banks = os.path.join(path, "mem_banks")
        sizes = [_properties(os.path.join(banks, str(n))).get("size_in_bytes", 0) for n in numbers_in(banks, "")]
        yield KfdGpu(node, facts, links, sum(sizes) >> 20 or None, number_in(path, "gpu_id"))


def _properties(*path: str) -> dict[str, int]:
    """The lines ``name number`` of a file ``properties``; empty if it cannot be read."""
    pairs = (line.split() for line in text_of(*path, "properties").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _display_devices(root: str) -> Iterator[str]:
    """PCI bus ids of AMD's GPUs, whether this process may open them or not."""
    folder = os.path.join(root, DEVICES)
    try:
        devices = sorted(os.listdir(folder))
    except OSError:
        return
    for device in devices:
        path = os.path.join(folder, device)
        if text_of(path, "vendor") == AMD and text_of(path, "class")[:6] in CLASSES:
            yield device.lower()


def _gpu(index: int, gpu: KfdGpu, others: Sequence[KfdGpu], kernel: NodeTopology, root: str) -> Gpu:
    path = _path(gpu, root)
    unique = gpu.facts.get("unique_id", 0)
    is_part = bool(unique) and [other.facts.get("unique_id") for other in others].count(unique) > 1
    nodes = {node.id: node.cpus for node in kernel.numa_nodes}
    numa_node = _numa_node(gpu, path, kernel)
    capacity = "" if is_part else text_of(path, "mem_info_vram_total")
    return Gpu(
        index=index,
        uuid=f"GPU-{unique:016x}" if unique and not is_part else "",  # ROCm knows no partition by the id that it shares
        pci=gpu.pci,
        name=_name(gpu, path),
        memory_mib=gpu.memory_mib or (int(capacity) >> 20 if capacity.isdigit() else None),
        numa_node=numa_node,
        cpus=nodes[numa_node] if numa_node is not None and numa_node in nodes else cpus_in(path, "local_cpulist"),
        minor=gpu.facts.get("drm_render_minor") or None,
        vendor="amd",
        xgmi_gbps=XGMI_GBPS.get(gpu.facts.get("gfx_target_version", 0)),
        pcie_generation=PCIE.get(text_of(path, "max_link_speed").partition(" ")[0]),
    )


def _path(gpu: KfdGpu, root: str) -> str:
    """The folder of its PCI device; a partition's is the whole GPU's."""
    own = os.path.join(root, DEVICES, gpu.pci)
    return own if not gpu.pci or os.path.isdir(own) else os.path.join(root, DEVICES, gpu.device)


def _name(gpu: KfdGpu, path: str) -> str:
    """The product's name, or that of the instruction set, such as ``gfx1100``; with the mode of a partition."""
    name = NAMES.get(gpu.facts.get("device_id", 0)) or text_of(path, "product_name")
    if not name:
        version = gpu.facts.get("gfx_target_version", 0)
        name = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else "GPU"
    mode = text_of(path, "current_compute_partition")
    name = name if name.upper().startswith("AMD") else f"AMD {name}"
    return f"{name} ({mode})" if mode not in ("", "SPX") else name


def _numa_node(gpu: KfdGpu, path: str, kernel: NodeTopology) -> int | None:
    """That of the PCI device; where PCI's files are missing, that of the processor to which the kernel links the GPU.

    The kernel counts processors, which are NUMA nodes with CPUs. Where firmware does not say it (-1), the kernel links
    the GPU to the first.
    """
    own = number_in(path, "numa_node") if gpu.device else None
    if own is not None and own >= 0:
        return own
    with_cpus = nodes_with_cpus(kernel.numa_nodes)
    if len(with_cpus) == 1:
        return with_cpus[0]
    hosts = [(link.weight, node) for node, link in gpu.links.items() if node < len(with_cpus)]
    return with_cpus[min(hosts)[1]] if own is None and hosts else None


def _beside_their_caches(
    gpus: tuple[Gpu, ...], found: Sequence[KfdGpu], kernel: NodeTopology, root: str
) -> tuple[Gpu, ...]:
    """Each half of an MI250X with the cores of its own L3 cache, of those of its NUMA node.

    The kernel knows the NUMA node alone, which has two halves and two caches. They belong together in the order of bus
    ids and of cores (Frontier's and LUMI's user guides).
    """
    nodes = {node.id: node.cpus for node in kernel.numa_nodes}
    beside = list(gpus)
    for node, cpus in nodes.items():
        here = sorted((gpu.pci, n) for n, gpu in enumerate(gpus) if gpu.numa_node == node)
        devices = [text for text, _ in here]
        if any(found[n].facts.get("device_id") != MI250X for _, n in here):
            continue
        everywhere = [pci for pci in _display_devices(root) if _node_of(root, pci) == node] or devices
        cpu = os.path.join(root, "sys/devices/system/cpu")
        caches = sorted({cpus_in(cpu, f"cpu{number}", "cache/index3/shared_cpu_list") for number in cpus} - {()})
        if len(caches) == len(everywhere) > 1:
            for pci, n in here:
                beside[n] = replace(gpus[n], cpus=caches[everywhere.index(pci)])
    return tuple(beside)


def _node_of(root: str, pci: str) -> int | None:
    return number_in(root, DEVICES, pci, "numa_node")


def _links(found: Sequence[KfdGpu], gpus: Sequence[Gpu], root: str) -> tuple[tuple[str, ...], ...]:
    paths = [os.path.realpath(_path(gpu, root)) for gpu in found]
    paths = [path if gpu.pci and os.path.isdir(path) else "" for gpu, path in zip(found, paths)]
    words = {
        (a, b): _word(found[a], found[b])
        or pci_link(paths[a] if paths[b] else "", paths[b] if paths[a] else "", gpus[a].numa_node, gpus[b].numa_node)
        for a in range(len(found))
        for b in range(a)
    }
    return tuple(
        tuple("X" if a == b else words[max(a, b), min(a, b)] for b in range(len(found))) for a in range(len(found))
    )


def _word(one: KfdGpu, other: KfdGpu) -> str:
    """The word of an XGMI link; empty where there is none."""
    link = one.links.get(other.node) or other.links.get(one.node)
    if one.device and one.device == other.device and one.facts.get("unique_id") == other.facts.get("unique_id"):
        return "PKG"
    if link is None or link.kind != _XGMI:
        return ""
    if link.weight >= 30 and link.weight % 15 == 0:
        return "XGMI"
    count = link.all_links // link.slowest if link.slowest else 1
    return f"XGMI{min(max(count, 1), 99)}"
