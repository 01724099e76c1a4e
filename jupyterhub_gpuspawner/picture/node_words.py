"""A node as text: a table of its NUMA nodes, GPUs and NICs with their links, and a summary. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.picture.locality import NumaGroup, numa_groups
from jupyterhub_gpuspawner.placement.ring import gbps
from jupyterhub_gpuspawner.placement.topology import NodeTopology, gpu_name
from jupyterhub_gpuspawner.words import counted, gpu_memory, memory


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
            gpu.name,
            gpu_memory(gpu.memory_mib),
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
    """A summary of the node in two sentences: its hardware, then the job's own part of it."""
    names = [f"MIG {gpu.mig}" if gpu.mig else gpu.name.removeprefix("NVIDIA ") for gpu in topology.gpus]
    cores = sum(len(group.cores) for group in numa_groups(topology))
    times = "\N{MULTIPLICATION SIGN}"
    parts = [f"{n} {times} {name}" if name else counted(n, "GPU") for name, n in Counter(names).items()] or ["no GPU"]
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


def name_of(topology: NodeTopology, position: int) -> str:
    """``GPU 0``; for a MIG device ``GPU 2 MIG 0 (1g.10gb)``."""
    gpu = topology.gpus[position]
    return gpu_name(gpu.index, gpu.mig, topology.mig_device(position))
