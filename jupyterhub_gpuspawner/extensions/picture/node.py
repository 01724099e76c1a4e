"""A node by NUMA node and PCIe switch, for its picture; and as text: a table of all of it, and a summary. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, gbps, gpu_name
from jupyterhub_gpuspawner.slurm.gpu_model import device_model
from jupyterhub_gpuspawner.units import format_cpulist
from jupyterhub_gpuspawner.words import counted, gpu_memory, memory


@dataclass(frozen=True)
class NumaGroup:
    """A NUMA node with the devices near it, or devices known only to belong together."""

    name: str
    """``NUMA node 0``; ``CPUs 0-9``, or ``NUMA node not known``."""
    node: int | None = None
    """Number of the NUMA node."""
    package: int | None = None
    cores: tuple[tuple[int, ...], ...] = ()
    """CPUs of each core; single CPUs if siblings are not known."""
    memory_mib: int | None = None
    gpus: tuple[int, ...] = ()
    """Positions into ``topology.gpus``."""
    nics: tuple[int, ...] = ()
    """Positions into ``topology.nics``."""

    @property
    def cpus(self) -> tuple[int, ...]:
        """All CPUs, sorted."""
        return tuple(sorted(cpu for core in self.cores for cpu in core))


@dataclass(frozen=True)
class Switch:
    """Devices behind one PCIe switch (``PIX``) or several (``PXB``): GPUs and NICs as positions, and further switches.

    Of the MIG devices of one GPU only the first is listed; :func:`devices_of` returns all.
    """

    word: str
    gpus: tuple[int, ...] = ()
    nics: tuple[int, ...] = ()
    switches: tuple[Switch, ...] = ()

    def devices(self) -> tuple[tuple[str, int], ...]:
        """All GPUs and NICs of this switch and those below it, as kind and position."""
        own = (*(("gpu", gpu) for gpu in self.gpus), *(("nic", nic) for nic in self.nics))
        return (*own, *(device for switch in self.switches for device in switch.devices()))


def numa_groups(topology: NodeTopology) -> tuple[NumaGroup, ...]:
    """Every NUMA node with CPUs or devices, by number, then devices without a known node.

    NUMA nodes that consist of a GPU's memory are left out. A NIC whose node is not known is grouped with the nearest
    GPUs; one that is far from all GPUs is left out.
    """
    ids = [node.id for node in topology.numa_nodes if node.cpus]
    homes = [_home(topology, gpu) for gpu in range(len(topology.gpus))]
    nic_homes = [_nic_home(topology, nic, homes) for nic in range(len(topology.nics))]
    nodes = {node.id: node for node in topology.numa_nodes}
    packages = {cpu: n for n, package in enumerate(topology.packages) for cpu in package}
    cores = {cpu: threads for threads in topology.siblings for cpu in threads}
    groups = []
    for home in [*sorted(ids), *dict.fromkeys(home for home in homes if home not in ids)]:
        node = nodes.get(home) if isinstance(home, int) else None
        cpus = node.cpus if node else topology.gpus[homes.index(home)].cpus
        near = frozenset(cpus)
        groups.append(
            NumaGroup(
                _name(home),
                home if isinstance(home, int) else None,
                next((packages[cpu] for cpu in cpus if cpu in packages), None),
                tuple(sorted({tuple(sorted(near.intersection(cores.get(cpu, (cpu,))))) for cpu in cpus})),
                node.memory_mib if node else None,
                tuple(gpu for gpu, gpu_home in enumerate(homes) if gpu_home == home),
                tuple(nic for nic, gpu_home in enumerate(nic_homes) if gpu_home == home),
            )
        )
    return tuple(groups)


def _home(topology: NodeTopology, gpu: int) -> int | tuple[int, ...]:
    """Number of the GPU's NUMA node, else the CPUs near it."""
    device = topology.gpus[gpu]
    if device.numa_node is not None:
        return device.numa_node
    around = [node.id for node in topology.numa_nodes if device.cpus and set(node.cpus).issuperset(device.cpus)]
    alone = [node.id for node in topology.numa_nodes if node.cpus]
    return around[0] if around else alone[0] if len(alone) == 1 else device.cpus


def _nic_home(topology: NodeTopology, nic: int, homes: Sequence[int | tuple[int, ...]]) -> int | tuple[int, ...] | None:
    """The group of a NIC: its NUMA node, else that of the nearest GPU on the same socket."""
    if topology.nic_numa and topology.nic_numa[nic] is not None:
        return topology.nic_numa[nic]
    words = topology.nic_links[nic] if topology.nic_links else ()
    for near in ("PIX", "PXB", "PHB", "NODE"):
        if near in words:
            return homes[words.index(near)]
    return None


def _name(home: int | tuple[int, ...]) -> str:
    if isinstance(home, int):
        return f"NUMA node {home}"
    return f"CPUs {format_cpulist(home)}" if home else "NUMA node not known"


def switches(topology: NodeTopology, group: NumaGroup) -> tuple[Switch, ...]:
    """The devices of a NUMA node by shared PCIe switch; a single device is a switch without a word."""
    whole = [gpu for gpu in group.gpus if devices_of(topology, gpu)[0] == gpu]
    devices = [*(("gpu", gpu) for gpu in whole), *(("nic", nic) for nic in group.nics)]
    return tuple(_switch(topology, part) for part in _parts(topology, devices, ("PIX", "PXB")))


def devices_of(topology: NodeTopology, gpu: int) -> tuple[int, ...]:
    """Positions of all MIG devices on the same GPU as ``gpu``; for a whole GPU its own position."""
    device = topology.gpus[gpu]
    on_it = (n for n, other in enumerate(topology.gpus) if other.mig is not None and other.index == device.index)
    return (gpu,) if device.mig is None else tuple(on_it)


_Device = tuple[str, int]


def _switch(topology: NodeTopology, devices: Sequence[_Device]) -> Switch:
    inner = _parts(topology, devices, ("PIX",))
    if len(inner) > 1:
        alone = [part[0] for part in inner if len(part) == 1]
        below = tuple(_switch(topology, part) for part in inner if len(part) > 1)
        return Switch("PXB", _of("gpu", alone), _of("nic", alone), below)
    return Switch("PIX" if len(devices) > 1 else "", _of("gpu", devices), _of("nic", devices))


def _of(kind: str, devices: Sequence[_Device]) -> tuple[int, ...]:
    return tuple(number for device_kind, number in devices if device_kind == kind)


def _parts(topology: NodeTopology, devices: Sequence[_Device], words: Sequence[str]) -> list[list[_Device]]:
    """Sets of devices connected, directly or through others, by links with these words."""
    link = _linker(topology)
    parts: list[list[_Device]] = []
    for device in devices:
        joined = [part for part in parts if any(link(device, other) in words for other in part)]
        parts = [part for part in parts if part not in joined]
        parts.append(sorted([device, *(other for part in joined for other in part)]))
    return sorted(parts)


def _linker(topology: NodeTopology) -> Callable[[_Device, _Device], str]:
    def link(one: _Device, two: _Device) -> str:
        (kind, a), (other, b) = sorted((one, two))
        if kind == other == "gpu":
            return topology.link(a, b)
        if kind == "gpu" and topology.nic_links:
            return topology.nic_links[b][a]
        return "?"

    return link


PATHS = {
    "PIX": "through one PCIe switch",
    "PXB": "through several PCIe switches",
    "PHB": "through the host bridge",
    "NODE": "between host bridges of a NUMA node",
    "SYS": "across NUMA nodes",
    "SOC": "across sockets",
}
"""Link words for PCIe paths, nearest first, and what they mean."""


def between(topology: NodeTopology, parts: Sequence[Switch]) -> tuple[str, ...]:
    """The PCIe link words between devices of different switches, nearest first."""
    link = _linker(topology)
    pairs = [(a, b) for one, other in combinations(parts, 2) for a in one.devices() for b in other.devices()]
    words = {link(a, b) for a, b in pairs}
    return tuple(word for word in PATHS if word in words)


def paths(topology: NodeTopology, ones: Sequence[int], others: Sequence[int]) -> tuple[str, ...]:
    """The PCIe link words between two sets of GPUs, nearest first; without NVLinks and unknown links."""
    words = {topology.link(a, b) for a in ones for b in others if a != b}
    return tuple(word for word in PATHS if word in words)


def table(
    topology: NodeTopology, *, own_gpus: Iterable[int] = (), own_cpus: Iterable[int] = ()
) -> list[tuple[str, str]]:
    """The content of the picture as text: name and description of each NUMA node, GPU and NIC."""
    mine, bound = frozenset(own_gpus), frozenset(own_cpus)
    names = [name_of(topology, position) for position in range(len(topology.gpus))]
    rows = [(group.name, _group_words(topology, group, bound)) for group in numa_groups(topology)]
    for position, gpu in enumerate(topology.gpus):
        others = [n for n in range(len(topology.gpus)) if n != position]
        words = [
            _kind_of(gpu) or gpu_memory(gpu.memory_mib),
            gpu.fault.rstrip("."),
            f"NUMA node {gpu.numa_node}" if gpu.numa_node is not None else "NUMA node not known",
            *_links_in_words({names[n]: topology.link(position, n) for n in others}),
        ]
        rows.append((names[position] + (", yours" if position in mine else ""), _joined(words)))
    for nic, name in enumerate(topology.nics):
        words = (
            [f"NUMA node {topology.nic_numa[nic]}"] if topology.nic_numa and topology.nic_numa[nic] is not None else []
        )
        if topology.nic_links:
            words += _links_in_words(dict(zip(names, topology.nic_links[nic], strict=True)))
        rows.append((f"NIC {name}", _joined(words)))
    return rows


def _group_words(topology: NodeTopology, group: NumaGroup, bound: frozenset[int]) -> str:
    own = bound.intersection(group.cpus)
    cores = f"{len(group.cores)} cores" if topology.siblings else ""
    return _joined(
        [
            f"package {group.package}" if group.package is not None else "",
            f"CPUs {format_cpulist(group.cpus)}" if group.cpus else "",
            cores if group.cores else "",
            f"{memory(group.memory_mib)} of memory" if group.memory_mib else "",
            f"yours: CPUs {format_cpulist(own)}" if own else "",
        ]
    )


def _links_in_words(links: dict[str, str]) -> list[str]:
    """``NV2 to GPU 3 and GPU 4``, fastest first; unknown links last."""
    by_word: dict[str, list[str]] = {}
    for name, word in links.items():
        by_word.setdefault(word, []).append(name)
    ranked = sorted(by_word, key=lambda word: -gbps(word))
    return [f"{'unknown link' if word == '?' else word} to {_and(by_word[word])}" for word in ranked]


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _joined(words: Iterable[str]) -> str:
    return "; ".join(word for word in words if word)


def summary(topology: NodeTopology, own_gpus: Iterable[int] = (), own_cpus: Iterable[int] = ()) -> str:
    """A summary of the node in two sentences: its hardware, then the job's own part of it.

    GPUs that a device cgroup hides are counted: the kernel lists them.
    """
    names = [device_model(gpu.name, gpu.mig).name if gpu.name or gpu.mig else "" for gpu in topology.gpus]
    cores = sum(len(group.cores) for group in numa_groups(topology))
    times = "\N{MULTIPLICATION SIGN}"
    parts = [f"{n} {times} {name}" if name else counted(n, "GPU") for name, n in Counter(names).items()] or ["no GPU"]
    lost = sum(not gpu.pci for gpu in topology.gpus)
    hidden = len(set(topology.devices) - {gpu.pci for gpu in topology.gpus}) - lost
    parts += [f"{counted(hidden, 'more GPU')} hidden from this job"] if hidden > 0 else []
    parts += [f"{len(topology.packages)} packages"] if len(topology.packages) > 1 else []
    nodes = len([node for node in topology.numa_nodes if node.cpus])
    parts += [f"{nodes} NUMA nodes"] if nodes > 1 else []
    parts += [counted(cores, "core" if topology.siblings else "CPU")] if cores else []
    total = sum(node.memory_mib or 0 for node in topology.numa_nodes if node.cpus)
    parts += [f"{memory(total)} of memory"] if total else []
    own = []
    if own_gpus:
        own.append(", ".join(name_of(topology, gpu) for gpu in sorted(own_gpus)))
    if own_cpus:
        own.append(f"CPUs {format_cpulist(own_cpus)}")
    words = ", ".join(parts)
    return f"{words[:1].upper()}{words[1:]}. " + (f"Yours: {', '.join(own)}." if own else "")


def _kind_of(gpu: Gpu) -> str:
    """``K80, 12 GB``, ``A100 slice, 10 GB``; empty where the driver does not name it."""
    return str(device_model(gpu.name, gpu.mig, gpu.memory_mib)) if gpu.name or gpu.mig else ""


def name_of(topology: NodeTopology, position: int) -> str:
    """``GPU 0``; for a MIG device ``slice 0 of GPU 2``."""
    gpu = topology.gpus[position]
    return gpu_name(gpu.index, gpu.mig, topology.mig_device(position))
