"""Compare this package's choice of GPUs with index order, a random choice, and pair scores over partitions.

    python benchmarks/placement_table.py > table.md

For each machine and number of GPUs, every larger set of free GPUs is equally likely. Losses are in per cent of the
exact choice: of the slowest link of the best ring, and of the mean bandwidth of all pairs. *Random* is the mean of all
sets. *Pair scores* is a reimplementation of the best-effort policy of NVIDIA's go-gpuallocator (commit 876e7b7), which
the kubelet's device plugin uses: it partitions all free GPUs into sets of the requested size so that the sum of their
scores is greatest, then takes the best set of that partition; a pair scores 10 to 60 for its PCIe path and 100 for each
NVLink. If the number of free GPUs is not divisible, one set of the partition is padded; if that one scores best, the
result is too small. The last column counts such states, which are not included in the losses.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from statistics import mean

from jupyterhub_gpuspawner.placement.choice import choose
from jupyterhub_gpuspawner.placement.topology import NodeTopology, link_count, load

ROOT = Path(__file__).parent.parent
MACHINES = (
    "dgx1v",
    "dgx1p",
    "pcie-pairs",
    "dgx-a100",
    "nps4-bridges",
    "a100-bridges",
    "a100-cross-bridge",
    "rtx4090-all-sys",
)
SCORES = {"XGMI": 10, "SYS": 10, "SOC": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50, "?": 0}
Free = tuple[int, ...]
Padded = tuple[int | None, ...]


def index_order(machine: NodeTopology, free: Free, count: int) -> Iterator[Free]:
    """The lowest free indices."""
    yield free[:count]


def at_random(machine: NodeTopology, free: Free, count: int) -> Iterator[Free]:
    """Every set."""
    yield from itertools.combinations(free, count)


def pair_scores(machine: NodeTopology, free: Free, count: int) -> Iterator[Free]:
    """The best set of the partition with the greatest sum of pair scores."""

    def score(some: Padded) -> int:
        real = [gpu for gpu in some if gpu is not None]
        return sum(pair(a, b) for a, b in itertools.combinations(real, 2))

    def pair(a: int, b: int) -> int:
        word = machine.link(a, b)
        # An NVLink pair also has a PCIe path, which is not in the matrix; the longest possible one is assumed.
        near = machine.gpus[a].numa_node == machine.gpus[b].numa_node
        links = link_count(word)
        return 100 * links + (20 if near else 10) if links else SCORES[word]

    def partitions(left: Padded) -> Iterator[list[Padded]]:
        if not left:
            yield []
            return
        for others in dict.fromkeys(itertools.combinations(left[1:], count - 1)):
            if 0 < others.count(None) < padding:
                continue
            rest = list(left[1:])
            for gpu in others:
                rest.remove(gpu)
            for more in partitions(tuple(rest)):
                yield [(left[0], *others), *more]

    padding = -len(free) % count
    best = max(partitions((*free, *[None] * padding)), key=lambda some: sum(map(score, some)))
    chosen = max(best, key=score)
    if None not in chosen:
        yield tuple(gpu for gpu in chosen if gpu is not None)


POLICIES: dict[str, Callable[[NodeTopology, Free, int], Iterator[Free]]] = {
    "index order": index_order,
    "random": at_random,
    "pair scores": pair_scores,
}


def rows(name: str, machine: NodeTopology) -> Iterator[list[str]]:
    """The rows of one machine."""
    size = len(machine.gpus)

    @lru_cache(None)
    def worth(some: Free) -> tuple[float, float]:
        choice = choose(machine, granted=some, count=len(some))
        return (choice.ring_gbps or 0, choice.mean_gbps or 0)

    for count in (2, 3, 4):
        free_sets = [free for n in range(count + 1, size + 1) for free in itertools.combinations(range(size), n)]
        cells = [name, str(count), str(len(free_sets))]
        best = {free: worth(tuple(sorted(choose(machine, granted=free, count=count).gpus))) for free in free_sets}
        failed = 0
        for policy in POLICIES.values():
            losses: list[list[float]] = [[], []]
            for free in free_sets:
                got = [worth(tuple(sorted(some))) for some in policy(machine, free, count)]
                failed += not got
                for n in (0, 1) if got else ():
                    losses[n].append(100 * (1 - mean(bandwidths[n] for bandwidths in got) / best[free][n]))
            cells += [f"{mean(loss):.0f} / {max(loss):.0f}" for loss in losses]
        yield [*cells, str(failed)]


def print_table(machines: Iterable[tuple[str, NodeTopology]]) -> None:
    """As Markdown."""
    heads = [f"{policy}: {what}, mean / worst %" for policy in POLICIES for what in ("ring", "pairs")]
    heads.append("pair scores: too small a set")
    print("| machine | GPUs | states |", " | ".join(heads), "|")
    print("|---" * (3 + len(heads)) + "|")
    for name, machine in machines:
        for cells in rows(name, machine):
            print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    folder = ROOT / "tests" / "data" / "machines"
    print_table((name, load(str(folder / f"{name}.json"))) for name in sys.argv[1:] or MACHINES)
