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
from sqlalchemy import event, select, text
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import InvalidRequestError, OperationalError

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.lost_jobs import Reconciliation
from jupyterhub_gpuspawner.hub.site import background, database
from jupyterhub_gpuspawner.hub.site.background import every
from jupyterhub_gpuspawner.hub.site.database import fault, takes_changes, written
from jupyterhub_gpuspawner.hub.site.tables import SECONDS
from jupyterhub_gpuspawner.hub.start.submission import RecordedStart
from jupyterhub_gpuspawner.site.configured import exposed_database
from jupyterhub_gpuspawner.site.database import open_database


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
    """Return a :class:`Database`, with short pauses between tries."""
    monkeypatch.setattr(database, "PAUSES", (0.01,))
    db = Database(tmp_path / "hub.sqlite")
    yield db
    db.other.close()
    db.session.close()
    db.session.get_bind().dispose()


async def test_a_database_that_takes_changes_is_not_waited_for(hub_database: Database) -> None:
    """Neither is there anything to wait for without a row."""
    assert await takes_changes(hub_database.spawner, 0.0) is True
    assert await takes_changes(None, 0.0) is True


async def test_a_locked_database_is_waited_for_and_the_session_works_afterwards(hub_database: Database) -> None:
    """False while it is locked, True afterwards."""
    hub_database.lock()

    assert await takes_changes(hub_database.spawner, 0.05) is False

    failures = list[object]()
    event.listen(hub_database.session.get_bind(), "handle_error", failures.append)
    waiting = asyncio.ensure_future(takes_changes(hub_database.spawner, 30.0))
    while len(failures) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert not waiting.done()
    hub_database.unlock()

    assert await waiting is True
    hub_database.spawner.state = {"job_id": "7"}
    hub_database.session.commit()
    assert hub_database.other.execute("select state from spawners").fetchone() == ('{"job_id": "7"}',)


async def test_a_fault_of_ours_is_not_waited_out(hub_database: Database) -> None:
    """Only an operation that may succeed later is tried again."""

    def write() -> None:
        raise InvalidRequestError("a mistake")

    with pytest.raises(InvalidRequestError):
        await written(hub_database.session, write, 30.0)


def test_what_the_log_says_of_a_fault_holds_no_value(hub_database: Database) -> None:
    """Neither the statement nor its parameters."""
    hub_database.lock()
    hub_database.spawner.state = {"secret": "hunter2"}
    with pytest.raises(OperationalError) as caught:
        hub_database.session.commit()
    hub_database.unlock()

    assert "hunter2" in str(caught.value)
    assert fault(caught.value) == "(sqlite3.OperationalError) database is locked"


async def test_jobs_without_a_server_are_looked_for_again_after_an_outage(
    hub_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so, and JupyterHub's session can be used by the next request."""
    monkeypatch.setattr(background, "RETRY_SECONDS", 0.0)
    users: list[str | None] = []

    class Client:
        async def every_job(self) -> dict[str, Any]:
            return {}

    class Servers:
        def job_ids(self) -> set[str]:
            return set()

        def starts(self, _: Collection[str]) -> dict[str, RecordedStart]:
            users.append(hub_database.session.scalar(select(orm.User.name)))
            if len(users) == 1:
                hub_database.lock()
                try:
                    hub_database.spawner.state = {"job_id": "7"}
                    hub_database.session.flush()
                finally:
                    hub_database.unlock()
            return {}

    cluster = SimpleNamespace(client=Client(), submitting=set(), cancelling=set())
    site = SimpleNamespace(connection=lambda _on: cluster, hub_name="demo", job_name="jupyterhub")
    reconcile = Reconciliation(site, site, Servers(), "0a1b2c3d").run_once  # type: ignore[arg-type]
    app: Any = SimpleNamespace(db=hub_database.session, http_server=object())
    await every(app, 0, reconcile, "The check for jobs without a server")

    assert users == ["ann", "ann"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "The check for jobs without a server failed and is repeated: (sqlite3.OperationalError) database is locked"
    ]


def test_a_time_of_today_is_exact_in_every_database() -> None:
    """Eight bytes: MySQL's FLOAT has four up to a precision of 24 bits, SQLite's has eight in any case."""
    dialects = (mysql.dialect(), postgresql.dialect(), sqlite.dialect())  # type: ignore[no-untyped-call]

    assert [SECONDS.compile(dialect) for dialect in dialects] == ["FLOAT(53)", "FLOAT(53)", "FLOAT"]


@pytest.fixture
def folder(public_folder: Path) -> Path:
    """Return a folder that everybody may enter."""
    inner = public_folder / "hub"
    inner.mkdir(mode=0o755, exist_ok=True)
    return inner


@pytest.mark.parametrize(
    ("mode", "exposed"), [(0o600, False), (0o640, True), (0o604, True), (0o644, True), (0o622, False)]
)
def test_a_database_that_others_can_read_is_reported(folder: Path, mode: int, exposed: bool) -> None:
    """With its mode, and what to do."""
    file = folder / "hub.sqlite"
    file.touch()
    file.chmod(mode)

    assert exposed_database(f"sqlite:///{file}") == (
        f"the hub's database can be read by others (mode {mode:04o}): restrict it to its owner with chmod 600 {file}"
        if exposed
        else ""
    )


def test_a_closed_folder_protects_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the URL has a relative path, which begins at the hub's working folder."""
    closed = folder / "closed"
    closed.mkdir(exist_ok=True)
    (closed / "hub.sqlite").touch()
    (closed / "hub.sqlite").chmod(0o644)
    monkeypatch.chdir(closed)
    closed.chmod(0o755)

    assert "mode 0644" in exposed_database("sqlite:///hub.sqlite")

    closed.chmod(0o700)

    assert exposed_database("sqlite:///hub.sqlite") == ""


@pytest.mark.parametrize(
    "url",
    ["sqlite:///:memory:", "sqlite://", "postgresql://hub:pw@db/hub", "sqlite:////no/such/file", "no address", ""],
)
def test_what_is_no_file_is_not_exposed(url: str) -> None:
    """A database in memory, one of a server, or none."""
    assert exposed_database(url) == ""


@pytest.mark.parametrize("form", ["{file}", "sqlite:///{file}", "sqlite:///file:{file}?uri=true"])
def test_a_command_opens_the_database_as_the_hub_does(tmp_path: Path, form: str) -> None:
    """By a URL, or by the name of a file, which JupyterHub accepts; with the admin's ``db_kwargs``."""
    (tmp_path / "hub.sqlite").touch()
    engine = open_database(form.format(file=tmp_path / "hub.sqlite"), {"connect_args": {"timeout": 1}})
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    engine.dispose()


NOT_OPENED = {
    "no file": ("sqlite:////no/such.sqlite", {}, r"there is no database /no/such.sqlite\."),
    "in memory": ("sqlite://", {}, "the database is in the hub's memory"),
    "no URL": ("no address://", {}, "Could not parse"),
    "no driver": ("postgresql+nodriver://hub@db/hub", {}, "nodriver"),
    "an unknown argument": ("sqlite://", {"speed": 9}, "'speed'"),
}


@pytest.mark.parametrize(("url", "arguments", "pattern"), NOT_OPENED.values(), ids=NOT_OPENED.keys())
def test_a_database_that_cannot_be_opened_is_an_error_of_the_configuration(
    url: str, arguments: dict[str, object], pattern: str
) -> None:
    """The error names the setting, and no file is made."""
    with pytest.raises(ConfigError, match=pattern) as raised:
        open_database(url, arguments)

    assert str(raised.value).startswith("c.JupyterHub.db_url: ")
