"""The jobs of the map in words: whose they are, their time left, and links for those who may follow them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from jupyterhub_gpuspawner.extensions.cluster_map.survey import Holder, WaitingJob
from jupyterhub_gpuspawner.hub import times
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, Waits, expected
from jupyterhub_gpuspawner.slurm.gpu_model import gpu_model
from jupyterhub_gpuspawner.slurm.reason import meaning
from jupyterhub_gpuspawner.units import Gres
from jupyterhub_gpuspawner.words import counted, duration, memory

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

    def label(self, holders: Sequence[Holder], gpus: int) -> str:
        """What a cell of this many GPUs says, such as ``ada, 2 GPUs, 1 h 20 min left``; for several jobs ``3 jobs``."""
        number = counted(gpus, "GPU") if gpus > 1 else ""
        if len(holders) > 1:
            return ", ".join(filter(None, (counted(len(holders), "job"), number)))
        (holder,) = holders
        return ", ".join(filter(None, (holder.user or f"job {holder.job_id}", number, self._job(holder).left)))

    def waiting(self, job: WaitingJob, partition: str) -> WaitingLine:
        """A pending job: what it asks for, since when it waits, and when or why not it starts."""
        since, now = job.submitted_at, self._now
        waiting = "" if since is None else f"waits for {duration(now - since)}, since"
        estimate = (
            UNKNOWN
            if job.starts_at is None
            else expected(job.starts_at, now=now, partition=partition, waits=self._waits)
        )
        return WaitingLine(
            job=self._links(job.user, job.job_id, job.server, started=False),
            asks=self._asks(job),
            since=None if since is None else _moment(waiting, since, now),
            expected=estimate.words(now) if estimate is not UNKNOWN else "",
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
            return JobWords(f"job {job_id} of {user or 'an unknown user'}", left)
        name = f"{user}'s server {server}".rstrip()
        key = (user, server)
        use = self._rights.use.get(key, "") if started else ""
        return JobWords(
            ", ".join(filter(None, (name, f"job {job_id}", use))),
            left,
            path="/".join(quote(part, safe="@~") for part in key if part),
            log=started and key in self._rights.log,
            stop=f"Stop {name}" if key in self._rights.stop else "",
        )

    def _asks(self, job: WaitingJob) -> str:
        """Such as ``2 nodes, 2 \N{MULTIPLICATION SIGN} K80, 12 GB on each, 8 CPUs, 4 GiB, 1 h``."""
        suffix = " on each" if job.nodes > 1 else ""
        gpus = (f"{gres.count} \N{MULTIPLICATION SIGN} {self._requested_kind(gres)}{suffix}" for gres in job.gpus)
        parts = (
            counted(job.nodes, "node") if job.nodes > 1 else "",
            *gpus,
            counted(job.cpus, "CPU") if job.cpus else "",
            memory(job.memory_mib) if job.memory_mib else "",
            "no time limit" if job.time_limit is None else duration(job.time_limit),
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
