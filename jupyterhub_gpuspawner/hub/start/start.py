"""One start of a server as a Slurm job: its id, the stages that it has reached, and when it is given up."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.hub.start.deadline import (
    Stage,
    StartClock,
    Timeouts,
    clocks,
    new_clock,
    restored_clock,
)
from jupyterhub_gpuspawner.jobs.reason import reason_name
from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.jobs.status import JobStatus

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
