"""A server's job as the hub's watcher sees it: whose it is, whether it is over, and what is stored of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import SlurmUnavailable
from jupyterhub_gpuspawner.hub.job.watch import JobWatch
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.slurm.job import Job, JobIdentity
from jupyterhub_gpuspawner.slurm.watcher import JobWatcher
from tests.slurm.test_watcher import Clock, Cluster, job, settle

TAG = "jupyterhub-gpuspawner/demo/ann/#0a1b2c3d-1"
IDENTITY = JobIdentity(owner="ann", tag=TAG)
EXPECTED = JobIdentity(owner="ann", tag="jupyterhub-gpuspawner/demo/ann/")


class Server(GPUSlurmSpawner):
    """A spawner with a Slurm of its own."""

    slurm_timeout: Any = 10.0  # without its bounds

    def __init__(self) -> None:
        super().__init__()
        self.slurm, self.clock = Cluster(), Clock()
        self.polls = list[str]()
        self.watcher = JobWatcher(self.slurm, active_interval=2.0, clock=lambda: self.clock.now, sleep=self.clock.sleep)

    def connection(self, _settings: object = None) -> Any:
        return SimpleNamespace(watcher=self.watcher, view=SimpleNamespace(latest=None))

    def expected_identity(self) -> JobIdentity:
        return EXPECTED

    async def poll_and_notify(self) -> int | None:  # type: ignore[override]
        self.polls.append("7")
        return 1

    def shows(self, state: str) -> None:
        """Slurm shows the job in this state."""
        self.slurm.held["7"] = own(state)

    async def let_watcher_poll(self) -> None:
        """Let the watcher ask."""
        await self.clock.pass_(30.0)


def own(state: str) -> Job:
    """The server's job in this state."""
    return replace(job("7", state), user="ann", tag=TAG)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A spawner; its watcher ends with the test."""
    spawner = Server()
    yield spawner
    await spawner.watcher.aclose()


@pytest.fixture
async def watched(server: Server) -> JobWatch:
    """A job that was submitted just now."""
    watch = JobWatch(server)
    watch.submitted("7", IDENTITY, trusted=60.0)
    watch.watch()
    return watch


async def test_the_state_is_what_slurm_reported_last(server: Server, watched: JobWatch) -> None:
    """None until then; looking asks nothing."""
    before = (watched.status, watched.over())
    server.shows("RUNNING")
    await server.let_watcher_poll()

    assert before == (None, False)
    assert (watched.status, watched.over(), watched.silent) == (own("RUNNING"), False, False)


async def test_a_job_that_has_ended_is_over(server: Server, watched: JobWatch) -> None:
    """By Slurm's word."""
    server.shows("FAILED")
    await server.let_watcher_poll()

    assert watched.over()


@pytest.mark.parametrize(("slurm_timeout", "over"), [(10.0, False), (0.0, True)])
async def test_a_job_that_was_requeued_is_over_by_an_answer_that_is_newer_than_the_server(
    server: Server, watched: JobWatch, slurm_timeout: float, over: bool
) -> None:
    """An answer may be as old as a Slurm command takes."""
    server.slurm_timeout = slurm_timeout
    server.shows("PENDING")
    await server.let_watcher_poll()
    pending = watched.over()
    watched.serves()
    server.shows("RUNNING")
    await server.let_watcher_poll()
    server.shows("PENDING")
    await server.let_watcher_poll()

    assert (pending, watched.over()) == (False, over)


async def test_a_job_that_is_hidden_since_it_was_pending_is_not_over(server: Server, watched: JobWatch) -> None:
    """PrivateData=jobs is switched on while a server starts: later answers, without the job, do not requeue it."""
    server.slurm_timeout = 0.0
    server.clock.now = time.time()
    server.shows("PENDING")
    await server.let_watcher_poll()
    watched.serves()
    server.slurm.held.clear()
    server.slurm.hides = {"ann"}
    await server.let_watcher_poll()
    await server.let_watcher_poll()

    assert (watched.status, watched.over()) == (own("PENDING"), False)


async def test_the_hub_is_told_as_soon_as_the_job_has_ended(server: Server, watched: JobWatch) -> None:
    """Once, where it can note it."""
    server.shows("RUNNING")
    watched.serves()
    await server.let_watcher_poll()
    before = list(server.polls)
    server.shows("COMPLETED")
    await server.let_watcher_poll()

    assert (before, server.polls) == ([], ["7"])


async def test_the_hub_is_not_told_of_a_server_that_it_stops(server: Server, watched: JobWatch) -> None:
    """Nor of one that it has forgotten."""
    server.shows("RUNNING")
    watched.serves()
    await server.let_watcher_poll()
    watched.stopping = True
    server.shows("CANCELLED")
    await server.let_watcher_poll()
    watched.forget()
    await settle()

    assert (server.polls, watched.job_id, watched.status) == ([], "", None)


async def test_the_id_alone_is_trusted_until_slurm_shows_the_job(server: Server, watched: JobWatch) -> None:
    """And for a while at most."""
    trusted = watched.trusted_until
    server.shows("PENDING")
    await server.let_watcher_poll()

    assert trusted > 0
    assert watched.trusted_until == 0.0


async def test_a_restarted_hub_knows_the_job(server: Server, watched: JobWatch) -> None:
    """By its id and its identity."""
    state = json.loads(json.dumps(watched.to_state()))
    next_watch = JobWatch(server)
    next_watch.load(state)

    assert state == {"job_id": "7", "identity": {"owner": "ann", "tag": TAG}}
    assert (next_watch.job_id, next_watch.identity, next_watch.is_own(own("RUNNING"))) == ("7", IDENTITY, True)
    assert not next_watch.is_own(replace(own("RUNNING"), tag="jupyterhub-gpuspawner/demo/ann/#0a1b2c3d-2"))


async def test_a_job_of_an_earlier_version_has_the_identity_of_its_server(server: Server) -> None:
    """Which kept none: a job of this user and server is taken for it."""
    watch = JobWatch(server)
    watch.load({"job_id": "7"})

    assert (watch.identity, watch.to_state()) == (EXPECTED, {"job_id": "7"})
    assert watch.is_own(own("RUNNING"))


async def test_an_id_that_is_no_number_is_dropped(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """It would become a word of a command."""
    watch = JobWatch(server)
    watch.load({"job_id": "7; rm -rf /"})

    assert (watch.job_id, watch.to_state()) == ("", {})
    assert "'7; rm -rf /' of (no user) is not a number" in caplog.text


@pytest.mark.parametrize(("age", "questions"), [(0.0, 0), (9.0, 0), (10.0, 1), (24.0, 1)])
async def test_pages_have_slurm_asked_once_where_its_last_answer_is_old(
    server: Server, watched: JobWatch, age: float, questions: int
) -> None:
    """However many pages are read: a node that goes down is not told half a minute late."""
    server.shows("RUNNING")
    await server.clock.pass_(3.0)
    answered = server.watcher.last_answer
    server.clock.now += age - (server.watcher.age or 0.0)
    asked = len(server.slurm.queries)
    pages = [asyncio.ensure_future(watched.update_running(20.0)) for _ in range(50)]
    await server.clock.pass_(3.0)
    await asyncio.wait(pages)

    assert len(server.slurm.queries) - asked == questions
    assert (server.watcher.last_answer != answered) == bool(questions)


async def test_a_page_does_not_wait_for_a_slurm_that_does_not_answer(server: Server, watched: JobWatch) -> None:
    """It comes with what was known before."""
    server.shows("RUNNING")
    await server.clock.pass_(3.0)
    server.clock.now += 20.0
    server.slurm.fault = SlurmUnavailable("squeue got no answer.")
    await watched.update_running(0.0)

    assert watched.status is not None
