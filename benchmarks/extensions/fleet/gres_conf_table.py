"""Compare the GPUs that Slurm grants without and with the lines of ``gpuspawner topology --gres-conf``.

    python benchmarks/extensions/fleet/gres_conf_table.py [--write] [--check] [MACHINE...]

It prints a part of docs/explanation/gres-conf-table.md: what was measured with the Slurm of this machine, for these
machines or for all. With ``--write`` the part replaces that of the same version in the page, and those of other
versions that were measured with other jobs are removed. ``scripts/gres-conf-table`` does so with several versions.
With ``--check`` the exit status is 1 if jobs that fit one socket, which is a package, got GPUs and cores of different
sockets: more than :data:`MISALIGNED` without ``Cores=``, or any with it.

For each machine it runs a private Slurm (slurmctld and a slurmd for each form of gres.conf, select/cons_tres) with
simulated nodes: one whose gres.conf only names device files, one with ``Cores=``, one with ``Cores=`` and ``Links=``.
Each node is brought into the same 30 random states: jobs of one GPU and one core fill it, and those on a random set of
GPUs are cancelled. Then a job of two to four GPUs and four cores is submitted, and what Slurm granted it is read from
``scontrol show job -d``. It is compared with the exact choice among the GPUs that were free. Jobs ask with the options
of a server's batch script, for GPUs with ``--gres``; with ``Links=`` the same states are measured with ``--gpus``, too.
Only counts and ratios are reported, no times. It takes five minutes.
"""

from __future__ import annotations

import itertools
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from jupyterhub_gpuspawner.batch.script import options
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    SEARCH_PATH,
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    whole_gpus,
)
from jupyterhub_gpuspawner.extensions.fleet.gres_conf import GresLine, gres_conf, socket_of, sockets
from jupyterhub_gpuspawner.placement.choice import choose
from jupyterhub_gpuspawner.placement.topology import NodeTopology, load
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.units import format_cpulist, parse_cpulist, parse_gres

ROOT = Path(__file__).parents[3]
FOLDERS = (ROOT / "tests/data/machines", ROOT / "jupyterhub_gpuspawner/demo/machines")
STATES = 30
CORES = 4
"""Cores of the job that is placed."""
MISALIGNED = 4
"""States of a machine in which a job may get cores away from its GPUs where gres.conf names device files alone."""
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
BY_NODE, BY_JOB = "gres", "gpus"
"""``gpus_option``: how a job asks for GPUs, for each node or for the whole job."""
PAGE = ROOT / "docs/explanation/gres-conf-table.md"
HEADING = "## Slurm "
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
        fields = {"files": "file", "cores": "file cores", "links": "file cores links"}[variant].split()
        lines = tuple(GresLine(**{field: getattr(line, field) for field in fields}) for line in lines)
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
    topology = load(str(next(path for folder in FOLDERS if (path := folder / f"{stem}.json").exists())))
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


def request_of(gpus: int, cores: int, gpus_option: str) -> list[str]:
    """The options of a server's job."""
    return list(options(Resources(gpus=gpus, cpus=cores, memory=100), "best-effort", gpus_option))


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
            job, gpus, _ = self.submit(BY_NODE, 1, 1)
            self.fillers[gpus[0]] = job
        self.cancel([self.fillers.pop(gpu) for gpu in wanted])

    def submit(self, gpus_option: str, gpus: int, cores: int) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """Allocate a job that asks as a server does; returns its id, its GPUs and its cores."""
        request = [
            "--no-shell",
            f"--nodelist={self.name}",
            *request_of(gpus, cores, gpus_option),
        ]
        for attempt in range(20):
            done = subprocess.run(
                [f"{self.slurm.bin_dir}/salloc", *request],
                env={"PATH": "/usr/bin:/bin", **self.slurm.environment},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            match = re.search(r"Granted job allocation (\d+)", done.stderr)
            if match:
                break
            time.sleep(0.2 * attempt)
        else:
            raise RuntimeError(done.stderr)
        detail = DETAIL.search(self.slurm.run("scontrol", "show", "job", "-d", match[1]))
        if detail is None:
            raise RuntimeError(f"scontrol does not name the GPUs of job {match[1]}")
        return match[1], parse_gres(detail[2])[0].indices, parse_cpulist(detail[1])

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel jobs, and wait until Slurm has their resources back."""
        if jobs:
            self.slurm.run("scancel", *jobs)
            while self.slurm.run("squeue", "-h", "-t", "R,CG,PD", "-o", "%i", "-j", ",".join(jobs)):
                time.sleep(0.05)


def grants(node: Node, of: Machine, gpus_option: str) -> Iterator[Grant]:
    """What Slurm grants in each state to jobs that ask for GPUs with this option."""
    topology, size = of.topology, of.cores_per_socket
    home = [socket_of(topology, position, of.sockets) for position in range(len(topology.gpus))]
    cores_by_job: dict[str, tuple[int, ...]] = {}
    for free, wanted in states(len(topology.gpus)):
        node.free(free)
        busy = [cpu for job in node.fillers.values() for cpu in cores_by_job.setdefault(job, _cores(node.slurm, job))]
        room = [size - sum(cpu // size == number for cpu in busy) for number in range(len(of.sockets))]
        fits = any(sum(home[gpu] == n for gpu in free) >= wanted and room[n] >= CORES for n in range(len(room)))
        job, gpus, cores = node.submit(gpus_option, wanted, CORES)
        node.cancel([job])
        chosen = choose(topology, granted=sorted(free), count=wanted)
        best = chosen.ring_gbps or 0.0
        got = choose(topology, granted=gpus, count=wanted).ring_gbps or 0.0
        words = [format_cpulist(indices) for indices in (free, gpus, chosen.gpus)]
        loss = 100 * (1 - got / best)
        miss = "{}: {} instead of {} ({} %)".format(*words, f"{loss:.0f}") if got < best else ""
        of_gpus, of_cores = {home[gpu] for gpu in gpus}, {cpu // size for cpu in cores}
        yield Grant(loss, fits, len(of_gpus) == 1, len(of_gpus | of_cores) == 1, miss)


def _cores(slurm: PrivateSlurm, job: str) -> tuple[int, ...]:
    detail = DETAIL.search(slurm.run("scontrol", "show", "job", "-d", job))
    return parse_cpulist(detail[1]) if detail else ()


def measure(of: Machine, missed: dict[str, list[str]], misaligned: list[str]) -> Iterator[list[str]]:
    """The rows of one machine.

    What is still missed with all lines goes to ``missed``, by its name; rows with too many jobs whose cores are away
    from their GPUs go to ``misaligned``.
    """
    nodes = [of.node(variant) for variant in VARIANTS]
    if nodes[1].gres_lines == nodes[2].gres_lines:
        nodes.pop()  # Links= would tell these GPUs nothing
    cluster = ClusterDescription(tuple(nodes), (SimulatedPartition("gpu", tuple(n.name for n in nodes), default=True),))
    rows = [(node.name, VARIANTS[node.name], BY_NODE) for node in nodes]
    if len(nodes) == len(VARIANTS):
        rows.append((nodes[-1].name, "the same, jobs with `--gpus`", BY_JOB))
    with (
        tempfile.TemporaryDirectory(prefix="gres-", dir="/tmp") as folder,
        PrivateSlurm(cluster, Path(folder) / "slurm") as slurm,
    ):
        filled = {node.name: Node(slurm, node.name, len(of.topology.gpus)) for node in nodes}
        for number, (name, words, gpus_option) in enumerate(rows):
            node_grants = list(grants(filled[name], of, gpus_option))
            fits = [grant for grant in node_grants if grant.fits]
            if gpus_option == BY_NODE:
                missed[of.name] = [grant.miss for grant in node_grants if grant.miss]
            apart = sum(not grant.all_together for grant in fits)
            if not of.by_numa_node and apart > (MISALIGNED if name == "files" else 0):
                misaligned.append(f"{of.name}, {words}: {apart} of {len(fits)}")
            yield [
                of.name if number == 0 else "",
                words,
                f"{sum(grant.loss < 0.5 for grant in node_grants)} of {len(node_grants)}",
                f"{mean(grant.loss for grant in node_grants):.0f} / {max(grant.loss for grant in node_grants):.0f}",
                f"{sum(grant.gpus_together for grant in fits)} of {len(fits)}",
                f"{sum(grant.all_together for grant in fits)} of {len(fits)}",
            ]


INTRODUCTION = f"""\
# What gres.conf is worth

Generated by `scripts/gres-conf-table`, which runs `benchmarks/extensions/fleet/gres_conf_table.py` with several
versions of Slurm (select/cons_tres, CR_Core_Memory) and simulated nodes. For each machine and each form of its
`gres.conf`, {STATES} random states of free GPUs; in each of them a job of two to four GPUs and four cores was
submitted, and what Slurm granted it was compared with the exact choice among the GPUs that were free. The lines are
those of `gpuspawner topology --gres-conf`.

- *Best ring granted*: the slowest link of the best ring through the granted GPUs is as fast as it could have been.
- *Loss*: how much slower it is, over all states. The launcher cannot make up for it, since it can only order what was
  granted.
- *Those that fit*: states in which one socket had enough free GPUs and cores for the job. Without `Cores=` Slurm knows
  no socket of a GPU, and chooses GPUs and cores independently of each other.
- *Jobs with `--gpus`*: the jobs ask for their GPUs with `--gpus=2`, for the whole job. All others ask with
  `--gres=gpu:2`, for each node, as servers do unless `gpus_option` is set; `--gpus-per-node` is the same.
- `Links=` is left out where it would not tell the GPUs apart: all have the same number of NVLinks, or none.
- *By NUMA node*: slurmd has the parameter `numa_node_as_socket`; otherwise a socket is a package. In the machine
  `nps4-bridges`, linked GPUs are close to different NUMA nodes: there Slurm separates them, and the lines by NUMA node
  are worse than none.

The machines are files in `tests/data/machines/` and `jupyterhub_gpuspawner/demo/machines/`.

## Which versions use Links=

Slurm 22.05 prefers linked GPUs, however a job asks for them. Slurm 24.11 and 26.05 do so for jobs with `--gpus`
alone. For `--gres` and `--gpus-per-node` they take a GPU, and then those with the fewest links to it: the others are
sorted by their links in ascending order (`_compare_gres_by_links` in `gres_select_filter.c` of 24.11.5). With the
GPUs 1, 2 and 3 of a DGX-1 with V100 free, a job of two gets 1 and 2 (two NVLinks) without `Links=`, and 1 and 3 (one
NVLink) with it. So with these versions set `c.GPUSlurmSpawner.gpus_option = "gpus"`, with which servers ask as the
jobs of the last row of each machine do, or leave `Links=` out; `AutoDetect=nvml` sets it, too.
"""


def section(version: str, names: Sequence[str], misaligned: list[str]) -> Iterator[str]:
    """The part of the page for this version of Slurm, line by line, as it is measured."""
    heads = (
        "machine",
        "gres.conf",
        "best ring granted",
        "loss of the ring, mean / worst %",
        "GPUs on one socket, of those that fit",
        "GPUs and cores on one socket, of those that fit",
    )
    yield f"{HEADING}{'.'.join(version.split('.')[:2])}\n\nMeasured with {version}{JOBS}\n"
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    missed: dict[str, list[str]] = {}
    for name in names:
        for cells in measure(machine(name), missed, misaligned):
            yield f"| {' | '.join(cells)} |"
    yield "\nWhat Slurm still misses with all lines: the free GPUs, those granted, the best, and the loss.\n"
    for name, misses in missed.items():
        if misses:
            yield f"- {name}: {'; '.join(misses)}."


JOBS = f"; a job of two GPUs is submitted with `{' '.join(request_of(2, CORES, BY_NODE))}`."


def page(old: str, new: str) -> str:
    """The page with this part in place of the one of the same version; parts are in the order of versions.

    Parts that were measured with other jobs are left out: their figures do not compare.
    """
    parts = {part.split("\n")[0]: part.strip() for part in old.split(HEADING)[1:] if JOBS in part}
    parts[new.removeprefix(HEADING).split("\n")[0]] = new.removeprefix(HEADING).strip()
    return "\n".join([INTRODUCTION, *(f"{HEADING}{parts[version]}\n" for version in sorted(parts))])


def main() -> None:
    """Print the part of this Slurm, and write it if that is asked for."""
    names = [word for word in sys.argv[1:] if not word.startswith("--")]
    slurmctld = shutil.which("slurmctld", path=SEARCH_PATH)
    if slurmctld is None:
        sys.exit("slurmctld is not installed")
    version = subprocess.run([slurmctld, "-V"], capture_output=True, text=True, check=True).stdout.split()[-1]
    lines, misaligned = [], list[str]()
    for line in section(version, names or MACHINES, misaligned):
        print(line, flush=True)
        lines.append(line)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(PAGE.read_text("utf-8"), "\n".join(lines)), "utf-8")
    if "--check" in sys.argv[1:] and misaligned:
        sys.exit(f"cores away from their GPUs: {'; '.join(misaligned)}")


if __name__ == "__main__":
    main()
