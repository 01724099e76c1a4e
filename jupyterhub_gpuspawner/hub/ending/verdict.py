"""When waiting for a job is over: it has ended, or Slurm says twice that it can never start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.hub.site.tasks import first_of
from jupyterhub_gpuspawner.jobs.status import Phase, never_clears

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from jupyterhub_gpuspawner.jobs.status import JobStatus
    from jupyterhub_gpuspawner.slurm.watch import Watch

_LOOK_AGAIN = 4.0
"""Seconds between two looks at a job that does not change; more than the watcher needs to ask again."""
_QUESTIONS = 3
"""To Slurm until the next look: with the start ends the hurry."""


async def verdict(
    watch: Watch,
    *,
    first_answer: Callable[[JobStatus], None] = lambda _: None,
    sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
) -> JobStatus:
    """Wait until the job has ended or can never start, and return the status that says so.

    That it can never start counts when two answers in a row say so: Slurm may say BadConstraints once while nodes
    register. Silence is no answer, and says nothing still. ``first_answer`` is called once, with the first status.
    """
    answered = False
    first: tuple[str, int] | None = None
    """A reason that never clears, and the number of the answer that gave it first."""
    while True:
        status = watch.status
        if status is not None and not answered:
            answered = True
            first_answer(status)
        if status is not None and status.phase is Phase.ENDED:
            return status
        if status is None or not _never_starts(status):
            first = None
        elif first is None or first[0] != status.reason:
            first = status.reason, watch.answers
        elif watch.answers > first[1]:
            return status
        watch.hurry(_QUESTIONS)  # a job that dies before it spoke is noticed soon
        await first_of(watch.changed(), sleep(_LOOK_AGAIN))


def _never_starts(status: JobStatus) -> bool:
    """Whether waiting is of no use; a job that is held, its owner or an admin may release."""
    return status.phase is Phase.QUEUED and never_clears(status.reason) and not status.reason.startswith("JobHeld")
