"""The rows of the map: one for each node, with neighbouring GPUs in the same use as one piece. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from jupyterhub_gpuspawner.extensions.cluster_map.jobs import NO_RIGHTS, JobsInWords, JobWords, Rights, WaitingLine
from jupyterhub_gpuspawner.extensions.cluster_map.survey import (
    ClusterMap,
    GpuUse,
    Holder,
    MapGpu,
    MapNode,
    MapPartition,
    NodeUse,
    Totals,
)
from jupyterhub_gpuspawner.hub import times
from jupyterhub_gpuspawner.hub.extension import NodeMark, NodeMarks
from jupyterhub_gpuspawner.slurm.estimate import Waits, as_planned
from jupyterhub_gpuspawner.slurm.gpu_model import gpu_model
from jupyterhub_gpuspawner.units import format_cpulist
from jupyterhub_gpuspawner.words import counted, memory

ROWS_AT_MOST = 2000
"""Rows of nodes on one page at most; partitions beyond that are shown as a link."""
OPEN_AT_MOST = 100
"""Rows of nodes on a page whose partitions are unfolded; on a longer page they are folded."""
TIB = 1024**2
"""MiB in a TiB."""
WAITING_AT_MOST = 20
"""Pending jobs on the page, at most."""
NAMED_AT_MOST = 2
"""Nodes that are named at a glance, for each thing that is wrong."""


_PARTITION_STATES = {
    "DOWN": "not starting jobs",
    "DRAIN": "not accepting new jobs",
    "INACTIVE": "not accepting or starting jobs",
}
"""Of a partition that is not up, by Slurm's word (scontrol(1))."""


class GpuRun(NamedTuple):
    """Neighbouring GPUs of a node with the same type, use and holders."""

    kind: str
    """``free``, ``own`` (a server of this hub), ``used`` (any other job) or ``out``."""
    number: int
    name: str
    """Their indices, such as ``0-3``, or how many; with the type where the node has several."""
    label: str
    """What stands in its cell."""
    jobs: tuple[JobWords, ...] = ()


class Bar(NamedTuple):
    """How much of something is in use, in words and in percent of the whole."""

    words: str
    used: int


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
    without_gpus: str
    """How many these are."""
    cpus: Bar
    memory: Bar
    marks: tuple[NodeMark, ...] = ()
    """What extensions know of it; without commands where it is out of service."""


@dataclass(frozen=True)
class Section:
    """One partition."""

    name: str
    state: str
    """Empty for one that is up."""
    words: str
    rows: tuple[Row, ...]
    folded: int
    """The number of its nodes that are not on this page."""
    open: bool
    rest: str = ""
    """What is said of these nodes."""


@dataclass(frozen=True)
class Glance:
    """The whole cluster at a glance."""

    totals: Totals
    gpus: Bar
    waiting: int
    """How many jobs."""
    servers_waiting: int
    """How many of these are servers of this hub."""
    out: tuple[Row, ...]
    """The first nodes that are out of service."""
    marked: tuple[Row, ...]
    """The first nodes of which extensions know something."""
    nodes_marked: int


def at_a_glance(cluster_map: ClusterMap, rows: Sequence[Section]) -> Glance:
    """The cluster, with the nodes that are wrong as they stand in these partitions."""
    together = cluster_map.totals
    by_name = {row.name: row for part in rows for row in part.rows}
    marked = [row for row in by_name.values() if row.marks]
    return Glance(
        totals=together,
        gpus=_bar(together.gpus_used, together.gpus),
        waiting=len(cluster_map.waiting_ids),
        servers_waiting=len(cluster_map.waiting_ids & cluster_map.served.keys()),
        out=tuple(row for row in by_name.values() if row.use == NodeUse.OUT.value)[:NAMED_AT_MOST],
        marked=tuple(marked[:NAMED_AT_MOST]),
        nodes_marked=len(marked),
    )


def in_line(
    cluster_map: ClusterMap, *, now: float, rights: Rights = NO_RIGHTS, waits: Waits = as_planned
) -> tuple[WaitingLine, ...]:
    """The pending jobs, those that start first; arguments as of :func:`sections`."""
    in_words = JobsInWords(now, rights, waits, cluster_map.types_beside)
    return tuple(in_words.waiting(job, partition) for job, partition in cluster_map.line(WAITING_AT_MOST))


def sections(
    cluster_map: ClusterMap,
    *,
    now: float,
    rights: Rights = NO_RIGHTS,
    marks: Sequence[NodeMarks] = (),
    filtered: bool = False,
) -> tuple[Section, ...]:
    """The partitions in Slurm's order, with as many of their nodes as the page may hold.

    ``now`` as in time.time(); ``marks`` is what extensions know of nodes.
    """
    in_words = JobsInWords(now, rights, as_planned, cluster_map.types_beside)
    wanted = sum(len(partition.nodes) for partition in cluster_map.partitions)
    unfold = wanted <= OPEN_AT_MOST or (filtered and wanted <= ROWS_AT_MOST)
    row_by_name: dict[str, Row] = {}
    room = ROWS_AT_MOST
    parts = []
    for partition in cluster_map.partitions:
        nodes = cluster_map.nodes_of(partition) if len(partition.nodes) <= room or room == ROWS_AT_MOST else ()
        nodes = nodes[:room]
        room -= len(nodes)
        for node in nodes:
            if node.name not in row_by_name:
                row_by_name[node.name] = _row(
                    node, in_words, [mark for of in marks for mark in of.nodes.get(node.name, ())]
                )
        rows = tuple(row_by_name[node.name] for node in nodes)
        parts.append(_section(partition, rows, unfold=unfold))
    return tuple(parts)


def summary(cluster_map: ClusterMap) -> str:
    """The whole cluster in one line."""
    together = cluster_map.totals
    return "; ".join((counted(together.nodes, "node"), _gpus_in_words(together)))


def _section(partition: MapPartition, rows: tuple[Row, ...], *, unfold: bool) -> Section:
    has = partition.totals
    of_cpus = "" if has.gpus else f"{has.cpus_used:,} of {counted(has.cpus, 'CPU')} in use"
    waiting = f"{counted(partition.waiting, 'job')} waiting" if partition.waiting else ""
    summary_parts = filter(None, (counted(has.nodes, "node"), _gpus_in_words(has), of_cpus, waiting))
    folded = len(partition.nodes) - len(rows)
    left_out = f"{counted(folded, 'more node')} not shown: use the filter above to find them."
    rest = left_out if rows else f"Show {counted(folded, 'node')}"
    return Section(
        name=partition.name,
        state="" if partition.state == "UP" else _PARTITION_STATES.get(partition.state, partition.state),
        words="; ".join(summary_parts),
        rows=rows,
        folded=folded,
        open=unfold and bool(rows),
        rest=rest if folded else "",
    )


def _gpus_in_words(has: Totals) -> str:
    """The GPUs of some nodes by what they do, such as ``4 GPUs: 1 free, 3 in use``."""
    if not has.gpus:
        return "no GPU"
    parts = [(has.gpus_free, "free"), (has.gpus_used, "in use"), (has.gpus_out, "out")]
    text = ", ".join(f"{number:,} {word}" for number, word in parts if number)
    return f"{counted(has.gpus, 'GPU')}: {text}"


def _row(node: MapNode, in_words: JobsInWords, marks: Sequence[NodeMark]) -> Row:
    with_gpus = {holder.job_id for gpu in node.gpus for holder in gpu.holders}
    types = dict.fromkeys(gpu.type for gpu in node.gpus)
    counts = [(gpu_model(kind, types) if kind else "GPU", sum(gpu.type == kind for gpu in node.gpus)) for kind in types]
    state = node.state
    if node.reservation:
        state = f"{state}, reservation {node.reservation}"
    since = "" if node.reason_at is None else times.clock(node.reason_at)
    out = node.use is NodeUse.OUT
    others = [holder for holder in node.jobs if holder.job_id not in with_gpus]
    servers = sum(holder.server is not None for holder in others)
    return Row(
        name=node.name,
        use=node.use.value,
        state=state,
        reason=f"{node.reason} (since {since}, {node.reason_by})" if node.reason and node.reason_by else node.reason,
        has="; ".join(f"{count} \N{MULTIPLICATION SIGN} {kind}" for kind, count in counts),
        gpus=tuple(_runs(node, in_words)),
        jobs=in_words.running(others),
        without_gpus="".join(
            (
                counted(len(others), "job") if others else "",
                " without a GPU" if others and node.gpus else "",
                f", {counted(servers, 'server')} of this hub" if servers else "",
            )
        ),
        cpus=_bar(node.cpus_used, node.cpus),
        memory=_bar(node.memory_used_mib, node.memory_mib, _amount),
        marks=tuple(replace(mark, command="") if out else mark for mark in marks),
    )


def _runs(node: MapNode, in_words: JobsInWords) -> Iterator[GpuRun]:
    types = {gpu.type for gpu in node.gpus}
    for (use, holders, kind, is_numbered), group in groupby(node.gpus, _alike):
        gpus = list(group)
        count = f"{len(gpus)}\N{MULTIPLICATION SIGN}"
        numbers = _indices(tuple(gpu.index or 0 for gpu in gpus)) if is_numbered else count
        yield GpuRun(
            kind=_kind(use, holders),
            number=len(gpus),
            name=f"{numbers} {gpu_model(kind, types).name or 'GPU'}" if len(types) > 1 else numbers,
            label=in_words.label(holders, len(gpus)) if holders else _USES[use],
            jobs=in_words.running(holders),
        )


_USES = {GpuUse.FREE: "free", GpuUse.OUT: "out", GpuUse.USED: "in use"}


@lru_cache(maxsize=1024)  # the same few for all nodes of a cluster
def _indices(indices: tuple[int, ...]) -> str:
    return format_cpulist(indices)


def _alike(gpu: MapGpu) -> tuple[GpuUse, tuple[Holder, ...], str, bool]:
    return gpu.use, gpu.holders, gpu.type, gpu.index is not None


def _kind(use: GpuUse, holders: tuple[Holder, ...]) -> str:
    if use is not GpuUse.USED:
        return str(use.value)
    return "own" if any(holder.server is not None for holder in holders) else "used"


def _bar(used: int, whole: int, in_words: Callable[[int], str] = "{:,}".format) -> Bar:
    return Bar(f"{in_words(used)} of {in_words(whole)}", _percent(used, whole))


def _amount(mib: int) -> str:
    if mib >= 10 * TIB:
        return f"{mib // TIB:,} TiB"
    return memory(mib) if mib else "0"


def _percent(part: int, whole: int) -> int:
    return round(100 * min(part, whole) / whole) if whole > 0 and part > 0 else 0
