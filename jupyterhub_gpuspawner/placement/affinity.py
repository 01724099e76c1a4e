"""Distances between CPUs, memory and GPUs, and the choice of CPUs and NUMA nodes. Pure, standard library only.

GPUs are indices into ``topology.gpus``; NUMA nodes and CPUs are kernel numbers. If a GPU's NUMA node is not known, the
CPUs that its driver reports as near are used instead.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyterhub_gpuspawner.placement.topology import NodeTopology

LOCAL, REMOTE = 10, 20
"""NUMA distances (ACPI SLIT) that are used if the machine's own are not known."""


def distance(topology: NodeTopology, one: int | None, two: int | None) -> int:
    """NUMA distance from node ``one`` to node ``two``; an unknown node counts as remote."""
    ids = [node.id for node in topology.numa_nodes]
    if one in ids and two in ids:
        row = topology.numa_nodes[ids.index(one)].distances
        if row:
            return row[ids.index(two)]
    return LOCAL if one == two is not None else REMOTE


def home(topology: NodeTopology, gpu: int) -> object:
    """A key that GPUs near to the same NUMA node share, as far as known."""
    device = topology.gpus[gpu]
    return device.numa_node if device.numa_node is not None else (device.cpus or device.numa_affinity)


def ways(topology: NodeTopology, gpus: Sequence[int], cpus: Iterable[int]) -> list[int]:
    """For each of ``gpus``, the sum of the NUMA distances from ``cpus`` to it."""
    bound = frozenset(cpus)
    share = {node.id: len(bound.intersection(node.cpus)) for node in topology.numa_nodes}
    paths = []
    for gpu in gpus:
        device = topology.gpus[gpu]
        if device.numa_node in share:
            paths.append(sum([n * distance(topology, node, device.numa_node) for node, n in share.items() if n]))
        else:
            local = len(bound.intersection(device.cpus))
            paths.append(local * LOCAL + (len(bound) - local) * REMOTE)
    return paths


def aligned(topology: NodeTopology, gpus: Sequence[int], cpus: Iterable[int]) -> bool | None:
    """Whether CPUs and GPUs are on the same NUMA nodes: no CPU on another node, no GPU's node without a CPU.

    None if that is not known, or if there is no GPU or no CPU.
    """
    bound = frozenset(cpus)
    if not gpus or not bound:
        return None
    if len([node for node in topology.numa_nodes if node.cpus]) == 1:
        return True
    beside: set[int | None] = {topology.gpus[gpu].numa_node for gpu in gpus}
    under = {topology.numa_node_of_cpu(cpu) for cpu in bound}
    if None not in beside and None not in under:
        return beside == under
    near = [frozenset(topology.gpus[gpu].cpus) for gpu in gpus]
    # A cpuset clips the driver's list of near CPUs, so a common CPU proves nothing; having none in common does.
    return False if any(cpus and not cpus & bound for cpus in near) else None


def choose_cpus(
    topology: NodeTopology, *, granted: Sequence[int], count: int | None, gpus: Sequence[int]
) -> tuple[int, ...]:
    """Choose ``count`` of the ``granted`` CPUs, sorted; all of them if ``count`` is None or not smaller.

    Each GPU in turn takes the nearest remaining core with all its granted siblings; whole cores come before cores of
    which the job has only a part. Without GPUs, the NUMA node with the most granted CPUs comes first.
    """
    free = sorted(set(granted))
    if count is None or count >= len(free):
        return tuple(free)
    cores = cores_of(topology, free)
    sizes = [(len(set(free) & set(node.cpus)), -node.id) for node in topology.numa_nodes]
    fullest = -max(sizes)[1] if sizes else None
    orders = [sorted(cores, key=partial(_rank, topology, gpu=gpu, fullest=fullest)) for gpu in gpus or (None,)]
    chosen: list[int] = []
    used: set[tuple[int, ...]] = set()
    turn = 0
    while len(chosen) < count:
        core = next(core for core, _ in orders[turn % len(orders)] if core not in used)
        used.add(core)
        chosen.extend(core[: count - len(chosen)])
        turn += 1
    return tuple(sorted(chosen))


_Core = tuple[tuple[int, ...], bool]
"""The granted CPUs of a core, and whether the job has only a part of it."""


def cores_of(topology: NodeTopology, granted: Iterable[int]) -> list[_Core]:
    """The cores to which the ``granted`` CPUs belong; without knowledge of cores, each CPU is one."""
    left = set(granted)
    cores: list[_Core] = []
    for group in topology.siblings:
        mine = tuple(sorted(left.intersection(group)))
        if mine:
            cores.append((mine, len(mine) < len(group)))
            left.difference_update(mine)
    return cores + [((cpu,), False) for cpu in sorted(left)]


def whole_cores(topology: NodeTopology, granted: Iterable[int], cpus: Iterable[int]) -> tuple[int, ...]:
    """These CPUs with all others of their cores that are granted, sorted."""
    chosen = frozenset(cpus)
    return tuple(sorted(cpu for core, _ in cores_of(topology, granted) if not chosen.isdisjoint(core) for cpu in core))


def threads_of_a_cpu(topology: NodeTopology, granted: Sequence[int], count: int | None) -> int:
    """How many of the ``granted`` CPUs are one of the ``count`` that Slurm says it has granted.

    More than one where Slurm gives out cores and counts each as one CPU: for a job with ``--hint=nomultithread``, and
    on a node with fewer ``CPUs`` than threads in slurm.conf.
    """
    cores = len(cores_of(topology, granted))
    return len(granted) // cores if count == cores > 0 else 1


def _rank(topology: NodeTopology, core: _Core, gpu: int | None, fullest: int | None) -> tuple[int, int, bool, int]:
    """How far a core is from a GPU; without one, from the NUMA node with the most granted CPUs."""
    cpus, is_part = core
    node = topology.numa_node_of_cpu(cpus[0])
    beside = fullest if gpu is None else topology.gpus[gpu].numa_node
    if gpu is not None and (beside is None or node is None):
        level = LOCAL if cpus[0] in topology.gpus[gpu].cpus else REMOTE
    else:
        level = distance(topology, node, beside) if beside is not None else LOCAL
    return (level, -1 if node is None else node, is_part, cpus[0])


def memory_nodes(topology: NodeTopology, cpus: Iterable[int], gpus: Sequence[int]) -> tuple[int, ...]:
    """NUMA nodes for the memory policy: those of the CPUs, most CPUs first, then those of the GPUs; empty if unknown.

    Nodes without CPUs are left out, since they may be a GPU's own memory. A node without memory is replaced by the
    nearest one that has some.
    """
    usable = [node for node in topology.numa_nodes if node.cpus and node.memory_mib != 0]
    bound = frozenset(cpus)
    shares = sorted([(-len(bound.intersection(node.cpus)), node.id) for node in topology.numa_nodes])
    wanted = [node for share, node in shares if share]
    wanted += [n for n in (topology.gpus[gpu].numa_node for gpu in gpus) if n is not None]
    nodes: list[int] = []
    for numa_node in wanted:
        distances = [(distance(topology, numa_node, node.id), node.id, node) for node in usable]
        nearest = min(distances)[2] if distances else None
        if nearest is not None and nearest.id not in nodes and numa_node in {node.id for node in topology.numa_nodes}:
            nodes.append(nearest.id)
    return tuple(nodes)


def slurm_cores(topology: NodeTopology, *, numa_node_as_socket: bool = False) -> list[list[tuple[int, ...]]]:
    """The cores of each of Slurm's sockets, and the CPUs of each core by kernel number, in slurmd's order.

    slurmd numbers them as hwloc does: sockets by their lowest CPU, in a socket NUMA nodes by theirs, in these cores. A
    socket is a package; where packages are not known, or slurmd runs with ``numa_node_as_socket``, it is a NUMA node
    that has CPUs. An empty list if neither is known; cores of one CPU if it is not known which CPUs share a core.
    """
    nodes = [node.cpus for node in topology.numa_nodes if node.cpus]
    packages = [] if numa_node_as_socket else [cpus for cpus in topology.packages if cpus]
    first_of_node = {cpu: min(cpus) for cpus in nodes for cpu in cpus}
    core_of = {cpu: core for core in topology.siblings for cpu in core}
    return [
        sorted(
            {core_of.get(cpu, (cpu,)) for cpu in socket},
            key=lambda core: (first_of_node.get(core[0], -1), core),
        )
        for socket in sorted(packages or nodes, key=min)
    ]


def kernel_cpus(abstract: Sequence[int], topology: NodeTopology) -> tuple[int, ...]:
    """Convert Slurm's abstract CPU numbers (by socket, then core, then thread) to kernel numbers.

    If the node's sockets are not known, or have too few CPUs, the numbers are returned as they are, sorted.
    """
    order = [cpu for socket in slurm_cores(topology) for core in socket for cpu in core]
    if not order or max(abstract, default=0) >= len(order):
        return tuple(sorted(abstract))
    return tuple(sorted(order[number] for number in abstract))
