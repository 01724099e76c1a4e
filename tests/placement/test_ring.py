"""The search for rings: graphs whose answer is known from the books, and rings that are best among all orders."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from jupyterhub_gpuspawner.placement.choice import best_ring
from jupyterhub_gpuspawner.placement.topology import gbps


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
    ],
)
def test_ring_through_all(edges: str, members: str, answer: bool) -> None:
    """A triangle has a ring; two that share a corner do not; Petersen's graph has one only without a vertex."""
    inside = [int(member) for member in members]
    assert (best_ring(graph(edges), inside, inside[0])[0] == 2) is answer
    assert best_ring(graph(edges), inside, inside[0], any_order=True)[0] == 1 + answer


@pytest.mark.parametrize("seed", range(60))
def test_best_ring(seed: int) -> None:
    """Up to eight members the ring has the best slowest link and, of those, the greatest sum (fixed seeds)."""
    draw = random.Random(seed)
    size = draw.randint(3, 8)
    weight = [[0] * size for _ in range(size)]
    for a, b in itertools.combinations(range(size), 2):
        weight[a][b] = weight[b][a] = draw.choice((7, 9, 12, 25, 50))
    first = draw.randrange(size)
    slowest, order = best_ring(weight, range(size), first)
    others = [member for member in range(size) if member != first]

    def worth(members: Sequence[int]) -> tuple[int, int]:
        links = [weight[a][b] for a, b in zip(members, [*members[1:], members[0]], strict=True)]
        return (min(links), sum(links))

    assert order[0] == first
    assert sorted(order) == list(range(size))
    assert worth(order) == max(worth([first, *rest]) for rest in itertools.permutations(others))
    assert slowest == worth(order)[0]


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
    order = best_ring(weight, range(size), around[0])[1]
    assert list(order) in (around, [around[0], *around[:0:-1]])


# --- the table of bandwidths ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "nvlink", "pcie", "figure"),
    [
        ("NV1", 1, None, 20.0),
        ("NV2", 2, None, 50.0),
        ("NV12", 3, None, 300.0),
        ("NV18", 4, None, 450.0),
        ("NV18", 5, None, 900.0),
        ("NV2", None, None, 50.0),
        ("PIX", None, None, 12.0),
        ("PIX", None, 4, 24.0),
        ("PIX", None, 5, 48.0),
        ("PIX", None, 6, 48.0),
        ("PIX", None, 2, 12.0),
        ("SYS", 1, None, 7.0),
        ("SYS", 3, None, 12.0),
        ("SYS", 4, 3, 7.0),
        ("SOC", None, 3, 7.0),
        ("X", None, 3, 10.0),
        ("?", None, 3, 6.0),
    ],
)
def test_figures(link: str, nvlink: int | None, pcie: int | None, figure: float) -> None:
    """GB/s one way; the PCIe generation of GPUs with NVLink is that of their time where it is not known."""
    assert gbps(link, nvlink_generation=nvlink, pcie_generation=pcie) == figure


@pytest.mark.parametrize("nvlink", [None, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("pcie", [None, 3, 4, 5])
def test_order(nvlink: int | None, pcie: int | None) -> None:
    """The longer the path, the lower the bandwidth; an unknown link has the lowest."""
    words = ("PIX", "PXB", "PHB", "NODE", "SYS", "?")
    figures = [gbps(word, nvlink_generation=nvlink, pcie_generation=pcie) for word in words]
    assert figures == sorted(set(figures), reverse=True)


@pytest.mark.parametrize("word", ["", "OK", "NV", "nv1", "C2C"])
def test_other_words_are_refused(word: str) -> None:
    """Any other word raises ValueError."""
    with pytest.raises(ValueError, match="is not a link"):
        gbps(word)
