"""The thread that writes records, and what it does with those that a hub has left."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm
from sqlalchemy.orm import Session
from traitlets import TraitError
from traitlets.config import Config

from jupyterhub_gpuspawner.extensions.records import keeper
from jupyterhub_gpuspawner.extensions.records.keeper import (
    FromRecords,
    GPUSessions,
    Recorder,
    complete_left,
    estimate,
    promised_to_waiting,
    records_file,
    session_in,
    stored_sessions,
)
from jupyterhub_gpuspawner.extensions.records.promised import ServerPromises
from jupyterhub_gpuspawner.extensions.records.promises import Learned, Promise, PromiseMoment
from jupyterhub_gpuspawner.extensions.records.store import SessionStore
from jupyterhub_gpuspawner.extensions.records.waits import ENOUGH, PastWait, past_waits
from jupyterhub_gpuspawner.hub.extension import PlannedWait
from jupyterhub_gpuspawner.hub.extensions import ServerExtensions
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind, Stage
from jupyterhub_gpuspawner.hub.job.session import Placed
from jupyterhub_gpuspawner.hub.site.state import HubState
from jupyterhub_gpuspawner.hub.start.attempt import Attempt
from jupyterhub_gpuspawner.slurm.estimate import Span, expected
from tests.extensions.records.events import ENDED, LIFE, PLACED, PROMISES
from tests.fixtures.databases import hub_session
from tests.standins.hub_spawner import HubSpawner
from tests.standins.session_events import NOON, READY, SUBMITTED


class App:
    """A hub with a database in which one server runs."""

    def __init__(self, db: Session) -> None:
        self.db = db
        session = {"id": "runs", "username": "ada", "servername": "", "begun_at": 1.0}
        self.db.add(orm.Spawner(name="", server=orm.Server(), state={"child": {"session": session}}))
        self.db.add(orm.Spawner(name="stopped", state={"session": {**session, "id": "gone"}}))
        self.db.commit()


async def test_events_are_written_in_their_order(tmp_path: Path) -> None:
    """Closing waits for all that were taken."""
    recorder = Recorder(tmp_path / "sessions.sqlite")
    for event in LIFE:
        recorder.take(event)
    await asyncio.to_thread(recorder.close)

    with closing(SessionStore(tmp_path / "sessions.sqlite")) as store:
        assert [session.cause for session in store.sessions()] == [ENDED.cause]


async def test_a_hub_completes_what_the_one_before_it_has_left(tmp_path: Path) -> None:
    """Not that of a server that runs, nor one that began since; what is completed expires at once, since it is old."""
    path = tmp_path / "sessions.sqlite"
    with closing(SessionStore(path)) as store:
        for session, at in (("runs", 1.0), ("gone", 1.0), ("new", 5.0)):
            store.take(replace(SUBMITTED, session=session, begun_at=at, at=at))
    recorder = Recorder(path)
    with hub_session() as db:
        app = App(db)
        assert stored_sessions(app) == {"runs"}

        await complete_left(app, recorder, started_at=2.0)
        assert await recorder.open_sessions() == {"runs", "new"}
        await recorder.expire(3.0)
    await asyncio.to_thread(recorder.close)
    with closing(SessionStore(path)) as store:
        assert {record.session for record in store.sessions()} == {"runs", "new"}


async def test_a_hub_knows_the_nodes_on_which_the_starts_of_several_people_fail(tmp_path: Path) -> None:
    """Until one works there again."""
    known, now = FromRecords(), time.time()
    recorder = Recorder(tmp_path / "sessions.sqlite", known)
    failed = Cause(Kind.START_FAILED, "launcher")

    def take(user: str, node: str, cause: Cause | None = None, cluster: str = "") -> None:
        facts: dict[str, Any] = {"session": f"{user} {node} {cluster}", "username": user, "cluster": cluster}
        recorder.take(replace(SUBMITTED, **facts, begun_at=now, at=now))
        if cause is None:
            recorder.take(replace(PLACED, **facts, at=now + 1, node=node))
            recorder.take(replace(READY, **facts, at=now + 2))
        else:
            recorder.take(replace(ENDED, **facts, begun_at=now, at=now + 1, cause=cause, served=False, node=node))

    failing_nodes: list[Any] = []
    try:
        take("eve", "g9")
        take("eve", "g9", cluster="cedar")
        for user in ("ada", "bob", "cid"):
            take(user, "g1", failed)
        await recorder.find_failing_nodes()
        failing_nodes.append(failing_people(known))
        take("dot", "g1")
        for user in ("fay", "gil", "hal"):
            take(user, "g1", failed, cluster="cedar")
        await recorder.find_failing_nodes(first="juniper")
        failing_nodes.append(failing_people(known))
    finally:
        await asyncio.to_thread(recorder.close)

    assert failing_nodes == [{"": {"g1": ("ada", "bob", "cid")}}, {"cedar": {"g1": ("fay", "gil", "hal")}}]


def failing_people(known: FromRecords) -> dict[str, dict[str, tuple[str, ...]]]:
    """Whose starts failed on each of these nodes, by cluster."""
    return {
        cluster: {node: failing.people for node, failing in nodes.items()}
        for cluster, nodes in known.failing_nodes.items()
    }


async def test_a_hub_expects_waits_like_those_that_were_recorded(tmp_path: Path) -> None:
    """What was said before the submission counts for itself; a wait that goes on counts once it is over its range."""
    known, now = FromRecords(), time.time()
    recorder = Recorder(tmp_path / "sessions.sqlite", known)
    for event in LIFE:
        recorder.take(event)
    late, in_time = (
        Promise(now - 900, PromiseMoment.QUEUED, expected(now - left, now=now - 900), "gpu") for left in (600, -600)
    )
    try:
        await recorder.learn([("", (late,)), ("", (in_time,))])
        assert known.waits[""].asked == {}
        recorded, goes_on = known.waits[""].queued["gpu"].waits
        assert recorded.ratio == 0.75
        assert goes_on.planned == 300
        assert 900 <= goes_on.actual < 1000
    finally:
        await asyncio.to_thread(recorder.close)


def test_a_session_is_found_in_a_stored_state() -> None:
    """With and without a child; anything else is none."""
    session = {"session": {"id": "0a1b-7", "username": "ada", "servername": "", "begun_at": 1.0}}
    damaged = ({"session": {"id": 7}}, {"session": "x"}, None, {"child": 1})

    states = (session, {"child": session}, {"child_state": session}, *damaged)
    assert [session_in(state) for state in states] == [*["0a1b-7"] * 3, *[""] * 4]


def test_only_starts_that_wait_teach_before_they_are_over() -> None:
    """No row of the database is read for it; other servers have nothing that was said of a start."""
    ada = SimpleNamespace(name="ada")
    waiting, running = HubSpawner(ada, attempt=Attempt(stage=Stage.QUEUED)), HubSpawner(ada)
    for spawner in (waiting, running):
        spawner.server_extensions = ServerExtensions([("records", ServerPromises(spawner))])
        spawner.server_extensions.each(
            ServerPromises.expects, PROMISES[0].estimate, PROMISES[0].partition, now=PROMISES[0].at
        )
        spawner.watch.job_id = "7"
    users = [SimpleNamespace(spawners={"": waiting, "second": running}), SimpleNamespace(spawners={})]

    assert promised_to_waiting(users) == [("", PROMISES[:1])]


def test_a_wait_is_expected_to_be_like_those_of_its_kind_in_its_partition() -> None:
    """Others say nothing of it: of another cluster or partition, or of jobs that were not pending."""
    hub = HubState()
    hub.keep(FromRecords({"juniper": Learned(queued={"gpu": past_waits([PastWait(3600, 1770)] * ENOUGH)})}))
    spans = [
        estimate(hub, PlannedWait(cluster, partition, 3600, queued))
        for cluster, partition, queued in (
            ("juniper", "gpu", True),
            ("juniper", "gpu", False),
            ("juniper", "cpu", True),
            ("cedar", "gpu", True),
        )
    ]

    assert spans == [Span(1770, 1770, 1770), None, None, None]


async def test_a_hub_learns_from_waits_on_each_cluster_for_itself(tmp_path: Path) -> None:
    """Their partitions have the same name; sessions from before the hub named its clusters were on the first one."""
    known = FromRecords()
    recorder = Recorder(tmp_path / "sessions.sqlite", known)
    for session, cluster, started in (("a", "", 31), ("b", "juniper", 46), ("c", "cedar", 16)):
        for event in LIFE[:2]:
            named = replace(event, session=session, cluster=cluster)
            recorder.take(replace(named, allocated_at=NOON + started) if isinstance(named, Placed) else named)
    try:
        await recorder.learn(first="juniper")
        ratios = {name: [wait.ratio for wait in waits.queued["gpu"].waits] for name, waits in known.waits.items()}
    finally:
        await asyncio.to_thread(recorder.close)

    assert ratios == {"juniper": [0.75, 0.875], "cedar": [0.625]}


async def test_a_file_that_cannot_be_written_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Servers start and end as before, and it is used again as soon as it can be."""
    folder = tmp_path / "away"
    recorder = Recorder(folder / "sessions.sqlite")
    caplog.set_level(logging.ERROR)
    for event in LIFE:
        recorder.take(event)
    assert await recorder.open_sessions() == frozenset()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["Sessions are not recorded"]

    folder.mkdir()
    recorder.take(SUBMITTED)
    assert await recorder.open_sessions() == {SUBMITTED.session}
    await asyncio.to_thread(recorder.close)


def test_an_event_that_is_written_makes_room_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a disk hangs, later events are lost; what was taken is written, and then as many may wait as before."""
    monkeypatch.setattr(keeper, "WAITING_AT_MOST", 2)
    may_write, written = threading.Event(), list[object]()

    def write(_store: SessionStore, event: object) -> None:
        may_write.wait()
        written.append(event)

    monkeypatch.setattr(SessionStore, "take", write)
    recorder = Recorder(tmp_path / "sessions.sqlite")
    for _ in range(2):
        may_write.clear()
        for _ in range(5):
            recorder.take(SUBMITTED)
        may_write.set()
        asyncio.run(recorder.open_sessions())  # in the thread, after what waits
    recorder.close()

    assert len(written) == 4


HUB = """
import asyncio, logging, math, sys
from types import SimpleNamespace
from traitlets.config import Config
from jupyterhub_gpuspawner.hub.job.session import Stream
from jupyterhub_gpuspawner.extensions.records import keeper
from jupyterhub_gpuspawner.hub.spawners.server import HubSite
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from tests.extensions.records.events import LIFE
from jupyterhub_gpuspawner.hub.site.state import KEY, HubState

async def hub():
    logging.basicConfig()
    database = f"sqlite:///{sys.argv[1]}/jupyterhub.sqlite"
    keeper.PATIENCE = math.inf
    state = HubState()
    state.keep(HubSite(GPUSlurmSpawner(config=Config())))
    keeper.begin_sessions(
        SimpleNamespace(config=Config(), db=None, db_url=database, http_server=True, tornado_settings={KEY: state})
    )
    for event in LIFE:
        state.of(Stream).publish(event)
    await asyncio.sleep(0)

asyncio.run(hub())
"""


def test_a_locked_file_does_not_hold_the_end_of_the_hub(tmp_path: Path) -> None:
    """The process ends while another one holds the file, however long a hub that goes on would wait for it."""
    path = tmp_path / "sessions.sqlite"
    SessionStore(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        ended = subprocess.run(
            [sys.executable, "-c", HUB, tmp_path],
            cwd=Path(__file__).parents[3],
            stderr=subprocess.PIPE,
            text=True,
            check=True,
        )

    assert ended.stderr.count("Sessions are not recorded") == 1
    assert "database is locked" in ended.stderr


# --- where the records of sessions are ------------------------------------------------------------


@pytest.mark.parametrize(
    ("db_url", "expected"),
    [
        ("sqlite:///jupyterhub.sqlite", "sessions.sqlite"),
        ("sqlite:////srv/hub/jupyterhub.sqlite", "/srv/hub/sessions.sqlite"),
        ("sqlite:///:memory:", "sessions.sqlite"),
        ("postgresql://hub@db/hub", "sessions.sqlite"),
        ("/srv/hub/jupyterhub.sqlite", "/srv/hub/sessions.sqlite"),
        ("not an address://", "sessions.sqlite"),
    ],
)
def test_the_file_is_beside_the_hubs_database(db_url: str, expected: str) -> None:
    """Where that is no file of SQLite, it is in the hub's working directory."""
    assert str(records_file(db_url)) == expected


def test_a_time_that_is_none_is_refused() -> None:
    """The message names the bounds."""
    with pytest.raises(TraitError, match="must be a whole number from 1 to 36500"):
        GPUSessions(config=Config({"GPUSessions": {"keep_sessions": 0}}))
