"""RPCs caused by watching, as counted by slurmctld (sdiag(1)): independent of the number of jobs."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.watcher import ACTIVE_INTERVAL, JobWatcher

pytestmark = pytest.mark.slurm

OF_DAEMONS = ("REQUEST_STATS_INFO", "MESSAGE_", "REQUEST_COMPLETE", "REQUEST_STEP")
"""RPCs of sdiag itself, and of Slurm's nodes."""


def rpcs(slurm: PrivateSlurm) -> Counter[str]:
    """The number of RPCs from commands to slurmctld, by type."""
    by_kind = slurm.run("sdiag").partition("statistics by message type")[2].partition("statistics by user")[0]
    counts = re.findall(r"^\s*(\w+)\s+\(\s*\d+\) count:(\d+)", by_kind, re.MULTILINE)
    return Counter({kind: int(count) for kind, count in counts if not kind.startswith(OF_DAEMONS)})


@pytest.fixture(scope="module")
def slurm(needs_slurm: None, public_folder: Path) -> Iterator[PrivateSlurm]:
    """A Slurm that no hub asks: it counts what these tests ask alone."""
    with PrivateSlurm(DEMO_CLUSTER, public_folder / "cost") as slurm:
        yield slurm


@pytest.fixture
def client(slurm: PrivateSlurm) -> SlurmClient:
    """The hub's client of this cluster."""
    return SlurmClient(Installation(bin_dir=slurm.bin_dir, environment=slurm.environment))


@pytest.fixture
def waiting(slurm: PrivateSlurm) -> Iterator[list[str]]:
    """Twenty pending jobs."""
    submit = ("sbatch", "--parsable", "--hold", "--partition=batch", "--output=/dev/null", "--wrap=true")
    jobs = [slurm.run(*submit) for _ in range(20)]
    yield jobs
    slurm.run("scancel", *jobs)


class Questions:
    """Wraps the client and limits the number of the watcher's queries."""

    def __init__(self, client: SlurmClient) -> None:
        self._client = client
        self.job = client.job
        self.left = 0
        self.asked = asyncio.Event()

    async def jobs(self, job_ids: Collection[str]) -> dict[str, Job]:
        if self.left == 0:
            self.asked.set()
            await asyncio.Event().wait()
        self.left -= 1
        return await self._client.jobs(job_ids)

    async def sees_jobs_of(self, user: str) -> bool:
        return await self._client.sees_jobs_of(user)


async def cost(slurm: PrivateSlurm, client: SlurmClient, jobs: list[str], *, questions: int) -> Counter[str]:
    """The RPCs caused by that many queries for these jobs."""
    source = Questions(client)
    source.left = questions
    watcher = JobWatcher(source, active_interval=0.05)
    before = rpcs(slurm)
    with ExitStack() as stack:
        watches = [stack.enter_context(closing(watcher.watch(job))) for job in jobs]
        await source.asked.wait()
        after = rpcs(slurm)
        assert {watch.status.phase for watch in watches if watch.status} == {Phase.QUEUED}
        await watcher.aclose()
    return after - before


async def test_twenty_who_wait_cost_what_one_costs(
    slurm: PrivateSlurm, client: SlurmClient, waiting: list[str]
) -> None:
    """Ten queries cause twenty RPCs, for one job and for twenty: one for the jobs, and one that squeue adds.

    From Slurm 24.05 on nine of those for twenty jobs are for the states alone, to which squeue adds none.
    """
    one = await cost(slurm, client, waiting[:1], questions=10)
    twenty = await cost(slurm, client, waiting, questions=10)

    assert (sum(one.values()), sum(twenty.values())) == (20, 11 if twenty["REQUEST_JOB_STATE"] else 20)
    assert sum(one.values()) / 10 / ACTIVE_INTERVAL <= 1.0, "RPCs in a second"


async def test_at_rest_only_the_long_interval_is_paid(slurm: PrivateSlurm, client: SlurmClient) -> None:
    """Running jobs cause at most 400 RPCs an hour; a quarter of an hour is simulated with a faster clock."""
    passed = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal passed
        await asyncio.sleep(0.02)
        passed += seconds

    run = ("sbatch", "--parsable", "--partition=batch", "--mem=10M", "--output=/dev/null", "--wrap=sleep 300")
    jobs = [slurm.run(*run) for _ in range(3)]
    watcher = JobWatcher(client, sleep=sleep)
    try:
        for watch in [watcher.watch(job) for job in jobs]:
            while watch.status is None or watch.status.phase is not Phase.RUNNING:
                await watch.changed()
        began, before = passed, rpcs(slurm)
        while passed - began < 900:  # noqa: ASYNC110 - the watcher does not report when it sleeps
            await asyncio.sleep(0.01)
        spent = sum((rpcs(slurm) - before).values())
    finally:
        await watcher.aclose()
        slurm.run("scancel", *jobs)

    assert 25 <= spent <= 100
