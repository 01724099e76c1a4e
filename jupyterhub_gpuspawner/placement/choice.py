"""Choose GPUs from those granted, and their order. Pure, standard library only.

The criteria, in order: the slowest link of the best ring, the mean bandwidth of all pairs, the distance from the
granted CPUs, the fewest NUMA nodes, the links that are left for the next job, the lowest positions. For a single GPU
the first two do not apply, so the CPUs decide. The search is exact and deterministic.

GPUs are indices into ``topology.gpus``; NUMA nodes and CPUs are kernel numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.placement import ring
from jupyterhub_gpuspawner.placement.affinity import aligned, home, ways
from jupyterhub_gpuspawner.placement.ring import gbps
from jupyterhub_gpuspawner.placement.topology import gpu_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyterhub_gpuspawner.placement.topology import NodeTopology


# The names of the policies for GPUs and for memory. Standard library only: the launcher reads them on the node.
#
# How they are applied: GPUs and CPUs in :mod:`~jupyterhub_gpuspawner.placement.choice`, memory in
# :mod:`~jupyterhub_gpuspawner.node.bind`.

POLICIES = ("none", "best-effort", "restricted")
"""How GPUs and CPUs are chosen; the names are those of kubelet's Topology Manager."""
MEMORY_POLICIES = ("none", "preferred", "bind")
"""How memory is bound to NUMA nodes (set_mempolicy(2))."""


# The order of a node's GPUs in a ring over several nodes.
#
# Within one node a ring is closed: its last GPU sends to its first. In a ring over several nodes the last GPU of a
# node sends to the first one of the next node, by the network; the link from the last to the first GPU of a node is
# not used. So the ring of each node is opened at its slowest link.


def opened(topology: NodeTopology, ring: Sequence[int]) -> tuple[int, ...]:
    """The GPUs of ``ring`` (positions), turned so that its slowest link is the one from the last to the first.

    If several links are equally slow, the ring is turned as little as possible.
    """
    speeds = [_gbps(topology, ring[n - 1], ring[n]) for n in range(len(ring))]
    start = speeds.index(min(speeds)) if len(ring) > 2 else 0
    return (*ring[start:], *ring[:start])


def _gbps(topology: NodeTopology, a: int, b: int) -> float:
    one, two = topology.gpus[a], topology.gpus[b]
    nvlink = [n for n in (one.nvlink_generation, two.nvlink_generation) if n is not None]
    pcie = [n for n in (one.pcie_generation, two.pcie_generation) if n is not None]
    return gbps(
        topology.link(a, b),
        nvlink_generation=min(nvlink, default=None),
        pcie_generation=min(pcie, default=None),
    )


LIMIT = 2_000_000
"""Limit for the steps of the search: 20 GPUs without any symmetry need half of it, 16 a thirtieth. Only dozens of MIG
devices need more, and those have no links to each other: then the nearest to the CPUs are taken."""


@dataclass(frozen=True)
class Choice:
    """The GPUs of one server, in the order of ``CUDA_VISIBLE_DEVICES``, which is that of their best ring."""

    gpus: tuple[int, ...] = ()
    weakest_link: str | None = None
    """Link word of the ring's slowest link; None for fewer than two GPUs."""
    ring_gbps: float | None = None
    """Bandwidth of that link in GB/s, one way; None for fewer than two GPUs, or if it is not known."""
    mean_gbps: float | None = None
    """Mean over all pairs; None for fewer than two GPUs, or if a link is not known."""
    numa_nodes: tuple[int, ...] = ()
    """NUMA nodes nearest to the GPUs, as far as known."""
    aligned: bool | None = None
    why: str = ""
    """The choice explained in one sentence."""


def choose(
    topology: NodeTopology,
    *,
    granted: Sequence[int],
    count: int,
    cpus: Iterable[int] = (),
    policy: str = "best-effort",
) -> Choice:
    """Choose the best ``count`` of the ``granted`` GPUs (positions); all of them if fewer are granted.

    ``cpus`` are the granted CPUs, empty if not known. The policy ``none`` keeps the order of ``granted``;
    ``restricted`` ranks few NUMA nodes, near to the CPUs, above bandwidth. Raises ValueError for an unknown
    policy, a negative count, or a position that is not in the topology.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy: {policy!r} is not one of {', '.join(POLICIES)}")
    if count < 0:
        raise ValueError(f"count: {count} is negative")
    wrong = [position for position in granted if not 0 <= position < len(topology.gpus)]
    if wrong:
        raise ValueError(f"granted: no GPU at position {wrong[0]}; the node has {len(topology.gpus)}")
    free = list(dict.fromkeys(granted))
    bound = frozenset(cpus)
    if not free or not count:
        return Choice(why="No GPU was requested." if not count else "No GPU was granted.")
    field = _Field(topology, sorted(free), bound)
    if policy == "none":
        gpus = free[:count]
        order = field.ring(sum([1 << field.positions.index(gpu) for gpu in gpus]))
    else:
        order = gpus = field.best(min(count, len(free)), nodes_first=policy != "best-effort")
    choice = replace(field.measured(topology, gpus, order), aligned=aligned(topology, gpus, bound))
    nearest = len(set(field.far)) > 1
    return replace(choice, why=_why(topology, choice, granted=len(free), count=count, nearest=nearest, policy=policy))


class _Field:
    """The granted GPUs as integers: bandwidths in units of 10 MB/s, distances from the CPUs, NUMA nodes as bits."""

    def __init__(self, topology: NodeTopology, positions: Sequence[int], cpus: frozenset[int]) -> None:
        self.positions = positions
        size = len(positions)
        self.weight = [[0] * size for _ in positions]
        self.nvlink = [[0] * size for _ in positions]
        for i, a in enumerate(positions):
            for j, b in enumerate(positions[:i]):
                weight = round(100 * _gbps(topology, a, b))
                self.weight[i][j] = self.weight[j][i] = weight
                if topology.link(a, b).startswith("NV"):
                    self.nvlink[i][j] = self.nvlink[j][i] = weight
        self.far = ways(topology, positions, cpus)
        homes: dict[object, int] = {}
        self.home = [homes.setdefault(home(topology, position), 1 << len(homes)) for position in positions]

    def best(self, count: int, *, nodes_first: bool) -> list[int]:
        """The positions of the best ``count`` GPUs, in ring order."""
        if count == len(self.positions):
            return self.ring((1 << count) - 1)
        kinds = self._kinds()
        if ring.cost(count, kinds) > LIMIT:
            order = sorted(range(len(self.positions)), key=lambda i: (self.far[i], i))
            return self.ring(sum([1 << i for i in order[:count]]))
        sums, masks = ring.sets(self.weight, count, kinds)
        if nodes_first:
            hosts = [self._host(mask, nodes_first=True) for mask in masks]
            best = max(hosts)
            near = [n for n, host in enumerate(hosts) if host == best]
            sums, masks = [sums[n] for n in near], [masks[n] for n in near]
        if count == 1:
            return self.ring(max(masks, key=self._tie))
        return self.ring(ring.best_set(self.weight, sums, masks, self._tie))

    def ring(self, mask: int) -> list[int]:
        """The best ring through ``mask`` as positions: first the GPU nearest to the CPUs, then its nearer neighbour."""
        first = min(ring.members(mask), key=lambda i: (self.far[i], i))
        one = ring.best_ring(self.weight, mask, first)
        other = [first, *one[:0:-1]]
        order_ = min(one, other, key=lambda order: ([self.far[i] for i in order], order))
        return [self.positions[i] for i in order_]

    def measured(self, topology: NodeTopology, gpus: Sequence[int], order: Sequence[int]) -> Choice:
        """Links and NUMA nodes of ``gpus``, whose best ring is ``order``."""
        nodes = {topology.gpus[gpu].numa_node for gpu in gpus}
        choice = Choice(tuple(gpus), numa_nodes=tuple(sorted([node for node in nodes if node is not None])))
        if len(gpus) < 2:
            return choice
        inside = [self.positions.index(gpu) for gpu in order]
        slow, i, j = min([(self.weight[i][j], i, j) for i, j in zip(inside, inside[1:] + inside[:1])])
        link = topology.link(self.positions[i], self.positions[j])
        is_measured = link != "?"
        words = {topology.link(a, b) for a in gpus for b in gpus}
        sums = [self.weight[i][j] for i in inside for j in inside if i < j]
        return replace(
            choice,
            weakest_link=link if is_measured else None,
            ring_gbps=slow / 100 if is_measured else None,
            mean_gbps=None if "?" in words else round(sum(sums) / len(sums) / 100, 2),
        )

    def _kinds(self) -> list[list[int]]:
        """Groups of interchangeable GPUs: with the same links to all others, NUMA node and distance from the CPUs."""
        kinds: list[list[int]] = []
        for i in range(len(self.positions)):
            kind = next((kind for kind in kinds if self._alike(i, kind[0])), None)
            if kind is None:
                kinds.append([i])
            else:
                kind.append(i)
        return kinds

    def _alike(self, i: int, j: int) -> bool:
        return (
            self.home[i] == self.home[j]
            and self.far[i] == self.far[j]
            and all(
                self.weight[i][k] == self.weight[j][k] and self.nvlink[i][k] == self.nvlink[j][k]
                for k in range(len(self.positions))
                if k not in (i, j)
            )
        )

    def _host(self, mask: int, *, nodes_first: bool = False) -> tuple[int, int]:
        total, homes = 0, 0
        for i in ring.members(mask):
            total -= self.far[i]
            homes |= self.home[i]
        nodes = -bin(homes).count("1")
        return (nodes, total) if nodes_first else (total, nodes)

    def _tie(self, mask: int) -> tuple[int, ...]:
        """A key by which sets with equal links are ranked, greater is better: the host, what is left, low positions.

        What is left is the bandwidth between the GPUs not taken, NVLink first, so that a single GPU is not taken from a
        bridged pair if there is another.
        """
        inside = list(ring.members(mask))
        bridged = left = 0
        for i in inside:
            nvlink, weight = self.nvlink[i], self.weight[i]
            bridged += sum([nvlink[j] for j in inside]) - 2 * sum(nvlink)
            left += sum([weight[j] for j in inside]) - 2 * sum(weight)
        return (*self._host(mask), bridged, left, *[-i for i in inside])


def _why(topology: NodeTopology, choice: Choice, *, granted: int, count: int, nearest: bool, policy: str) -> str:
    """The choice explained in one sentence."""
    gpus = [topology.gpus[gpu] for gpu in choice.gpus]
    names = [gpu_name(gpu.index, gpu.mig, topology.mig_device(index)) for index, gpu in zip(choice.gpus, gpus)]
    if len(names) > 1 and not any(gpu.mig for gpu in gpus):
        names = [f"GPUs {gpus[0].index}", *(str(gpu.index) for gpu in gpus[1:])]
    text = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    if granted < count:
        text += f": all that were granted, of {count} requested"
    elif len(gpus) == granted:
        text += ", as granted"
    elif policy == "none":
        text += f", the first of {granted} granted"
    elif len(gpus) > 1:
        text += f": the best {len(gpus)} of {granted} granted"
    elif nearest:
        text += f": the nearest to the CPUs, of {granted} granted"
    else:
        text += f": of {granted} granted, it leaves the best links to other jobs"
    if choice.weakest_link:
        text += f"; the slowest link of their ring is {choice.weakest_link} (about {choice.ring_gbps:g} GB/s)"
    elif len(gpus) > 1:
        text += "; the links between them are not known"
    return text + "."
