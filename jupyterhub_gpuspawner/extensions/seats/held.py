"""The jobs of a site that hold resources or wait for them, and the jobs of a twin that do the same. Pure.

Which jobs there are, on which nodes, and what each has in all is what squeue says, in which no text of a user can pass
for a field (:mod:`.squeue`). How much of it is on each node is said by ``scontrol show job -d`` alone, where names and
comments can imitate whole jobs. So of that answer only what is of a job of squeue's, and of its nodes, is used; a job
that stands there twice is taken to have as much on each node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.scontrol import parse_allocations
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob
from jupyterhub_gpuspawner.slurm.squeue import CLUSTER, Question, cluster_job
from jupyterhub_gpuspawner.slurm.text import gres, no_report, parse_tres, value_or_empty, words
from jupyterhub_gpuspawner.units import Gres, NodeAllocation

_SLURMS, _OWNERS = ("OverSubscribe", "QOS"), ("Licenses", "Feature", "ReqNodes")
JOBS = Question((*CLUSTER.slurms, *_SLURMS), (*CLUSTER.owners, *_OWNERS))
"""What squeue is asked for: :data:`.squeue.CLUSTER`, and what else a job keeps from others, or waits for."""
JOBS_EXCLUSIVE = JOBS._replace(slurms=(*CLUSTER.slurms, "Exclusive", "QOS"))
"""The same of versions whose jobs have ``Exclusive=NODE`` (26.05), and ``OverSubscribe=NO`` whether they do or not."""
_WHOLE_NODES = {JOBS: ("NO", "USER", "MCS"), JOBS_EXCLUSIVE: ("NODE", "USER", "MCS", "TOPO")}
_TRES, _TASKS = CLUSTER.slurms.index("tres-alloc"), CLUSTER.slurms.index("NumTasks")
_REQUESTED = CLUSTER.owners[: CLUSTER.owners.index("tres-per-task") + 1]

_HOLDING = frozenset({"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})


@dataclass(frozen=True)
class HeldJob:
    """A job that holds resources."""

    job: ClusterJob
    exclusive: bool = False
    licenses: tuple[Gres, ...] = ()
    allocations: tuple[NodeAllocation, ...] = ()
    """What it has on each of its nodes; empty where that is not known."""
    qos: str = ""
    tres: Mapping[str, float] = field(default_factory=dict)
    """What it has in all, by Slurm's names of TRES; see :func:`.text.parse_tres`."""

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


@dataclass(frozen=True)
class WaitingJob:
    """A job that waits at the site."""

    job: ClusterJob
    options: tuple[str, ...] = ()
    """sbatch's, which request the same."""
    qos: str = ""
    tres: Mapping[str, float] = field(default_factory=dict)
    """What it requests, likewise."""


def read_jobs(queue: str, mark: str, question: Question = JOBS) -> tuple[tuple[HeldJob, ...], tuple[WaitingJob, ...]]:
    """The jobs that hold resources, whose allocations are not known yet, and those that wait.

    ``queue`` is squeue's answer to ``question`` with this mark: :data:`JOBS` or :data:`JOBS_EXCLUSIVE`. Raises
    SlurmOutputError if it is cut off, or not understood. Licences are read like gres: that of a remote server,
    ``matlab@flex``, is ``matlab_flex``, and what is not understood is none.
    """
    trusted, written = len(CLUSTER.slurms), len(_OWNERS)

    def read_job(texts: list[str]) -> HeldJob | WaitingJob:
        own = [*texts[:trusted], *texts[trusted + len(_SLURMS) : -written]]
        job, _ = cluster_job(own)
        (sharing, qos), (license_names, features, requested_nodes) = texts[trusted:][: len(_SLURMS)], texts[-written:]
        exclusive = sharing in _WHOLE_NODES[question]
        if job.phase is Phase.QUEUED:
            per = dict(zip(_REQUESTED, own[trusted:], strict=False))
            more = {"constraint": features, "nodelist": requested_nodes, "licenses": license_names}
            tasks = int(own[_TASKS]) if own[_TASKS].isdecimal() else 1
            options = _options(job, tasks, parse_tres(own[_TRES]), per, more, exclusive=exclusive)
            return WaitingJob(job, tuple(options), qos, parse_tres(own[_TRES]))
        licenses: tuple[Gres, ...] = ()
        with suppress(SlurmOutputError):
            licenses = gres("Licenses", re.sub("[@/]", "_", value_or_empty(license_names)))
        return HeldJob(job, exclusive, licenses, qos=qos, tres=parse_tres(own[_TRES]))

    jobs = [*question.jobs(queue, mark, read_job, no_report)]
    held = (job for job in jobs if isinstance(job, HeldJob) and job.job.state in _HOLDING and job.job.nodes)
    return tuple(held), tuple(job for job in jobs if isinstance(job, WaitingJob))


def with_details(held: Iterable[HeldJob], details: str) -> tuple[HeldJob, ...]:
    """The jobs with what each has on its nodes; ``details`` is the answer of ``scontrol show job -a -d -o``."""
    allocations = parse_allocations(details)

    def of(job: HeldJob) -> HeldJob:
        parts = allocations.get(job.job.job_id, ())
        there = sorted(part.node for part in parts) == sorted(job.job.nodes)
        return replace(job, allocations=parts) if there else job

    return tuple(map(of, held))


def _options(
    job: ClusterJob,
    tasks: int,
    tres: Mapping[str, float],
    per: Mapping[str, str],
    more: Mapping[str, str],
    *,
    exclusive: bool,
) -> Iterator[str]:
    """sbatch options with which a job of the twin requests what this one does."""
    nodes, tasks = job.node_count, max(1, tasks)
    yield f"--partition={','.join(job.partitions)}"
    yield f"--nodes={nodes}"
    yield f"--ntasks={tasks}"
    if job.cpus > tasks:
        yield f"--cpus-per-task={job.cpus // tasks}"
    if memory := tres.get("mem", 0.0):
        yield f"--mem={-(-int(memory) // nodes)}"
    for key, option in (("tres-per-node", "gres"), ("tres-per-job", "gpus"), ("tres-per-socket", "gpus-per-socket")):
        devices = re.sub("(^|,)gres[:/]", r"\1", value_or_empty(per.get(key)))
        if option != "gres":  # which sbatch reads without a name
            devices = re.sub("(^|,)gpu[:=]?", r"\1", devices)
        if devices:
            yield f"--{option}={devices}"
    per_task = [re.fullmatch("gres[:/]gpu[:=]?(.+)", item) for item in words(per.get("tres-per-task"))]
    if gpus := [item[1] for item in per_task if item is not None]:
        yield f"--gpus-per-task={','.join(gpus)}"
    for name, value in more.items():
        if value_or_empty(value):
            yield f"--{name}={value}"
    if job.reservation:
        yield f"--reservation={job.reservation}"
    if exclusive:
        yield "--exclusive"
    yield f"--time={'UNLIMITED' if job.time_limit is None else max(1, job.time_limit // 60)}"


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
