"""When a start is given up while its job is pending."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.ending.server_ending import ServerEnding
from jupyterhub_gpuspawner.hub.start.deadline import Timeouts
from jupyterhub_gpuspawner.hub.start.readiness import Readiness
from jupyterhub_gpuspawner.hub.start.start import Start
from jupyterhub_gpuspawner.jobs.status import JobStatus, Phase


class Job:
    """A job that is pending, and its own watch."""

    job_id = "7"
    hidden = False
    stopping = False
    submitted_identity = None
    since_pending = 0.0
    answers = 1
    status: JobStatus | None = JobStatus("7", Phase.QUEUED, "PENDING", "Priority")

    def __init__(self) -> None:
        self.silent = False

    def watch(self) -> Job:
        return self

    def hurry(self, questions: int) -> None: ...

    async def changed(self) -> None:
        await asyncio.Event().wait()


def waiting(job: Job, timeouts: Timeouts) -> asyncio.Task[None]:
    """The wait for a server whose job was submitted just now, and whose node never reports."""
    start = Start.begin("", timeouts)
    start.queued()
    spawner: Any = SimpleNamespace(ending=None)
    report: Any = SimpleNamespace(reported=asyncio.Event(), address="")
    ending = ServerEnding(job, SimpleNamespace(), lambda: spawner)  # type: ignore[arg-type]
    one: Any = job
    return asyncio.ensure_future(Readiness(spawner, start, one, report, ending, store=lambda: None).wait())


async def test_a_place_is_not_given_up_while_slurm_is_silent() -> None:
    """The job may have left the queue meanwhile; the next answer decides."""
    job = Job()
    job.silent = True
    wait = waiting(job, Timeouts(300.0, queue=0.05))
    await asyncio.wait({wait}, timeout=0.3)
    done_in_silence = wait.done()
    job.silent = False
    with pytest.raises(Exception, match="You waited 0 s in the queue, which is the limit here") as given_up:
        await wait

    assert done_in_silence is False
    assert vars(given_up.value)["reason"] == "queue_timeout"


async def test_without_a_limit_a_place_is_kept() -> None:
    """However short a start may take."""
    wait = waiting(Job(), Timeouts(0.01))
    await asyncio.wait({wait}, timeout=0.3)

    assert wait.done() is False
    wait.cancel()
