"""A job as the hub sees it: Slurm's states and reasons, and what each means in words. Pure.

This file knows nothing of commands or pages. ``PHASES`` is the one table from Slurm's job
states to ours; a state that it does not know is UNKNOWN, and UNKNOWN is not gone: the server is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Phase(str, Enum):
    """Where a job is in its life, as far as a server cares."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"
    UNKNOWN = "unknown"


class End(str, Enum):
    """How a job ended."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time limit"
    OUT_OF_MEMORY = "out of memory"
    NODE_FAILED = "node failed"
    PREEMPTED = "preempted"
    VANISHED = "vanished"


@dataclass(frozen=True)
class JobStatus:
    """One job as Slurm last told it. Times are seconds since the epoch, None where Slurm says N/A."""

    job_id: str
    phase: Phase
    state: str = ""
    """Slurm's word, such as ``PENDING``."""
    reason: str = ""
    """Slurm's word, such as ``Resources``; empty for ``None``."""
    nodes: str = ""
    """Slurm's node list, unexpanded (``g[1-2]``)."""
    batch_host: str = ""
    """The first node: where the batch script, and so the server, runs."""
    user: str = ""
    partition: str = ""
    starts_at: float | None = None
    ends_at: float | None = None
    exit_code: str = ""
    end: End | None = None
    tag: str = ""
    """The job's comment, as Slurm stores it."""
