"""The choice of GPUs: exact under its objective, the same every time, and right on machines that are known."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.cli.nvidia_smi_matrix import TopoTextError, parse
from jupyterhub_gpuspawner.cli.topology import decoded
from jupyterhub_gpuspawner.placement.choice import Choice, choose
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, gbps, load

HERE = Path(__file__).parents[1]
TEXTS = HERE / "data" / "topo-m"
NAMED = {
    path.stem: load(str(path))
    for folder in (HERE / "data" / "machines", HERE.parent / "jupyterhub_gpuspawner" / "demo" / "machines")
    for path in sorted(folder.glob("*.json"))
}
"""Machines by name: those of the demo, and those whose best sets are published or can be seen at a glance."""


WHOLE_NODES = {path.stem: load(str(path)) for path in sorted((HERE / "data" / "nodes").glob("*.json"))}
"""Machines as they are sold, with their NUMA nodes and packages."""


@pytest.mark.parametrize(
    ("machine", "free", "count", "gpus", "weakest", "ring", "mean"),
    [
        ("dgx1v", "01234567", 2, (0, 3), "NV2", 50.0, 50.0),
        ("dgx1v", "01234567", 3, (0, 2, 3), "NV1", 25.0, 41.67),
        ("dgx1v", "01234567", 4, (0, 1, 2, 3), "NV1", 25.0, 37.5),
        ("dgx1v", "01234567", 8, (0, 3, 2, 1, 5, 6, 7, 4), "NV2", 50.0, 24.43),
        # The pair score of go-gpuallocator takes 4,5 (NV1) here to keep a better partition.
        ("dgx1v", "3457", 2, (4, 7), "NV2", 50.0, 50.0),
        ("dgx1v", "2456", 2, (5, 6), "NV2", 50.0, 50.0),
        ("dgx1p", "01234567", 4, (0, 1, 2, 3), "NV1", 20.0, 20.0),
        ("dgx1", "1467", 3, (4, 6, 7), "NV1", 20.0, 20.0),
        ("pcie-pairs", "1234567", 2, (2, 3), "PIX", 12.0, 12.0),
        ("pcie-pairs", "0124567", 3, (0, 1, 2), "PHB", 10.0, 10.67),
        ("k80-2socket", "0123", 2, (0, 1), "PIX", 12.0, 12.0),
        ("k80-2socket", "123", 2, (2, 3), "PIX", 12.0, 12.0),
        ("k80-2socket", "0123", 4, (0, 1, 2, 3), "SYS", 7.0, 8.67),
        ("dgx-a100", "01234567", 2, (0, 1), "NV12", 300.0, 300.0),
        ("dgx-a100", "12345", 2, (2, 3), "NV12", 300.0, 300.0),
        ("dgx-a100", "1234567", 4, (2, 3, 4, 5), "NV12", 300.0, 300.0),
        ("nps4-bridges", "1234567", 2, (2, 3), "NV4", 100.0, 100.0),
        ("a100-bridges", "01234567", 2, (0, 2), "NV12", 300.0, 300.0),
        ("a100-bridges", "01234567", 4, (0, 2, 1, 3), "NODE", 18.0, 112.0),
        ("a100-cross-bridge", "012345", 2, (1, 2), "NV12", 300.0, 300.0),
        ("a100-cross-bridge", "12345", 2, (1, 2), "NV12", 300.0, 300.0),
        ("rtx4090-all-sys", "01234567", 4, (0, 1, 2, 3), "SYS", 12.0, 12.0),
        ("rtx4090-all-sys", "234567", 4, (4, 5, 6, 7), "SYS", 12.0, 12.0),
    ],
)
def test_known_best_set(
    machine: str, free: str, count: int, gpus: tuple[int, ...], weakest: str, ring: float, mean: float
) -> None:
    """The set, its order and its figures on a machine whose optimum is known."""
    choice = choose(NAMED[machine], granted=[int(digit) for digit in free], count=count)
    assert (choice.gpus, choice.weakest_link, choice.ring_gbps, choice.mean_gbps) == (gpus, weakest, ring, mean)


@pytest.mark.parametrize(
    ("machine", "free", "cpus", "gpu"),
    [
        ("k80-2socket", "0123", range(4), 0),
        ("k80-2socket", "0123", range(12, 16), 2),
        ("k80-2socket", "0123", (0, 1, 12, 13, 14), 2),
        ("k80-2socket", "012", (), 2),
        ("nps4-bridges", "01234567", range(4), 3),
        ("a100-bridges", "0123567", (), 5),
        ("a100-bridges", "01234567", range(10, 20), 4),
        ("dgx1v", "0134567", (), 1),
        ("a100-mig", "012345", range(16, 20), 0),
        ("a100-mig", "2345", range(16, 20), 2),
        ("rtx4090-all-sys", "4567", (), 4),
    ],
)
def test_one_gpu(machine: str, free: str, cpus: range, gpu: int) -> None:
    """A single GPU is the nearest to the CPUs; among equals, one without a partner, so that no fast pair is broken."""
    assert choose(NAMED[machine], granted=[int(digit) for digit in free], count=1, cpus=cpus).gpus == (gpu,)


@pytest.mark.parametrize(
    ("policy", "granted", "gpus"),
    [
        ("none", (5, 2, 7), (5, 2)),
        ("best-effort", (0, 1, 2, 4), (0, 2)),
        ("best-effort", (0, 4, 1), (0, 1)),
        ("restricted", (1, 4, 6, 0), (0, 1)),
        ("restricted", (3, 5, 6, 7), (6, 7)),
        ("restricted", (3, 5), (3, 5)),
    ],
)
def test_policy(policy: str, granted: tuple[int, ...], gpus: tuple[int, ...]) -> None:
    """``none`` keeps Slurm's order; the strict policies rank NUMA nodes first, but take what there is."""
    assert choose(NAMED["a100-bridges"], granted=granted, count=2, policy=policy).gpus == gpus


@pytest.mark.parametrize(("policy", "gpus"), [("best-effort", (0, 1)), ("restricted", (1, 2))])
def test_strict_policy_gives_up_a_bridge(policy: str, gpus: tuple[int, ...]) -> None:
    """A bridge between two NUMA nodes is the best pair, but not if one node is requested."""
    links = (("X", "NV12", "SYS"), ("NV12", "X", "NODE"), ("SYS", "NODE", "X"))
    machine = NodeTopology(gpus=(Gpu(0, numa_node=0), Gpu(1, numa_node=1), Gpu(2, numa_node=1)), links=links)
    assert choose(machine, granted=range(3), count=2, policy=policy).gpus == gpus


@pytest.mark.parametrize(
    ("machine", "arguments", "choice"),
    [
        ("k80-2socket", {"granted": (2, 3), "count": 2, "cpus": range(12, 16)},
         Choice((2, 3), "PIX", 12.0, 12.0, (1,),
                "GPUs 2 and 3, as granted; the slowest link of their ring is PIX (about 12 GB/s).")),
        ("k80-2socket", {"granted": (1, 3), "count": 2, "cpus": range(12, 16)},
         Choice((3, 1), "SYS", 7.0, 7.0, (0, 1),
                "GPUs 3 and 1, as granted; the slowest link of their ring is SYS (about 7 GB/s).")),
        ("k80-2socket", {"granted": (0, 1, 2), "count": 1, "cpus": range(12, 16)},
         Choice((2,), numa_nodes=(1,), why="GPU 2: the nearest to the CPUs, of 3 granted.")),
        ("k80-2socket", {"granted": (0, 1, 2), "count": 1},
         Choice((2,), numa_nodes=(1,), why="GPU 2: of 3 granted, it leaves the best links to other jobs.")),
        ("k80-2socket", {"granted": (0,), "count": 2},
         Choice((0,), numa_nodes=(0,), why="GPU 0: all that were granted, of 2 requested.")),
        ("k80-2socket", {"granted": (0, 1, 2, 3), "count": 3, "policy": "none"},
         Choice((0, 1, 2), "SYS", 7.0, 8.67, (0, 1),
                "GPUs 0, 1 and 2, the first of 4 granted; the slowest link of their ring is SYS (about 7 GB/s).")),
        ("a100-mig", {"granted": (0, 3, 4, 5), "count": 2, "gpu_type": "1g.10gb", "cpus": range(16, 20)},
         Choice((3, 4), None, None, None, (1,),
                "slice 1 of GPU 2 and slice 2 of GPU 2: the best 2 of 4 granted, 3 of them suitable; "
                "a CUDA program uses one of them.")),
        ("dgx1", {"granted": (3, 3, 3), "count": 1}, Choice((3,), numa_nodes=(0,), why="GPU 3, as granted.")),
        ("dgx1", {"granted": (), "count": 1}, Choice(why="No GPU was granted.")),
        ("dgx1", {"granted": (1, 2), "count": 0}, Choice(why="No GPU was requested.")),
    ],
)  # fmt: skip
def test_whole_choice(machine: str, arguments: dict[str, Any], choice: Choice) -> None:
    """A choice with its figures and its sentence, also if fewer GPUs were granted than requested."""
    assert choose(NAMED[machine], **arguments) == choice


def test_unknown_links_give_no_figures() -> None:
    """If nothing is known about the links, neither a link nor a bandwidth is named."""
    choice = choose(NodeTopology(gpus=(Gpu(0), Gpu(1), Gpu(2))), granted=range(3), count=2)
    assert choice == Choice((0, 1), why="GPUs 0 and 1: the best 2 of 3 granted; the links between them are not known.")


UNRATED = {
    "NVLinks of a generation that is not known": (Gpu(0), "NV4", None),
    "NVLinks, with the generation of PCIe alone": (Gpu(0, pcie_generation=5), "NV4", None),
    "NVLinks of a generation of the table": (Gpu(0, nvlink_generation=5), "NV4", 200.0),
    "NVLinks of a newer generation": (Gpu(0, nvlink_generation=9), "NV4", None),
    "PCIe of a generation that is not known": (Gpu(0), "NODE", None),
    "PCIe beside NVLinks": (Gpu(0, nvlink_generation=4), "NODE", 36.0),
    "PCIe of a generation of the table": (Gpu(0, pcie_generation=3), "PIX", 12.0),
    "PCIe of an older generation": (Gpu(0, pcie_generation=2), "PIX", None),
    "PCIe of a newer generation": (Gpu(0, pcie_generation=6), "PIX", None),
}


@pytest.mark.parametrize(("gpu", "link", "figure"), UNRATED.values(), ids=UNRATED.keys())
def test_a_speed_that_is_not_known_is_no_figure(gpu: Gpu, link: str, figure: float | None) -> None:
    """The link still is named, and ranks; a table of links alone, as people paste it, gives no GB/s."""
    machine = NodeTopology(gpus=(gpu, replace(gpu, index=1)), links=(("X", link), (link, "X")))

    choice = choose(machine, granted=(0, 1), count=2)

    words = f" (about {figure:g} GB/s)" if figure else ""
    assert (choice.weakest_link, choice.ring_gbps, choice.mean_gbps) == (link, figure, figure)
    assert choice.why == f"GPUs 0 and 1, as granted; the slowest link of their ring is {link}{words}."


Model = tuple[str, int | None]
"""NVML's name, and MiB."""
A100, A100_80 = ("NVIDIA A100-SXM4-40GB", 40960), ("NVIDIA A100-SXM4-80GB", 81920)
DISPLAY = ("NVIDIA DGX Display", 4096)
ADA, A6000 = ("NVIDIA RTX 6000 Ada Generation", 49140), ("NVIDIA RTX A6000", 49140)
RTX, TI = ("NVIDIA GeForce RTX 4090", 24564), ("NVIDIA GeForce GTX 1080 Ti", 11264)
SLICE, HALF = ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864), ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 19968)
UNNAMED = ("", None)
STATION: list[Model] = [A100, A100, A100, DISPLAY, A100]
MIXED: dict[str, tuple[list[Model], int, str | None, tuple[int, ...]]] = {
    "a display adapter": (STATION, 1, None, (0,)),
    "a display adapter in front": ([DISPLAY, A100], 1, None, (1,)),
    "a display adapter, and all others": (STATION, 4, None, (0, 1, 2, 4)),
    "a display adapter that was granted": (STATION, 5, None, (0, 1, 2, 3, 4)),
    "a type": ([A6000, ADA, RTX, TI], 1, "rtx_a6000", (0,)),
    "a type of three words": ([A6000, ADA, RTX, TI], 1, "rtx_6000_ada", (1,)),
    "a type as one word": ([A6000, ADA, RTX, TI], 1, "rtx4090", (2,)),
    "a type of words run together": ([A6000, ADA, RTX, TI], 1, "gtx1080ti", (3,)),
    "a type as NVML's name": ([A6000, ADA, RTX, TI], 1, "nvidia_geforce_gtx_1080_ti", (3,)),
    "a type with its memory": ([A100_80, A100], 1, "a100-40gb", (1,)),
    "a type in part": ([A100, A100_80], 1, "a100", (1,)),
    "a type of the site's own": ([TI, RTX], 1, "fast", (1,)),
    "no type": ([A6000, RTX, RTX], 1, None, (0,)),
    "no type, of one model": ([A6000, RTX, RTX], 2, None, (1, 2)),
    "no type, not enough of one model": ([A6000, RTX, RTX, TI], 3, None, (0, 1, 2)),
    "a type of which there are too few": ([A6000, RTX, RTX, TI], 3, "rtx_4090", (0, 1, 2)),
    "slices of two sizes": ([SLICE, SLICE, HALF], 1, "1g.5gb", (0,)),
    "slices of two sizes, no type": ([SLICE, SLICE, HALF], 1, None, (2,)),
    "slices by the whole name of their type": ([HALF, SLICE], 1, "a100_1g.5gb", (1,)),
    "nothing known": ([UNNAMED, UNNAMED], 1, "a100", (0,)),
    "nothing known of one": ([UNNAMED, RTX], 1, None, (1,)),
}


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
@pytest.mark.parametrize(("models", "count", "gpu_type", "gpus"), MIXED.values(), ids=MIXED.keys())
def test_of_several_models_the_requested_one_is_taken_or_else_the_largest(
    models: list[Model], count: int, gpu_type: str | None, gpus: tuple[int, ...], policy: str
) -> None:
    """Slurm has not chosen; a small GPU is never the first one, which programs use by default."""
    machine = NodeTopology(
        gpus=tuple(
            Gpu(n, name=name, memory_mib=mib, mig=name.partition("MIG ")[2] or None, numa_node=0)
            for n, (name, mib) in enumerate(models)
        ),
        numa_nodes=(NumaNode(0, (0, 1)),),
    )
    choice = choose(machine, granted=range(len(models)), count=count, policy=policy, gpu_type=gpu_type)
    assert choice.gpus == gpus


@pytest.mark.parametrize(("policy", "gpus"), [("none", (0, 1)), ("best-effort", (1, 0)), ("restricted", (1, 0))])
def test_a_display_adapter_that_was_granted_is_not_the_first(policy: str, gpus: tuple[int, ...]) -> None:
    """Unless Slurm's order is to be kept."""
    machine = NodeTopology(gpus=(Gpu(0, name=DISPLAY[0], memory_mib=4096), Gpu(1, name=A100[0], memory_mib=40960)))
    assert choose(machine, granted=(0, 1), count=2, policy=policy).gpus == gpus


def test_why_a_gpu_was_chosen_of_several_models() -> None:
    """How many of those that were granted came into question."""
    machine = WHOLE_NODES["dgx-station-a100"]

    assert [choose(machine, granted=range(5), count=n).why.partition(";")[0] for n in (1, 2, 4, 5)] == [
        "GPU 0: of 5 granted, 4 of them suitable, it leaves the best links to other jobs.",
        "GPUs 0 and 1: the best 2 of 5 granted, 4 of them suitable",
        "GPUs 0, 1, 2 and 4: the best 4 of 5 granted, 4 of them suitable",
        "GPUs 0, 1, 2, 4 and 3, as granted",
    ]
    assert choose(machine, granted=(3, 4, 2), count=1, policy="none").why == (
        "GPU 4, the first of 3 granted, 2 of them suitable."
    )


def test_dozens_of_mig_devices_are_placed_by_the_cpus() -> None:
    """56 MIG devices have too many sets to examine; the nearest to the CPUs are taken, at once."""
    size = 56
    links = [
        tuple(
            "X" if a == b else "PHB" if a // 7 == b // 7 else "NODE" if a // 28 == b // 28 else "SYS"
            for b in range(size)
        )
        for a in range(size)
    ]
    machine = NodeTopology(
        gpus=tuple(Gpu(n // 7, mig="1g.10gb", numa_node=n // 28) for n in range(size)),
        links=tuple(links),
        numa_nodes=(NumaNode(0, (0, 1), 1, (10, 21)), NumaNode(1, (2, 3), 1, (21, 10))),
    )
    assert choose(machine, granted=range(size), count=24, cpus=(2,)).gpus == tuple(range(28, 52))


def test_a_policy_of_a_newer_hub_is_the_default() -> None:
    """The server starts whatever its plan says."""
    machine = NAMED["a100-bridges"]
    assert choose(machine, granted=(0, 1, 2, 4), count=2, policy="strict") == choose(
        machine, granted=(0, 1, 2, 4), count=2
    )


class Exhaustive:
    """The objective by its definition: every set, every order, nothing shared with the code under test but rates."""

    def __init__(self, machine: NodeTopology, cpus: tuple[int, ...]) -> None:
        self.machine, self.cpus = machine, cpus
        self.rate = lru_cache(None)(self._rate)
        self.links = lru_cache(None)(self._links)

    def _rate(self, a: int, b: int) -> float:
        one, two = self.machine.gpus[a], self.machine.gpus[b]
        return gbps(
            self.machine.link(a, b),
            nvlink_generation=min(filter(None, (one.nvlink_generation, two.nvlink_generation)), default=None),
            pcie_generation=min(filter(None, (one.pcie_generation, two.pcie_generation)), default=None),
        )

    def _links(self, chosen: tuple[int, ...]) -> tuple[float, float, float]:
        """Slowest link of the best ring, greatest sum of links of such a ring, sum of all pairs."""
        first, *others = chosen
        if not others:
            return (0, 0, 0)
        rings = []
        for order in itertools.permutations(others):
            if len(others) > 1 and order[0] > order[-1]:
                continue  # the same ring the other way round
            steps = list(zip((first, *order), (*order, first), strict=True))
            rates = [self.rate(*step) for step in (steps if len(others) > 1 else steps[:1])]
            rings.append((min(rates), round(sum(rates), 6)))
        return (*max(rings), round(sum(self.rate(a, b) for a, b in itertools.combinations(chosen, 2)), 6))

    def distance(self, gpu: int) -> int:
        """Sum of NUMA distances from the CPUs."""
        device = self.machine.gpus[gpu]
        ids = [numa_node.id for numa_node in self.machine.numa_nodes]
        if device.numa_node not in ids:
            return sum(10 if cpu in device.cpus else 20 for cpu in self.cpus)
        at = ids.index(device.numa_node)
        return sum(
            numa_node.distances[at]
            for cpu in self.cpus
            for numa_node in self.machine.numa_nodes
            if cpu in numa_node.cpus
        )

    def package(self, gpu: int) -> int | None:
        """The package with its NUMA node; None where it is not known."""
        node = next((node for node in self.machine.numa_nodes if node.id == self.machine.gpus[gpu].numa_node), None)
        for n, package in enumerate(self.machine.packages):
            if node is not None and node.cpus and set(node.cpus) <= set(package):
                return n
        return None

    def rank(self, chosen: tuple[int, ...], free: tuple[int, ...], nodes_first: bool) -> tuple[object, ...]:
        """Greater is better."""
        rest = [gpu for gpu in free if gpu not in chosen]
        pairs = list(itertools.combinations(rest, 2))
        ring, _, total = self.links(chosen)
        homes = {(device.numa_node, () if device.numa_node is not None else device.cpus or device.numa_affinity)
                 for device in (self.machine.gpus[gpu] for gpu in chosen)}  # fmt: skip
        spread = (-len({self.package(gpu) for gpu in chosen}), -len(homes))
        distance = -sum(self.distance(gpu) for gpu in chosen)
        left = (
            round(sum(self.rate(*pair) for pair in pairs if self.machine.link(*pair).startswith("NV")), 6),
            round(sum(self.rate(*pair) for pair in pairs), 6),
            [-gpu for gpu in chosen],
        )
        return (spread, distance, ring, total, *left) if nodes_first else (ring, total, distance, spread, *left)

    def suitable(self, free: tuple[int, ...], count: int) -> list[int]:
        """The GPUs with most memory of which there are enough; of several models only where none is enough."""
        models: dict[tuple[int, str], list[int]] = {}
        for gpu in free:
            models.setdefault((self.memory(gpu), self.machine.gpus[gpu].name), []).append(gpu)
        enough = [model for model, members in models.items() if len(members) >= count]
        if enough:
            return models[max(enough)]
        taken: list[int] = []
        for model in sorted(models, reverse=True):
            taken += models[model] if len(taken) < count else []
        return sorted(taken)

    def memory(self, gpu: int) -> int:
        """In GiB; 0 where it is not known."""
        return (self.machine.gpus[gpu].memory_mib or 0) // 1024

    def best(self, free: tuple[int, ...], count: int, nodes_first: bool = False) -> tuple[int, ...]:
        """The best set."""
        free = tuple(self.suitable(free, count))
        sets = itertools.combinations(free, count)
        return max(sets, key=lambda chosen: self.rank(chosen, free, nodes_first))

    def agrees(self, choice: Choice, free: tuple[int, ...], count: int, nodes_first: bool = False) -> bool:
        """Whether a choice is the best set in a best order, in front the nearest GPU to the CPUs with most memory."""
        best = self.best(free, count, nodes_first)
        ring, total, _ = self.links(best)
        order = choice.gpus
        rates = [self.rate(*step) for step in zip(order, (*order[1:], order[0]), strict=True)]
        if count < 3:
            rates = [ring] * (count - 1)
        front = min(best, key=lambda gpu: (-self.memory(gpu), self.distance(gpu), gpu))
        return (tuple(sorted(order)), order[0], min(rates, default=0), round(sum(rates), 6)) == (
            best,
            front,
            ring,
            total,
        )


def corpus() -> dict[str, NodeTopology]:
    """Every recorded machine with up to 8 GPUs, one of each kind; and the named ones."""
    machines: dict[object, tuple[str, NodeTopology]] = {}
    for path in sorted(TEXTS.glob("*.txt")):
        try:
            machine = parse(decoded(path.read_bytes()))
        except TopoTextError:
            continue
        if 1 < len(machine.gpus) <= 8:
            kind = (machine.links, tuple((gpu.numa_node, gpu.cpus) for gpu in machine.gpus))
            machines.setdefault(kind, (path.stem, machine))
    return {
        **dict(machines.values()),
        **{name: topology for name, topology in NAMED.items() if 0 < len(topology.gpus) <= 8},
    }


CORPUS = corpus()


OF_THE_GATE = {*NAMED, *list(CORPUS)[::4]}
"""The others differ from these in details."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OF_THE_GATE else pytest.mark.nightly) for name in CORPUS]
)
def test_choice_equals_exhaustive_search(name: str) -> None:
    """For every set of free GPUs and every count the choice is the best there is, in the best order."""
    machine = CORPUS[name]
    size = len(machine.gpus)
    for cpus in {(), machine.gpus[size // 2].cpus[:3] or tuple(range(10, 13))}:
        exhaustive = Exhaustive(machine, cpus)
        for length in range(1, size + 1):
            for free in itertools.combinations(range(size), length):
                for count in range(1, length + 1):
                    choice = choose(machine, granted=free, count=count, cpus=cpus)
                    assert exhaustive.agrees(choice, free, count), (free, count, cpus, choice)


WORDS = ("NV1", "NV2", "NV4", "PIX", "PXB", "PHB", "NODE", "SYS", "?")


@pytest.mark.parametrize("seed", range(40))
def test_choice_on_machines_nobody_built(seed: int) -> None:
    """On machines of random links, nodes and generations the choice is exact too, under each policy (fixed seeds)."""
    draw = random.Random(seed)
    size = draw.randint(2, 7)
    words = draw.sample(WORDS, draw.randint(2, 4))
    links = [["X"] * size for _ in range(size)]
    for a, b in itertools.combinations(range(size), 2):
        links[a][b] = links[b][a] = draw.choice(words)
    models = (("big", 81920), ("small", 4096), ("", None))[: 1 + seed % 4]
    machine = NodeTopology(
        gpus=tuple(
            Gpu(n, name=model, memory_mib=mib, numa_node=draw.choice((0, 2, 4, None)),
                cpus=draw.choice(((0, 1), (2, 3), ())),
                nvlink_generation=draw.choice((1, 3, None)), pcie_generation=draw.choice((3, 4, None)))
            for n, (model, mib) in enumerate(draw.choices(models, k=size))
        ),
        links=tuple(map(tuple, links)),
        numa_nodes=(NumaNode(0, (0, 1), 1, (10, 12, 32)), NumaNode(2, (2, 3), 1, (12, 10, 32)),
                    NumaNode(4, (4, 5), 1, (32, 32, 10)))[: 3 * (seed % 3 > 0)],
    )  # fmt: skip
    cpus = tuple(draw.sample(range(6), draw.randint(0, 4)))
    exhaustive = Exhaustive(machine, cpus)
    for length in range(1, size + 1):
        for free in itertools.combinations(range(size), length):
            for count in range(1, length + 1):
                for policy in ("best-effort", "restricted"):
                    choice = choose(machine, granted=free, count=count, cpus=cpus, policy=policy)
                    assert exhaustive.agrees(choice, free, count, policy != "best-effort"), (free, count, choice)


@pytest.mark.parametrize("name", WHOLE_NODES)
def test_choice_on_machines_that_are_sold(name: str) -> None:
    """Of some sets of free GPUs and of all, with CPUs of one NUMA node and of two, under each policy (fixed seed)."""
    machine, draw = WHOLE_NODES[name], random.Random(name)
    size = len(machine.gpus)
    nodes = [node for node in machine.numa_nodes if node.cpus]
    for free in [tuple(range(size)), *(tuple(sorted(draw.sample(range(size), draw.randint(2, size)))) for _ in "123")]:
        cpus = tuple(cpu for node in draw.sample(nodes, min(2, len(nodes))) for cpu in node.cpus[:3])
        exhaustive = Exhaustive(machine, cpus)
        for count in range(1, min(len(free), 6) + 1):
            for policy in ("best-effort", "restricted"):
                choice = choose(machine, granted=free, count=count, cpus=cpus, policy=policy)
                assert exhaustive.agrees(choice, free, count, policy != "best-effort"), (free, count, cpus, choice)


def test_with_several_nodes_in_a_package_gpus_of_one_package_are_chosen() -> None:
    """``SYS`` is the word between NUMA nodes of one package as well as between packages."""
    machine = WHOLE_NODES["xeon6-snc3-rtx-pro-6000-x8"]

    assert choose(machine, granted=(2, 3, 4, 5, 6, 7), count=4).gpus == (4, 5, 6, 7)
    assert choose(machine, granted=(0, 2, 4, 6), count=2).gpus == (0, 2)
    assert choose(machine, granted=(2, 4, 6), count=2, policy="restricted").gpus == (4, 6)


EXACT_16 = json.loads((HERE / "data" / "exact-choices-16.json").read_text("utf-8"))
"""By machine of 16 GPUs and policy: of each number of GPUs from 2 on the slowest link of the ring of the best set, and
the mean of its links, in GB/s, as an exact search over all sets has found them."""


@pytest.mark.parametrize(("name", "policy"), [(name, policy) for name in EXACT_16 for policy in EXACT_16[name]])
def test_choice_of_sixteen_gpus_has_the_links_of_the_best_set(name: str, policy: str) -> None:
    """Not all sets of more than eight GPUs are looked at; on machines that are built, nothing is lost by that."""
    machine = NAMED[name]
    choices = [choose(machine, granted=range(16), count=n, cpus=range(3), policy=policy) for n in range(2, 17)]
    assert [[choice.ring_gbps, choice.mean_gbps] for choice in choices] == EXACT_16[name][policy]


# --- the table in the documentation ---------------------------------------------------------------


ROOT = Path(__file__).parents[2]


def test_the_table_of_losses_is_the_scripts_own() -> None:
    """All figures in it come from the benchmark."""
    printed = subprocess.run(
        [sys.executable, "benchmarks/placement_table.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    page = (ROOT / "docs" / "explanation" / "placement-table.md").read_text("utf-8")

    assert page.endswith(printed.stdout)


def test_the_table_of_machines_is_the_scripts_own() -> None:
    """Of those named in it."""
    printed = subprocess.run(
        [sys.executable, "benchmarks/machines_table.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    page = (ROOT / "docs" / "explanation" / "machines-table.md").read_text("utf-8")

    assert printed.stdout in page
