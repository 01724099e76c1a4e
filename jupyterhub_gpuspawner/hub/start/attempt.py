"""One attempt to start a server as a Slurm job: how far it is, and how long each of its stages may take.

The submission and what follows the allocation may take ``start_timeout`` each; the time in Slurm's queue between them
has a limit of its own, ``queue_timeout``, or none. These limits count elapsed time, across restarts of the hub.

The wall clock may be set while no hub runs. Until the machine is rebooted, CLOCK_BOOTTIME says how much time has
passed. After a reboot the wall clock does; then a stage gets at most its whole time again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.errors import SlurmUnavailable
from jupyterhub_gpuspawner.hub.job.cause import Stage
from jupyterhub_gpuspawner.hub.start.rival import CONTEST, Contest, stored_contest
from jupyterhub_gpuspawner.slurm.estimate import (
    UNKNOWN,
    Estimate,
    Kind,
    QueuePosition,
    Waits,
    as_planned,
    expected,
    not_before,
)
from jupyterhub_gpuspawner.slurm.job import Job, JobIdentity, Phase, identity_from_json
from jupyterhub_gpuspawner.slurm.reason import never_clears, reason_name

_SETTLING_REASONS = frozenset({"", "None", "Priority", "SchedDefer"})
"""Those of a pending job that Slurm has not considered yet; any other says what it waits for."""
SETTLING_SECONDS = 30.0
"""Seconds in which Slurm may take up a job for which everything is free; its backfill scheduler runs that often."""
AFTER_RESTART = 30.0
"""Seconds that an attempt gets at least after a restart of the hub."""
REASONS_AT_MOST = 20
"""Reasons that are stored of one attempt."""
HAS_NODE = (Phase.STARTING, Phase.RUNNING, Phase.ENDING)
"""Phases of a job that has nodes."""


class Line(IntEnum):
    """Whether a job waits in Slurm's queue: what pages, REST, limits and stops say of one server at one moment."""

    NONE = 0
    """It is not pending: there is none, it has nodes, its node has reported, or it is over."""
    SETTLING = 1
    """It is pending, and starts as soon as Slurm has taken it up: everything was free when it was asked for."""
    NEW = 2
    """It is pending, and Slurm has not looked at it yet: it may start at once."""
    WAITING = 3
    """Slurm has looked at it, and keeps it pending."""

    @property
    def waits(self) -> bool:
        """It is in the line, as far as its user is told."""
        return self > Line.SETTLING


_NOT_YET_QUEUED = ("", "None", "Prolog")
"""Reasons of a job that Slurm has not put into its queue, or is about to start."""


def line_of(job: Job | None, *, has_reported: bool, settling: bool) -> Line:
    """Where in the line a job is: as Slurm last reported it, unless its node's report was here first."""
    if job is None or job.phase is not Phase.QUEUED or has_reported:
        return Line.NONE
    if settling:
        return Line.SETTLING
    return Line.NEW if job.reason in _NOT_YET_QUEUED else Line.WAITING


_STORED_STAGES = {stage.value: stage for stage in Stage}


@dataclass(frozen=True)
class Moment:
    """A moment on the machine's clocks."""

    wall: float
    """Seconds since the epoch."""
    since_boot: float | None = None
    """Seconds since the machine was booted, including suspend; None if unknown."""
    boot: str = ""
    """The kernel's id of this boot; empty if unknown."""

    @classmethod
    def now(cls) -> Moment:
        return cls(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), _boot())

    def ago(self, seconds: float = 0.0) -> Moment:
        """The moment so many seconds before this one, in tenths of a second."""
        since_boot = round(self.since_boot - seconds, 1) if self.boot and self.since_boot is not None else None
        return Moment(round(self.wall - seconds, 1), since_boot, self.boot)

    def elapsed(self, now: Moment) -> float:
        """Seconds since then; 0 where a clock that was set back puts it into the future."""
        if self.since_boot is not None and now.since_boot is not None and self.boot == now.boot:
            return max(now.since_boot - self.since_boot, 0.0)
        return max(now.wall - self.wall, 0.0)

    def to_json(self) -> list[Any]:
        """For the spawner's state."""
        return [self.wall] if self.since_boot is None else [self.wall, self.boot, self.since_boot]


@lru_cache(maxsize=1)
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def parse_moment(document: object) -> Moment | None:
    """Read what :meth:`Moment.to_json` wrote; without a time since boot that can be read, the wall clock counts."""
    if not isinstance(document, list) or not document or not _is_number(document[0]):
        return None
    if len(document) == 3 and isinstance(document[1], str) and document[1] and _is_number(document[2]):
        return Moment(document[0], document[2], document[1])
    return Moment(document[0])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True)
class KeptStart:
    """A start that Slurm has not taken, since it does not answer: what a hub that is restarted has to know of it."""

    since: Moment
    """When it was asked for."""
    start_timeout: float
    """Seconds for which it is kept."""
    cluster: str = ""
    """The name of its cluster; empty in a hub that names none."""
    submissions: tuple[JobIdentity, ...] = ()
    """The jobs that an sbatch without an answer may have made."""

    def left(self, now: Moment) -> float:
        """Seconds until it is given up."""
        return max(self.start_timeout - self.since.elapsed(now), 0.0)

    def to_state(self) -> dict[str, Any]:
        """Its part of the spawner's state."""
        jobs = [identity.to_json() for identity in self.submissions]
        fields = {"since": self.since.to_json(), "timeout": self.start_timeout, "cluster": self.cluster, "jobs": jobs}
        return {KEPT: fields}


KEPT = "kept_start"
"""The name of a :class:`KeptStart` in the spawner's state."""


def stored_kept_start(state: Mapping[str, Any]) -> KeptStart | None:
    """The start that a hub before this one has kept; None where there is none, or where it cannot be read."""
    document = state.get(KEPT)
    if not isinstance(document, dict):
        return None
    since, seconds, jobs = parse_moment(document.get("since")), document.get("timeout"), document.get("jobs")
    if since is None or not isinstance(jobs, list) or not isinstance(seconds, (int, float)):
        return None
    identities = [identity_from_json(job) for job in jobs]
    known = tuple(identity for identity in identities if identity is not None)
    # a job that cannot be told from others could be a second one of the server
    return KeptStart(since, seconds, str(document.get("cluster") or ""), known) if len(known) == len(jobs) else None


_TIMED = ("BeginTime", "Reservation")
"""Reasons for which the expected start is a set time, not an estimate."""


def planned_start(job: Job, position: QueuePosition | None) -> float | None:
    """When Slurm plans to start a pending job; None until it has a plan. By the view of the queue, where it has one."""
    planned = position.starts_at if position is not None else None
    return planned if planned is not None else job.starts_at


def expected_start(job: Job, position: QueuePosition | None, *, now: float, waits: Waits = as_planned) -> Estimate:
    """When a job that is pending is expected to start; UNKNOWN if it does not start by itself."""
    planned = planned_start(job, position)
    if planned is None or never_clears(job.reason):
        return UNKNOWN
    if job.reason in _TIMED:
        return not_before(planned)
    partition = position.partition if position is not None else job.partition
    return expected(planned, now=now, partition=partition, waits=waits)


@dataclass
class Attempt:
    """One attempt; without arguments, that of a server that is not being started."""

    start_id: str = ""
    """The hub's mark and a random number: what the comment and the name of the attempt's job end in."""
    stage: Stage | None = None
    """SUBMITTED, QUEUED or ALLOCATED: the one whose limit counts now. None where batchspawner has stored the server,
    which then counts as started."""
    since: Moment = field(default_factory=lambda: Moment(0.0))
    """When that stage began; for ALLOCATED, when Slurm started the job or its Prolog was last seen to run, as far as
    the clocks agree."""
    start_timeout: float = 0.0
    """Seconds for the submission, and again from the allocation until the server's address is known."""
    queue_timeout: float | None = None
    """Seconds in Slurm's queue; None: no limit."""
    boot_timeout: float = 0.0
    """Seconds that Slurm gives the job's node to boot (ResumeTimeout), while the job is CONFIGURING. Its start, from
    which :attr:`since` is worked out, is reset when the node has booted."""
    starts_at: float | None = None
    """The job's start as Slurm reports it, from which :attr:`since` was worked out."""
    restored_at: Moment | None = None
    """When a restarted hub took the attempt up: it has :data:`AFTER_RESTART` seconds from then at least."""
    reached: dict[Stage, float] = field(default_factory=dict)
    """When each stage was reached, in seconds since the epoch."""
    certificates: Mapping[str, str] = field(default_factory=dict)
    """Environment variables with the contents of the certificates' files; empty without ``internal_ssl``."""
    latest: float | None = None
    """When Slurm removes its job if that is still pending, in seconds since the epoch; None: never, or not known."""
    reasons: dict[str, None] = field(default_factory=dict)
    """Slurm's reasons why the job was pending, in the order in which they were met."""
    unanswered: SlurmUnavailable | None = field(default=None, compare=False)
    """Why Slurm has not taken its job, which the hub keeps until Slurm answers."""
    submissions: tuple[JobIdentity, ...] = ()
    """The jobs that an sbatch without an answer may have made, also that of an attempt before a restart of the hub."""
    submitted_on: str = ""
    """The name of the cluster of these jobs; empty in a hub that names none."""
    kept: KeptStart | None = None
    """The start that a hub before this one has kept, until another one begins or it is given up."""
    at_click: Estimate = field(default=UNKNOWN, compare=False)
    """When it was expected to start when it was asked for; a restarted hub has forgotten it."""
    contest: Contest | None = None
    """Which job runs the server, where there may be two; None where its job does not ask."""

    def queued(self, now: Moment) -> None:
        """sbatch has made the job, or Slurm has requeued it."""
        self.reached.setdefault(Stage.QUEUED, now.wall)
        self.stage, self.since, self.starts_at = Stage.QUEUED, now.ago(), None

    def reported(self, now: Moment) -> None:
        """The launcher has reported."""
        self.reached.setdefault(Stage.STARTING, now.wall)

    def job_started(self, at: float | None) -> None:
        """Slurm started the job then, in seconds since the epoch; None where it does not say."""
        if at is not None:
            self.reached[Stage.ALLOCATED] = at

    def follow(self, job: Job | None, now: Moment, *, since_pending: float | None) -> bool:
        """Take note of Slurm's last answer about the job; return whether another limit counts from now on.

        The job's start is Slurm's time, unless the clocks disagree: it is not in the future, and not before the job was
        last seen pending, ``since_pending`` seconds ago (None: not seen pending by this process). A job that is pending
        again, because it was requeued, is in the queue anew. The time of Slurm's Prolog, which has a limit of Slurm's
        own, does not count.
        """
        if job is not None and job.phase is Phase.QUEUED and job.reason and len(self.reasons) < REASONS_AT_MOST:
            self.reasons.setdefault(reason_name(job.reason))
        if self.stage is None:
            return False
        has_node = job is not None and job.phase in HAS_NODE
        if not has_node and Stage.STARTING not in self.reached:
            requeued = self.stage is Stage.ALLOCATED and job is not None and job.phase is Phase.QUEUED
            if requeued:
                self.queued(now)
            return requeued
        starts_at = job.starts_at if job is not None and has_node else None
        if job is not None and job.is_prepared:
            allocated = self.stage is Stage.ALLOCATED
            self.stage, self.since, self.starts_at = Stage.ALLOCATED, now.ago(), starts_at
            return not allocated
        if self.stage is Stage.ALLOCATED and starts_at in (None, self.starts_at):
            return False
        at_most = self.since.elapsed(now)
        if since_pending is not None:
            at_most = min(at_most, since_pending)
        seconds = 0.0 if starts_at is None else min(max(now.wall - starts_at, 0.0), at_most)
        self.stage, self.since, self.starts_at = Stage.ALLOCATED, now.ago(seconds), starts_at
        return True

    @property
    def in_queue(self) -> bool:
        """Its job is pending, as far as is known: the limit of the queue counts.

        This goes on while Slurm is silent, and after a restart of the hub. What is said of it is :class:`Line`, which
        is Slurm's last answer.
        """
        return self.stage is Stage.QUEUED

    def settles(self, job: Job, planned: Callable[[], float | None], now: float) -> bool:
        """Whether everything was free for its job, which is pending only until Slurm has taken it up.

        Not once Slurm says that resources are missing or a limit is reached, or has planned its start for later. Times
        are in seconds since the epoch; ``planned``, asked last since it looks through the queue, returns None where
        Slurm has no plan.
        """
        if self.at_click.kind is not Kind.NOW or job.phase is not Phase.QUEUED:
            return False
        queued_at = self.reached.get(Stage.QUEUED)
        if job.reason not in _SETTLING_REASONS or queued_at is None or now - queued_at >= SETTLING_SECONDS:
            return False
        starts_at = planned()
        return starts_at is None or starts_at <= now

    @property
    def limit(self) -> float | None:
        """Seconds that the stage may take; None: no limit."""
        return self.queue_timeout if self.in_queue else self.start_timeout + self.boot_timeout

    def left(self, now: Moment) -> float | None:
        """Seconds until the attempt is given up; None: not in this stage."""
        if self.stage is None:
            return 0.0
        if self.limit is None:
            return None
        least = AFTER_RESTART - self.restored_at.elapsed(now) if self.restored_at is not None else 0.0
        return max(self.limit - self.since.elapsed(now), least, 0.0)

    @property
    def queued_until(self) -> float | None:
        """When the job leaves the queue if it is still pending, in seconds since the epoch; None: it does not.

        The hub gives the attempt up, or Slurm removes a job that would not end before its deadline.
        """
        if not self.in_queue:
            return None
        limit_at = None if self.queue_timeout is None else self.since.wall + self.queue_timeout
        return min((at for at in (limit_at, self.latest) if at is not None), default=None)

    @property
    def is_kept(self) -> bool:
        """Slurm did not answer when its job was to be submitted, in this process or before a restart of the hub."""
        return self.stage is Stage.SUBMITTED and (self.unanswered is not None or self.restored_at is not None)

    @property
    def to_keep(self) -> KeptStart | None:
        """What the next hub has to know of a start that Slurm has not taken; None where there is none."""
        if not self.is_kept:
            return self.kept
        return KeptStart(self.since, self.start_timeout, self.submitted_on, self.submissions)

    @property
    def kept_until(self) -> float | None:
        """When it is given up if Slurm does not answer before, in seconds since the epoch; None where Slurm answers."""
        if self.unanswered is None:
            return None
        least = self.restored_at.wall + AFTER_RESTART if self.restored_at is not None else 0.0
        return max(self.since.wall + self.start_timeout, least)

    def to_state(self) -> dict[str, Any]:
        """Its part of the spawner's state."""
        state: dict[str, Any] = {}
        if self.stage is not None:
            timeouts = [self.start_timeout, self.queue_timeout]
            state["clock"] = {"stage": self.stage.value, "since": self.since.to_json(), "timeouts": timeouts}
            if self.starts_at is not None:
                state["clock"]["starts_at"] = self.starts_at
        state |= {"reached": {stage.value: at for stage, at in self.reached.items()}} if self.reached else {}
        state |= {"reasons": list(self.reasons)} if self.reasons else {}
        state |= {CONTEST: self.contest.to_json()} if self.contest is not None else {}
        return state | ({"latest_start": self.latest} if self.latest is not None else {})


def new_start_id(mark: str) -> str:
    """What the comment and the name of one job of the hub with this mark end in."""
    return f"{mark}-{secrets.token_hex(8)}"


def new_attempt(
    mark: str, *, start_timeout: float, queue_timeout: float | None, kept: KeptStart | None = None
) -> Attempt:
    """An attempt that begins now, of the hub with this mark; with ``kept`` it goes on with that start.

    It is given up when that would have been, unless that time is over.
    """
    now = Moment.now()
    attempt = Attempt(
        start_id=new_start_id(mark),
        stage=Stage.SUBMITTED,
        since=now.ago(),
        start_timeout=start_timeout,
        queue_timeout=queue_timeout,
        reached={Stage.SUBMITTED: now.wall},
    )
    if kept is not None:
        attempt.restored_at, attempt.submissions, attempt.submitted_on = now.ago(), kept.submissions, kept.cluster
        if kept.left(now):
            attempt.since, attempt.start_timeout = kept.since, kept.start_timeout
    return attempt


def stored_attempt(state: Mapping[str, Any], now: Moment, *, start_timeout: float) -> Attempt:
    """The attempt in a spawner's state, in a hub that has just started.

    Where its stage cannot be read, it gets ``start_timeout``, and its job counts as pending since it was ``queued``,
    until Slurm reports otherwise.
    """
    reached, latest, reasons = state.get("reached"), state.get("latest_start"), state.get("reasons")
    attempt = Attempt(
        start_timeout=start_timeout,
        reached={
            _STORED_STAGES[stage]: at
            for stage, at in (reached.items() if isinstance(reached, dict) else ())
            if stage in _STORED_STAGES and isinstance(at, (int, float))
        },
        latest=float(latest) if isinstance(latest, (int, float)) else None,
        reasons=dict.fromkeys(map(str, reasons if isinstance(reasons, list) else ())),
        contest=stored_contest(state.get(CONTEST)),
    )
    if "clock" not in state:
        return attempt
    queued_at = attempt.reached.get(Stage.QUEUED)
    attempt.stage, attempt.restored_at = Stage.QUEUED, now.ago()
    attempt.since = now.ago() if queued_at is None else Moment(queued_at)
    clock = state.get("clock")
    if isinstance(clock, dict):
        _restore_stage(attempt, clock)
    return attempt


def _restore_stage(attempt: Attempt, clock: Mapping[str, Any]) -> None:
    """Set stage and limits to those that were stored, if they can be read."""
    since, timeouts, starts_at = parse_moment(clock.get("since")), clock.get("timeouts"), clock.get("starts_at")
    stage = _STORED_STAGES.get(str(clock.get("stage")))
    if since is None or stage is None or not isinstance(timeouts, list) or len(timeouts) != 2:
        return
    start_timeout, queue_timeout = timeouts
    if _is_number(start_timeout) and (queue_timeout is None or _is_number(queue_timeout)):
        attempt.stage, attempt.since = stage, since
        attempt.start_timeout, attempt.queue_timeout = start_timeout, queue_timeout
        attempt.starts_at = starts_at if _is_number(starts_at) else None
