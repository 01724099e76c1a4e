"""A job that can never start is given up after two answers of Slurm, never after one answer and silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from jupyterhub_gpuspawner.errors import SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.job.watch import verdict
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.watcher import JobWatcher, Watch
from tests.slurm.test_watcher import Clock, Cluster, job, settle

BAD = Job("7", Phase.QUEUED, state="PENDING", reason="BadConstraints")
WAITS = Job("7", Phase.QUEUED, state="PENDING", reason="Resources")
HELD = Job("7", Phase.QUEUED, state="PENDING", reason="JobHeldUser")


@pytest.fixture
def cluster() -> Cluster:
    """A Slurm with one job that can never start."""
    slurm = Cluster()
    slurm.held["7"] = BAD
    return slurm


@pytest.fixture
def clock() -> Clock:
    """Time that stands still."""
    return Clock()


@pytest.fixture
async def watch(cluster: Cluster, clock: Clock) -> AsyncIterator[Watch]:
    """A watch of that job: Slurm is asked every 2 s."""
    watcher = JobWatcher(cluster, active_interval=2.0, clock=lambda: clock.now, sleep=clock.sleep)
    yield watcher.watch("7")
    await watcher.aclose()


async def test_two_answers_end_the_waiting(watch: Watch, clock: Clock) -> None:
    """The second comes an interval after the first."""
    waiting = asyncio.create_task(verdict(watch, sleep=clock.sleep))
    await clock.pass_(1.9)
    assert not waiting.done()
    await clock.pass_(4.0)
    assert await waiting == BAD


@pytest.mark.parametrize("fault", [SlurmUnavailable("down"), SlurmOutputError("odd"), ValueError("a fault of ours")])
async def test_one_answer_and_a_silence_do_not(watch: Watch, cluster: Cluster, clock: Clock, fault: Exception) -> None:
    """However long Slurm does not answer; the next answer decides, and may be a different one."""
    waiting = asyncio.create_task(verdict(watch, sleep=clock.sleep))
    await settle()
    cluster.fault = fault
    await clock.pass_(600.0)
    assert (watch.status, watch.stale, waiting.done()) == (BAD, True, False)
    cluster.held["7"] = WAITS
    cluster.fault = None
    await clock.pass_(600.0)
    assert (watch.status, watch.stale, waiting.done()) == (WAITS, False, False)
    cluster.held["7"] = job("7", "COMPLETED")
    await clock.pass_(10.0)
    assert await waiting == job("7", "COMPLETED")


async def test_the_second_answer_may_come_after_the_silence(watch: Watch, cluster: Cluster, clock: Clock) -> None:
    """Then it is a second one."""
    waiting = asyncio.create_task(verdict(watch, sleep=clock.sleep))
    await settle()
    cluster.fault = SlurmUnavailable("down")
    await clock.pass_(600.0)
    cluster.fault = None
    await clock.pass_(40.0)
    assert await waiting == BAD


async def test_answers_that_alternate_do_not_add_up(watch: Watch, cluster: Cluster, clock: Clock) -> None:
    """A node that registers and is lost again: each time the count starts over."""
    waiting = asyncio.create_task(verdict(watch, sleep=clock.sleep))
    for _ in range(10):
        await clock.pass_(1.0)
        cluster.held["7"] = WAITS
        await clock.pass_(2.0)
        cluster.held["7"] = BAD
        await clock.pass_(1.0)
    assert not waiting.done()
    waiting.cancel()


async def test_a_held_job_is_waited_for(watch: Watch, cluster: Cluster, clock: Clock) -> None:
    """Somebody may release it."""
    cluster.held["7"] = HELD
    waiting = asyncio.create_task(verdict(watch, sleep=clock.sleep))
    await clock.pass_(600.0)
    assert not waiting.done()
    waiting.cancel()


async def test_slurm_is_asked_less_often_the_longer_a_job_waits(watch: Watch, cluster: Cluster, clock: Clock) -> None:
    """Every ten seconds once nothing has changed for ten minutes; every two seconds it would be three hundred."""
    cluster.held["7"] = WAITS
    waiting = asyncio.create_task(verdict(watch, sleep=clock.sleep))
    for _ in range(300):
        await clock.pass_(4.0)
    before = watch.answers
    for _ in range(150):
        await clock.pass_(4.0)
    assert watch.answers - before == 60
    waiting.cancel()
