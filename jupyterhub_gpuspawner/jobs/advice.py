"""What a participant may do about a job that waits or has ended: a sentence, in the words of who has never used Slurm.

Pure. What happened is told by :func:`jupyterhub_gpuspawner.jobs.status.sentence`; what an admin may do stands beside
reasons.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.jobs.status import End, Phase

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.jobs.status import JobStatus

_ADMIN = "Tell your administrator: this choice cannot start as it is set up."
_BY_ITSELF = "It starts by itself: there is nothing to do but wait."
_LESS = "A smaller choice (fewer GPUs, cores, less memory or time) may start sooner."

_WAITING: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"(Resources|Priority)$", f"{_BY_ITSELF} {_LESS}"),
        (r"(None|SchedDefer|Prolog|Cleaning|FedJobLock)?$", _BY_ITSELF),
        (r"Reservation$", "It starts by itself when the reservation begins."),
        (r"BeginTime$", "It starts by itself at that time."),
        (r"ReqNodeNotAvail, Reserved for maintenance", "A shorter time may end before the maintenance begins."),
        (r"(ReqNodeNotAvail|Nodes req)", "It starts by itself once they are free. Another choice may start sooner."),
        (r"Partition(Down|Inactive)$", "Choose something else, or wait until your administrator opens the partition."),
        (r"PartitionTimeLimit$", "Choose a shorter time."),
        (r"MaxMemPerLimit$", "Choose less memory."),
        (r"(BadConstraints|Partition(NodeLimit|Config))$", f"Choose fewer GPUs or cores, or less memory. {_ADMIN}"),
        (r"JobHeldUser$", "Release it with `scontrol release`, or stop it here."),
        (r"(JobHeld|JobHold|.*held|Reservation(Deleted|Invalid))", "Stop it, and tell your administrator."),
        (r"(Account|QOS)NotAllowed$|Invalid(Account|QOS)$|Job's \w+ not|uid \d+ not in group", _ADMIN),
        (r"Dependency", "The job waits for another one; stop it if that is not meant."),
        (r".*Max\w+PerJob|.*Max\w+PerNode|.*Min", "Choose less. " + _ADMIN),
        (r".*(PerUser|MaxJobs|MaxSubmit)", "It starts when another job or server of yours ends."),
        (r"(QOS|Assoc).*", "It starts when other jobs under the same limit end."),
    )
)
"""Slurm's reason, matched from its beginning, and what to do; the first that fits."""

_ENDED: dict[End, str] = {
    End.FINISHED: "The last lines of its log may say why.",
    End.FAILED: "The last lines of its log may say why. If they do not help, send them to your administrator.",
    End.CANCELLED: "If it was not you, with scancel, ask your administrator.",
    End.TIME_LIMIT: "Files are as they were last saved. Start again, with more time if there is such a choice.",
    End.OUT_OF_MEMORY: "Start again with more memory if there is such a choice, or work on less data at a time.",
    End.NODE_FAILED: "It was not your doing. Start again: Slurm takes another node if there is one.",
    End.PREEMPTED: "Start again; the new server may have to wait.",
    End.VANISHED: "Start again. Your administrator may find out more.",
    End.REPLACED: "It was not your doing. Start again. Your administrator may find out more.",
}
_KILLED = (
    "A process that is killed so has most often used more memory than it had been given. "
    "Start again with more memory if there is such a choice, or work on less data at a time."
)
_SET_UP = "A program is missing where the server runs: tell your administrator, with the last lines of the log."
SILENT = (
    "If the job's log is empty, your login profile has ended the job before the server's own lines: look for exec or "
    "exit in ~/.bash_profile, ~/.bash_login or ~/.profile, and run these in interactive shells only."
)
"""For a job that ended by itself before its server reported, without a line in its log."""


def advice(status: JobStatus) -> str:
    """One or two sentences; empty where there is nothing to say."""
    if status.phase is Phase.QUEUED:
        return next((text for pattern, text in _WAITING if pattern.match(status.reason)), "")
    if status.phase is not Phase.ENDED or status.end is None:
        return ""
    if status.end is End.FAILED and status.exit_code in ("126:0", "127:0"):
        return _SET_UP
    if status.end is End.FAILED and status.exit_code in ("0:9", "137:0"):
        return _KILLED
    return _ENDED[status.end]
