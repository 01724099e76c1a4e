"""The rows of the map's page: one for each node, with neighbouring GPUs in the same use as one piece. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cluster.cluster_map import GpuUse, totals
from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.hub.text import cluster
from jupyterhub_gpuspawner.hub.text.times import clock
from jupyterhub_gpuspawner.words import counted, memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyterhub_gpuspawner.cluster.cluster_map import ClusterMap, Holder, MapGpu, MapNode, MapPartition, Totals

ROWS_AT_MOST = 2000
"""Rows of nodes on one page at most; partitions beyond that are shown as a link."""
OPEN_AT_MOST = 100
"""Rows of nodes on a page whose partitions are unfolded; on a longer page they are folded."""
TIB = 1024**2
"""MiB in a TiB."""
JOBS_AT_MOST = 6
"""Jobs without GPUs that are named beside a node, at most."""


@dataclass(frozen=True)
class GpuRun:
    """Neighbouring GPUs of a node with the same type, use and holders."""

    kind: str
    """``free``, ``own`` (a server of this hub), ``other`` (any other job) or ``out``."""
    count: int
    name: str
    """Their indices, such as ``0-3``, or how many; with the type where the node has several."""
    words: str


@dataclass(frozen=True)
class Bar:
    """How much of something is in use."""

    words: str
    percent: int


@dataclass(frozen=True)
class Row:
    """One node."""

    name: str
    use: str
    state: str
    reason: str
    has: str
    gpus: tuple[GpuRun, ...]
    jobs: str
    """Jobs that have none of the node's GPUs."""
    cpus: Bar
    memory: Bar


@dataclass(frozen=True)
class Section:
    """One partition."""

    name: str
    state: str
    """Empty for one that is up."""
    words: str
    bar: tuple[int, int, int]
    """Percentages of its GPUs that are in use, free and out; of its CPUs where it has no GPU."""
    cpus: Bar
    memory: Bar
    rows: tuple[Row, ...]
    folded: int
    """The number of its nodes that are not on this page."""
    open: bool


def sections(found: ClusterMap, *, filtered: bool = False) -> tuple[Section, ...]:
    """The partitions in Slurm's order, with as many of their nodes as the page may hold."""
    wanted = sum(len(partition.nodes) for partition in found.partitions)
    unfold = wanted <= OPEN_AT_MOST or (filtered and wanted <= ROWS_AT_MOST)
    made: dict[str, Row] = {}
    room = ROWS_AT_MOST
    parts = []
    for partition in found.partitions:
        nodes = found.nodes_of(partition) if len(partition.nodes) <= room or room == ROWS_AT_MOST else ()
        nodes = nodes[:room]
        room -= len(nodes)
        for node in nodes:
            if node.name not in made:
                made[node.name] = _row(node)
        rows = tuple(made[node.name] for node in nodes)
        parts.append(_section(partition, rows, unfold=unfold))
    return tuple(parts)


def summary(found: ClusterMap) -> str:
    """The whole cluster in one line."""
    together = totals(found.nodes)
    return "; ".join((counted(together.nodes, "node"), _gpus_in_words(together)))


def _section(partition: MapPartition, rows: tuple[Row, ...], *, unfold: bool) -> Section:
    has = partition.totals
    words = [counted(has.nodes, "node"), _gpus_in_words(has)]
    if partition.waiting:
        words.append(cluster.waiting(partition.waiting))
    used, whole = (has.gpus_used, has.gpus) if has.gpus else (has.cpus_used, has.cpus)
    out = has.gpus_out if has.gpus else 0
    bar = (_percent(used, whole), _percent(whole - used - out, whole), _percent(out, whole))
    return Section(
        name=partition.name,
        state="" if partition.state == "UP" else cluster.partition_state(partition.state),
        words="; ".join(words),
        bar=bar,
        cpus=_bar(f"{has.cpus_used:,}", f"{has.cpus:,}", has.cpus_used, has.cpus),
        memory=_memory_bar(has.memory_used_mib, has.memory_mib),
        rows=rows,
        folded=len(partition.nodes) - len(rows),
        open=unfold and bool(rows),
    )


def _gpus_in_words(has: Totals) -> str:
    return cluster.gpus(has.gpus, has.gpus_free, has.gpus_used, has.gpus_out)


def _row(node: MapNode) -> Row:
    runs = tuple(_runs(node))
    with_gpus = {holder for gpu in node.gpus for holder in gpu.holders}
    types = dict.fromkeys(gpu.type for gpu in node.gpus)
    counts = [(kind, sum(gpu.type == kind for gpu in node.gpus)) for kind in types]
    state = node.state
    if node.reservation:
        state = f"{state}, {cluster.in_reservation(node.reservation)}"
    return Row(
        name=node.name,
        use=node.use.value,
        state=state,
        reason=cluster.reason(node.reason, node.reason_by, _day(node.reason_at)) if node.reason else "",
        has=", ".join(f"{count} \N{MULTIPLICATION SIGN} {kind or 'GPU'}" for kind, count in counts),
        gpus=runs,
        jobs=_jobs([holder for holder in node.jobs if holder not in with_gpus]),
        cpus=_bar(str(node.cpus_used), str(node.cpus), node.cpus_used, node.cpus),
        memory=_memory_bar(node.memory_used_mib, node.memory_mib),
    )


def _runs(node: MapNode) -> Iterator[GpuRun]:
    several = len({gpu.type for gpu in node.gpus}) > 1
    for (use, holders, kind, known), group in groupby(node.gpus, _alike):
        gpus = list(group)
        numbers = format_cpulist([gpu.index or 0 for gpu in gpus]) if known else f"{len(gpus)}\N{MULTIPLICATION SIGN}"
        yield GpuRun(
            kind=_kind(use, holders),
            count=len(gpus),
            name=f"{numbers} {kind}" if several else numbers,
            words=_words(use, holders),
        )


def _alike(gpu: MapGpu) -> tuple[GpuUse, tuple[Holder, ...], str, bool]:
    return gpu.use, gpu.holders, gpu.type, gpu.index is not None


def _kind(use: GpuUse, holders: tuple[Holder, ...]) -> str:
    if use is not GpuUse.USED:
        return str(use.value)
    return "own" if any(holder.server is not None for holder in holders) else "other"


def _words(use: GpuUse, holders: tuple[Holder, ...]) -> str:
    if use is GpuUse.FREE:
        return cluster.FREE
    if use is GpuUse.OUT:
        return cluster.OUT
    return _jobs(list(holders)) or cluster.IN_USE


def _jobs(holders: list[Holder]) -> str:
    named = [cluster.holder(each.user, each.job_id, each.server) for each in holders[:JOBS_AT_MOST]]
    if len(holders) > JOBS_AT_MOST:
        named.append(cluster.more_jobs(len(holders) - JOBS_AT_MOST))
    return "; ".join(named)


def _day(at: float | None) -> str:
    """``21 Nov 2026, 10:04 CET``, in the hub's time zone; without the date today."""
    return "" if at is None else clock(at)


def _bar(used: str, total: str, part: int, whole: int) -> Bar:
    return Bar(cluster.of_total(used, total), _percent(part, whole))


def _memory_bar(used: int, total: int) -> Bar:
    return _bar(_amount(used), _amount(total), used, total)


def _amount(mib: int) -> str:
    if mib >= 10 * TIB:
        return f"{mib / TIB:,.0f} TiB"
    return memory(mib) if mib else "0"


def _percent(part: int, whole: int) -> int:
    return round(100 * min(part, whole) / whole) if whole > 0 and part > 0 else 0
