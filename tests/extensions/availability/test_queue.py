"""A server whose job is pending: why it was said to start at another time, and why it can never run."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import SlurmUnavailable
from jupyterhub_gpuspawner.extension import installed
from jupyterhub_gpuspawner.extensions.availability.model.capacity import Capacity
from jupyterhub_gpuspawner.extensions.availability.queue import InQueue
from jupyterhub_gpuspawner.hub.extensions import HubExtensions
from jupyterhub_gpuspawner.hub.site.connection import ClusterView
from jupyterhub_gpuspawner.hub.site.state import KEY
from jupyterhub_gpuspawner.hub.spawners.server import refresh_servers, server_of
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.estimate import QueuePosition, expected
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot, Partition
from tests.fixtures.extensions import SETTINGS
from tests.snapshots import NOW, cluster, node, running, waiting
from tests.standins.hub_spawner import HubSpawner
from tests.standins.resources import resolved


def test_a_change_is_explained_by_the_queue_then_and_now() -> None:
    """Small changes are none; after a large one the next is measured from there."""
    nodes, held = (node("g1", "gpu:k80:4"),), running("1", "g1", "gpu:k80:4", ends_in=3600)
    mine, another = waiting("9", priority=5), waiting("10", priority=50, user="eve")
    before, after = (cluster(*nodes, jobs=jobs) for jobs in ((held, mine), (held, mine, another)))
    vars(after)["taken_at"] = NOW + 60
    view = SimpleNamespace(latest=before)
    status = Job("9", Phase.QUEUED, "PENDING", "Priority", partition="gpu")
    watch = SimpleNamespace(job_id="9", status=status)
    server = InQueue(SimpleNamespace(connection=lambda: SimpleNamespace(view=view), watch=watch, job_id="9"))
    sentences = []
    for snapshot, planned in ((before, 3600), (before, 3700), (after, 7200), (after, 7300)):
        view.latest = snapshot
        server.expects(expected(NOW + planned, now=NOW), "gpu", now=NOW)
        sentences.append(server.change())

    assert sentences == ["", "", *["Later than before: 1 person with a higher priority came."] * 2]


HELD = running("1", "g1", "gpu:k80:4", ends_in=36000)
MINE = waiting("9", priority=5)
EARLY = "Sooner than before: a job ended before its time limit."
NEW = "Sooner than before: Slurm has a new estimate."
FOLLOWED: dict[str, tuple[list[tuple[int, list[ClusterJob] | None, int]], list[str]]] = {
    "the queue is seen after the first estimate": (
        [(0, None, 36000), (10, [HELD, MINE], 36000), (70, [MINE], 600)],
        ["", "", EARLY],
    ),
    "the estimate changes before the queue is seen anew": (
        [(0, [HELD, MINE], 36000), (50, None, 600), (60, [MINE], 600), (120, [MINE], 620)],
        ["", NEW, EARLY, EARLY],
    ),
    "a job that was ahead ran, and ended early, in between": (
        [
            (0, [HELD, waiting("8", "gpu:k80:4", user="eve", priority=50), MINE], 40000),
            (60, [HELD, running("8", "g2", "gpu:k80:4", user="eve", ends_in=40000), MINE], 40000),
            (120, [HELD, MINE], 600),
        ],
        ["", "", EARLY],
    ),
    "nothing is seen": (
        [(0, [HELD, MINE], 36000), (60, [HELD, MINE], 600), (120, [HELD, MINE], 620), (180, [MINE], 620)],
        ["", NEW, NEW, NEW],
    ),
}


@pytest.mark.parametrize(("seen", "changes"), FOLLOWED.values(), ids=FOLLOWED.keys())
def test_a_job_that_ended_early_is_the_cause_whenever_the_queue_is_seen(
    seen: list[tuple[int, list[ClusterJob] | None, int]], changes: list[str]
) -> None:
    """Each look: seconds, the jobs of a new view of the queue if there is one, and when a start is planned."""
    nodes, view = (node("g1", "gpu:k80:4"), node("g2", "gpu:k80:4")), SimpleNamespace(latest=None)
    watch = SimpleNamespace(job_id="9", status=Job("9", Phase.QUEUED, "PENDING", "Priority", partition="gpu"))
    server = InQueue(SimpleNamespace(connection=lambda: SimpleNamespace(view=view), watch=watch, job_id="9"))
    said = []
    for seconds, jobs, planned in seen:
        if jobs is not None:
            view.latest = replace(cluster(*nodes, jobs=tuple(jobs)), taken_at=NOW + seconds)
        server.expects(expected(NOW + planned, now=NOW + seconds), "gpu", now=NOW + seconds)
        said.append(server.change())

    assert said == changes


async def test_the_reason_is_of_a_snapshot_that_is_newer_than_the_start() -> None:
    """An older one does not know a partition that was created since; without an answer it has to do."""
    closed = Partition("closed", nodes=("c1",), deny_accounts=("guests",))
    partitions = [Partition("batch", nodes=("c1",))]
    silent = asyncio.Event()

    async def ask() -> ClusterSnapshot:
        if silent.is_set():
            raise SlurmUnavailable("down")
        return ClusterSnapshot(partitions=tuple(partitions), taken_at=time.time())

    view = ClusterView(ask)
    connection: Any = SimpleNamespace(view=view)
    server = InQueue(SimpleNamespace(connection=lambda: connection, exec_prefix=""))
    request: Any = SimpleNamespace(username="ada", resources=resolved("closed", account="guests", cpus=1))
    await view.recent()
    partitions.append(closed)
    began = time.time() - 1

    assert await server.why_never(request, since=began) == "There is no partition closed (available: batch)."
    assert await server.why_never(request, since=time.time()) == "Partition closed does not allow account guests."
    partitions.pop()
    silent.set()
    assert await server.why_never(request, since=time.time() + 60) == "Partition closed does not allow account guests."


async def test_a_server_that_waits_has_its_position_of_now() -> None:
    """The view of the queue is brought up to date before the page of a pending job is made; no other job needs it."""

    class View:
        """It learns of both jobs when it is updated."""

        latest: Any = None

        async def recent(self, _max_age: float, _patience: float) -> None:
            self.latest = cluster(node("g1"), jobs=(waiting("11"), waiting("12")))

    ada = SimpleNamespace(name="ada", settings=SETTINGS)
    positions = []
    for phase in (Phase.QUEUED, Phase.RUNNING):
        view = View()
        connection = SimpleNamespace(view=view, watcher=SimpleNamespace(last_answer=None))
        spawner = HubSpawner(ada, job=Job("12", phase), pending="spawn", connection=Mock(return_value=connection))
        await refresh_servers([spawner])
        start = server_of(spawner).start
        positions.append((view.latest is not None, start and start.queue_position))

    assert positions == [(True, QueuePosition(2, 2, "gpu", people=1)), (False, None)]


async def test_a_new_view_is_prepared_in_a_thread_before_pages_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster of thousands of nodes that takes longer than the event loop may be held up."""
    threads = list[bool]()
    snapshot = cluster(node("g1"))
    monkeypatch.setattr(SlurmClient, "snapshot", AsyncMock(return_value=snapshot))
    monkeypatch.setattr(
        Capacity, "warm", lambda _: threads.append(threading.current_thread() is threading.main_thread())
    )
    hub = HubExtensions(installed())  # of its own: the view of another test's hub has been asked already
    user = SimpleNamespace(name="ada", groups=[], spawners={}, settings={KEY: hub.state})
    view = GPUSlurmSpawner(user=user, config=Config()).connection().view

    assert (await view.recent(), threads) == (snapshot, [False])
