"""The best k of n by their links: exact search over sets as bit masks. Pure, stdlib only: it travels to the compute node.

Collectives run in a ring, so a set of GPUs is as fast as the slowest link of its best ring (the Hamiltonian cycle
whose weakest edge is strongest; of two, the pair itself). Weights are whole numbers, so sums and ties are exact.
Where many sets are equal because GPUs are (an NVSwitch, a PCIe switch), only one set of each kind is looked at.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Callable, Dict, Iterator, List, Sequence, Set, Tuple

Matrix = Sequence[Sequence[int]]
EXACT = 8
"""Up to this many members a ring has, beside the best slowest link, the greatest sum of links for certain."""


def members(mask: int) -> Iterator[int]:
    """Positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def neighbours(weight: Matrix, level: int) -> List[int]:
    """For each position the mask of those it has a link of at least ``level`` to."""
    return [
        sum([1 << b for b, each in enumerate(row) if each >= level and a != b]) for a, row in enumerate(weight)
    ]  # fmt: skip


def has_ring(mask: int, near: Sequence[int]) -> bool:
    """Whether a ring goes through all of ``mask`` by the links ``near``; a pair needs its one link, one alone nothing."""
    size = bin(mask).count("1")
    if size < 3:
        return size < 2 or bool(near[mask.bit_length() - 1] & mask)
    degrees = [bin(near[a] & mask).count("1") for a in members(mask)]
    if min(degrees) < 2:
        return False
    if 2 * min(degrees) >= size:  # Dirac's theorem
        return True
    if any(not _connected(mask ^ (1 << a), near) for a in members(mask)):
        return False
    start = mask & -mask
    dead: Set[Tuple[int, int]] = set()

    def walk(end: int, left: int) -> bool:
        if not left:
            return bool(near[end] & start)
        if (end, left) in dead:
            return False
        if any(walk(step, left ^ (1 << step)) for step in members(near[end] & left)):
            return True
        dead.add((end, left))
        return False

    return walk(start.bit_length() - 1, mask ^ start)


def _connected(mask: int, near: Sequence[int]) -> bool:
    seen, fresh = 0, mask & -mask
    while fresh:
        seen |= fresh
        reach = 0
        for a in members(fresh):
            reach |= near[a]
        fresh = reach & mask & ~seen
    return seen == mask


def slowest(weight: Matrix, mask: int) -> int:
    """The weight of the slowest link of the best ring through ``mask``; 0 for fewer than two."""
    inside = list(members(mask))
    for level in sorted({weight[a][b] for a in inside for b in inside if a < b}, reverse=True):
        if has_ring(mask, neighbours(weight, level)):
            return level
    return 0


def sets(weight: Matrix, size: int, kinds: Sequence[Sequence[int]]) -> List[Tuple[int, int]]:
    """``(sum of links, mask)`` of every set of ``size``, one for each way to take members from ``kinds``.

    Members of one kind must be alike in their links to all others; the first of them are taken.
    """
    found: List[Tuple[int, int, int]] = [(0, 0, 0)]
    after = sum(len(kind) for kind in kinds)
    for kind in kinds:
        after -= len(kind)
        grown = []
        for total, mask, count in found:
            if count + after + len(kind) < size:
                continue
            if count + after >= size:
                grown.append((total, mask, count))
            for each in kind[: size - count]:
                row = weight[each]
                for a in members(mask):
                    total += row[a]
                mask |= 1 << each
                count += 1
                if count + after >= size:
                    grown.append((total, mask, count))
        found = grown
    return [(total, mask) for total, mask, _ in found]


def best_set(weight: Matrix, choices: Sequence[Tuple[int, int]], tie: Callable[[int], Tuple[int, ...]]) -> int:
    """Of ``choices`` (sum, mask) of two or more the one with the best ring, then greatest sum, then greatest ``tie``."""
    for level in sorted({each for row in weight for each in row}, reverse=True):
        near = neighbours(weight, level)
        fit = sorted([choice for choice in choices if _may_ring(choice[1], near)], reverse=True)
        for _, equal in groupby(fit, key=itemgetter(0)):
            masks = [mask for _, mask in equal]
            for mask in sorted(masks, key=tie, reverse=True) if len(masks) > 1 else masks:
                if has_ring(mask, near):
                    return mask
    raise ValueError("no set of two or more")


def _may_ring(mask: int, near: Sequence[int]) -> bool:
    """Whether each member has links enough: one in a pair, else two."""
    rest = mask & (mask - 1)
    pair = not rest & (rest - 1)
    for a in members(mask):
        linked = near[a] & mask
        if not linked or not (pair or linked & (linked - 1)):
            return False
    return True


def best_ring(weight: Matrix, mask: int, first: int) -> List[int]:
    """The members of ``mask`` in the order of their best ring, ``first`` in front: best slowest link, then greatest sum.

    The sum is the greatest for certain up to :data:`EXACT` members or where it meets its bound (every usual
    machine); beyond that it is a good one. Equal rings: the lowest members come early.
    """
    inside = sorted(members(mask))
    if len(inside) < 3:
        return [first] + [a for a in inside if a != first]
    level = slowest(weight, mask)
    near = [each & mask for each in neighbours(weight, level)]
    ring = _greedy(weight, mask, near, first)
    if _length(weight, ring) < _bound(weight, inside, level):
        ring = _longest(weight, inside, near, first) if len(inside) <= EXACT else _improved(weight, ring, level)
    return min(ring, [first] + ring[:0:-1])


def _length(weight: Matrix, ring: Sequence[int]) -> int:
    return sum([weight[ring[n - 1]][ring[n]] for n in range(len(ring))])


def _greedy(weight: Matrix, mask: int, near: Sequence[int], first: int) -> List[int]:
    """A ring by always going on over the best link, going back where that leads nowhere."""
    steps = {a: sorted(members(near[a]), key=lambda b, a=a: (-weight[a][b], b)) for a in members(mask)}  # type: ignore[misc]
    dead: Set[Tuple[int, int]] = set()
    ring = [first]

    def walk(end: int, left: int) -> bool:
        if not left:
            return bool(near[end] >> first & 1)
        if (end, left) in dead:
            return False
        for step in steps[end]:
            if left >> step & 1:
                ring.append(step)
                if walk(step, left ^ (1 << step)):
                    return True
                ring.pop()
        dead.add((end, left))
        return False

    walk(first, mask ^ (1 << first))
    return ring


def _bound(weight: Matrix, inside: Sequence[int], level: int) -> int:
    """No ring's sum is greater: of the links of at least a weight, a ring has few where the members fall apart."""
    ranks = sorted({weight[a][b] for a in inside for b in inside if a < b and weight[a][b] > level})
    mask = sum([1 << a for a in inside])
    total, below = level * len(inside), level
    for rank in ranks:
        near = neighbours(weight, rank)
        parts, left = 0, mask
        while left:
            fresh = seen = left & -left
            while fresh:
                reach = 0
                for a in members(fresh):
                    reach |= near[a]
                fresh = reach & left & ~seen
                seen |= fresh
            left &= ~seen
            parts += 1
        ends = sum([min(2, bin(near[a] & mask).count("1")) for a in inside]) // 2
        total += (rank - below) * min(ends, len(inside) - parts if parts > 1 else len(inside))
        below = rank
    return total


def _longest(weight: Matrix, inside: Sequence[int], near: Sequence[int], first: int) -> List[int]:
    """The ring of greatest sum, by dynamic programming over sets and last members (Held and Karp, 1962)."""
    others = [a for a in inside if a != first]
    best: Dict[Tuple[int, int], Tuple[int, List[int]]] = {
        (1 << a, a): (weight[first][a], [a]) for a in others if near[first] >> a & 1
    }
    whole = sum([1 << a for a in others])
    for _ in range(len(others) - 1):
        grown: Dict[Tuple[int, int], Tuple[int, List[int]]] = {}
        for (done, end), (total, path) in best.items():
            row = weight[end]
            for step in members(near[end] & whole & ~done):
                key = (done | 1 << step, step)
                if key not in grown or total + row[step] > grown[key][0]:
                    grown[key] = (total + row[step], [*path, step])
        best = grown
    closed = [(total + weight[end][first], path) for (_, end), (total, path) in best.items() if near[end] >> first & 1]
    return [first, *max(closed, key=lambda each: (each[0], [-a for a in each[1]]))[1]]


def _improved(weight: Matrix, ring: List[int], level: int) -> List[int]:
    """The ring with pairs of its links exchanged as long as that helps (2-opt) and none is slower than ``level``."""
    size, again = len(ring), True
    while again:
        again = False
        for a in range(size - 2):
            for b in range(a + 2, size - (a == 0)):
                one, two, three, four = ring[a], ring[a + 1], ring[b], ring[(b + 1) % size]
                new = (weight[one][three], weight[two][four])
                if min(new) >= level and sum(new) > weight[one][two] + weight[three][four]:
                    ring[a + 1 : b + 1] = reversed(ring[a + 1 : b + 1])
                    again = True
    return ring
