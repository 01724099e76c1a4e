"""One start of a server: how far it is, and how long each of its stages may take.

How long a start may take: a limit for each of its stages, measured in elapsed time, across restarts of the hub.

The submission and what follows the allocation may take ``start_timeout`` each; the time in Slurm's queue between them
has a limit of its own, ``queue_timeout``, or none.

The wall clock may be set while no hub runs. Until the machine is rebooted, CLOCK_BOOTTIME says how much time has
passed. After a reboot the wall clock does; then a stage gets at most its whole time again.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.jobs.reason import reason_name
from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.jobs.status import JobStatus


AFTER_RESTART = 30.0
"""Seconds that a start gets at least after a restart of the hub."""
_HAS_NODE = (Phase.STARTING, Phase.RUNNING, Phase.ENDING)


@dataclass(frozen=True)
class Clocks:
    """The machine's clocks at one moment."""

    wall: float
    """Seconds since the epoch."""
    since_boot: float
    """Seconds since the machine was booted, including suspend."""
    boot: str
    """The kernel's id of this boot; empty if unknown."""


def clocks() -> Clocks:
    """The clocks now."""
    return Clocks(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), _boot())


@lru_cache(maxsize=1)
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


@dataclass(frozen=True)
class Moment:
    """A moment on both clocks."""

    wall: float
    """Seconds since the epoch."""
    since_boot: float | None = None
    boot: str = ""

    @classmethod
    def before(cls, now: Clocks, seconds: float = 0.0) -> Moment:
        """The moment ``seconds`` ago."""
        since_boot = round(now.since_boot - seconds, 1) if now.boot else None
        return cls(round(now.wall - seconds, 1), since_boot, now.boot)

    def elapsed(self, now: Clocks) -> float:
        """Seconds since then; 0 where a clock that was set back puts it into the future."""
        known = self.since_boot is not None and self.boot == now.boot
        passed = now.since_boot - self.since_boot if known and self.since_boot is not None else now.wall - self.wall
        return max(passed, 0.0)

    def to_json(self) -> list[Any]:
        """For the spawner's state."""
        return [self.wall] if self.since_boot is None else [self.wall, self.boot, self.since_boot]


def parse_moment(document: object) -> Moment | None:
    """Read what :meth:`Moment.to_json` wrote; without a time since boot that can be read, the wall clock counts."""
    if not isinstance(document, list) or not document or not _is_number(document[0]):
        return None
    if len(document) == 3 and isinstance(document[1], str) and document[1] and _is_number(document[2]):
        return Moment(document[0], document[2], document[1])
    return Moment(document[0])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Stage(str, Enum):
    """A part of a start that has a limit of its own."""

    SUBMISSION = "submission"
    QUEUE = "queue"
    START = "start"
    """From the allocation on."""


@dataclass(frozen=True)
class Timeouts:
    """How long the stages of a start may take, in seconds."""

    start: float
    """The submission, and again from the allocation until the server's address is known."""
    queue: float | None = None
    """In Slurm's queue; None: no limit."""


@dataclass(frozen=True)
class StartClock:
    """The stage of a start, when it began, and when the start is given up."""

    timeouts: Timeouts
    stage: Stage
    since: Moment
    """When the stage began; for START, when Slurm started the job, as far as the clocks agree."""
    starts_at: float | None = None
    """The job's start as Slurm reports it, from which ``since`` was worked out."""
    restored_at: Moment | None = None
    """When a restarted hub took the start up: it has :data:`AFTER_RESTART` seconds from then at least."""

    def queued(self, now: Clocks) -> StartClock:
        """The job is in the queue from now on."""
        return replace(self, stage=Stage.QUEUE, since=Moment.before(now), starts_at=None)

    def following(
        self, job: JobStatus | None, *, reported: bool, since_pending: float | None, now: Clocks
    ) -> StartClock:
        """The clock after an answer of Slurm's or a report of the job's node; the same one if nothing has changed.

        The job's start is Slurm's time, unless the clocks disagree: it is not in the future, and not before the job was
        last seen pending, ``since_pending`` seconds ago (None: not seen pending by this process). A job that is pending
        again, because it was requeued, is in the queue anew.
        """
        has_node = job is not None and job.phase in _HAS_NODE
        if not has_node and not reported:
            requeued = self.stage is Stage.START and job is not None and job.phase is Phase.QUEUED
            return self.queued(now) if requeued else self
        starts_at = job.starts_at if job is not None and has_node else None
        if self.stage is Stage.START and starts_at in (None, self.starts_at):
            return self
        at_most = self.since.elapsed(now)
        if since_pending is not None:
            at_most = min(at_most, since_pending)
        ago = 0.0 if starts_at is None else min(max(now.wall - starts_at, 0.0), at_most)
        return replace(self, stage=Stage.START, since=Moment.before(now, ago), starts_at=starts_at)

    @property
    def limit(self) -> float | None:
        """Seconds that the stage may take; None: no limit."""
        return self.timeouts.queue if self.stage is Stage.QUEUE else self.timeouts.start

    def left(self, now: Clocks) -> float | None:
        """Seconds until the start is given up; None if that never happens in this stage."""
        limit = self.limit
        if limit is None:
            return None
        least = AFTER_RESTART - self.restored_at.elapsed(now) if self.restored_at is not None else 0.0
        return max(limit - self.since.elapsed(now), least, 0.0)

    def to_json(self) -> dict[str, Any]:
        """For the spawner's state."""
        timeouts = [self.timeouts.start, self.timeouts.queue]
        kept = {"stage": self.stage.value, "since": self.since.to_json(), "timeouts": timeouts}
        return kept if self.starts_at is None else {**kept, "starts_at": self.starts_at}


def new_clock(timeouts: Timeouts, now: Clocks) -> StartClock:
    """The clock of a start that begins now."""
    return StartClock(timeouts, Stage.SUBMISSION, Moment.before(now))


def restored_clock(state: Mapping[str, Any], now: Clocks, *, defaults: Timeouts) -> StartClock | None:
    """The clock in a spawner's state, in a hub that has just started; None where there is none.

    An earlier version of this package stored one deadline of the whole start (``start_by``). Such a start gets
    ``defaults``, and its job counts as pending since it was ``queued``, until Slurm reports otherwise.
    """
    restored = Moment.before(now)
    kept = state.get("clock")
    if isinstance(kept, dict):
        since, timeouts, starts_at = parse_moment(kept.get("since")), kept.get("timeouts"), kept.get("starts_at")
        stage = kept.get("stage")
        if since is not None and stage in list(Stage) and isinstance(timeouts, list) and len(timeouts) == 2:
            start, queue = timeouts
            if _is_number(start) and (queue is None or _is_number(queue)):
                at = starts_at if _is_number(starts_at) else None
                return StartClock(Timeouts(start, queue), Stage(stage), since, at, restored)
    if "clock" not in state and not _is_number(state.get("start_by")):
        return None
    reached = state.get("reached")
    queued_at: Any = reached.get("queued") if isinstance(reached, dict) else None
    since = Moment(queued_at) if _is_number(queued_at) else restored
    return StartClock(defaults, Stage.QUEUE, since, restored_at=restored)


# One start of a server as a Slurm job: its id, the stages that it has reached, and when it is given up.

REASONS_AT_MOST = 20
"""Reasons that are kept of one start."""


@dataclass
class Start:
    """One start; without arguments, that of a server that is not being started."""

    start_id: str = ""
    """The hub's mark and a random number: what the comment and the name of the start's job end in."""
    clock: StartClock | None = None
    """When it is given up; None where batchspawner has stored the server, which then counts as started."""
    reached: dict[str, float] = field(default_factory=dict)
    """When each stage was reached, in seconds since the epoch; see :class:`StartFacts`."""
    certificates: Mapping[str, str] = field(default_factory=dict)
    """Environment variables with the contents of the certificates' files; empty without ``internal_ssl``."""
    latest: float | None = None
    """When Slurm removes its job if that is still pending, in seconds since the epoch; None: never, or not known."""
    reasons: dict[str, None] = field(default_factory=dict)
    """Slurm's reasons why the job was pending, in the order in which they were met."""

    @classmethod
    def begin(cls, mark: str, timeouts: Timeouts) -> Start:
        """A new start of the hub with this mark."""
        return cls(
            start_id=f"{mark}-{secrets.token_hex(8)}",
            clock=new_clock(timeouts, clocks()),
            reached={"submitted": time.time()},
        )

    @classmethod
    def stored(cls, state: Mapping[str, Any], defaults: Timeouts) -> Start:
        """The start in a spawner's state, after a restart of the hub; see :func:`restored_clock`."""
        reached, latest, reasons = state.get("reached"), state.get("latest_start"), state.get("reasons")
        return cls(
            latest=float(latest) if isinstance(latest, (int, float)) else None,
            reasons=dict.fromkeys(map(str, reasons if isinstance(reasons, list) else ())),
            clock=restored_clock(state, clocks(), defaults=defaults),
            reached={
                str(stage): at
                for stage, at in (reached.items() if isinstance(reached, dict) else ())
                if isinstance(at, (int, float))
            },
        )

    def to_state(self) -> dict[str, Any]:
        """The start's part of the spawner's state."""
        state: dict[str, Any] = {"clock": self.clock.to_json()} if self.clock is not None else {}
        state |= {"reached": dict(self.reached)} if self.reached else {}
        state |= {"reasons": list(self.reasons)} if self.reasons else {}
        return state | ({"latest_start": self.latest} if self.latest is not None else {})

    def queued(self) -> None:
        """sbatch has made the job."""
        self.reached["queued"] = time.time()
        if self.clock is not None:
            self.clock = self.clock.queued(clocks())

    def reported(self) -> None:
        """The launcher has reported."""
        self.reached.setdefault("starting", time.time())

    def job_started(self, at: float | None) -> None:
        """Slurm started the job then, in seconds since the epoch; None where it does not say."""
        if at is not None:
            self.reached["allocated"] = at

    # --- when it is given up --------------------------------------------------------------------

    @property
    def in_queue(self) -> bool:
        """Its job is pending, as far as is known."""
        return self.clock is not None and self.clock.stage is Stage.QUEUE

    def follow(self, job: JobStatus | None, *, since_pending: float | None) -> bool:
        """Take note of Slurm's last answer about the job; whether another time counts from now on.

        ``since_pending``: seconds since the job was last seen pending; None if this process has not.
        """
        before = self.clock
        if job is not None and job.phase is Phase.QUEUED and job.reason and len(self.reasons) < REASONS_AT_MOST:
            self.reasons.setdefault(reason_name(job.reason))
        if before is not None:
            reported = "starting" in self.reached
            self.clock = before.following(job, reported=reported, since_pending=since_pending, now=clocks())
        return self.clock is not before

    def left(self) -> float | None:
        """Seconds until it is given up; None: not in this stage."""
        return self.clock.left(clocks()) if self.clock is not None else 0.0

    @property
    def keeps_place_until(self) -> float | None:
        """When its place is lost if its job is still pending, in seconds since the epoch; None: it is not.

        The hub gives the start up, or Slurm removes a job that would not end before its deadline.
        """
        clock = self.clock
        if clock is None or clock.stage is not Stage.QUEUE:
            return None
        given_up = None if clock.timeouts.queue is None else clock.since.wall + clock.timeouts.queue
        return min((at for at in (given_up, self.latest) if at is not None), default=None)
