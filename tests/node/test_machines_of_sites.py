"""Launches on machines as sites have them: what CUDA is shown, which CPUs the server has, and what the card says.

Links are texts of ``nvidia-smi topo -m``; each choice is compared with every other set of the granted GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations

import pytest

from jupyterhub_gpuspawner.cli.nvidia_smi_matrix import parse
from jupyterhub_gpuspawner.node import placing
from jupyterhub_gpuspawner.node.grant import ControllerAnswers
from jupyterhub_gpuspawner.node.placing import Launch
from jupyterhub_gpuspawner.placement.topology import NodeTopology, NumaNode
from jupyterhub_gpuspawner.units import parse_cpulist
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacementDocument


@dataclass(frozen=True)
class Machine:
    """A node, as its driver and its kernel describe it."""

    links: str
    """The table; its columns are separated by blanks."""
    nodes: Mapping[int, str]
    """CPUs of each NUMA node; empty for memory alone."""
    gpu_nodes: Sequence[int | None]
    packages: Sequence[str] = ()
    threads: int = 2
    """Of a core; siblings are as far apart as there are cores."""
    near: int = 12
    """The distance of two NUMA nodes of a package; 21 of others."""
    names: Sequence[str] = ()
    memory_gib: Sequence[int] = ()
    own_memory: Sequence[int] = ()
    """NUMA nodes of the GPUs' memory."""
    offline: str = ""
    source: str = "nvml+sysfs"
    faults: Mapping[int, str] = field(default_factory=dict)

    @property
    def topology(self) -> NodeTopology:
        """As the launcher reads it."""
        offline = set(parse_cpulist(self.offline))

        def online(text: str) -> tuple[int, ...]:
            return tuple(cpu for cpu in parse_cpulist(text) if cpu not in offline)

        everywhere = sorted(cpu for text in self.nodes.values() for cpu in parse_cpulist(text))
        cores = (everywhere[-1] + 1) // self.threads
        groups = {
            tuple(c for c in (cpu % cores + cores * n for n in range(self.threads)) if c not in offline)
            for cpu in everywhere
        }
        of = {
            number: tuple(cpu for cpu in parse_cpulist(text) if cpu not in offline)
            for number, text in self.nodes.items()
        }
        packages = [tuple(cpu for cpu in parse_cpulist(text) if cpu not in offline) for text in self.packages]
        package = {
            node: n for node, cpus in of.items() for n, one in enumerate(packages) if cpus and set(cpus) <= set(one)
        }

        def distance(a: int, b: int) -> int:
            together = package.get(a) == package.get(b) and a in package
            return 10 if a == b else self.near if together else 80 if not of[a] or not of[b] else 21

        table = parse(self.links) if self.links else NodeTopology()
        gpus = tuple(
            replace(
                gpu,
                uuid="" if n in self.faults else f"GPU-{n}{n}00",
                pci=f"0000:{16 * n + 7:02x}:00.0",
                name=self.names[n] if self.names else "NVIDIA H100 80GB HBM3",
                memory_mib=1024 * (self.memory_gib[n] if self.memory_gib else 80),
                numa_node=node,
                cpus=of[node] if node is not None else (),
                gpu_numa_id=self.own_memory[n] if self.own_memory else None,
                fault=self.faults.get(n, ""),
            )
            for n, (gpu, node) in enumerate(zip(table.gpus, self.gpu_nodes, strict=True))
        )
        return NodeTopology(
            gpus=gpus,
            links=table.links,
            numa_nodes=tuple(NumaNode(n, cpus, 96_000, tuple(distance(n, m) for m in of)) for n, cpus in of.items()),
            siblings=tuple(sorted(filter(None, (tuple(c for c in one if c not in offline) for one in groups)))),
            packages=tuple(packages),
            source=self.source,
        )


def matrix(*rows: str) -> str:
    """The text of a table with these links, of which each row has those to the GPUs before it."""
    size = len(rows) + 1
    links = [["X"] * size for _ in range(size)]
    for a, row in enumerate(rows, 1):
        for b, word in enumerate(row.split()):
            links[a][b] = links[b][a] = word
    head = "\t" + "\t".join(f"GPU{n}" for n in range(size)) + "\tCPU Affinity\tNUMA Affinity\n"
    return head + "".join(f"GPU{n}\t" + "\t".join(row) + "\tN/A\tN/A\n" for n, row in enumerate(links))


def alike(count: int, word: str) -> str:
    """The same link between any two."""
    return matrix(*(" ".join([word] * n) for n in range(1, count)))


TWO = {0: "0-47,96-143", 1: "48-95,144-191"}
SOCKETS = ("0-47,96-143", "48-95,144-191")
HGX = Machine(alike(8, "NV18"), TWO, (0,) * 4 + (1,) * 4, SOCKETS)
PAIRS = matrix("NV4", "NODE NODE", "NODE NODE NV4", "SYS SYS SYS SYS")
SNC3 = {n: f"{16 * n}-{16 * n + 15},{96 + 16 * n}-{111 + 16 * n}" for n in range(6)}
TURNS = tuple(",".join(map(str, range(n, 64, 2))) for n in (0, 1))
LARGE = ("0-63,128-191", "64-127,192-255")
JOB = {"SLURM_JOB_ID": "7"}


def granted(gpus: str, **more: str) -> dict[str, str]:
    """Without a device cgroup."""
    count = str(len(gpus.split(",")))
    return {**JOB, "SLURM_JOB_GPUS": gpus, "CUDA_VISIBLE_DEVICES": gpus, "SLURM_GPUS_ON_NODE": count, **more}


@dataclass(frozen=True)
class Case:
    """A job on a machine, and what its server gets."""

    machine: Machine
    environ: Mapping[str, str]
    allowed: str
    gpus: int
    cpus: int
    visible: str | None
    on_cpus: str
    aligned: bool | None = True
    problems: tuple[str, ...] = ()


CASES: dict[str, Case] = {
    "Grace Hopper, four of them, with HBM as NUMA nodes": Case(
        Machine(
            alike(4, "NV6"),
            {**{n: f"{72 * n}-{72 * n + 71}" for n in range(4)}, **dict.fromkeys((4, 12, 20, 28), "")},
            (0, 1, 2, 3),
            tuple(f"{72 * n}-{72 * n + 71}" for n in range(4)),
            threads=1,
            names=["NVIDIA GH200 120GB"] * 4,
            own_memory=(4, 12, 20, 28),
        ),
        granted("1,2"),
        "72-215",
        2,
        8,
        "1,2",
        "72-75,144-147",
    ),
    "DGX B300": Case(
        replace(
            HGX,
            names=["NVIDIA B300 SXM6 AC"] * 8,
            memory_gib=[268] * 8,
            nodes=dict(enumerate(LARGE)),
            packages=LARGE,
        ),
        granted("1,3,4,6"),
        "0-255",
        2,
        16,
        "1,3",
        "0-7,128-135",
    ),
    "HGX with one GPU fallen off, which the driver lists no more": Case(
        replace(HGX, links=alike(7, "NV18"), gpu_nodes=(0, 0, 0, 1, 1, 1, 1)),
        granted("2,3,6"),
        "0-191",
        2,
        8,
        "3,6",
        "48-51,144-147",
    ),
    "HGX with one GPU lost, which the driver still counts": Case(
        replace(HGX, faults={3: "GPU is lost"}),
        granted("2,3", SLURM_GPUS_ON_NODE="2"),
        "0-47,96-143",
        2,
        8,
        "2",
        "0-3,96-99",
        problems=(
            "GPU 3 was granted but does not respond; it is not used.",
            "The profile promises 2 GPUs; only 1 available.",
        ),
    ),
    "three NUMA nodes in each package (SNC3)": Case(
        Machine(alike(4, "NV18"), SNC3, (0, 2, 3, 5), ("0-47,96-143", "48-95,144-191")),
        granted("1,2,3"),
        "32-191",
        2,
        24,
        "2,3",
        "48-53,80-85,144-149,176-181",
    ),
    "a virtual machine whose firmware hides NUMA nodes": Case(
        Machine(alike(4, "NV18"), {0: "0-31", 1: "32-63"}, (None,) * 4, threads=1),
        granted("0,3"),
        "0-63",
        2,
        8,
        "0,3",
        "0-7",
        aligned=None,
    ),
    "a cpuset without the package of the GPU": Case(
        HGX, granted("2"), "48-63,144-159", 1, 8, "2", "48-51,144-147", aligned=False
    ),
    "offline CPUs": Case(
        replace(HGX, offline="0-3,96-99,100,150"),
        granted("0,1"),
        "4-95,101-149,151-191",
        2,
        8,
        "0,1",
        "4-8,101-104",
    ),
    "hyperthreads off": Case(
        replace(HGX, nodes={0: "0-47", 1: "48-95"}, packages=("0-47", "48-95"), threads=1),
        granted("5,6,7"),
        "48-95",
        2,
        7,
        "5,6",
        "48-54",
    ),
    "UUIDs from Slurm": Case(
        HGX,
        granted("4,6", CUDA_VISIBLE_DEVICES="GPU-4400,GPU-6600"),
        "48-95,144-191",
        2,
        8,
        "GPU-4400,GPU-6600",
        "48-51,144-147",
    ),
    "UUIDs from Slurm, more than is promised": Case(
        Machine(PAIRS, TWO, (0, 0, 0, 0, 1), SOCKETS),
        granted("1,2,3", CUDA_VISIBLE_DEVICES="GPU-1100,GPU-2200,GPU-3300"),
        "0-191",
        2,
        8,
        "GPU-2200,GPU-3300",
        "0-3,96-99",
    ),
    "workstation cards with bridges, and a display adapter": Case(
        Machine(
            PAIRS,
            TWO,
            (0, 0, 0, 0, 1),
            SOCKETS,
            names=["NVIDIA RTX A6000"] * 4 + ["NVIDIA T400 4GB"],
            memory_gib=[48, 48, 48, 48, 4],
        ),
        granted("0,2,3,4"),
        "0-191",
        2,
        8,
        "2,3",
        "0-3,96-99",
    ),
    "vGPUs of a virtual machine": Case(
        Machine(
            matrix("PHB"), {0: "0-15"}, (0, 0), ("0-15",), threads=1, names=["GRID A100D-40C"] * 2, memory_gib=[40, 40]
        ),
        granted("0"),
        "0-15",
        1,
        4,
        "0",
        "0-3",
    ),
    "a board without NVML, and without a GPU on its PCI bus": Case(
        Machine("", {0: "0-11"}, (), ("0-11",), threads=1, source="sysfs"),
        granted("0"),
        "0-11",
        1,
        4,
        "0",
        "0-3",
        aligned=None,
        problems=("GPU 0 was granted, but no GPU was found on this node.",),
    ),
    "GPUs of two PCI domains whose index is not the order of their buses": Case(
        replace(HGX, source="file"),
        granted("6,1,0", CUDA_VISIBLE_DEVICES="6,1,0"),
        "0-191",
        2,
        8,
        "0,1",
        "0-3,96-99",
    ),
    "a job of which nothing names GPUs but their number, in a device cgroup": Case(
        Machine(matrix("NV18"), TWO, (0, 1), SOCKETS),
        {**JOB, "SLURM_GPUS_ON_NODE": "2"},
        "0-7,48-55,96-103,144-151",
        2,
        8,
        "0,1",
        "0-1,48-49,96-97,144-145",
    ),
    "CPUs of two packages by turns": Case(
        Machine(
            alike(4, "SYS"),
            dict(enumerate(TURNS)),
            (0, 0, 1, 1),
            TURNS,
            threads=2,
        ),
        granted("1,2"),
        "0-63",
        1,
        4,
        "1",
        "0,2,32,34",
    ),
}


@pytest.fixture(autouse=True)
def nothing_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has other CPUs."""
    monkeypatch.setattr(placing, "bind_cpus", lambda cpus: (tuple(cpus), ()))
    monkeypatch.setattr(placing, "bind_memory", lambda *_: ("none", ()))


def launched(case: Case, monkeypatch: pytest.MonkeyPatch) -> tuple[PlacementDocument, dict[str, str]]:
    """The card, and the server's environment."""
    monkeypatch.setattr(placing, "allowed_cpus", lambda: parse_cpulist(case.allowed))
    plan = LaunchPlan(gpus=case.gpus, cpus=case.cpus, set_threads=False)
    silent = ControllerAnswers({}, job="", node="")
    launch = Launch(plan, dict(case.environ), slurm=silent, topology=case.machine.topology)
    return launch.place()[0], dict(launch.environ)


SPEED = {"SYS": 7, "NODE": 9, "PHB": 10, "PXB": 11, "PIX": 12}


def worth(topology: NodeTopology, gpus: Sequence[int]) -> tuple[float, float]:
    """The slowest link of the best ring, of all orders, and the sum over all pairs."""

    def speed(a: int, b: int) -> float:
        word = topology.links[a][b]
        return 25 * int(word[2:]) if word.startswith("NV") else SPEED.get(word, 6)

    first, *others = gpus
    rings = ((first, *order) for order in permutations(others))
    ring = max(min((speed(a, b) for a, b in zip(one, (*one[1:], first), strict=True)), default=0) for one in rings)
    return (ring if others else 0, sum(speed(a, b) for a, b in combinations(gpus, 2)))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_a_server_gets(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the granted GPUs the best by every order of every set; CPUs of which none that is left is nearer to all."""
    topology = case.machine.topology
    card, environ = launched(case, monkeypatch)

    assert (environ.get("CUDA_VISIBLE_DEVICES"), card.cpus, card.aligned, card.problems) == (
        case.visible,
        case.on_cpus,
        case.aligned,
        case.problems,
    )
    by_pci = {gpu.pci: n for n, gpu in enumerate(topology.gpus)}
    chosen = [by_pci[gpu.pci] for gpu in card.gpus if gpu.pci]
    if not chosen:
        return
    everything = ",".join(map(str, range(len(topology.gpus))))
    names = case.environ.get("CUDA_VISIBLE_DEVICES", everything).split(",")
    among = [n for n, gpu in enumerate(topology.gpus) if {str(n), gpu.uuid} & set(names) and not gpu.fault]
    kind = {topology.gpus[n].name for n in chosen}
    sets = combinations([n for n in among if topology.gpus[n].name in kind], len(chosen))
    assert worth(topology, chosen) == max(worth(topology, one) for one in sets)
    node_of = {cpu: node for node in topology.numa_nodes for cpu in node.cpus}
    place = {node.id: n for n, node in enumerate(topology.numa_nodes)}

    def far(cpu: int) -> tuple[int, ...]:
        nodes = (topology.gpus[gpu].numa_node for gpu in chosen)
        return tuple(node_of[cpu].distances[place[node]] for node in nodes if node is not None)

    mine, allowed = set(parse_cpulist(card.cpus)), set(parse_cpulist(case.allowed))
    assert mine <= allowed
    left = {far(cpu) for core in topology.siblings for cpu in core if cpu in allowed and not mine & set(core)}
    assert not any(
        all(a < b for a, b in zip(other, far(cpu), strict=True)) for cpu in mine for other in left if far(cpu)
    )
