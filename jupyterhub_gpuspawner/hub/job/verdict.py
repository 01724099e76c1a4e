"""Decides when to stop waiting for a job: it has ended, or Slurm reports twice that it can never start."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol

from jupyterhub_gpuspawner.cluster.availability import Chance, availability
from jupyterhub_gpuspawner.hub.site.account import allowed_groups, job_owner
from jupyterhub_gpuspawner.hub.site.tasks import first_of
from jupyterhub_gpuspawner.jobs.status import Phase, never_clears
from jupyterhub_gpuspawner.words import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from jupyterhub_gpuspawner.hub.site.connection import Connection
    from jupyterhub_gpuspawner.jobs.status import JobStatus
    from jupyterhub_gpuspawner.profiles.resolve import JobRequest
    from jupyterhub_gpuspawner.slurm.watcher import Watch

_LOOK_AGAIN = 4.0
"""Seconds between two looks at a job that does not change; the watcher asks more often."""
_QUESTIONS = 3
"""Questions to Slurm at the short interval until the next look."""


async def verdict(
    watch: Watch,
    *,
    first_answer: Callable[[JobStatus], None] = lambda _: None,
    look: Callable[[JobStatus | None], None] = lambda _: None,
    sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
) -> JobStatus:
    """Wait until the job has ended or can never start, and return the status that says so.

    Two answers in a row must say that it can never start: Slurm may report BadConstraints once while nodes register.
    While Slurm does not answer, nothing is decided. ``first_answer`` is called once, with the first status,
    and ``look`` at each look, with the status; None before the first one.
    """
    answered = False
    first: tuple[str, int] | None = None
    """A reason that never clears, and the number of the answer that gave it first."""
    while True:
        status = watch.status
        look(status)
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
        watch.hurry(_QUESTIONS)  # to notice soon a job that ends before its launcher reports
        await first_of(watch.changed(), sleep(_LOOK_AGAIN))


class RefusedServer(Protocol):
    """What is needed of the spawner of a server whose job cannot run."""

    @property
    def request(self) -> JobRequest | None:
        """What was asked for; None in a hub without profiles, and after a restart."""

    @property
    def exec_prefix(self) -> str:
        """The prefix that runs a command as the server's user."""

    def connection(self) -> Connection:
        """The hub's connection to Slurm."""


async def why_never(server: RefusedServer, *, since: float) -> str:
    """Why the job of a server can never run, in the words of the form; empty where the snapshot does not tell.

    ``since``: when the start began, in seconds since the epoch. An older snapshot may contradict what Slurm has just
    said, for example about a partition that was created in between.
    """
    request = server.request
    if request is None:
        return ""
    snapshot = await server.connection().cluster.recent(max_age=time.time() - since)
    if snapshot is None:
        return ""
    owner = job_owner(server.exec_prefix, request.username)
    groups = await allowed_groups(snapshot, owner)
    found = availability(request.resources, snapshot, now=time.time(), user=owner, groups=groups)
    return sentence(found.sentence) if found.chance is Chance.NEVER else ""


def _never_starts(status: JobStatus) -> bool:
    """Whether the job can never start; a held job can be released by its owner or an admin."""
    return status.phase is Phase.QUEUED and never_clears(status.reason) and not status.reason.startswith("JobHeld")
