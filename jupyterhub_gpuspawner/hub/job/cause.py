"""Why a session ended, and how far a start is: the words of events, endings and records. Pure; needs no JupyterHub.

Why a session ended is a value. It is derived from what Slurm reports of the job
(:class:`~jupyterhub_gpuspawner.slurm.job.End`), from who asked the hub to stop the server, and from the class of the
error with which its start failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from jupyterhub_gpuspawner.slurm.job import End


class Kind(str, Enum):
    """What ended a session."""

    FINISHED = "finished"
    """The server exited by itself, without an error."""
    FAILED = "failed"
    """The server exited with an error."""
    STOPPED_BY_USER = "stopped by user"
    """The server's own user stopped it."""
    STOPPED_BY_INSTRUCTOR = "stopped by instructor"
    """An instructor of a course of its user's stopped it."""
    STOPPED_BY_ADMIN = "stopped by admin"
    """An administrator of the hub stopped it, not from the page of a course."""
    STOPPED_BY_OTHER_USER = "stopped by other user"
    """Another user with the right to stop it did, such as one with whom the server is shared."""
    IDLE = "idle"
    """The idle policy of the hub stopped it, since its GPUs were not used."""
    CULLED = "culled"
    """A service such as jupyterhub-idle-culler stopped it; or it was started ahead and nobody opened it."""
    TIME_LIMIT = "time limit"
    """The job reached its time limit, or its deadline."""
    MEMORY = "memory"
    """The job exceeded its memory."""
    NODE_FAILURE = "node failure"
    """The job's node failed, or did not boot."""
    PREEMPTED = "preempted"
    """A job with a higher priority needed its resources."""
    CANCELLED_OUTSIDE = "cancelled outside"
    """Somebody cancelled the job in Slurm, not through the hub."""
    START_FAILED = "start failed"
    """The server never became ready; ``fault`` is the class of the error."""
    UNKNOWN = "unknown"
    """Nobody saw the end, or Slurm no longer knows the job."""


STOPS = (
    Kind.STOPPED_BY_USER,
    Kind.STOPPED_BY_INSTRUCTOR,
    Kind.STOPPED_BY_ADMIN,
    Kind.STOPPED_BY_OTHER_USER,
    Kind.IDLE,
    Kind.CULLED,
)
"""Those where the hub stopped the server, because somebody or a policy wanted it."""


class Stage(str, Enum):
    """How far a start is, in this order."""

    SUBMITTED = "submitted"
    """sbatch is being asked."""
    QUEUED = "queued"
    ALLOCATED = "allocated"
    STARTING = "starting"
    """The node has reported."""
    READY = "ready"


@dataclass(frozen=True)
class Cause:
    """Why a session ended."""

    kind: Kind
    fault: str = ""
    """Why a start failed: what its job reported (``FAULTS`` of :mod:`~jupyterhub_gpuspawner.wire.bounds`, such as
    ``module`` or ``home_full``), ``hook`` or ``hook_refused``, the ``reason`` of one of this package's errors, such as
    ``submit_rejected``, or ``job_`` and how its job ended, such as ``job_out_of_memory``, ``job_killed`` (by signal 9),
    ``job_node_drained``, ``job_no_log`` or ``job_silent`` (before anything of the server ran)."""

    def to_json(self) -> dict[str, str]:
        """Its parts that are set."""
        return {"kind": self.kind.value} | ({"fault": self.fault} if self.fault else {})


UNKNOWN = Cause(Kind.UNKNOWN)
JOB_KILLED, JOB_NODE_DRAINED, JOB_NO_LOG, JOB_SILENT = "job_killed", "job_node_drained", "job_no_log", "job_silent"
"""The fault of a start whose job was killed by signal 9, was cancelled when Slurm drained its node, could not write its
log, or ended and neither reported nor wrote anything of its own."""

_OF_JOB: Mapping[End, Kind] = {
    End.FINISHED: Kind.FINISHED,
    End.FAILED: Kind.FAILED,
    End.CANCELLED: Kind.CANCELLED_OUTSIDE,
    End.TIME_LIMIT: Kind.TIME_LIMIT,
    End.OUT_OF_MEMORY: Kind.MEMORY,
    End.NODE_FAILED: Kind.NODE_FAILURE,
    End.PREEMPTED: Kind.PREEMPTED,
    End.REVOKED: Kind.CANCELLED_OUTSIDE,
    End.VANISHED: Kind.UNKNOWN,
    End.REPLACED: Kind.UNKNOWN,
}


def end_of_job(end: End | None) -> Cause:
    """The cause where the job of a server that ran has ended so; None: Slurm does not say how."""
    return Cause(_OF_JOB[end]) if end is not None else UNKNOWN


def start_failed(fault: str) -> Cause:
    """The cause where the start failed with an error of this class."""
    return Cause(Kind.START_FAILED, fault)


def job_ended_in_start(end: End | None) -> Cause:
    """The cause where the job ended before its server was ready."""
    return start_failed("job_" + (end.name.lower() if end is not None else "ended"))
