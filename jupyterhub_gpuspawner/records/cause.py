"""Why a session ended, as a value. Pure.

It is derived from what Slurm reports of the job (:class:`~jupyterhub_gpuspawner.jobs.status.End`), from who asked the
hub to stop the server, and from the class of the error with which its start failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from jupyterhub_gpuspawner.jobs.status import End


class Kind(str, Enum):
    """What ended a session."""

    FINISHED = "finished"
    """The server exited by itself, without an error."""
    FAILED = "failed"
    """The server exited with an error."""
    STOPPED_BY_USER = "stopped by user"
    """The server's own user stopped it."""
    STOPPED_BY_INSTRUCTOR = "stopped by instructor"
    """An instructor stopped it, or somebody else with the right to do so."""
    STOPPED_BY_ADMIN = "stopped by admin"
    """An administrator of the hub stopped it, not from the page of a course."""
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


@dataclass(frozen=True)
class Cause:
    """Why a session ended."""

    kind: Kind
    fault: str = ""
    """The class of the error of a start that failed: the ``reason`` of one of this package's errors, such as
    ``submit_rejected`` or ``queue_timeout``, or ``job_`` and how its job ended, such as ``job_out_of_memory``."""

    def to_json(self) -> dict[str, str]:
        """For the spawner's state."""
        return {"kind": self.kind.value} | ({"fault": self.fault} if self.fault else {})


UNKNOWN = Cause(Kind.UNKNOWN)

_OF_JOB: Mapping[End, Kind] = {
    End.FINISHED: Kind.FINISHED,
    End.FAILED: Kind.FAILED,
    End.CANCELLED: Kind.CANCELLED_OUTSIDE,
    End.TIME_LIMIT: Kind.TIME_LIMIT,
    End.OUT_OF_MEMORY: Kind.MEMORY,
    End.NODE_FAILED: Kind.NODE_FAILURE,
    End.PREEMPTED: Kind.PREEMPTED,
    End.VANISHED: Kind.UNKNOWN,
    End.REPLACED: Kind.UNKNOWN,
}


class Stopper(str, Enum):
    """Who asked the hub to stop a server."""

    OWNER = "owner"
    ADMIN = "admin"
    INSTRUCTOR = "instructor"
    """Somebody else with the right to stop it."""
    IDLE_POLICY = "idle policy"
    """The hub itself, because the server was idle."""
    SERVICE = "service"
    """A service of the hub."""


_OF_STOPPER: Mapping[Stopper, Kind] = {
    Stopper.OWNER: Kind.STOPPED_BY_USER,
    Stopper.ADMIN: Kind.STOPPED_BY_ADMIN,
    Stopper.INSTRUCTOR: Kind.STOPPED_BY_INSTRUCTOR,
    Stopper.IDLE_POLICY: Kind.IDLE,
    Stopper.SERVICE: Kind.CULLED,
}


def end_of_job(end: End | None) -> Cause:
    """The cause where the job of a server that ran has ended so; None: Slurm does not say how."""
    return Cause(_OF_JOB[end]) if end is not None else UNKNOWN


def stopped_by(stopper: Stopper) -> Cause:
    """The cause where the hub was asked to stop the server."""
    return Cause(_OF_STOPPER[stopper])


def start_failed(fault: str) -> Cause:
    """The cause where the start failed with an error of this class."""
    return Cause(Kind.START_FAILED, fault)


def job_ended_in_start(end: End | None) -> Cause:
    """The cause where the job ended before its server was ready."""
    return start_failed("job_" + (end.name.lower() if end is not None else "ended"))


def cause_of(
    *, cause_so_far: Cause | None = None, stopper: Stopper | None = None, fault: str = "", end: End | None = None
) -> Cause:
    """The cause of an end, by what is known of it.

    ``known_cause`` is the cause that was kept when the end was noticed or the stop was asked for on one of our pages.
    Then ``stopper``, who asked JupyterHub itself; then ``fault``, the class of the error with which the start failed;
    then how Slurm says that the job ended.
    """
    if cause_so_far is not None:
        return cause_so_far
    if stopper is not None:
        return stopped_by(stopper)
    return start_failed(fault) if fault else end_of_job(end)


def parse_cause(document: object) -> Cause | None:
    """What :meth:`Cause.to_json` wrote; None for anything else."""
    if not isinstance(document, dict):
        return None
    kind, fault = document.get("kind"), document.get("fault", "")
    if kind not in {candidate.value for candidate in Kind} or not isinstance(fault, str):
        return None
    return Cause(Kind(kind), fault)
