"""Waiting for the hub's database, a real one that another connection locks; and what an outage leaves behind."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm
from sqlalchemy.exc import InvalidRequestError, OperationalError

from jupyterhub_gpuspawner.hub.site import database
from jupyterhub_gpuspawner.hub.site.database import fault, takes_changes, written
from jupyterhub_gpuspawner.hub.start.records import Start
from jupyterhub_gpuspawner.hub.upkeep import reconciliation
from jupyterhub_gpuspawner.hub.upkeep.unfinished import Unfinished


class Database:
    """A hub's database with one spawner, and a second connection that can lock it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.session = orm.new_session_factory(
            f"sqlite:///{file}", connect_args={"timeout": 0, "check_same_thread": False}
        )()
        self.spawner = orm.Spawner(user=orm.User(name="ann"), name="", state={})
        self.session.add(self.spawner)
        self.session.commit()
        self.other = sqlite3.connect(file, isolation_level=None)

    def lock(self) -> None:
        self.other.execute("BEGIN EXCLUSIVE")

    def unlock(self) -> None:
        self.other.execute("ROLLBACK")


@pytest.fixture
def hub_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """See :class:`Database`; with short pauses."""
    monkeypatch.setattr(database, "PAUSES", (0.01,))
    found = Database(tmp_path / "hub.sqlite")
    yield found
    found.other.close()
    found.session.close()
    found.session.get_bind().dispose()


async def test_a_database_that_takes_changes_is_not_waited_for(hub_database: Database) -> None:
    """Nor is one that a spawner without a row would have."""
    assert await takes_changes(hub_database.spawner, 0.0) is True
    assert await takes_changes(None, 0.0) is True


async def test_a_locked_database_is_waited_for_and_the_session_works_afterwards(hub_database: Database) -> None:
    """False while it is locked, true once it is not."""
    hub_database.lock()

    assert await takes_changes(hub_database.spawner, 0.05) is False

    waiting = asyncio.ensure_future(takes_changes(hub_database.spawner, 30.0))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    hub_database.unlock()

    assert await waiting is True
    hub_database.spawner.state = {"job_id": "7"}
    hub_database.session.commit()
    assert hub_database.other.execute("select state from spawners").fetchone() == ('{"job_id": "7"}',)


async def test_a_fault_of_ours_is_not_waited_out(hub_database: Database) -> None:
    """Only what the database may do another time is tried again."""

    def write() -> None:
        raise InvalidRequestError("a mistake")

    with pytest.raises(InvalidRequestError):
        await written(hub_database.session, write, 30.0)


def test_what_the_log_says_of_a_fault_holds_no_value(hub_database: Database) -> None:
    """Neither the statement nor what was to be written."""
    hub_database.lock()
    hub_database.spawner.state = {"secret": "hunter2"}
    with pytest.raises(OperationalError) as caught:
        hub_database.session.commit()
    hub_database.unlock()

    assert "hunter2" in str(caught.value)
    assert fault(caught.value) == "(sqlite3.OperationalError) database is locked"


async def test_jobs_without_a_server_are_looked_for_again_after_an_outage(
    hub_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the database's ends the look, not the looking."""
    monkeypatch.setattr(reconciliation, "AGAIN", 0.0)
    rolled_back: list[bool] = []

    class Client:
        async def every_job(self) -> dict[str, Any]:
            return {}

    class Servers:
        def job_ids(self) -> set[str]:
            if not rolled_back:
                hub_database.lock()
                try:
                    hub_database.spawner.state = {"job_id": "7"}
                    hub_database.session.commit()
                finally:
                    hub_database.unlock()
            return set()

        def starts(self, _: Collection[str]) -> dict[str, Start]:
            return {}

        def roll_back(self) -> None:
            database.roll_back(hub_database.session)
            rolled_back.append(True)

    site = SimpleNamespace(
        connection=lambda: SimpleNamespace(client=Client()),
        hub_name="demo",
        job_name="jupyterhub",
        reconcile_interval=0,
    )
    await reconciliation.Reconciliation(site, Servers(), "0a1b2c3d").run()  # type: ignore[arg-type]

    assert rolled_back == [True]


class Lost:
    """A spawner that the hub shows as ready, and what is done with it."""

    pending = None
    ready = True
    ending = None
    child_spawner = None
    _log_name = "ann"
    _spawn_future = None

    def __init__(self, name: str, *, port: int, status: int | None, watched: bool = False) -> None:
        self.name, self.status = name, status
        self.server = SimpleNamespace(port=port)
        self.reported_port = 2000
        self._callbacks: list[Any] = [print] if watched else []
        self.done: list[str] = []

    async def poll(self) -> int | None:
        return self.status

    def add_poll_callback(self, *callback: Any) -> None:
        self._callbacks.append(callback)

    def start_polling(self) -> None:
        self.done.append("polled")


async def test_a_server_that_nobody_watches_is_taken_up_or_stopped() -> None:
    """Seen twice: with a process behind the address that the hub has, it is watched from now on; else it is stopped."""
    runs, gone = Lost("runs", port=2000, status=None), Lost("gone", port=2000, status=1)
    half, well = Lost("half", port=0, status=None), Lost("well", port=2000, status=None, watched=True)
    spawners = {each.name: each for each in (runs, gone, half, well)}

    class Proxy:
        async def add_user(self, _: Any, name: str) -> None:
            spawners[name].done.append("routed")

        async def delete_user(self, _: Any, name: str) -> None:
            spawners[name].done.append("unrouted")

    class User:
        name = "ann"

        def __init__(self) -> None:
            self.spawners = spawners

        async def stop(self, name: str) -> None:
            spawners[name].done.append("stopped")

    look = Unfinished(SimpleNamespace(users={1: User()}, proxy=Proxy())).look
    await look()
    assert [each.done for each in spawners.values()] == [[], [], [], []]
    await look()

    assert {name: each.done for name, each in spawners.items()} == {
        "runs": ["routed", "polled"],
        "gone": ["unrouted", "stopped"],
        "half": ["unrouted", "stopped"],
        "well": [],
    }
