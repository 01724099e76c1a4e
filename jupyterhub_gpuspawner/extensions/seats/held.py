"""The jobs of a site that hold resources, and the jobs of a twin that hold the same. Pure.

Which jobs there are, on which nodes, and what each has in all is what squeue says, in which no text of a user can pass
for a field (:mod:`.squeue`). How much of it is on each node is said by ``scontrol show job -d`` alone, where names and
comments can imitate whole jobs. So of that answer only what is of a job of squeue's, and of its nodes, is used; a job
that stands there twice is taken to have as much on each node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.scontrol import parse_allocations
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob
from jupyterhub_gpuspawner.slurm.squeue import CLUSTER, Question, cluster_job
from jupyterhub_gpuspawner.slurm.text import gres, no_report, value_or_empty
from jupyterhub_gpuspawner.units import Gres, NodeAllocation

HELD = Question((*CLUSTER.slurms, "OverSubscribe"), (*CLUSTER.owners, "Licenses"))
"""What squeue is asked for: :data:`.squeue.CLUSTER`, and what else a job keeps from others."""

_HOLDING = frozenset({"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})


@dataclass(frozen=True)
class HeldJob:
    """A job that holds resources."""

    job: ClusterJob
    exclusive: bool = False
    licenses: tuple[Gres, ...] = ()
    allocations: tuple[NodeAllocation, ...] = ()
    """What it has on each of its nodes; empty where that is not known."""

    @property
    def suspended(self) -> bool:
        """It has given back its CPUs, and nothing else."""
        return self.job.state == "SUSPENDED"

    def holds_at(self, at: float) -> bool:
        """Whether it has not ended by then; a suspended job goes on for its time whenever it is resumed."""
        return self.suspended or self.job.ends_at is None or self.job.ends_at > at

    def minutes(self, at: float) -> int | None:
        """From a moment, or its start after that, until its end; None without one."""
        if self.suspended or self.job.ends_at is None:
            return None
        return max(1, int(self.job.ends_at - max(at, self.job.starts_at or at)) // 60)

    def options(self, node: str, numbers_per_cpu: int) -> tuple[str, ...]:
        """sbatch options of a job that holds on a node what this one holds there."""
        job, part = self.job, next((part for part in self.allocations if part.node == node), None)
        if part is not None:  # select/linear gives whole nodes, and need not name their CPUs
            cpus, memory, gres = -(-len(part.cpu_ids) // numbers_per_cpu), part.memory_mib, part.gres
        else:
            cpus, memory, gres = -(-job.cpus // len(job.nodes)), -(-job.memory_mib // len(job.nodes)), job.gpus
        return (
            f"--partition={job.partition}",
            *([f"--cpus-per-task={cpus}"] if cpus else []),
            *(["--exclusive"] if self.exclusive or not cpus else []),
            *([f"--mem={memory}"] if memory else []),
            *([f"--gres={','.join(map(str, gres))}"] if gres else []),
        )


def held_jobs(queue: str, mark: str, details: str) -> tuple[HeldJob, ...]:
    """The jobs that hold resources.

    ``queue`` is squeue's answer to :data:`HELD` with this mark, ``details`` that of ``scontrol show job -a -d
    -o``. Raises SlurmOutputError if squeue's is cut off, or not understood. Licences are read like gres: that of a
    remote server, ``matlab@flex``, is ``matlab_flex``, and what is not understood is none.
    """
    allocations, trusted = parse_allocations(details), len(CLUSTER.slurms)

    def held(texts: list[str]) -> HeldJob:
        job, _ = cluster_job([*texts[:trusted], *texts[trusted + 1 : -1]])
        licenses: tuple[Gres, ...] = ()
        with suppress(SlurmOutputError):
            licenses = gres("Licenses", re.sub("[@/]", "_", value_or_empty(texts[-1])))
        parts = allocations.get(job.job_id, ())
        all_nodes = sorted(part.node for part in parts) == sorted(job.nodes)
        return HeldJob(job, texts[trusted] in ("NO", "USER", "MCS"), licenses, parts if all_nodes else ())

    jobs = HELD.jobs(queue, mark, held, no_report)
    return tuple(held for held in jobs if held.job.state in _HOLDING and held.job.nodes)


HOLDERS = 100
"""Jobs of the twin that hold what jobs of the site hold; there may be thousands of these."""


def holders(held: Sequence[HeldJob], nodes: Mapping[str, int], at: float) -> list[list[str]]:
    """sbatch options of jobs that hold what these hold at a moment. Jobs of the same size on different nodes are one.

    ``nodes``: how many numbers in ``CPU_IDs`` are one CPU of each node that is in service.

    When a job ends only decides which gaps the scheduler may fill. So where there would be more than :data:`HOLDERS`
    jobs, ends are rounded up, to two digits, to one, or to the last.
    """
    parts = [
        (job.options(node, nodes[node]), job.minutes(at), node)
        for job in held
        for node in job.job.nodes
        if node in nodes
    ]
    groups: dict[tuple[tuple[str, ...], int | None, int], list[str]] = {}
    for digits in (9, 2, 1, 0):
        groups = {}
        counts: Counter[tuple[tuple[str, ...], int | None, str]] = Counter()
        for shape, until, node in parts:
            minutes = _rounded_up(until, digits)
            groups.setdefault((shape, minutes, counts[shape, minutes, node]), []).append(node)
            counts[shape, minutes, node] += 1
        if len(groups) <= HOLDERS:
            break
    return [
        [
            *shape,
            f"--nodes={len(on)}",
            f"--nodelist={host_list(on)}",
            f"--time={'UNLIMITED' if minutes is None else minutes}",
        ]
        for (shape, minutes, _), on in groups.items()
    ]


def _rounded_up(minutes: int | None, digits: int) -> int | None:
    if minutes is None or digits == 0:
        return None
    unit: int = 10 ** max(0, len(str(minutes)) - digits)
    return -(-minutes // unit) * unit


_NUMBERED = re.compile(r"(.*?)([0-9]+)")


def host_list(names: Iterable[str]) -> str:
    """``g[1-3,07],login``: short, since slurmctld reads the list once for each of its nodes."""
    ranges: dict[tuple[str, int], list[list[int]]] = {}
    others = []
    for name in names:
        numbered = _NUMBERED.fullmatch(name)
        if numbered is None:
            others.append(name)
            continue
        number, width = int(numbered[2]), len(numbered[2]) if numbered[2].startswith("0") else 0
        spans = ranges.setdefault((numbered[1], width), [])
        if spans and number == spans[-1][1] + 1 and (not width or len(str(number)) <= width):
            spans[-1][1] = number
        else:
            spans.append([number, number])
    folded = []
    for (prefix, width), spans in ranges.items():
        parts = (f"{low:0{width}}-{high:0{width}}" if low < high else f"{low:0{width}}" for low, high in spans)
        folded.append(f"{prefix}[{','.join(parts)}]")
    return ",".join([*folded, *others])
