"""The rows of the map: one for each node, with neighbouring GPUs in the same use as one piece; the health. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

from jupyterhub_gpuspawner.cluster.cluster_map import (
    ClusterMap,
    GpuUse,
    Holder,
    MapGpu,
    MapNode,
    MapPartition,
    NodeUse,
    Totals,
    WaitingJob,
    totals,
)
from jupyterhub_gpuspawner.cluster.estimate import UNKNOWN, Waits, as_planned, expected
from jupyterhub_gpuspawner.cluster.gpu_model import gpu_model
from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.fleet.health import FleetHealth, NodeHealth
from jupyterhub_gpuspawner.hub import times
from jupyterhub_gpuspawner.hub.cluster import words
from jupyterhub_gpuspawner.records.failures import FailingNode
from jupyterhub_gpuspawner.slurm.reason import meaning
from jupyterhub_gpuspawner.units import Gres
from jupyterhub_gpuspawner.words import counted, duration, memory, people, sentence

# The jobs of the map in words: whose they are, their time left, and links for those who may follow them.

JOBS_AT_MOST = 6
"""Jobs that are named beside one piece of a node, at most."""


@dataclass(frozen=True)
class Rights:
    """What the viewer may do, each with servers as pairs of user and name."""

    log: frozenset[tuple[str, str]] = frozenset()
    """Those whose log the viewer may read."""
    stop: frozenset[tuple[str, str]] = frozenset()
    use: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """How much servers use their GPUs, in words."""


NO_RIGHTS = Rights()


class JobWords(NamedTuple):
    """A job on the map, with its links."""

    words: str
    left: str = ""
    """Such as ``1 h 20 min left``; empty for a job that has not started."""
    path: str = ""
    """The server, as it stands in the addresses of its pages; empty for a job that is no server of this hub."""
    log: bool = False
    """The viewer may read its log."""
    stop: str = ""
    """The text of the button that stops it; empty where the viewer may not."""


@dataclass(frozen=True)
class Moment:
    """Words that end with a time of day."""

    words: str
    iso: str
    clock: str
    """In the hub's time zone, with its name."""


@dataclass(frozen=True)
class WaitingLine:
    """A pending job."""

    job: JobWords
    asks: str
    since: Moment | None
    expected: str
    """When it is expected to start; empty where Slurm has no plan."""
    reason: str
    """Why it waits."""


class JobsInWords:
    """Tells the jobs of one map to one viewer; ``now`` in seconds since the epoch, ``waits`` as :func:`expected`.

    ``beside`` are, by type of GPU, the types on the same nodes: of which GPU a slice is.
    """

    def __init__(self, now: float, rights: Rights, waits: Waits, beside: Mapping[str, Collection[str]]) -> None:
        self._now = now
        self._beside = beside
        self._waits = waits
        self._rights = rights
        self._told: dict[str, JobWords] = {}

    def running(self, holders: Sequence[Holder]) -> tuple[JobWords, ...]:
        """The first of these jobs, and then the number of the others."""
        jobs = tuple(map(self._job, holders[:JOBS_AT_MOST]))
        more = len(holders) - JOBS_AT_MOST
        return (*jobs, JobWords(counted(more, "more job"))) if more > 0 else jobs

    def waiting(self, job: WaitingJob, partition: str) -> WaitingLine:
        """A pending job: what it asks for, since when it waits, and when or why not it starts."""
        since, now = job.submitted_at, self._now
        waiting = "" if since is None else words.WAITING_SINCE.format(duration=duration(now - since))
        estimate = (
            UNKNOWN
            if job.starts_at is None
            else expected(job.starts_at, now=now, partition=partition, waits=self._waits)
        )
        return WaitingLine(
            job=self._links(job.user, job.job_id, job.server, started=False),
            asks=self._asks(job),
            since=None if since is None else _moment(waiting, since, now),
            expected=words.EXPECTED.format(words=estimate.words(now)) if estimate is not UNKNOWN else "",
            reason=meaning(job.reason or "None").sentence,
        )

    def _job(self, holder: Holder) -> JobWords:
        words_of_job = self._told.get(holder.job_id)
        if words_of_job is None:
            left = "" if holder.ends_at is None else _left(holder.ends_at - self._now)
            words_of_job = self._links(holder.user, holder.job_id, holder.server, left, started=True)
            self._told[holder.job_id] = words_of_job
        return words_of_job

    def _links(self, user: str, job_id: str, server: str | None, left: str = "", *, started: bool) -> JobWords:
        if server is None:
            return JobWords(words.JOB_OF.format(job=job_id, user=user or words.SOMEBODY), left)
        name = words.SERVER_OF.format(user=user, server=server).rstrip()
        key = (user, server)
        use = self._rights.use.get(key, "") if started else ""
        return JobWords(
            ", ".join(filter(None, (name, f"job {job_id}", use))),
            left,
            path="/".join(quote(part, safe="@~") for part in key if part),
            log=started and key in self._rights.log,
            stop=words.STOP_SERVER.format(user=user, server=server).rstrip() if key in self._rights.stop else "",
        )

    def _asks(self, job: WaitingJob) -> str:
        """Such as ``2 nodes, 2 \N{MULTIPLICATION SIGN} K80, 12 GB on each, 8 CPUs, 4 GiB, 1 h``."""
        suffix = words.PER_NODE if job.nodes > 1 else ""
        gpus = (f"{gres.count} \N{MULTIPLICATION SIGN} {self._requested_kind(gres)}{suffix}" for gres in job.gpus)
        parts = (
            counted(job.nodes, "node") if job.nodes > 1 else "",
            *gpus,
            counted(job.cpus, "CPU") if job.cpus else "",
            memory(job.memory_mib) if job.memory_mib else "",
            words.NO_LIMIT if job.time_limit is None else duration(job.time_limit),
        )
        return ", ".join(filter(None, parts))

    def _requested_kind(self, gres: Gres) -> str:
        if gres.name == "gpu":
            return str(gpu_model(gres.type, self._beside.get(gres.type, ()))) if gres.type else "GPU"
        return f"{gres.type} {gres.name}" if gres.type else gres.name


def _moment(words: str, at: float, now: float) -> Moment:
    return Moment(words, times.iso(at), times.clock(at, now=now))


@lru_cache(maxsize=4096)
def _duration(minutes: int) -> str:
    return duration(60 * minutes)


def _left(seconds: float) -> str:
    """``1 h 20 min left``, ``less than a minute left``: in full minutes, rounded down."""
    if seconds <= 0:
        return "no time left"
    return "less than a minute left" if seconds < 60 else f"{_duration(int(seconds) // 60)} left"


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
    failing: str = ""
    """That the last starts on it failed; empty where they did not."""
    drain: str = ""
    """The command that keeps jobs away from it; empty where starts do not fail, and where it is out of service."""


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
    rest: str = ""
    """What is said of these nodes."""


def sections(
    cluster_map: ClusterMap,
    *,
    now: float,
    rights: Rights = NO_RIGHTS,
    waits: Waits = as_planned,
    failing: Mapping[str, FailingNode] = MappingProxyType({}),
    filtered: bool = False,
) -> tuple[Section, ...]:
    """The partitions in Slurm's order, with as many of their nodes as the page may hold.

    ``now`` as in time.time(); ``waits`` as for :func:`expected`, ``failing`` nodes by name on which starts fail.
    """
    in_words = JobsInWords(now, rights, waits, cluster_map.types_beside)
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
                row_by_name[node.name] = _row(node, in_words, failing.get(node.name))
        rows = tuple(row_by_name[node.name] for node in nodes)
        jobs = cluster_map.waiting(partition, WAITING_AT_MOST)
        waiting = tuple(in_words.waiting(job, partition.name) for job in jobs)
        parts.append(_section(partition, rows, waiting, unfold=unfold))
    return tuple(parts)


def summary(cluster_map: ClusterMap) -> str:
    """The whole cluster in one line."""
    together = totals(cluster_map.nodes)
    return "; ".join((counted(together.nodes, "node"), _gpus_in_words(together)))


def _section(
    partition: MapPartition, rows: tuple[Row, ...], waiting: tuple[WaitingLine, ...], *, unfold: bool
) -> Section:
    has = partition.totals
    summary_parts = [counted(has.nodes, "node"), _gpus_in_words(has)]
    if partition.waiting:
        summary_parts.append(f"{counted(partition.waiting, 'job')} waiting")
    more, folded = partition.waiting - len(waiting), len(partition.nodes) - len(rows)
    left_out = words.LEFT_OUT.format(nodes=counted(folded, "more node"))
    rest = left_out if rows else words.FOLDED.format(nodes=counted(folded, "node"))
    return Section(
        name=partition.name,
        state="" if partition.state == "UP" else words.PARTITION_STATES.get(partition.state, partition.state),
        words="; ".join(summary_parts),
        gpus=_bar(has.gpus_used, has.gpus, has.gpus_out) if has.gpus else None,
        cpus=_bar(has.cpus_used, has.cpus, has.cpus_out),
        memory=_bar(has.memory_used_mib, has.memory_mib, has.memory_out_mib, _amount),
        waiting=waiting,
        more_waiting=words.MORE_WAITING.format(jobs=counted(more, "more job")) if more else "",
        rows=rows,
        folded=folded,
        open=unfold and bool(rows or waiting),
        rest=rest if folded else "",
    )


def _gpus_in_words(has: Totals) -> str:
    """The GPUs of some nodes by what they do, such as ``4 GPUs: 1 free, 3 in use``."""
    if not has.gpus:
        return "no GPU"
    parts = [(has.gpus_free, words.FREE), (has.gpus_used, words.IN_USE), (has.gpus_out, words.OUT)]
    text = ", ".join(f"{number:,} {word}" for number, word in parts if number)
    return f"{counted(has.gpus, 'GPU')}: {text}"


def _row(node: MapNode, in_words: JobsInWords, failing: FailingNode | None) -> Row:
    with_gpus = {holder.job_id for gpu in node.gpus for holder in gpu.holders}
    types = dict.fromkeys(gpu.type for gpu in node.gpus)
    counts = [(gpu_model(kind, types) if kind else "GPU", sum(gpu.type == kind for gpu in node.gpus)) for kind in types]
    state = node.state
    if node.reservation:
        state = f"{state}, {words.IN_RESERVATION.format(name=node.reservation)}"
    since = "" if node.reason_at is None else times.clock(node.reason_at)
    out = node.use is NodeUse.OUT
    return Row(
        name=node.name,
        use=node.use.value,
        state=state,
        reason=f"{node.reason} (since {since}, {node.reason_by})" if node.reason and node.reason_by else node.reason,
        has="; ".join(f"{count} \N{MULTIPLICATION SIGN} {kind}" for kind, count in counts),
        gpus=tuple(_runs(node, in_words)),
        jobs=in_words.running([holder for holder in node.jobs if holder.job_id not in with_gpus]),
        cpus=_bar(node.cpus_used, node.cpus, (node.cpus - node.cpus_used) * out),
        memory=_bar(node.memory_used_mib, node.memory_mib, (node.memory_mib - node.memory_used_mib) * out, _amount),
        failing=_failing(failing) if failing is not None else "",
        drain=failing.drain if failing is not None and not out else "",
    )


def _failing(node: FailingNode) -> str:
    text = words.FAILING.format(starts=len(node.records), people=people(len(node.people)))
    return f"{text} {node.doubt}".rstrip()


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
            jobs=in_words.running(holders),
            words="" if holders else _USES[use],
        )


_USES = {GpuUse.FREE: words.FREE, GpuUse.OUT: words.OUT, GpuUse.USED: words.IN_USE}


@lru_cache(maxsize=1024)  # the same few for all nodes of a cluster
def _indices(indices: tuple[int, ...]) -> str:
    return format_cpulist(indices)


def _alike(gpu: MapGpu) -> tuple[GpuUse, tuple[Holder, ...], str, bool]:
    return gpu.use, gpu.holders, gpu.type, gpu.index is not None


def _kind(use: GpuUse, holders: tuple[Holder, ...]) -> str:
    if use is not GpuUse.USED:
        return str(use.value)
    return "own" if any(holder.server is not None for holder in holders) else "other"


def _bar(used: int, whole: int, out: int, in_words: Callable[[int], str] = "{:,}".format) -> Bar:
    text = words.OF_TOTAL.format(used=in_words(used), total=in_words(whole))
    return Bar(text, _percent(used, whole), _percent(out, whole))


def _amount(mib: int) -> str:
    if mib >= 10 * TIB:
        return f"{mib // TIB:,} TiB"
    return memory(mib) if mib else "0"


def _percent(part: int, whole: int) -> int:
    return round(100 * min(part, whole) / whole) if whole > 0 and part > 0 else 0


# The health of the nodes, below the map.

REPORTS_AT_MOST = 1000
"""Nodes on one page at most; those that differ come first."""


@dataclass(frozen=True)
class HealthRow:
    """One node in words."""

    name: str
    ill: bool
    state: str
    has: str
    """Its GPUs, and how many siblings it has."""
    seen: str
    findings: tuple[str, ...]
    hints: tuple[str, ...]
    """What is not known, and what gres.conf's lines would gain."""
    grants: str


def _health_row(node: NodeHealth, now: float) -> HealthRow:
    number = node.siblings
    siblings = f"{number:,} sibling{'s' * (number != 1)}" if number else ""
    has = (str(node.shape), siblings, words.SIMULATED if node.simulated else "")
    ago = times.relative(node.seen_at, now=now)
    last_report = words.LAST_REPORT.format(ago="just now" if ago == times.NOW else ago)
    return HealthRow(
        name=node.node,
        ill=node.ill,
        state=_state(node),
        has=", ".join(filter(None, has)),
        seen=f"{node.seen}; {last_report}",
        findings=tuple(sentence(str(fault)) for fault in (*node.differences, *node.contradictions)),
        hints=(*node.doubts, *filter(None, (node.gains,))),
        grants=sentence(str(node.grants)),
    )


def _state(node: NodeHealth) -> str:
    if node.ill or node.perhaps_ill:
        return words.DIFFERS if node.ill else words.PERHAPS
    return words.ALIKE if node.siblings else words.ALONE


def health_section(health: FleetHealth, now: float) -> dict[str, Any]:
    """What the map says of the nodes' health, for its template; ``now`` as in time.time()."""
    nodes, ill = health.nodes, sum(node.ill for node in health.nodes)
    verb_end = "s" * (ill <= 1)
    count = f"{len(nodes):,} node{'s' * (len(nodes) != 1)} known"
    number = f"{ill:,}" if ill else "none"
    more = len(nodes) - REPORTS_AT_MOST
    return {
        "slurm_asked": health.slurm_asked,
        "rows": tuple(_health_row(node, now) for node in nodes[:REPORTS_AT_MOST]),
        "summary": f"{count}; {number} differ{verb_end} or contradict{verb_end} Slurm's configuration",
        "grants": words.ALL_GRANTS.format(grants=health.grants),
        "more": words.MORE_REPORTS.format(nodes=counted(more, "more node")) if more > 0 else "",
    }
