"""Find the best k of n GPUs by their links: an exact search over sets as bit masks. Pure, standard library only.

Collective operations run in a ring, so a set of GPUs is as fast as the slowest link of its best ring: the Hamiltonian
cycle whose weakest edge is strongest (for two GPUs, their link). Weights are integers, so sums and ties are exact.
Where many sets are equal because their GPUs are (behind an NVSwitch or a PCIe switch), only one of them is examined.
"""

from __future__ import annotations

from itertools import accumulate, repeat
from operator import add, or_
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Matrix = Sequence[Sequence[int]]


# Bandwidths of the links between GPUs.
#
# All figures are GB/s, one way. They rank links against each other; they do not predict what a program measures.
#
# * NVLink, per link: 20 (NVLink 1), 25 (2, 3 and 4), 50 (5): NVIDIA's nominal rates of the P100, V100, A100, H100 and
#   B200 (their data sheets sum all links, both ways: 160, 300, 600, 900 and 1,800 GB/s). NCCL's ``src/graph/topo.h``
#   counts 18, 20, 20, 20.6 and 40.1 as effective, which ranks machines in the same order.
# * PCIe 3.0 x16: about 12 between two GPUs behind one switch (NCCL's ``PCI_BW``), then less for each hop:
#   switches (PXB), the host bridge (PHB), bridges of one NUMA node (NODE), the link between sockets (SYS: QPI counts 6
#   and UPI 10 in NCCL, so 7 is used for both). PCIe 4.0 doubles the PCIe figures, the link between sockets grows less;
#   5.0 doubles all of them again. Older than 3.0 counts as 3.0, newer than 5.0 as 5.0.
#
# NVLink bridges of workstation GPUs are slower than their generation suggests (RTX A6000: 14.06 per link), but far
# faster than PCIe.

NVLINK_GBPS = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0, 6: 50.0}
"""GB/s, one way, of one NVLink, by generation."""
PCIE_GBPS = {
    3: {"PIX": 12.0, "PXB": 11.0, "PHB": 10.0, "NODE": 9.0, "SYS": 7.0},
    4: {"PIX": 24.0, "PXB": 22.0, "PHB": 20.0, "NODE": 18.0, "SYS": 12.0},
    5: {"PIX": 48.0, "PXB": 44.0, "PHB": 40.0, "NODE": 36.0, "SYS": 24.0},
}
"""GB/s, one way, by PCIe generation and link level, for x16."""
_PCIE_OF_NVLINK = {1: 3, 2: 3, 3: 4, 4: 5, 5: 5, 6: 5}


def gbps(link: str, *, nvlink_generation: int | None = None, pcie_generation: int | None = None) -> float:
    """Bandwidth in GB/s, one way, of a link word of :mod:`~jupyterhub_gpuspawner.placement.topology`.

    Raises ValueError for any other word. An unknown NVLink generation counts 25 per link, as most have. An unknown PCIe
    generation is inferred from the NVLink generation, or else is 3. ``?`` counts slightly less than the slowest known
    link, so that it is never preferred.
    """
    if link[:2] == "NV" and link[2:].isdigit():
        return int(link[2:]) * NVLINK_GBPS.get(nvlink_generation or 2, 25.0)
    generation = pcie_generation or _PCIE_OF_NVLINK.get(nvlink_generation or 1, 3)
    levels = PCIE_GBPS[min(max(generation, 3), 5)]
    if link == "?":
        return levels["SYS"] - 1.0
    level = {"SOC": "SYS", "X": "PHB"}.get(link, link)
    if level not in levels:
        raise ValueError(f"{link!r} is not a link")
    return levels[level]


EXACT = 8
"""Up to this many members, a ring is certain to have the greatest sum of links, beside the best slowest link."""


def members(mask: int) -> Iterator[int]:
    """Positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def neighbours(weight: Matrix, level: int) -> list[int]:
    """For each position, the mask of those to which it has a link of at least ``level``."""
    return [sum([1 << b for b, link in enumerate(row) if link >= level and a != b]) for a, row in enumerate(weight)]


def has_ring(mask: int, near: Sequence[int]) -> bool:
    """Whether the links ``near`` form a ring through all of ``mask``; a pair needs one link, a single member none."""
    inside = list(members(mask))
    size = len(inside)
    if size < 3:
        return size < 2 or bool(near[inside[0]] & mask)
    fewest = min([bin(near[a] & mask).count("1") for a in inside])
    if 2 * fewest >= size:  # Dirac's theorem
        return True
    if fewest < 2 or any(_reach(mask ^ 1 << a, near) != mask ^ 1 << a for a in inside):
        return False
    return bool(_walk(inside[0], mask, [list(members(row & mask)) for row in near]))


def _reach(mask: int, near: Sequence[int]) -> int:
    """The members of ``mask`` that are connected to its first."""
    reached, fresh = 0, mask & -mask
    while fresh:
        reached |= fresh
        reach = 0
        for a in members(fresh):
            reach |= near[a]
        fresh = reach & mask & ~reached
    return reached


def _walk(first: int, mask: int, steps: Sequence[Sequence[int]]) -> list[int]:
    """The first ring through ``mask`` found by trying ``steps`` in order; empty if there is none."""
    dead: set[tuple[int, int]] = set()
    ring = [first]

    def walk(end: int, left: int) -> bool:
        if not left:
            return first in steps[end]
        if (end, left) in dead:
            return False
        for step in steps[end]:
            if left >> step & 1:
                ring.append(step)
                if walk(step, left ^ 1 << step):
                    return True
                ring.pop()
        dead.add((end, left))
        return False

    return ring if walk(first, mask ^ 1 << first) else []


def slowest(weight: Matrix, mask: int) -> int:
    """Weight of the slowest link of the best ring through ``mask``; 0 for fewer than two members."""
    inside = list(members(mask))
    for level in sorted({weight[a][b] for a in inside for b in inside if a < b}, reverse=True):
        if has_ring(mask, neighbours(weight, level)):
            return level
    return 0


def cost(size: int, kinds: Sequence[Sequence[int]]) -> int:
    """The number of steps of :func:`sets`: sets of up to ``size`` in one half, times those in the other."""
    product = 1
    for half in (kinds[: len(kinds) // 2], kinds[len(kinds) // 2 :]):
        ways = [1] + [0] * size
        for kind in half:
            ways = [sum(ways[max(0, n - len(kind)) : n + 1]) for n in range(size + 1)]
        product *= sum(ways)
    return product


def sets(weight: Matrix, size: int, kinds: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Sums of links, and masks, of all sets of ``size``; one for each number of members taken from each of ``kinds``.

    Members of a kind must have the same links to all others; the first of them are taken. Each half of the kinds is
    enumerated separately, and the sums between the halves are added row by row.
    """
    half = len(kinds) // 2
    left, right = _half(weight, kinds[:half], size), _half(weight, kinds[half:], size)
    ranked = sorted(right, key=lambda part: bin(part[1]).count("1"))
    counts = [bin(mask).count("1") for _, mask, _ in ranked]
    first = [0, *accumulate([counts.count(n) for n in range(size + 1)])]
    totals, masks = [total for total, _, _ in ranked], [mask for _, mask, _ in ranked]
    across = {0: [0] * len(ranked)}
    for member in [group for kind in kinds[:half] for group in kind]:
        to = {0: 0}
        for _, mask, last in right[1:]:
            to[mask] = to[mask ^ 1 << last] + weight[member][last]
        across[-1 - member] = [to[mask] for mask in masks]
    halves: tuple[list[int], list[int]] = ([], [])
    for total, mask, last in left:
        if mask:
            across[mask] = list(map(add, across[mask ^ 1 << last], across[-1 - last]))
        count = bin(mask).count("1")
        some = slice(first[size - count], first[size - count + 1])
        halves[0].extend(map(add, map(add, totals[some], across[mask][some]), repeat(total)))
        halves[1].extend(map(or_, masks[some], repeat(mask)))
    return halves


def _half(weight: Matrix, kinds: Sequence[Sequence[int]], most: int) -> list[tuple[int, int, int]]:
    """Sets of up to ``most`` as (sum of links, mask, last member added), each after the set that it extends."""
    parts = [(0, 0, 0)]
    for kind in kinds:
        grown = []
        for part in parts:
            grown.append(part)
            total, mask, _ = part
            for member in kind[: most - bin(mask).count("1")]:
                total += sum([weight[member][a] for a in members(mask)])
                mask |= 1 << member
                grown.append((total, mask, member))
        parts = grown
    return parts


def best_set(weight: Matrix, sums: Sequence[int], masks: Sequence[int], tie: Callable[[int], tuple[int, ...]]) -> int:
    """Of sets of the same size (at least two), the one with the best ring, then greatest sum, then greatest ``tie``."""
    size, everything = bin(masks[0]).count("1"), (1 << len(weight)) - 1
    for level in sorted({link for row in weight for link in row}, reverse=True):
        near = neighbours(weight, level)
        outside = [everything ^ region for region in _regions(everything, near) if _may_hold(region, size, near)]
        inside = [n for out in outside for n, mask in enumerate(masks) if not mask & out]
        members = _best_with_ring([sums[n] for n in inside], [masks[n] for n in inside], near, tie)
        if members:
            return members
    raise ValueError("no set of two or more")


def _best_with_ring(
    sums: Sequence[int], masks: Sequence[int], near: Sequence[int], tie: Callable[[int], tuple[int, ...]]
) -> int:
    """The best set that has a ring; 0 if there is none."""
    for top in sorted(set(sums), reverse=True):
        equal = [mask for total, mask in zip(sums, masks) if total == top]
        if not has_ring(equal[0], near):
            equal = [mask for mask in equal[1:] if has_ring(mask, near)]
        for mask in sorted(equal, key=tie, reverse=True) if len(equal) > 1 else equal:
            if has_ring(mask, near):
                return mask
    return 0


def _regions(mask: int, near: Sequence[int]) -> list[int]:
    """Split ``mask`` into its biconnected parts: every ring lies within one of them."""
    whole = _reach(mask, near)
    if whole != mask:
        return _regions(whole, near) + _regions(mask ^ whole, near)
    for a in members(mask):
        rest = mask ^ 1 << a
        part = _reach(rest, near)
        if part != rest:
            return _regions(part | 1 << a, near) + _regions(rest ^ part | 1 << a, near)
    return [mask]


def _may_hold(region: int, size: int, near: Sequence[int]) -> bool:
    """Whether the region may contain a ring of ``size``: it is large enough, and not bipartite if ``size`` is odd."""
    if bin(region).count("1") < size:
        return False
    if size % 2 == 0:
        return True
    colours, fresh, turn = [0, 0], region & -region, 0
    while fresh:
        colours[turn] |= fresh
        reach = 0
        for a in members(fresh):
            reach |= near[a]
        turn ^= 1
        fresh = reach & region & ~colours[turn]
    return bool(colours[0] & colours[1])


def best_ring(weight: Matrix, mask: int, first: int) -> list[int]:
    """The members of ``mask`` in the order of their best ring, from ``first``: best slowest link, then greatest sum.

    The sum is certain to be the greatest up to :data:`EXACT` members, or if it reaches its bound (as on all common
    machines); otherwise it is a good one.
    """
    inside = sorted(members(mask))
    if len(inside) < 3:
        return [first] + [a for a in inside if a != first]
    level = slowest(weight, mask)
    near = [neighbour & mask for neighbour in neighbours(weight, level)]
    steps = [sorted(members(linked), key=lambda b, row=row: (-row[b], b)) for row, linked in zip(weight, near)]  # type: ignore[misc]
    ring = _walk(first, mask, steps)
    if _length(weight, ring) < _bound(weight, inside, level):
        ring = _longest(weight, inside, near, first) if len(inside) <= EXACT else _improved(weight, ring, level)
    return ring


def _length(weight: Matrix, ring: Sequence[int]) -> int:
    return sum([weight[ring[n - 1]][ring[n]] for n in range(len(ring))])


def _bound(weight: Matrix, inside: Sequence[int], level: int) -> int:
    """An upper bound of a ring's sum: if links of at least a weight leave the members apart, a ring has few of them."""
    ranks = sorted({weight[a][b] for a in inside for b in inside if a < b and weight[a][b] > level})
    mask = sum([1 << a for a in inside])
    total, below = level * len(inside), level
    for rank in ranks:
        near = neighbours(weight, rank)
        parts, left = 0, mask
        while left:
            left &= ~_reach(left, near)
            parts += 1
        ends = sum([min(2, bin(near[a] & mask).count("1")) for a in inside]) // 2
        total += (rank - below) * min(ends, len(inside) - parts if parts > 1 else len(inside))
        below = rank
    return total


def _longest(weight: Matrix, inside: Sequence[int], near: Sequence[int], first: int) -> list[int]:
    """The ring of greatest sum, by dynamic programming over sets and last members (Held and Karp, 1962)."""
    others = [a for a in inside if a != first]
    best: dict[tuple[int, int], tuple[int, list[int]]] = {
        (1 << a, a): (weight[first][a], [a]) for a in others if near[first] >> a & 1
    }
    whole = sum([1 << a for a in others])
    for _ in range(len(others) - 1):
        grown: dict[tuple[int, int], tuple[int, list[int]]] = {}
        for (done, end), (total, path) in best.items():
            row = weight[end]
            for step in members(near[end] & whole & ~done):
                key = (done | 1 << step, step)
                if key not in grown or total + row[step] > grown[key][0]:
                    grown[key] = (total + row[step], [*path, step])
        best = grown
    closed = [(total + weight[end][first], path) for (_, end), (total, path) in best.items() if near[end] >> first & 1]
    return [first, *max(closed, key=lambda part: (part[0], [-a for a in part[1]]))[1]]


def _improved(weight: Matrix, ring: list[int], level: int) -> list[int]:
    """Improve the ring by exchanging pairs of links (2-opt), never for a link slower than ``level``."""
    size, improved = len(ring), True
    while improved:
        improved = False
        for a in range(size - 2):
            for b in range(a + 2, size - (a == 0)):
                one, two, three, four = ring[a], ring[a + 1], ring[b], ring[(b + 1) % size]
                new = (weight[one][three], weight[two][four])
                if min(new) >= level and sum(new) > weight[one][two] + weight[three][four]:
                    ring[a + 1 : b + 1] = reversed(ring[a + 1 : b + 1])
                    improved = True
    return ring
