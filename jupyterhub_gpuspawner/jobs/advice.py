"""Advice for a participant whose job is pending or has ended, in words that need no knowledge of Slurm. Pure.

What happened: :func:`jupyterhub_gpuspawner.jobs.status.sentence`; hints for admins: :mod:`.reason`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.jobs.status import End, Phase

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.jobs.status import JobStatus

_ADMIN = "Please contact {contact}: this choice cannot start as it is configured."
_BY_ITSELF = "It starts automatically; you only have to wait."
_LESS = "A smaller choice (fewer GPUs, cores, less memory or time) may start sooner."

_WAITING: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"(Resources|Priority)$", f"{_BY_ITSELF} {_LESS}"),
        (r"(None|SchedDefer|Prolog|Cleaning|FedJobLock)?$", _BY_ITSELF),
        (r"Reservation$", "It starts automatically when the reservation begins."),
        (r"BeginTime$", "It starts automatically at that time."),
        (
            r"ReqNodeNotAvail, Reserved for maintenance",
            "A job with a shorter time limit may be able to end before the maintenance begins.",
        ),
        (
            r"(ReqNodeNotAvail|Nodes req)",
            "It starts automatically once they are free. Another choice may start sooner.",
        ),
        (r"Partition(Down|Inactive)$", "Choose something else, or wait until {contact} opens the partition."),
        (r"PartitionTimeLimit$", "Choose a shorter time."),
        (r"MaxMemPerLimit$", "Choose less memory."),
        (r"(BadConstraints|Partition(NodeLimit|Config))$", f"Choose fewer GPUs or cores, or less memory. {_ADMIN}"),
        (r"JobHeldUser$", "Release it, or stop it here."),
        (r"(JobHeld|JobHold|.*held|Reservation(Deleted|Invalid))", "Stop it, and contact {contact}."),
        (r"(Account|QOS)NotAllowed$|Invalid(Account|QOS)$|Job's \w+ not|uid \d+ not in group", _ADMIN),
        (r"Dependency", "The job is waiting for another job. Stop it if that is not intended."),
        (r".*Max\w+PerJob|.*Max\w+PerNode|.*Min", "Choose fewer resources. " + _ADMIN),
        (r".*(PerUser|MaxJobs|MaxSubmit)", "It starts when one of your other jobs or servers ends."),
        (r"(QOS|Assoc).*", "It starts when other jobs under the same limit end."),
    )
)
"""Patterns that Slurm's reason is matched against from its start, and the advice; the first match counts."""

_ENDED: dict[End, str] = {
    End.FINISHED: "The last lines of its log may say why.",
    End.FAILED: "The last lines of its log may say why. If they do not help, send them to {contact}.",
    End.CANCELLED: "If you did not cancel it yourself, contact {contact}.",
    End.TIME_LIMIT: "Your files are kept as you last saved them. Start again, with more time if you can choose it.",
    End.OUT_OF_MEMORY: "Start again with more memory if you can choose it, or work on less data at a time.",
    End.NODE_FAILED: "This was not caused by you. Start again: Slurm uses another node if one is available.",
    End.PREEMPTED: "Start again; the new server may have to wait in the queue.",
    End.VANISHED: "Start again. If it happens again, contact {contact}.",
    End.REPLACED: "This was not caused by you. Start again. If it happens again, contact {contact}.",
}
_KILLED = (
    "A process killed in this way has usually exceeded its memory limit. "
    "Start again with more memory if you can choose it, or work on less data at a time."
)
_SET_UP = "A program is missing on the node: please send {contact} the last lines of the log."
SILENT = (
    "If the job's log is empty, your login profile ended the job before the server could start: look for exec or "
    "exit in ~/.bash_profile, ~/.bash_login or ~/.profile, and run these in interactive shells only."
)
"""For a job that ended by itself before its server reported, with an empty log."""


def advice(status: JobStatus, *, contact: str = "your administrator") -> str:
    """One or two sentences; empty where there is no advice. ``contact`` is whom a participant may ask."""
    return _advice(status).replace("{contact}", contact)


def _advice(status: JobStatus) -> str:
    if status.phase is Phase.QUEUED:
        return next((text for pattern, text in _WAITING if pattern.match(status.reason)), "")
    if status.phase is not Phase.ENDED or status.end is None:
        return ""
    if status.end is End.FAILED and status.exit_code in ("126:0", "127:0"):
        return _SET_UP
    if status.end is End.FAILED and status.exit_code in ("0:9", "137:0"):
        return _KILLED
    return _ENDED[status.end]
