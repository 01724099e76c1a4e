"""A node's topology as JSON and as tables. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.cpulist import format_cpulist

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyterhub_gpuspawner.placement.topology import NodeTopology

UNKNOWN = "?"
_MEANINGS = {
    "PIX": "one PCIe switch, or one board",
    "PXB": "several PCIe switches",
    "PHB": "a PCIe host bridge (the CPU)",
    "NODE": "the PCIe host bridges of one NUMA node",
    "SYS": "the link between NUMA nodes or sockets",
    "SOC": "the link between sockets (SYS in newer drivers)",
    "?": "unknown",
}


def gpu_names(topology: NodeTopology) -> tuple[str, ...]:
    """``GPU0``, ``GPU1`` and so on by NVML index; the MIG devices of GPU 2 are ``GPU2/MIG0``, ``GPU2/MIG1``."""
    names: list[str] = []
    parts: dict[int, int] = {}
    for gpu in topology.gpus:
        name = f"GPU{gpu.index}"
        if gpu.mig is not None:
            place = parts[gpu.index] = parts.get(gpu.index, -1) + 1
            name += f"/MIG{place}"
        names.append(name)
    return tuple(names)


def document(topology: NodeTopology) -> dict[str, Any]:
    """The JSON of ``gpuspawner topology --json``.

    ``links`` is a square matrix in the order of ``gpus``; ``nic_links[n][g]`` is the link between ``nics[n]`` and
    ``gpus[g]``; it is empty if none is known. Affinities have one entry for each GPU, null if unknown: CPU and NUMA
    lists are strings such as ``0-11,24-35``, the GPU's own NUMA node is a number.
    """
    return {
        "gpus": list(gpu_names(topology)),
        "links": [[topology.link(a, b) for b in range(len(topology.gpus))] for a in range(len(topology.gpus))],
        "cpu_affinity": [format_cpulist(gpu.cpus) or None for gpu in topology.gpus],
        "numa_affinity": [
            format_cpulist(gpu.numa_affinity or (() if gpu.numa_node is None else (gpu.numa_node,))) or None
            for gpu in topology.gpus
        ],
        "gpu_numa_id": [gpu.gpu_numa_id for gpu in topology.gpus],
        "nics": list(topology.nics),
        "nic_links": [list(row) for row in topology.nic_links],
        "warnings": [*topology.problems, *topology.notes],
    }


def listing(topology: NodeTopology) -> str:
    """The node as tables: GPUs, links, NUMA nodes, and what is unknown."""
    parts = [_headline(topology)]
    if topology.gpus:
        parts += [_gpus(topology), _links(topology)]
    if topology.numa_nodes:
        parts.append(_numa_nodes(topology))
    sentences = (*topology.problems, *topology.notes)
    if sentences:
        parts.append("\n".join(["Unknown or uncertain:", *(f"  {sentence}" for sentence in sentences)]))
    return "\n\n".join(parts) + "\n"


def _headline(topology: NodeTopology) -> str:
    counts = [_count(len(topology.gpus), "GPU")]
    if topology.nics:
        counts.append(_count(len(topology.nics), "NIC"))
    if topology.numa_nodes:
        counts.append(_count(len(topology.numa_nodes), "NUMA node"))
        counts.append(_count(len({cpu for node in topology.numa_nodes for cpu in node.cpus}), "CPU"))
    name = f"{topology.hostname}: " if topology.hostname else ""
    driver = f", driver {topology.driver}" if topology.driver else ""
    simulated = "; a simulated node" if topology.simulated else ""
    return f"{name}{', '.join(counts)}{driver} (from {topology.source or 'nothing'}{simulated})"


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _gpus(topology: NodeTopology) -> str:
    columns: dict[str, list[str]] = {
        "": list(gpu_names(topology)),
        "name": [gpu.name for gpu in topology.gpus],
        "memory": ["" if gpu.memory_mib is None else f"{gpu.memory_mib} MiB" for gpu in topology.gpus],
        "NUMA node": [
            str(gpu.numa_node) if gpu.numa_node is not None else format_cpulist(gpu.numa_affinity)
            for gpu in topology.gpus
        ],
        "CPUs": [format_cpulist(gpu.cpus) for gpu in topology.gpus],
        "own NUMA node": ["" if gpu.gpu_numa_id is None else str(gpu.gpu_numa_id) for gpu in topology.gpus],
        "bus id": [gpu.pci for gpu in topology.gpus],
        "UUID": [gpu.uuid for gpu in topology.gpus],
    }
    return table(
        [name for name, values in columns.items() if any(values)],
        zip(*[[value or UNKNOWN for value in values] for values in columns.values() if any(values)], strict=True),
    )


def _links(topology: NodeTopology) -> str:
    names = gpu_names(topology)
    rows = [[name, *(topology.link(a, b) for b in range(len(names)))] for a, name in enumerate(names)]
    if topology.nic_links:
        rows += [[nic, *row] for nic, row in zip(topology.nics, topology.nic_links, strict=True)]
    seen = {word for row in rows for word in row[1:]}
    meanings = [f"  {word:<5} {meaning}" for word, meaning in _MEANINGS.items() if word in seen]
    if any(word.startswith("NV") for word in seen):
        meanings.insert(0, "  NV#   # NVLinks")
    matrix = table(["", *names], rows)
    return "\n".join([matrix, "", *meanings]) if meanings else matrix


def _numa_nodes(topology: NodeTopology) -> str:
    distances = any(node.distances for node in topology.numa_nodes)
    rows = [
        [
            str(node.id),
            format_cpulist(node.cpus) or "none",
            UNKNOWN if node.memory_mib is None else f"{node.memory_mib} MiB",
            *([" ".join(map(str, node.distances)) or UNKNOWN] if distances else []),
        ]
        for node in topology.numa_nodes
    ]
    return table(["NUMA node", "CPUs", "memory", *(["distances"] if distances else [])], rows)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns separated by two blanks, each as wide as its longest value."""
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
