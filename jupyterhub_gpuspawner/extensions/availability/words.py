"""What is said of availability."""

from __future__ import annotations

from collections.abc import Collection

from jupyterhub_gpuspawner.extensions.availability.model.limits import Preempted
from jupyterhub_gpuspawner.hub.choose import words as of_form
from jupyterhub_gpuspawner.hub.times import silence

STILL = "You can still start a server: it is kept, and starts when Slurm is back."
SILENT = silence(since_the_start=False, more=STILL)
SILENT_FROM_THE_START = silence(since_the_start=True, more=STILL)
STILL_THERE = "You can still start a server there: it is kept, and starts when Slurm is back."
PREEMPTED = {
    Preempted.ENDS: "may be ended at any time for a job with higher priority",
    Preempted.PAUSES: "may be paused at any time for a job with higher priority",
}
"""After what a job gets that others may preempt."""


def not_free(*, own: bool) -> str:
    """That a choice could not replace a server that waits, to its user or to somebody else."""
    return f"That choice is no longer free, so {'you are' if own else 'the server is'} still in line."


def silent_slurm(clusters: Collection[str], *, as_of: float | None) -> str:
    """That Slurm does not respond, on these where there are several clusters; ``as_of``: its last answer, or none."""
    if clusters:
        return silence(since_the_start=as_of is None, more=STILL_THERE, clusters=clusters)
    return SILENT_FROM_THE_START if as_of is None else SILENT


def for_the_script() -> dict[str, object]:
    """The sentences that the form's script needs."""
    return {
        "asking": "Asking Slurm when it would start …",
        "checked": of_form.CHECKED,
        "recent": of_form.RECENT,
        "silent": SILENT,
        "silent_from_the_start": SILENT_FROM_THE_START,
        "silent_on": silence(since_the_start=False, more=STILL_THERE, clusters=("{clusters}",)),
        "silent_on_from_the_start": silence(since_the_start=True, more=STILL_THERE, clusters=("{clusters}",)),
        "starts": {"now": of_form.STARTS_NOW, "later": of_form.LATER, "never": of_form.CANNOT},
        "full": of_form.FULL,
        "unknown": of_form.NOT_KNOWN,
        "not_known": "It is not known when this choice would start.",
    }
