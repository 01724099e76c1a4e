"""The rows of the map's page: one for each node, with neighbouring GPUs in the same use as one piece. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from jupyterhub_gpuspawner.cluster.cluster_map import GpuUse, NodeUse, totals
from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.hub.pages.cluster.jobs import NO_RIGHTS, JobsInWords
from jupyterhub_gpuspawner.hub.text import cluster
from jupyterhub_gpuspawner.hub.text.times import clock
from jupyterhub_gpuspawner.words import counted, memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyterhub_gpuspawner.cluster.cluster_map import (
        ClusterMap,
        Holder,
        MapGpu,
        MapNode,
        MapPartition,
        Totals,
    )
    from jupyterhub_gpuspawner.hub.pages.cluster.jobs import JobWords, Rights, WaitingLine

ROWS_AT_MOST = 2000
"""Rows of nodes on one page at most; partitions beyond that are shown as a link."""
OPEN_AT_MOST = 100
"""Rows of nodes on a page whose partitions are unfolded; on a longer page they are folded."""
TIB = 1024**2
"""MiB in a TiB."""
WAITING_AT_MOST = 10
"""Pending jobs of a partition on the page, at most."""


class GpuRun(NamedTuple):
    """Neighbouring GPUs of a node with the same type, use and holders."""

    kind: str
    """``free``, ``own`` (a server of this hub), ``other`` (any other job) or ``out``."""
    number: int
    name: str
    """Their indices, such as ``0-3``, or how many; with the type where the node has several."""
    jobs: tuple[JobWords, ...] = ()
    words: str = ""
    """Instead of jobs."""


class Bar(NamedTuple):
    """How much of something is in use and out of service, each in percent of the whole; the rest is free."""

    words: str
    used: int
    out: int = 0


class Row(NamedTuple):
    """One node."""

    name: str
    use: str
    state: str
    reason: str
    has: str
    gpus: tuple[GpuRun, ...]
    jobs: tuple[JobWords, ...]
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
    gpus: Bar | None
    """None for a partition without GPUs."""
    cpus: Bar
    memory: Bar
    waiting: tuple[WaitingLine, ...]
    more_waiting: str
    rows: tuple[Row, ...]
    folded: int
    """The number of its nodes that are not on this page."""
    open: bool


def sections(
    found: ClusterMap, *, now: float, rights: Rights = NO_RIGHTS, filtered: bool = False
) -> tuple[Section, ...]:
    """The partitions in Slurm's order, with as many of their nodes as the page may hold; ``now`` as in time.time()."""
    tell = JobsInWords(now, rights)
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
                made[node.name] = _row(node, tell)
        rows = tuple(made[node.name] for node in nodes)
        waiting = tuple(map(tell.waiting, found.waiting(partition, WAITING_AT_MOST)))
        parts.append(_section(partition, rows, waiting, unfold=unfold))
    return tuple(parts)


def summary(found: ClusterMap) -> str:
    """The whole cluster in one line."""
    together = totals(found.nodes)
    return "; ".join((counted(together.nodes, "node"), _gpus_in_words(together)))


def _section(
    partition: MapPartition, rows: tuple[Row, ...], waiting: tuple[WaitingLine, ...], *, unfold: bool
) -> Section:
    has = partition.totals
    words = [counted(has.nodes, "node"), _gpus_in_words(has)]
    if partition.waiting:
        words.append(cluster.waiting(partition.waiting))
    more = partition.waiting - len(waiting)
    return Section(
        name=partition.name,
        state="" if partition.state == "UP" else cluster.partition_state(partition.state),
        words="; ".join(words),
        gpus=_bar(has.gpus_used, has.gpus, has.gpus_out) if has.gpus else None,
        cpus=_bar(has.cpus_used, has.cpus, has.cpus_out),
        memory=_memory_bar(has.memory_used_mib, has.memory_mib, has.memory_out_mib),
        waiting=waiting,
        more_waiting=cluster.more_waiting(more) if more else "",
        rows=rows,
        folded=len(partition.nodes) - len(rows),
        open=unfold and bool(rows or waiting),
    )


def _gpus_in_words(has: Totals) -> str:
    return cluster.gpus(has.gpus, has.gpus_free, has.gpus_used, has.gpus_out)


def _row(node: MapNode, tell: JobsInWords) -> Row:
    with_gpus = {holder.job_id for gpu in node.gpus for holder in gpu.holders}
    types = dict.fromkeys(gpu.type for gpu in node.gpus)
    counts = [(kind, sum(gpu.type == kind for gpu in node.gpus)) for kind in types]
    state = node.state
    if node.reservation:
        state = f"{state}, {cluster.in_reservation(node.reservation)}"
    out = node.use is NodeUse.OUT
    return Row(
        name=node.name,
        use=node.use.value,
        state=state,
        reason=cluster.reason(node.reason, node.reason_by, _day(node.reason_at)) if node.reason else "",
        has=", ".join(f"{count} \N{MULTIPLICATION SIGN} {kind or 'GPU'}" for kind, count in counts),
        gpus=tuple(_runs(node, tell)),
        jobs=tell.running([holder for holder in node.jobs if holder.job_id not in with_gpus]),
        cpus=_bar(node.cpus_used, node.cpus, (node.cpus - node.cpus_used) * out),
        memory=_memory_bar(node.memory_used_mib, node.memory_mib, (node.memory_mib - node.memory_used_mib) * out),
    )


def _runs(node: MapNode, tell: JobsInWords) -> Iterator[GpuRun]:
    several = len({gpu.type for gpu in node.gpus}) > 1
    for (use, holders, kind, known), group in groupby(node.gpus, _alike):
        gpus = list(group)
        times = f"{len(gpus)}\N{MULTIPLICATION SIGN}"
        numbers = _indices(tuple(gpu.index or 0 for gpu in gpus)) if known else times
        yield GpuRun(
            kind=_kind(use, holders),
            number=len(gpus),
            name=f"{numbers} {kind}" if several else numbers,
            jobs=tell.running(holders),
            words="" if holders else _USES[use],
        )


_USES = {GpuUse.FREE: cluster.FREE, GpuUse.OUT: cluster.OUT, GpuUse.USED: cluster.IN_USE}


@lru_cache(maxsize=1024)  # the same few for all nodes of a cluster
def _indices(indices: tuple[int, ...]) -> str:
    return format_cpulist(indices)


def _alike(gpu: MapGpu) -> tuple[GpuUse, tuple[Holder, ...], str, bool]:
    return gpu.use, gpu.holders, gpu.type, gpu.index is not None


def _kind(use: GpuUse, holders: tuple[Holder, ...]) -> str:
    if use is not GpuUse.USED:
        return str(use.value)
    return "own" if any(holder.server is not None for holder in holders) else "other"


def _day(at: float | None) -> str:
    """``21 Nov 2026, 10:04 CET``, in the hub's time zone; without the date today."""
    return "" if at is None else clock(at)


def _bar(used: int, whole: int, out: int) -> Bar:
    return _share(f"{used:,}", f"{whole:,}", used, whole, out)


def _memory_bar(used: int, whole: int, out: int) -> Bar:
    return _share(_amount(used), _amount(whole), used, whole, out)


def _share(used: str, whole: str, part: int, total: int, out: int) -> Bar:
    return Bar(cluster.of_total(used, whole), _percent(part, total), _percent(out, total))


def _amount(mib: int) -> str:
    if mib >= 10 * TIB:
        return f"{mib / TIB:,.0f} TiB"
    return memory(mib) if mib else "0"


def _percent(part: int, whole: int) -> int:
    return round(100 * min(part, whole) / whole) if whole > 0 and part > 0 else 0
