"""An outage of the hub's database: its lines in the log, and which connections are used again after it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm
from jupyterhub.app import JupyterHub
from sqlalchemy import select, text, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.hub import jupyterhub_compat
from jupyterhub_gpuspawner.hub.job.cause import start_failed
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.job.failed_start import ending_of
from jupyterhub_gpuspawner.hub.site import database
from jupyterhub_gpuspawner.hub.site.database import Outage
from tests.fixtures.databases import hub_session

FAST = {"connect_args": {"timeout": 0, "check_same_thread": False}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database's file."""
    return tmp_path / "hub.sqlite"


@pytest.fixture
def session(file: Path) -> Iterator[Session]:
    """JupyterHub's session with it, which waits for no lock."""
    with hub_session(f"sqlite:///{file}", **FAST) as session:
        yield session


def watched(session: Session, url: object) -> Outage:
    """The watch over a database, for which errors count from now on."""
    watch = Outage(SimpleNamespace(db=session, db_url=str(url)))
    watch.watch(session.get_bind())  # type: ignore[arg-type]
    return watch


def add(session: Session, name: str) -> None:
    """Add a user, as JupyterHub does: with its session."""
    with database.transaction(session):
        session.add(orm.User(name=name))


async def test_a_database_that_takes_no_changes_is_one_line_for_all_errors(
    session: Session, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It says what to look at; the next line is about the first change that works again."""
    watch = watched(session, file)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for _ in range(3):
        with pytest.raises(OperationalError), database.transaction(session):
            session.execute(update(orm.User).values(name="changed"))
        await watch.retry()
    other.close()
    await watch.retry()
    await watch.retry()

    assert caplog.messages == [
        "The hub's database takes no changes, so nobody can sign in, and no server starts or stops: "
        f"(sqlite3.OperationalError) database is locked. Look at {file} and its folder: owner and mode, "
        f"`df {file.parent}`, and a mount that is read-only. Servers that run go on.",
        "The hub's database takes changes again",
    ]


def test_no_file_is_made_in_the_place_of_one_that_is_missing(session: Session, file: Path) -> None:
    """SQLite would delete the journal beside it, with all that is in the journal alone."""
    session.execute(text("PRAGMA journal_mode = wal"))
    watch = watched(session, file)
    add(session, "ann")
    away = file.rename(file.with_name("away"))
    session.get_bind().dispose()  # type: ignore[union-attr]
    with pytest.raises(OperationalError, match="unable to open database file"):
        add(session, "bob")

    assert not file.exists()

    away.rename(file)
    asyncio.run(watch.retry())
    add(session, "eve")

    assert session.scalars(select(orm.User.name)).all() == ["ann", "eve"]


def test_an_outage_that_lasts_is_told_again_each_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten errors in a second each, for three minutes: four lines."""
    clock = SimpleNamespace(now=7000.0)
    monkeypatch.setattr(database, "time", SimpleNamespace(monotonic=lambda: clock.now))
    watch = Outage(SimpleNamespace(db_url="sqlite:////srv/hub.sqlite"))
    log_times: list[float] = []
    for clock.now in range(7000, 7181):
        for _ in range(10):
            watch.failing("database is locked")
        if len(caplog.records) > len(log_times):
            log_times.append(clock.now)

    assert (log_times, len(caplog.records)) == ([7000, 7060, 7120, 7180], 4)


async def test_a_connection_that_is_read_only_is_used_no_more_when_the_outage_is_over(
    session: Session, file: Path
) -> None:
    """Ten connections at once; SQLite's ``query_only`` stands for a file that could not be written meanwhile."""
    watch = watched(session, file)
    engine: Any = session.get_bind()
    connections = [engine.connect() for _ in range(10)]
    for connection in connections:
        connection.exec_driver_sql("PRAGMA query_only = ON")
        connection.close()
    with pytest.raises(OperationalError, match="readonly"):
        add(session, "ann")
    for name in ("ben", "cyd", "dan"):  # new connections, from the first error on
        add(session, name)
    for connection in [engine.connect() for _ in range(10)]:
        connection.exec_driver_sql("PRAGMA query_only = ON")
        connection.close()
    await watch.retry()

    with engine.connect() as first, engine.connect() as second:
        modes = [connection.exec_driver_sql("PRAGMA query_only").scalar() for connection in (first, second)]
    assert modes == [0, 0]


def test_a_connection_to_a_file_that_cannot_be_written_is_used_once(
    session: Session, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody has tried to write meanwhile. As root may write to any file, the answer to "may I" is a stand-in."""
    watched(session, file)
    engine: Any = session.get_bind()
    session.close()
    engine.dispose()
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
    monkeypatch.undo()

    add(session, "ann")


async def test_an_outage_that_only_readers_have_met_is_known_until_a_write_succeeds(
    session: Session, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """JupyterHub's session keeps what it read with until its next write, which would fail long after the outage."""
    watch = watched(session, file)
    engine: Any = session.get_bind()
    session.close()
    engine.dispose()
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    session.execute(text("PRAGMA query_only = ON"))  # its connection is opened, and held
    await watch.retry()
    monkeypatch.undo()
    await watch.retry()
    add(session, "ann")

    assert [message.partition(",")[0] for message in caplog.messages] == [
        "The hub's database takes no changes",
        "The hub's database takes changes again",
    ]


async def test_a_database_in_memory_survives_an_outage() -> None:
    """It has one connection, and would end with it."""
    with hub_session("sqlite:///:memory:") as session:
        watch = watched(session, "sqlite:///:memory:")
        add(session, "ann")
        session.execute(text("PRAGMA query_only = ON"))
        with pytest.raises(OperationalError, match="readonly"):
            add(session, "ben")
        session.execute(text("PRAGMA query_only = OFF"))
        await watch.retry()

        assert session.execute(text("SELECT name FROM users")).all() == [("ann",)]


async def test_jupyterhub_shows_a_sentence_for_an_error_of_its_own_write(file: Path) -> None:
    """Not the driver's message, which names a file or a host; here another connection has locked the database."""
    app = JupyterHub()
    app.session_factory = orm.new_session_factory(f"sqlite:///{file}", connect_args={"timeout": 0})
    Outage(app).watch(app.session_factory.kw["bind"])
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    session = app.session_factory()

    session.add(orm.User(name="ann"))
    with pytest.raises(OperationalError) as raised:
        session.commit()

    assert jupyterhub_compat.first_line(raised.value) == database.AWAY_MESSAGE
    ending = ending_of(raised.value)
    assert ending is not None
    assert (ending.cause, words_of(ending)) == (start_failed("database"), database.UNAVAILABLE)
    other.close()
    session.close()
    session.get_bind().dispose()
