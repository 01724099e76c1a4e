"""The jobs of the map in words: whose they are, their time left, and links for those who may follow them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from jupyterhub_gpuspawner.hub.text import cluster, times
from jupyterhub_gpuspawner.jobs.reason import meaning
from jupyterhub_gpuspawner.words import counted, memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyterhub_gpuspawner.cluster.cluster_map import Holder, WaitingJob
    from jupyterhub_gpuspawner.units import Gres

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
    expected: Moment | None
    """Slurm's estimate of its start."""
    reason: str
    """Why it waits."""


class JobsInWords:
    """Tells the jobs of one map to one viewer; ``now`` in seconds since the epoch."""

    def __init__(self, now: float, rights: Rights) -> None:
        self._now = now
        self._rights = rights
        self._told: dict[str, JobWords] = {}

    def running(self, holders: Sequence[Holder]) -> tuple[JobWords, ...]:
        """The first of these jobs, and then the number of the others."""
        told = tuple(map(self._job, holders[:JOBS_AT_MOST]))
        more = len(holders) - JOBS_AT_MOST
        return (*told, JobWords(cluster.more_jobs(more))) if more > 0 else told

    def waiting(self, job: WaitingJob) -> WaitingLine:
        """A pending job: what it asks for, since when it waits, and when or why not it starts."""
        since, starts = job.submitted_at, job.starts_at
        return WaitingLine(
            job=self._links(job.user, job.job_id, job.server, started=False),
            asks=_asks(job),
            since=None if since is None else _moment(cluster.waiting_for(self._now - since), since, self._now),
            expected=None if starts is None else _moment(cluster.starts_in(starts - self._now), starts, self._now),
            reason=meaning(job.reason or "None").sentence,
        )

    def _job(self, holder: Holder) -> JobWords:
        told = self._told.get(holder.job_id)
        if told is None:
            left = "" if holder.ends_at is None else cluster.left(holder.ends_at - self._now)
            told = self._links(holder.user, holder.job_id, holder.server, left, started=True)
            self._told[holder.job_id] = told
        return told

    def _links(self, user: str, job_id: str, server: str | None, left: str = "", *, started: bool) -> JobWords:
        words = cluster.holder(user, job_id, server)
        if server is None:
            return JobWords(words, left)
        key = (user, server)
        use = self._rights.use.get(key, "") if started else ""
        return JobWords(
            f"{words}, {use}" if use else words,
            left,
            path="/".join(quote(part, safe="@~") for part in key if part),
            log=started and key in self._rights.log,
            stop=cluster.stop(user, server) if key in self._rights.stop else "",
        )


def _asks(job: WaitingJob) -> str:
    """Such as ``2 nodes, 2 \N{MULTIPLICATION SIGN} k80 on each, 8 CPUs, 4 GiB, 1 h``."""
    each = cluster.ON_EACH if job.nodes > 1 else ""
    gpus = (f"{gres.count} \N{MULTIPLICATION SIGN} {_kind_asked(gres)}{each}" for gres in job.gpus)
    parts = (
        counted(job.nodes, "node") if job.nodes > 1 else "",
        *gpus,
        counted(job.cpus, "CPU") if job.cpus else "",
        memory(job.memory_mib) if job.memory_mib else "",
        cluster.time_limit(job.time_limit),
    )
    return ", ".join(filter(None, parts))


def _kind_asked(gres: Gres) -> str:
    if gres.name == "gpu":
        return gres.type or "GPU"
    return f"{gres.type} {gres.name}" if gres.type else gres.name


def _moment(words: str, at: float, now: float) -> Moment:
    return Moment(words, times.iso(at), times.clock(at, now=now))
