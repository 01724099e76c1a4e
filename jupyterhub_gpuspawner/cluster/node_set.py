"""A set of nodes, indexed so that requests can be checked against thousands of nodes within milliseconds. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from functools import cached_property
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from jupyterhub_gpuspawner.cluster.node_fit import ANY, Freed, Need, NodeFit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jupyterhub_gpuspawner.cluster.snapshot import ClusterJob
    from jupyterhub_gpuspawner.table import Table

RELEASES = 4000
"""Upper bound on the job ends that one prediction examines."""


class Releases(NamedTuple):
    """Job ends by time, one of each list."""

    moments: Sequence[float]
    nodes: Sequence[NodeFit]
    jobs: Sequence[int]
    """Positions in the snapshot's jobs."""


class NodeSet:
    """A set of nodes, such as those of a partition, sorted by free resources."""

    def __init__(self, nodes: Iterable[NodeFit], jobs: Table[ClusterJob]) -> None:
        """``jobs`` are all of the snapshot's."""
        self.all = tuple(nodes)
        self._jobs = jobs
        self.usable = tuple(node for node in self.all if node.usable)

    @cached_property
    def kinds(self) -> Mapping[NodeFit, int]:
        """One node of each hardware configuration, and the number of such nodes."""
        return _kinds(self.all)

    @cached_property
    def usable_kinds(self) -> Mapping[NodeFit, int]:
        """The same for nodes in service."""
        return _kinds(self.usable)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The GPU types of the set; includes :data:`ANY` if some GPUs have no type."""
        found = {kind for node in self.kinds for kind in node.gpus if kind}
        untyped = any(sum(node.gpus.values()) < 2 * node.gpus.get(ANY, 0) for node in self.kinds)
        return tuple(sorted(found | ({ANY} if untyped else set())))

    @cached_property
    def cpus_per_core(self) -> int:
        """How many of Slurm's CPUs a core of these nodes has; 0 where that differs, and without nodes."""
        found = {node.cpus_per_core for node in self.kinds}
        return found.pop() if len(found) == 1 else 0

    def count_capable(self, need: Need, *, usable: bool = False) -> int:
        """Number of nodes that could satisfy the request if empty: all of them, or only those in service."""
        kinds = self.usable_kinds if usable else self.kinds
        return sum(count for kind, count in kinds.items() if kind.offers(need))

    def fitting(self, need: Need) -> Iterator[NodeFit]:
        """Usable nodes on which the request fits now, reservations not considered."""
        nodes, counts, least = self._sorted(need)
        return (node for node in islice(nodes, bisect_left(counts, least), None) if node.has(need))

    def _sorted(self, need: Need) -> tuple[Sequence[NodeFit], Sequence[int], int]:
        if need.gpus:
            nodes, counts = self._by_gpus.get(need.gpu_type, ((), ()))
            return nodes, counts, need.gpus
        if need.shards:
            return (*self._by_shards, need.shards)
        return (*self._by_cpus, need.cpus)

    @cached_property
    def _by_gpus(self) -> Mapping[str, tuple[Sequence[NodeFit], Sequence[int]]]:
        found: dict[str, list[NodeFit]] = {}
        for node in self.usable:
            for kind, count in node.free_gpus.items():
                if count:  # no request for GPUs fits on the others
                    found.setdefault(kind, []).append(node)
        return {kind: _ascending(nodes, lambda node, kind=kind: node.free_gpus[kind]) for kind, nodes in found.items()}  # type: ignore[misc]

    @cached_property
    def _by_shards(self) -> tuple[Sequence[NodeFit], Sequence[int]]:
        return _ascending((node for node in self.usable if node.free_shards), lambda node: node.free_shards)

    @cached_property
    def _by_cpus(self) -> tuple[Sequence[NodeFit], Sequence[int]]:
        return _ascending(self.usable, attrgetter("free_cpus"))

    @cached_property
    def _reserved(self) -> tuple[NodeFit, ...]:
        return tuple(node for node in self.usable if node.reserved)

    @cached_property
    def _totals(self) -> Mapping[str, tuple[int, int]]:
        return _totals(node for node in self.usable if not node.reserved)

    def count(self, what: str, moment: float, length: float) -> tuple[int, int]:
        """Free and total number of ``what`` on usable nodes that no reservation blocks in that period.

        ``what`` is ``gpu:TYPE``, ``shard``, ``cpu`` or ``node``.
        """
        free, of = self._totals.get(what, (0, 0))
        opened = _totals(node for node in self._reserved if node.open_at(moment, length) == moment)
        more = opened.get(what, (0, 0))
        return free + more[0], of + more[1]

    @cached_property
    def releases(self) -> Releases:
        """The first :data:`RELEASES` job ends on usable nodes; jobs without a time limit are left out."""
        ends_at = self._jobs.column("ends_at")
        nodes = [node for node in self.usable for job in node.jobs if ends_at[job] is not None]
        jobs = [job for node in self.usable for job in node.jobs if ends_at[job] is not None]
        moments = [ends_at[job] for job in jobs]
        first = sorted(range(len(jobs)), key=moments.__getitem__)[:RELEASES]
        return Releases([moments[at] for at in first], [nodes[at] for at in first], [jobs[at] for at in first])

    def earliest_start(self, need: Need, nodes: int, *, now: float, length: float) -> float | None:
        """When the request fits on so many nodes if every job runs to its time limit; None if no job end tells.

        Seconds since the epoch, like ``now``; ``length`` in seconds, may be infinite.
        """
        moments = sorted(node.open_at(now, length) for node in self.fitting(need))
        done = {node.name for node in self.fitting(need)}
        freed: dict[str, Freed] = {}
        columns = (self._jobs.column(field) for field in ("cpus", "memory_mib", "gpus", "node_count"))
        cpus, memory, gpus, node_count = columns
        for at, node, job in zip(*self.releases, strict=True):
            moment = max(now, at)
            if len(moments) >= nodes and moments[nodes - 1] <= moment:
                break
            if node.name in done or not node.offers(need):
                continue
            so_far = freed.setdefault(node.name, Freed())
            parts = node_count[job]  # what it holds in total is divided evenly among its nodes
            so_far.add(cpus[job] // parts, memory[job] // parts, gpus[job], node.only_type)
            if node.has_after(need, so_far):
                done.add(node.name)
                moments.append(node.open_at(moment, length))
                moments.sort()
        return moments[nodes - 1] if len(moments) >= nodes else None


def _kinds(nodes: Iterable[NodeFit]) -> dict[NodeFit, int]:
    found: dict[object, tuple[NodeFit, int]] = {}
    for node in nodes:
        key = (node.cpus, node.step, node.cpus_per_core, node.memory, node.shards, tuple(node.gpus.items()))
        first, count = found.get(key, (node, 0))
        found[key] = (first, count + 1)
    return dict(found.values())


def _ascending(nodes: Iterable[NodeFit], count: Callable[[NodeFit], int]) -> tuple[Sequence[NodeFit], Sequence[int]]:
    found = sorted(nodes, key=count)
    return found, list(map(count, found))


def _totals(nodes: Iterable[NodeFit]) -> dict[str, tuple[int, int]]:
    found = list(nodes)
    free: Counter[str] = Counter()
    of: Counter[str] = Counter()
    for node in found:
        for kind, count in node.gpus.items():
            of[f"gpu:{kind}"] += count
            free[f"gpu:{kind}"] += node.free_gpus.get(kind, 0)
    totals = {what: (free[what], count) for what, count in of.items()}
    if found:
        totals["node"] = sum(node.idle for node in found), len(found)
        totals["cpu"] = sum(min(node.free_cpus, node.cpus) for node in found), sum(node.cpus for node in found)
        totals["shard"] = sum(node.free_shards for node in found), sum(node.shards for node in found)
    return totals
