"""When a start is given up while its job is pending, and what Slurm is asked about a job that runs."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.hub.job.server_ending import ServerEnding
from jupyterhub_gpuspawner.hub.report.server_report import ServerReport
from jupyterhub_gpuspawner.hub.start import readiness
from jupyterhub_gpuspawner.hub.start.attempt import Start, Timeouts
from jupyterhub_gpuspawner.hub.start.progress import StartFacts
from jupyterhub_gpuspawner.hub.start.readiness import Readiness
from jupyterhub_gpuspawner.jobs.status import JobDetail, JobStatus, NodeAllocation, Phase
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacementDocument


class Job:
    """A job that is pending, and its own watch."""

    job_id = "7"
    stopping = False
    submitted_identity = None
    since_pending: float | None = 0.0
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
    spawner: Any = SimpleNamespace(ending=None, start_facts=lambda: StartFacts("7"))
    report: Any = SimpleNamespace(reported=asyncio.Event(), address="")
    ending = ServerEnding(job, SimpleNamespace(), spawner)  # type: ignore[arg-type]
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


def reported(job: Job, client: Client) -> Any:
    """The parts of a start whose node has reported."""
    connection = SimpleNamespace(client=client)
    spawner: Any = SimpleNamespace(
        request=None, http_timeout=30, connection=lambda: connection, log=logging.getLogger()
    )
    report = ServerReport(spawner, SimpleNamespace(), server="ann", log=logging.getLogger())  # type: ignore[arg-type]
    report.claimed = PlacementDocument(node="g1")
    report.reported.set()
    return spawner, Start.begin("", Timeouts(300.0)), job, report, SimpleNamespace()


class Client:
    """A Slurm with one job on two nodes."""

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.faults: list[Exception] = []

    async def job(self, job_id: str, *, allocations: bool = False) -> JobDetail:
        """The job; ``asked`` has for each question whether it was about the allocations, too."""
        self.asked.append(allocations)
        if self.faults:
            raise self.faults.pop()
        detail = JobDetail(job_id, Phase.RUNNING, "RUNNING", nodes="g[1-2]", batch_host="g1")
        granted = (NodeAllocation("g1", (0, 1), 100), NodeAllocation("g2", (0, 1), 100))
        return replace(detail, allocations=granted) if allocations else detail

    async def address(self, _node: str) -> str:
        return "127.0.0.1"


async def test_an_answer_that_is_not_understood_ends_no_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its server runs: Slurm is asked again where, and the fault is logged once."""
    monkeypatch.setattr(readiness, "_ASK_AGAIN", 0.0)
    job, client, shown = Job(), Client(), asyncio.Event()
    client.faults = [SlurmOutputError("scontrol printed no job.", raw="") for _ in range(2)]
    job.is_own = lambda _detail: True  # type: ignore[attr-defined]
    wait = asyncio.ensure_future(Readiness(*reported(job, client), store=lambda: None, placed=shown.set).wait())
    await asyncio.wait(
        {wait, shown_task := asyncio.ensure_future(shown.wait())}, timeout=30, return_when="FIRST_COMPLETED"
    )

    assert (shown.is_set(), wait.done()) == (True, False)
    assert [text.partition(" Please")[0] for text in caplog.messages] == [
        "Slurm is asked again where job 7 runs: scontrol printed no job."
    ]
    wait.cancel()
    shown_task.cancel()


@pytest.mark.parametrize(("nodes", "asked"), [("g[1-2]", [True]), (None, [False, True]), ("g1", [False, True])])
async def test_a_job_on_several_nodes_shows_them_all_whoever_requested_them(
    nodes: str | None, asked: list[bool]
) -> None:
    """A hub without profiles, or one that was restarted, knows no request: what Slurm granted counts."""
    job, client, shown = Job(), Client(), asyncio.Event()
    job.status = JobStatus("7", Phase.RUNNING, "RUNNING", nodes=nodes, batch_host="g9") if nodes else None
    job.is_own = lambda _detail: True  # type: ignore[attr-defined]
    parts = reported(job, client)
    report = parts[3]
    wait = asyncio.ensure_future(Readiness(*parts, store=lambda: None, placed=shown.set).wait())
    await asyncio.wait_for(shown.wait(), 30)
    wait.cancel()

    assert client.asked == asked
    assert report.placement is not None
    assert report.placement.other_nodes == (NodeGrant("g2", cpus=2, memory_mib=100),)
