"""The best ring through some GPUs, by their links. Standard library only.

Collective operations run in a ring, so a set of GPUs is as fast as the slowest link of its best ring: the Hamiltonian
cycle whose slowest link is fastest (for two GPUs, their link). Weights are integers, so sums and ties are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    Matrix = Sequence[Sequence[int]]

EXACT = 8
"""Up to this many members a ring is certain to be the best; with more it is the best that :data:`STEPS` steps find."""
STEPS = 500
"""Links that are tried for each slowest link, at most, in a ring of more members."""


@dataclass(frozen=True)
class Ring:
    """A ring through some members."""

    slowest: int
    """Weight of its slowest link; 0 for a single member."""
    total: int
    """Sum of its links."""
    order: tuple[int, ...]


def slowest_at_most(weight: Matrix, members: Sequence[int]) -> int:
    """A bound for the slowest link of each ring through ``members``: each needs two links, of a pair one."""
    needed = min(2, len(members) - 1)
    if not needed:
        return 0
    return min([sorted([weight[a][b] for b in members if b != a])[-needed] for a in members])


def slowest_of_best(weight: Matrix, members: Sequence[int]) -> int:
    """The slowest link of the best ring through ``members``."""
    return _ring(weight, members, members[0], first_found=True).slowest


def best_ring(weight: Matrix, members: Sequence[int], first: int) -> Ring:
    """The ring through ``members``, from ``first``, with the best slowest link and, of those, the greatest sum."""
    return _ring(weight, members, first, first_found=False)


def _ring(weight: Matrix, members: Sequence[int], first: int, *, first_found: bool) -> Ring:
    if len(members) < 3:
        link = weight[members[0]][members[-1]]
        return Ring(link, link, (first, *[a for a in members if a != first]))
    bound = slowest_at_most(weight, members)
    for level in sorted({weight[a][b] for a in members for b in members if a < b}, reverse=True):
        if level <= bound:
            ring = _Search(weight, members, level, first_found=first_found).ring(first)
            if ring is not None:
                return ring
    return Ring(0, 0, tuple(members))  # not reached: on the lowest level any order is a ring


class _Search:
    """Rings through ``members`` without a link slower than ``level``, fast links first."""

    def __init__(self, weight: Matrix, members: Sequence[int], level: int, *, first_found: bool) -> None:
        self.weight = weight
        self.first_found = first_found
        self.size = len(members)
        self.steps = {
            a: sorted([b for b in members if b != a and weight[a][b] >= level], key=lambda b, a=a: (-weight[a][b], b))  # type: ignore[misc]
            for a in members
        }
        self.left = STEPS if self.size > EXACT else -1
        self.total = -1
        self.order: tuple[int, ...] = ()

    def ring(self, first: int) -> Ring | None:
        """The one with the greatest sum of links; None if none was found."""
        if min([len(links) for links in self.steps.values()]) < 2 or (self.size > EXACT and not self._is_joined(first)):
            return None
        self.fast = {a: [self.weight[a][b] for b in links[:2]] for a, links in self.steps.items()}
        self._walk([first], 0, sum([sum(two) for a, two in self.fast.items() if a != first]))
        if not self.order:
            return None
        links = [self.weight[self.order[n - 1]][self.order[n]] for n in range(self.size)]
        return Ring(min(links), self.total, self.order)

    def _is_joined(self, first: int) -> bool:
        """Whether all members can be reached from the first."""
        reached, fresh = {first}, {first}
        while fresh:
            fresh = {b for a in fresh for b in self.steps[a]} - reached
            reached |= fresh
        return len(reached) == self.size

    def _walk(self, path: list[int], total: int, most: int) -> None:
        """Go on from the end of ``path``; ``most`` is the sum of the two fastest links of each member not in it."""
        first, end = path[0], path[-1]
        row = self.weight[end]
        if len(path) == self.size:
            if first in self.steps[end] and total + row[first] > self.total:
                self.total, self.order = total + row[first], tuple(path)
                if self.first_found:
                    self.left = 0
            return
        for step in self.steps[end]:
            if step in path:
                continue
            if self.left == 0:
                return
            self.left -= 1
            reached = total + row[step]
            left = most - sum(self.fast[step])
            # a link that is to come counts half at each of its ends
            to_come = left + self._faster(step, row[step]) + self._faster(first, self.weight[first][(*path, step)[1]])
            if 2 * reached + to_come > 2 * self.total:
                self._walk([*path, step], reached, left)

    def _faster(self, member: int, used: int) -> int:
        """The fastest link of a member of which one link is used."""
        one, two = self.fast[member]
        return two if used == one else one
