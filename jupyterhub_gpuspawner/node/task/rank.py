"""One task's share of a job step's GPUs and CPUs on a node. Pure.

``srun`` can start several tasks on a node and, by default, shows each of them all GPUs and CPUs of the step. Each task
computes the same division, from what all tasks know, and takes its own share. What Slurm has already divided is left
unchanged. (srun(1), "OUTPUT ENVIRONMENT VARIABLES".)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.placement.affinity import choose_cpus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeVar

    from jupyterhub_gpuspawner.placement.topology import NodeTopology

    T = TypeVar("T")

_TASKS = re.compile(r"(\d{1,6})(?:\(x(\d{1,6})\))?", re.ASCII)


@dataclass(frozen=True)
class Rank:
    """One of the tasks of a job step on this node."""

    local: int
    """From 0 (``SLURM_LOCALID``)."""
    count: int
    """Tasks of the step on this node."""

    def share(self, items: Sequence[T]) -> tuple[T, ...]:
        """This task's share of ``items``, see :func:`shares`."""
        return shares(items, self.count)[self.local]


def rank_of(environ: Mapping[str, str]) -> Rank | None:
    """This task's rank on its node; None outside a job step, for the only task of a node, or if Slurm does not say."""
    local, node = _number(environ.get("SLURM_LOCALID")), _number(environ.get("SLURM_NODEID"))
    counts = tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    if local is None or node is None or node >= len(counts) or not 0 <= local < counts[node] or counts[node] == 1:
        return None
    return Rank(local, counts[node])


def tasks_per_node(text: str) -> tuple[int, ...]:
    """Expand a list such as ``2(x3),1``; empty if the text has another form."""
    counts: list[int] = []
    for word in text.split(","):
        match = _TASKS.fullmatch(word)
        if match is None or len(counts) + int(match[2] or 1) > 1_000_000:
            return ()
        counts += [int(match[1])] * int(match[2] or 1)
    return tuple(counts)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def shares(items: Sequence[T], count: int) -> tuple[tuple[T, ...], ...]:
    """Split ``items`` into ``count`` contiguous parts; if they are not equal, the first ones have one more.

    If there are fewer items than parts, the parts get one item each, in turn.
    """
    if 0 < len(items) < count:
        return tuple((items[n % len(items)],) for n in range(count))
    size, larger = divmod(len(items), count)
    starts = [n * size + min(n, larger) for n in range(count + 1)]
    return tuple(tuple(items[start:end]) for start, end in zip(starts, starts[1:]))


def has_own_gpus(environ: Mapping[str, str], visible: int) -> bool:
    """Whether Slurm shows this task fewer GPUs than the step has here (``--gpus-per-task``, ``--gpu-bind``)."""
    return 0 < visible < (_number(environ.get("SLURM_GPUS_ON_NODE")) or 0)


def has_own_cpus(environ: Mapping[str, str], allowed: int) -> bool:
    """Whether Slurm holds this task to fewer CPUs than the step has here (``--cpu-bind``, task/affinity)."""
    return 0 < allowed < (_number(environ.get("SLURM_CPUS_ON_NODE")) or 0)


def divide_cpus(
    topology: NodeTopology, granted: Sequence[int], gpus: Sequence[Sequence[int]], *, per_task: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """CPUs for each task, given the positions of its GPUs; CPUs are shared only if there are fewer than tasks.

    ``per_task`` is the number of CPUs promised to a task. If it is None or too large, all CPUs are divided, in whole
    cores if there are enough. Each task first takes CPUs near to its GPUs, then what is missing from the rest.
    """
    free = sorted(set(granted))
    if len(free) < len(gpus):
        return shares(free, len(gpus))
    sizes = _sizes(topology, free, len(gpus), per_task)
    parts: list[tuple[int, ...]] = [()] * len(gpus)
    for nearby in (True, False):
        for n, mine in enumerate(gpus):
            field = [cpu for cpu in free if not nearby or _is_near(topology, cpu, mine)]
            missing = min(sizes[n] - len(parts[n]), len(field))
            chosen = choose_cpus(topology, granted=field, count=missing, gpus=mine) if missing else ()
            parts[n] += chosen
            free = [cpu for cpu in free if cpu not in chosen]
    return tuple(tuple(sorted(part)) for part in parts)


def _sizes(topology: NodeTopology, free: Sequence[int], tasks: int, per_task: int | None) -> list[int]:
    if per_task and per_task * tasks <= len(free):
        return [per_task] * tasks
    inside = set(free)
    core_of = {cpu: core[0] for core in topology.siblings for cpu in core if cpu in inside}
    cores: dict[int, int] = {}
    for cpu in free:
        cores[core_of.get(cpu, cpu)] = cores.get(core_of.get(cpu, cpu), 0) + 1
    if len(cores) < tasks:
        return [len(part) for part in shares(free, tasks)]
    return [sum(part) for part in shares(sorted(cores.values(), reverse=True), tasks)]


def _is_near(topology: NodeTopology, cpu: int, gpus: Sequence[int]) -> bool:
    node = topology.numa_node_of_cpu(cpu)
    near = [topology.gpus[gpu] for gpu in gpus]
    return any(node == gpu.numa_node if None not in (node, gpu.numa_node) else cpu in gpu.cpus for gpu in near)
