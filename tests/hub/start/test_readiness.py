"""When a start is given up while its job is pending, and what Slurm is asked about a job that runs."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jupyterhub
import pytest
from jupyterhub.objects import Server
from jupyterhub.utils import AnyTimeoutError, random_port

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.hub.extensions import ServerExtensions
from jupyterhub_gpuspawner.hub.job.cause import Stage, start_failed
from jupyterhub_gpuspawner.hub.job.failed_start import ending_of
from jupyterhub_gpuspawner.hub.job.log import JobLog
from jupyterhub_gpuspawner.hub.job.server_ending import ServerEnding
from jupyterhub_gpuspawner.hub.job.session import Life
from jupyterhub_gpuspawner.hub.report.server_report import ServerReport
from jupyterhub_gpuspawner.hub.start import readiness
from jupyterhub_gpuspawner.hub.start.attempt import Attempt, Moment, new_attempt
from jupyterhub_gpuspawner.hub.start.readiness import Readiness
from jupyterhub_gpuspawner.slurm.job import End, Job, JobIdentity, Phase
from jupyterhub_gpuspawner.slurm.reason import OutOfService
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, SlurmConfig
from jupyterhub_gpuspawner.units import NodeAllocation
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacementDocument


class JobStandIn:
    """A job that is pending."""

    job_id = "7"
    stopping = False
    submitted_as: JobIdentity | None = None
    since_pending: float | None = 0.0

    def __init__(self) -> None:
        self.status: Job | None = Job("7", Phase.QUEUED, "PENDING", "Priority")
        self.silent = False
        self.changed = asyncio.Event()

    def notify(self) -> None: ...

    def queue_position(self) -> None: ...

    def out_of_service(self) -> OutOfService:
        return OutOfService()

    def watch(self) -> Any:
        return SimpleNamespace(status=self.status, answers=1, hurry=lambda _: None, changed=asyncio.Event().wait)


def readiness_of(job: JobStandIn, attempt: Attempt, report: Any, spawner: Any, **parts: Any) -> Readiness:
    """The wait for the server of this job."""
    watch: Any = job
    state: Any = SimpleNamespace(store_soon=lambda: None)
    watch.spawner, spawner.contact, spawner._log_name, spawner.cluster = spawner, "", "ada", ""
    spawner.job_log = JobLog(watch)
    return Readiness(
        **{
            "spawner": spawner,
            "attempt": attempt,
            "job": watch,
            "report": report,
            "state": state,
            "life": Life(),
            "ending": ServerEnding(watch, report),
            "request": None,
            **parts,
        }
    )


def waiting(job: JobStandIn, *, start_timeout: float, queue_timeout: float | None = None) -> asyncio.Task[None]:
    """The wait for a server whose job was submitted just now, and whose node never reports."""
    attempt = new_attempt("", start_timeout=start_timeout, queue_timeout=queue_timeout)
    attempt.queued(Moment.now())
    report = SimpleNamespace(reported=asyncio.Event(), address="", placement=None)
    return asyncio.ensure_future(readiness_of(job, attempt, report, SimpleNamespace()).wait())


async def test_the_hub_keeps_a_suspended_server_after_a_restart_without_its_answer() -> None:
    """JupyterHub asks each server that ran, and stops one that does not answer; the next start has to answer again."""
    server = Server(ip="127.0.0.1", port=random_port(), base_url="/user/ada/")
    readiness.keep_without_answer(SimpleNamespace(server=server))
    answer = await server.wait_up(http=True, timeout=0.1, extra_path="api")

    assert answer.headers.get("X-JupyterHub-Version") == jupyterhub.__version__
    with pytest.raises(AnyTimeoutError):
        await server.wait_up(http=True, timeout=0.1, extra_path="api")


async def test_a_place_is_not_given_up_while_slurm_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job may have left the queue meanwhile; the next answer decides."""
    monkeypatch.setattr(readiness, "SILENCE_POLL_SECONDS", 0.001)
    answers = [True, True, True, False]

    class SilentJob(JobStandIn):
        silent = property(lambda _: answers.pop(0), lambda _, __: None)

    with pytest.raises(Exception, match="You waited 0 s in the queue, which is the limit here") as error:
        await waiting(SilentJob(), start_timeout=300.0, queue_timeout=0.05)

    assert answers == []
    ending = ending_of(error.value)
    assert ending is not None
    assert ending.cause == start_failed("queue_timeout")


@pytest.mark.parametrize(("phase", "expired"), [(Phase.STARTING, False), (Phase.RUNNING, True)])
async def test_a_node_that_boots_has_the_time_that_slurm_allows_it(phase: Phase, expired: bool) -> None:
    """Slurm itself gives up a node that is not ready in time (ResumeTimeout), so the hub waits no less."""
    requested = asyncio.Event()

    async def recent(_: float) -> ClusterSnapshot:
        requested.set()
        return ClusterSnapshot(config=SlurmConfig(resume_timeout=600))

    job, attempt = JobStandIn(), new_attempt("", start_timeout=0.05, queue_timeout=None)
    job.status = Job("7", phase, "CONFIGURING", nodes="g1", batch_host="g1")
    attempt.stage = Stage.ALLOCATED
    report = SimpleNamespace(reported=asyncio.Event(), address="", placement=None)
    spawner = SimpleNamespace(connection=lambda: SimpleNamespace(view=SimpleNamespace(recent=recent)))
    readiness = readiness_of(job, attempt, report, spawner)

    async def took_too_long(stage: Stage, seconds: float) -> Exception:
        return TimeoutError(stage, seconds)

    readiness.ending.took_too_long = took_too_long  # type: ignore[method-assign]
    wait, asking = asyncio.ensure_future(readiness.wait()), asyncio.ensure_future(requested.wait())
    await asyncio.wait({wait, asking}, return_when=asyncio.FIRST_COMPLETED)
    for _ in range(10):
        await asyncio.sleep(0)
    done = wait.done()
    for task in (wait, asking):
        task.cancel()
    await asyncio.wait({wait, asking})

    assert (done, requested.is_set()) == (expired, not expired)


async def test_a_job_that_ended_before_anybody_saw_it_run_had_its_node() -> None:
    """So its log says why, and not the queue."""

    async def no_detail() -> None:
        return None

    job, attempt = JobStandIn(), new_attempt("", start_timeout=300.0, queue_timeout=None)
    attempt.queued(Moment.now())
    job.status = Job("7", Phase.ENDED, nodes="g1", end=End.FAILED, exit_code="1:0")
    report = SimpleNamespace(reported=asyncio.Event(), address="", placement=None)
    readiness = readiness_of(job, attempt, report, SimpleNamespace())
    no_report: Any = SimpleNamespace(failure=None)
    readiness.ending = ServerEnding(readiness.job, no_report)
    readiness.job.spawner.job_log = SimpleNamespace(job=no_detail)  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="The job failed with exit code 1") as error:
        await readiness.wait()

    ending = ending_of(error.value)
    assert ending is not None
    assert ending.stage is Stage.ALLOCATED


async def test_a_job_that_slurm_has_never_shown_teaches_nothing_of_the_cluster() -> None:
    """Neither that comments are replaced, nor whose jobs are; sbatch may have printed the number of no job."""

    async def no_detail() -> None:
        return None

    cluster = SimpleNamespace(replaces_comments=False, submits_as={})
    spawner = SimpleNamespace(
        connection=lambda: cluster,
        as_user=lambda: ("sudo",),
        user=SimpleNamespace(name="ada"),
        log=logging.getLogger(),
    )
    job, attempt = JobStandIn(), new_attempt("", start_timeout=300.0, queue_timeout=None)
    attempt.queued(Moment.now())
    job.submitted_as = JobIdentity(owner="ada", tag="jupyterhub-gpuspawner/demo/ada/#0a-1")
    job.status = Job("7", Phase.ENDED, end=End.VANISHED)
    report = SimpleNamespace(reported=asyncio.Event(), address="", placement=None)
    readiness = readiness_of(job, attempt, report, spawner)
    no_report: Any = SimpleNamespace(failure=None)
    readiness.ending = ServerEnding(readiness.job, no_report)
    readiness.job.spawner.job_log = SimpleNamespace(job=no_detail)  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="no longer has a record"):
        await readiness.wait()

    assert (cluster.replaces_comments, cluster.submits_as) == (False, {})


class ObservedLife(Life):
    """The sessions of a server, with the event that its placement is known."""

    def __init__(self) -> None:
        super().__init__()
        self.is_placed = asyncio.Event()

    def placed(self, *placed: Any) -> None:
        super().placed(*placed)
        self.is_placed.set()


def reported(job: JobStandIn, client: Client) -> tuple[Readiness, ServerReport, asyncio.Event]:
    """The wait for a server whose node has reported; its report; the event that its placement is known."""
    connection, life = SimpleNamespace(client=client), ObservedLife()
    log = logging.getLogger()
    spawner: Any = SimpleNamespace(http_timeout=30, connection=lambda: connection, log=log, watch=job)
    spawner.server_extensions = ServerExtensions()
    report = ServerReport(spawner, SimpleNamespace())  # type: ignore[arg-type]
    report.claimed = PlacementDocument(node="g1")
    report.reported.set()
    attempt = new_attempt("", start_timeout=300.0, queue_timeout=None)
    return readiness_of(job, attempt, report, spawner, life=life), report, life.is_placed


class Client:
    """A Slurm with one job, by default on two nodes."""

    def __init__(self, detail: Job | None = None) -> None:
        self.detail = detail or Job("7", Phase.RUNNING, "RUNNING", nodes="g[1-2]", batch_host="g1")
        self.questions: list[bool] = []
        self.faults: list[Exception] = []

    async def job(self, _job_id: str, *, allocations: bool = False) -> Job:
        """The job; ``questions`` has for each question whether it was about the allocations, too."""
        self.questions.append(allocations)
        if self.faults:
            raise self.faults.pop()
        granted = (NodeAllocation("g1", (0, 1), 100), NodeAllocation("g2", (0, 1), 100))
        return replace(self.detail, allocations=granted) if allocations else self.detail

    async def address(self, _node: str) -> str:
        return "127.0.0.1"


async def test_an_answer_that_is_not_understood_ends_no_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its server runs: Slurm is asked again where, and the fault is logged once."""
    monkeypatch.setattr(readiness, "RETRY_SECONDS", 0.0)
    job, client = JobStandIn(), Client()
    client.faults = [SlurmOutputError("scontrol printed no job.", raw="") for _ in range(2)]
    job.is_own = lambda _detail: True  # type: ignore[attr-defined]
    ready, _, shown = reported(job, client)
    wait = asyncio.ensure_future(ready.wait())
    await asyncio.wait(
        {wait, shown_task := asyncio.ensure_future(shown.wait())}, timeout=30, return_when="FIRST_COMPLETED"
    )

    assert (shown.is_set(), wait.done()) == (True, False)
    assert [text.partition(" Please")[0] for text in caplog.messages] == [
        "Slurm is asked again where job 7 runs: scontrol printed no job."
    ]
    wait.cancel()
    shown_task.cancel()


@pytest.mark.parametrize(("nodes", "questions"), [("g[1-2]", [True]), (None, [False, True]), ("g1", [False, True])])
async def test_a_job_on_several_nodes_shows_them_all_whoever_requested_them(
    nodes: str | None, questions: list[bool]
) -> None:
    """A hub without profiles, or one that was restarted, knows no request: what Slurm granted counts."""
    job, client = JobStandIn(), Client()
    job.status = Job("7", Phase.RUNNING, "RUNNING", nodes=nodes, batch_host="g9") if nodes else None
    job.is_own = lambda _detail: True  # type: ignore[attr-defined]
    ready, report, shown = reported(job, client)
    wait = asyncio.ensure_future(ready.wait())
    await asyncio.wait_for(shown.wait(), 30)
    wait.cancel()

    assert client.questions == questions
    assert report.placement is not None
    assert report.placement.other_nodes == (NodeGrant("g2", cpus=2, memory_mib=100),)


@pytest.mark.parametrize(("requested", "questions", "shown_mib"), [(None, [False], 8192), (4096, [], 4096)])
async def test_slurm_is_asked_for_the_memory_of_a_job_that_requested_none(
    requested: int | None, questions: list[bool], shown_mib: int
) -> None:
    """It has the default of slurm.conf, which the watcher does not know."""
    job, client = JobStandIn(), Client(Job("7", Phase.RUNNING, "RUNNING", nodes="g1", batch_host="g1", memory_mib=8192))
    job.status = Job("7", Phase.RUNNING, "RUNNING", nodes="g1", batch_host="g1")
    job.is_own = lambda _detail: True  # type: ignore[attr-defined]
    ready, report, shown = reported(job, client)
    report.claimed = PlacementDocument(node="g1", memory_mib=requested)
    wait = asyncio.ensure_future(ready.wait())
    await asyncio.wait_for(shown.wait(), 30)
    wait.cancel()

    assert client.questions == questions
    assert report.placement is not None
    assert report.placement.memory_mib == shown_mib
