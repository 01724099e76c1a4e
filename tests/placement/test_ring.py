"""The search for rings and sets: graphs whose answer is known from the books, and symmetry that loses nothing."""

from __future__ import annotations

import itertools
import random

import pytest

from jupyterhub_gpuspawner.placement import ring


def graph(edges: str) -> list[list[int]]:
    """Weights 2 for the named edges and 1 for the others; ``01 12`` is a path of three."""
    size = 1 + max(int(end, 16) for edge in edges.split() for end in edge)
    joined = {frozenset(int(end, 16) for end in edge) for edge in edges.split()}
    return [[0 if a == b else 2 if frozenset((a, b)) in joined else 1 for b in range(size)] for a in range(size)]


PETERSEN = "01 12 23 34 40 05 16 27 38 49 57 79 96 68 85"


@pytest.mark.parametrize(
    ("edges", "members", "answer"),
    [
        ("01", "01", True),
        ("01 12", "012", False),
        ("01 12 20", "012", True),
        ("01 12 20 23 34 42", "01234", False),
        (PETERSEN, "0123456789", False),
        (PETERSEN, "123456789", True),
        ("01 12 23 34 45 50", "012345", True),
        ("03 04 13 14 23 24", "01234", False),
        ("03 04 13 14 23 24", "0134", True),
        ("01 12 20 34 45 53", "012345", False),
        ("02", "2", True),
    ],
)
def test_ring_through_all(edges: str, members: str, answer: bool) -> None:
    """A triangle has a ring; two that share a corner do not; Petersen's graph has one only without a vertex."""
    near = ring.neighbours(graph(edges), 2)
    assert ring.has_ring(sum(1 << int(each) for each in members), near) is answer


@pytest.mark.parametrize("seed", range(60))
def test_best_ring(seed: int) -> None:
    """Up to eight members the ring has the best slowest link and, of those, the greatest sum (fixed seeds)."""
    draw = random.Random(seed)
    size = draw.randint(3, 8)
    weight = [[0] * size for _ in range(size)]
    for a, b in itertools.combinations(range(size), 2):
        weight[a][b] = weight[b][a] = draw.choice((7, 9, 12, 25, 50))
    first = draw.randrange(size)
    order = ring.best_ring(weight, (1 << size) - 1, first)
    others = [each for each in range(size) if each != first]

    def worth(way: list[int]) -> tuple[int, int]:
        links = [weight[a][b] for a, b in zip(way, way[1:] + way[:1], strict=True)]
        return (min(links), sum(links))

    assert order[0] == first
    assert sorted(order) == list(range(size))
    assert worth(order) == max(worth([first, *rest]) for rest in itertools.permutations(others))


@pytest.mark.parametrize("seed", range(10))
def test_long_ring(seed: int) -> None:
    """Beyond eight members the ring still has the best slowest link: here there is one by construction."""
    draw = random.Random(seed)
    size = draw.randint(9, 16)
    weight = [[draw.choice((7, 9))] * size for _ in range(size)]
    weight = [[min(weight[a][b], weight[b][a]) for b in range(size)] for a in range(size)]
    around = draw.sample(range(size), size)
    for a, b in zip(around, around[1:] + around[:1], strict=True):
        weight[a][b] = weight[b][a] = 25
    order = ring.best_ring(weight, (1 << size) - 1, around[0])
    assert order in (around, [around[0], *around[:0:-1]])


@pytest.mark.parametrize("seed", range(20))
def test_equal_members_are_taken_once(seed: int) -> None:
    """Sets by kind are those of all sets that take the first of each kind, with the same sums."""
    draw = random.Random(seed)
    size = 0
    kinds = [list(range(size, size := size + draw.randint(1, 3))) for _ in range(draw.randint(2, 5))]
    kind = {each: n for n, group in enumerate(kinds) for each in group}
    level = {pair: draw.choice((7, 9, 12)) for pair in itertools.combinations_with_replacement(range(len(kinds)), 2)}
    weight = [
        [0 if a == b else level[min(kind[a], kind[b]), max(kind[a], kind[b])] for b in range(size)] for a in range(size)
    ]
    for count in range(1, size + 1):
        wanted = []
        for some in itertools.combinations(range(size), count):
            if all(each in some for group in kinds for each in group[: sum(kind[s] == kind[group[0]] for s in some)]):
                total = sum(weight[a][b] for a, b in itertools.combinations(some, 2))
                wanted.append((total, sum(1 << each for each in some)))
        assert sorted(zip(*ring.sets(weight, count, kinds), strict=True)) == sorted(wanted)
        assert ring.cost(count, kinds) >= len(wanted)
