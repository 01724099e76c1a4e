"""Compare the GPUs that Slurm grants without and with the lines of ``gpuspawner topology --gres-conf``.

    python benchmarks/gres_conf_table.py [MACHINE...] > docs/explanation/gres-conf-table.md

For each machine it runs a private Slurm (slurmctld and a slurmd for each variant, select/cons_tres) with simulated
nodes: one whose gres.conf only names device files, one with ``Cores=``, one with ``Cores=`` and ``Links=``. Each node
is brought into the same 30 random states: jobs of one GPU and one core fill it, and those on a random set of GPUs are
cancelled. Then a job of two to four GPUs and four cores is submitted, and what Slurm granted it is read from
``scontrol show job -d``. It is compared with the exact choice among the GPUs that were free. Only counts and ratios
are reported, no times. It takes ten minutes.
"""

from __future__ import annotations

import itertools
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from jupyterhub_gpuspawner.cpulist import format_cpulist, parse_cpulist
from jupyterhub_gpuspawner.demo.simulated import ClusterDescription, SimulatedNode, SimulatedPartition, whole_gpus
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.fleet.gres_conf import GresLine, gres_conf, socket_of, sockets
from jupyterhub_gpuspawner.placement.choice import choose
from jupyterhub_gpuspawner.placement.topology import NodeTopology, load
from jupyterhub_gpuspawner.units import parse_gres

ROOT = Path(__file__).parent.parent
FOLDERS = (ROOT / "tests/data/machines", ROOT / "jupyterhub_gpuspawner/demo/machines")
STATES = 30
CORES = 4
"""Cores of the job that is placed."""
TWO_PACKAGES = {"dgx-a100": ((1, 3), (5, 7)), "nps4-bridges": ((0, 1, 2, 3), (4, 5, 6, 7))}
"""NUMA nodes of each package, for recorded machines with several NUMA nodes in a package."""
MACHINES = (
    "dgx1",
    "dgx1v",
    "k80-2socket",
    "pcie-pairs",
    "dgx-a100",
    "dgx-a100 by NUMA node",
    "nps4-bridges",
    "nps4-bridges by NUMA node",
    "a100-bridges",
    "rtx4090-all-sys",
)
VARIANTS = {"files": "device files only", "cores": "with `Cores=`", "links": "with `Cores=` and `Links=`"}
DETAIL = re.compile(r"CPU_IDs=(\S+) .*?GRES=(\S+)")


@dataclass(frozen=True)
class Machine:
    """A machine as Slurm sees it."""

    name: str
    topology: NodeTopology
    by_numa_node: bool
    """slurmd runs with ``numa_node_as_socket``."""

    @property
    def sockets(self) -> list[frozenset[int]]:
        """CPUs of Slurm's sockets."""
        return sockets(self.topology, numa_node_as_socket=self.by_numa_node)

    @property
    def cores_per_socket(self) -> int:
        """All machines here have one thread for each core."""
        return len(self.sockets[0])

    def node(self, variant: str) -> SimulatedNode:
        """The node whose gres.conf is this variant."""
        lines = gres_conf(self.topology, numa_node_as_socket=self.by_numa_node, threads_per_core=1).lines
        kept = {"files": "file", "cores": "file cores", "links": "file cores links"}[variant].split()
        lines = tuple(GresLine(**{field: getattr(line, field) for field in kept}) for line in lines)
        return SimulatedNode(
            variant,
            machine="",
            sockets=len(self.sockets),
            cores_per_socket=self.cores_per_socket,
            memory_mib=512000,
            gpus=(whole_gpus("", range(len(self.topology.gpus))),),
            gres_lines=tuple(line.text() for line in lines),
        )


@dataclass(frozen=True)
class Grant:
    """What Slurm granted in one state."""

    loss: float
    """Of the slowest link of the best ring, in per cent of the exact choice's."""
    fits: bool
    """One socket had enough free GPUs and cores."""
    gpus_together: bool
    """All GPUs are of one socket."""
    all_together: bool
    """All GPUs and cores are of one socket."""
    miss: str
    """What was granted and what would have been best, in words; empty where it was the best."""


def machine(name: str) -> Machine:
    """Load a machine by its name in :data:`MACHINES`."""
    stem, _, by = name.partition(" by ")
    topology = load(str(next(path for each in FOLDERS if (path := each / f"{stem}.json").exists())))
    if stem in TWO_PACKAGES:
        cpus = {node.id: node.cpus for node in topology.numa_nodes}
        packages = tuple(tuple(itertools.chain(*(cpus[number] for number in nodes))) for nodes in TWO_PACKAGES[stem])
        topology = replace(topology, packages=packages)
    return Machine(name, topology, bool(by))


def states(count: int) -> Iterator[tuple[frozenset[int], int]]:
    """Sets of free GPUs, and how many the job requests; the same for every variant."""
    chance = random.Random(1)
    for _ in range(STATES):
        wanted = chance.randint(2, min(4, count - 1))
        yield frozenset(chance.sample(range(count), chance.randint(wanted + 1, count))), wanted


class Node:
    """One node of the private Slurm, and the jobs that fill it."""

    def __init__(self, slurm: PrivateSlurm, name: str, gpus: int) -> None:
        self.slurm = slurm
        self.name = name
        self.gpus = gpus
        self.fillers: dict[int, str] = {}
        """Job ids by GPU."""

    def free(self, wanted: frozenset[int]) -> None:
        """Have these GPUs free, and no others."""
        while len(self.fillers) < self.gpus:
            job, gpus, _ = self.submit(1, 1)
            self.fillers[gpus[0]] = job
        self.cancel([self.fillers.pop(gpu) for gpu in wanted])

    def submit(self, gpus: int, cores: int) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """Allocate a job; returns its id, its GPUs and its cores."""
        request = [
            "--no-shell",
            f"--nodelist={self.name}",
            f"--gres=gpu:{gpus}",
            "--ntasks=1",
            f"--cpus-per-task={cores}",
        ]
        for attempt in range(20):
            done = subprocess.run(
                [f"{self.slurm.bin_dir}/salloc", *request, "--mem=100"],
                env={"PATH": "/usr/bin:/bin", **self.slurm.environment},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            found = re.search(r"Granted job allocation (\d+)", done.stderr)
            if found:
                break
            time.sleep(0.2 * attempt)
        else:
            raise RuntimeError(done.stderr)
        detail = DETAIL.search(self.slurm.run("scontrol", "show", "job", "-d", found[1]))
        if detail is None:
            raise RuntimeError(f"scontrol does not name the GPUs of job {found[1]}")
        return found[1], parse_gres(detail[2])[0].indices, parse_cpulist(detail[1])

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel jobs, and wait until Slurm has their resources back."""
        if jobs:
            self.slurm.run("scancel", *jobs)
            while self.slurm.run("squeue", "-h", "-t", "R,CG,PD", "-o", "%i", "-j", ",".join(jobs)):
                time.sleep(0.05)


def grants(node: Node, of: Machine) -> Iterator[Grant]:
    """What Slurm grants in each state."""
    topology, size = of.topology, of.cores_per_socket
    home = [socket_of(topology, position, of.sockets) for position in range(len(topology.gpus))]
    taken: dict[str, tuple[int, ...]] = {}
    for free, wanted in states(len(topology.gpus)):
        node.free(free)
        busy = [cpu for job in node.fillers.values() for cpu in taken.setdefault(job, _cores(node.slurm, job))]
        room = [size - sum(cpu // size == number for cpu in busy) for number in range(len(of.sockets))]
        fits = any(sum(home[gpu] == n for gpu in free) >= wanted and room[n] >= CORES for n in range(len(room)))
        job, gpus, cores = node.submit(wanted, CORES)
        node.cancel([job])
        chosen = choose(topology, granted=sorted(free), count=wanted)
        best = chosen.ring_gbps or 0.0
        got = choose(topology, granted=gpus, count=wanted).ring_gbps or 0.0
        words = [format_cpulist(each) for each in (free, gpus, chosen.gpus)]
        miss = "{}: {} instead of {} ({:.0f} %)".format(*words, 100 * (1 - got / best)) if got < best else ""
        of_gpus, of_cores = {home[gpu] for gpu in gpus}, {cpu // size for cpu in cores}
        yield Grant(100 * (1 - got / best), fits, len(of_gpus) == 1, len(of_gpus | of_cores) == 1, miss)


def _cores(slurm: PrivateSlurm, job: str) -> tuple[int, ...]:
    detail = DETAIL.search(slurm.run("scontrol", "show", "job", "-d", job))
    return parse_cpulist(detail[1]) if detail else ()


def measure(of: Machine, missed: dict[str, list[str]]) -> Iterator[list[str]]:
    """The rows of one machine; what is still missed with all lines goes to ``missed``, by its name."""
    nodes = [of.node(variant) for variant in VARIANTS]
    if nodes[1].gres_lines == nodes[2].gres_lines:
        nodes.pop()  # Links= would tell these GPUs nothing
    cluster = ClusterDescription(tuple(nodes), (SimulatedPartition("gpu", tuple(n.name for n in nodes), default=True),))
    with (
        tempfile.TemporaryDirectory(prefix="gres-", dir="/tmp") as folder,
        PrivateSlurm(cluster, Path(folder) / "slurm") as slurm,
    ):
        for each in nodes:
            found = list(grants(Node(slurm, each.name, len(of.topology.gpus)), of))
            fits = [grant for grant in found if grant.fits]
            missed[of.name] = [grant.miss for grant in found if grant.miss]
            yield [
                of.name if each is nodes[0] else "",
                VARIANTS[each.name],
                f"{sum(grant.loss < 0.5 for grant in found)} of {len(found)}",
                f"{mean(grant.loss for grant in found):.0f} / {max(grant.loss for grant in found):.0f}",
                f"{sum(grant.gpus_together for grant in fits)} of {len(fits)}",
                f"{sum(grant.all_together for grant in fits)} of {len(fits)}",
            ]


INTRODUCTION = """\
# What gres.conf is worth

Generated by `python benchmarks/gres_conf_table.py`, with Slurm {version} (select/cons_tres, CR_Core_Memory) and
simulated nodes. For each machine and each form of its `gres.conf`, {states} random states of free GPUs; in each of
them a job of two to four GPUs and four cores was submitted, and what Slurm granted it was compared with the exact
choice among the GPUs that were free. The lines are those of `gpuspawner topology --gres-conf`.

- *Best ring granted*: the slowest link of the best ring through the granted GPUs is as fast as it could have been.
- *Loss*: how much slower it is, over all states. The launcher cannot make up for it, since it can only order what was
  granted.
- *Those that fit*: states in which one socket had enough free GPUs and cores for the job. Without `Cores=` Slurm
  spreads the cores of a job over the sockets, wherever its GPUs are.
- `Links=` is left out where it would not tell the GPUs apart: all have the same number of NVLinks, or none.
- *By NUMA node*: slurmd has the parameter `numa_node_as_socket`; otherwise a socket is a package. In the machine
  `nps4-bridges`, linked GPUs are close to different NUMA nodes: there Slurm separates them, and the lines by NUMA node
  are worse than none.

The machines are files in `tests/data/machines/` and `jupyterhub_gpuspawner/demo/machines/`.
"""


NEWER_SLURM = """\

## Slurm 24.11

The same states with Slurm 24.11.5 (Debian's packages in a root file system of their own, 22 November 2026). `Cores=`
has the same effect as in 22.05, and `Links=` has none. In Slurm's sources from 24.05 on, GPUs are sorted by their links
in ascending order.

| machine | gres.conf | best ring | loss, mean / worst % | GPUs on one socket | GPUs and cores on one socket |
|---|---|---|---|---|---|
| dgx1v | device files only | 20 of 30 | 19 / 72 | 21 of 25 | 0 of 25 |
|  | with `Cores=` | 22 of 30 | 13 / 50 | 25 of 25 | 25 of 25 |
|  | with `Cores=` and `Links=` | 22 of 30 | 13 / 50 | 25 of 25 | 25 of 25 |
| a100-bridges | device files only | 19 of 30 | 28 / 96 | 21 of 25 | 0 of 25 |
|  | with `Cores=` | 23 of 30 | 22 / 94 | 25 of 25 | 25 of 25 |
|  | with `Cores=` and `Links=` | 23 of 30 | 22 / 94 | 25 of 25 | 25 of 25 |

With all lines, an empty DGX-1 with V100 grants a job of two GPUs those with one NVLink (0 and 1) instead of two
(0 and 3), and an empty node of `a100-bridges` a pair without its bridge.
"""
"""What was measured once with another version, in the same states."""


def main() -> None:
    """Print the page as Markdown."""
    version = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout.split()[-1]
    print(INTRODUCTION.format(version=version, states=STATES))
    heads = (
        "machine",
        "gres.conf",
        "best ring granted",
        "loss of the ring, mean / worst %",
        "GPUs on one socket, of those that fit",
        "GPUs and cores on one socket, of those that fit",
    )
    print("|", " | ".join(heads), "|")
    print("|---" * len(heads) + "|")
    missed: dict[str, list[str]] = {}
    for name in sys.argv[1:] or MACHINES:
        for cells in measure(machine(name), missed):
            print("|", " | ".join(cells), "|", flush=True)
    print("\n## What Slurm still misses with all lines\n\nThe free GPUs, those granted, the best, and the loss:\n")
    for name, misses in missed.items():
        if misses:
            print(f"- {name}: {'; '.join(misses)}.")
    print(NEWER_SLURM, end="")


if __name__ == "__main__":
    main()
