"""Failures of the hub's database: roll the session back, and wait until the database takes changes again.

JupyterHub uses one SQLAlchemy session for all of its life. After a failed transaction the session must be rolled back
before it can be used again. JupyterHub does so if a request fails, but not if a start, a poll or a task of ours fails.
And if JupyterHub cannot write to the database when a server ends, the server stays half ended: pending for ever, or
ready without a process. So our spawners report that a server has started or ended only when the hub can write it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from jupyterhub.spawner import Spawner
from jupyterhub.utils import utcnow
from sqlalchemy import Column, Integer, MetaData, Table, event, inspect, select, update
from sqlalchemy.engine import URL, Engine, ExceptionContext, make_url
from sqlalchemy.exc import (
    DatabaseError,
    DBAPIError,
    InterfaceError,
    InternalError,
    OperationalError,
    PendingRollbackError,
    SQLAlchemyError,
)
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry
from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.jupyterhub_compat import session_of
from jupyterhub_gpuspawner.slurm.reason import Words
from jupyterhub_gpuspawner.tasks import in_background

PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between tries; the last one is repeated."""
TO_START, TO_POLL, TO_STOP = 60.0, 20.0, math.inf
"""Seconds to wait for the database when a server has started, has ended, or is stopped.

A stop waits as long as it takes: JupyterHub has no way back from one that it could not write down.
"""
UNAVAILABLE = Words(
    "The hub's database did not respond, or takes no changes, so nothing was done.",
    "Try again in a few minutes; if it lasts, tell an administrator. Servers that run go on.",
)
AWAY_MESSAGE = f"{UNAVAILABLE.sentence} {UNAVAILABLE.advice}"
NOT_CACHED: Mapping[str, Any] = {"compiled_cache": None}
"""For a query of a column with JupyterHub's type for JSON, which does not say whether its statements may be cached."""
AWAY = (DBAPIError, PendingRollbackError)
"""Exceptions while the database is unreachable, full or locked: a later try may succeed."""


def fault(error: SQLAlchemyError) -> str:
    """Return the database's message for a log, without the statement and its values, which may be confidential."""
    return str(error).partition("\n")[0]


def roll_back(session: Session) -> None:
    """Make the session usable again after an error; uncommitted changes are lost."""
    with suppress(SQLAlchemyError):  # the connection may be gone with the transaction
        session.rollback()


@contextmanager
def transaction(session: Session) -> Iterator[None]:
    """Commit what the block does, or roll it back if the block raises or the commit fails."""
    try:
        yield
        session.commit()
    except BaseException:
        roll_back(session)
        raise


async def written(session: Session, write: Callable[[], None], patience: float) -> bool:
    """Call ``write``, which commits, until it succeeds or ``patience`` seconds have passed; return whether it did.

    The session is rolled back after each failure. Raises SQLAlchemyError for an error that a later try cannot mend.
    """
    ends_at = time.monotonic() + patience
    tries = 0
    while True:
        try:
            write()
        except SQLAlchemyError as error:
            roll_back(session)
            if not isinstance(error, AWAY):
                raise
            if tries == 0:
                get_logger().warning(
                    "The hub's database does not accept changes at the moment; trying again: %s", fault(error)
                )
        else:
            return True
        pause = PAUSES[min(tries, len(PAUSES) - 1)]
        if time.monotonic() + pause > ends_at:
            return False
        await asyncio.sleep(pause)
        tries += 1


async def takes_changes(orm_spawner: Any, patience: float) -> bool:
    """Wait until the database takes a change of this spawner's row; return False after ``patience`` seconds.

    A commit without a change does not reach the database, and a query does not notice a full disk, so the row is
    written unchanged. True for a spawner without a row.
    """
    session = session_of(orm_spawner)

    def write() -> None:
        assert session is not None
        row = update(orm.Spawner).where(orm.Spawner.id == orm_spawner.id).values(user_id=orm.Spawner.user_id)
        session.execute(row, execution_options={"synchronize_session": False})
        session.commit()

    return session is None or await written(session, write, patience)


def write_fix(db_url: str) -> str:
    """What an admin can do about a database that takes no changes."""
    url = make_url(full_url(db_url))
    if url.get_backend_name() != "sqlite":
        return "Look at the database server of c.JupyterHub.db_url."
    path = Path(os.path.abspath(url.database or ""))  # noqa: PTH100 - as the hub names it
    return f"Look at {path} and its folder: owner and mode, `df {path.parent}`, and a mount that is read-only."


def full_url(db_url: str) -> str:
    """Return the URL for ``c.JupyterHub.db_url``, which may be the name of an SQLite file."""
    return db_url if "://" in db_url else f"sqlite:///{db_url}"


def is_in_memory(url: URL) -> bool:
    """Whether the database ends with its one connection, which the hub's process has."""
    return url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")


SCHEMA = Table("gpuspawner_schema", MetaData(), Column("version", Integer, primary_key=True, autoincrement=False))
"""One row; a database of before this table has no row, and the tables of version 1, as far as they were used."""
OUTAGE_RETRY_SECONDS = 5.0
"""Seconds between two tries to write to a database that failed."""
LINE_SECONDS = 60.0
"""Seconds between two lines about a database that takes no changes."""
_WRITE = update(SCHEMA).values(version=SCHEMA.c.version)
_READ_ONLY = "gpuspawner_read_only"


class Outage:
    """A time in which the hub's database takes no changes, from the first error to the first write that succeeds.

    A connection that is opened to a file that cannot be written begins one, too.

    One line in the log each minute says so, whoever met the errors.

    A connection keeps what it met when it was opened. SQLite opens a file that it may not write to for reading alone,
    and the connection stays so when the file can be written again (sqlite3_db_readonly); one of Postgres keeps the
    ``default_transaction_read_only`` of its beginning, or leads to a server that is no longer the primary. From the
    pool such a connection would fail every so many writes until the hub is restarted. So none is used a second time
    that was opened to a file that could not be written, or used during an outage.

    They are closed when they are returned, which has rolled their transaction back: SQLite keeps the lock of a
    connection that is closed while an exception still refers to one of its cursors.
    """

    def __init__(self, app: JupyterHub) -> None:
        self._app = app
        self._logged_at: float | None = None
        """By the monotonic clock; None while the database works, as far as is known."""

    def watch(self, engine: Engine) -> None:
        """Take note of this database's errors, and give each a message for users, in place of the driver's.

        That one names files and hosts. JupyterHub writes to the database before it calls a spawner, and shows
        ``jupyterhub_message`` of whatever a login or a start raises.
        """
        # raised by the session itself, after the error of which the event below tells
        PendingRollbackError.jupyterhub_message = AWAY_MESSAGE  # type: ignore[attr-defined]

        @event.listens_for(engine, "handle_error")
        def describe(context: ExceptionContext) -> None:
            error = context.sqlalchemy_exception
            if error is not None:
                vars(error)["jupyterhub_message"] = AWAY_MESSAGE
            # SQLite's error of a file that is no database any more has no class of its own
            if isinstance(error, (OperationalError, InterfaceError, InternalError)) or type(error) is DatabaseError:
                if self._logged_at is None:
                    renew(engine)
                self.failing(fault(error))

        if is_in_memory(engine.url):
            return

        @event.listens_for(engine, "do_connect")
        def open_no_other(*_arguments: object) -> None:
            # SQLite would make an empty file in the place of one that was moved away or is on a disk that is not
            # mounted, and delete the changes of the real one that are in the journal beside it (-wal)
            if _is_file(engine.url) and not os.path.lexists(engine.url.database or ""):
                raise sqlite3.OperationalError("unable to open database file")

        @event.listens_for(engine, "connect")
        def opened(_connection: object, entry: ConnectionPoolEntry) -> None:
            entry.info[_READ_ONLY] = not _may_write(engine.url)
            if entry.info[_READ_ONLY] and Path(engine.url.database or "").exists():
                # JupyterHub's session may hold this one until its next write, which would fail whenever that is
                self.failing("attempt to write a readonly database")

        @event.listens_for(engine, "checkin")
        def returned(_connection: object, entry: ConnectionPoolEntry) -> None:
            if self._logged_at is not None or entry.info.get(_READ_ONLY):
                entry.invalidate()

    def failing(self, message: str) -> None:
        """Take note of an error with this message for the log; called by any thread."""
        now = time.monotonic()
        if self._logged_at is not None and now - self._logged_at < LINE_SECONDS:
            return
        self._logged_at = now
        get_logger().error(
            "The hub's database takes no changes, so nobody can sign in, and no server starts or stops: %s. %s Servers "
            "that run go on.",
            message,
            write_fix(self._app.db_url),
        )

    async def retry(self) -> None:
        """Write to a database that failed; its error is met like all others.

        First on a connection of its own, which a database that hangs may hold without holding the hub; then on the one
        of JupyterHub's session, which may be of before the outage.
        """
        if self._logged_at is None:
            return
        session = self._app.db
        engine = session.get_bind()
        with suppress(SQLAlchemyError):
            if not is_in_memory(engine.url):
                await asyncio.to_thread(_write, engine)
            with transaction(session):
                session.execute(_WRITE)
            self._logged_at = None
            renew(engine)  # another thread may have one of before that write
            get_logger().warning("The hub's database takes changes again")


def renew(engine: Engine) -> None:
    """Use no connection again that is open now; the database of one in memory would end with it."""
    if not is_in_memory(engine.url):
        engine.dispose()


def _is_file(url: URL) -> bool:
    """Whether the database is an SQLite file with this name."""
    return url.get_backend_name() == "sqlite" and not (url.database or "").startswith("file:")


def _may_write(url: URL) -> bool:
    """False for an SQLite file that cannot be written."""
    return not _is_file(url) or os.access(url.database or "", os.W_OK)


def _write(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(_WRITE)


# A server's state in the hub's database, written when something happens to it.
#
# JupyterHub writes a spawner's state after ``start()`` and when the server ends. What is learned in between, such as
# the id of a job, would be lost with a hub that is killed.


class StoredState:
    """Writes the state of one spawner to its row and commits."""

    def __init__(self, spawner: Spawner, *, server: str, log: logging.Logger) -> None:
        """``server`` is the name for the log."""
        self._spawner = spawner
        self._server = server
        self._log = log

    def count_age_from_now(self) -> None:
        """Have the server's age and its idle time count from now on; the caller commits.

        JupyterHub notes when the server was asked for. A culler with a ``max_age`` would count the time in the queue.
        """
        row = self._spawner.orm_spawner
        if row is not None:
            row.started = row.last_activity = utcnow(with_tz=False)

    def store(self) -> None:
        """Write the state now, and the port of the server's address. Raises SQLAlchemyError."""
        spawner = self._spawner
        session = self.session
        if session is not None:
            server = spawner.server
            # JupyterHub writes a port to the row when it is set: a rollback since then has undone that
            if server is not None and server.orm_server is not None and server.orm_server.port != server.port:
                server.orm_server.port = server.port
            spawner.orm_spawner.state = spawner.get_state()
            session.commit()

    def store_soon(self) -> None:
        """Write the state now or, while the database takes no changes, in the background as soon as it does."""
        try:
            self.store()
        except AWAY as error:
            session = self.session
            assert session is not None
            roll_back(session)
            self._log.warning("The state of %s is not in the hub's database yet: %s", self._server, fault(error))
            in_background(self._store_later(session))

    async def _store_later(self, session: Session) -> None:
        await written(session, self.store, TO_STOP)

    @property
    def is_deleted(self) -> bool:
        """Whether the spawner's row is gone: its server or user was deleted. Raises SQLAlchemyError."""
        row = self._spawner.orm_spawner
        identity = inspect(row).identity if row is not None else None
        if identity is None:
            return False
        session = self.session
        query = select(orm.Spawner.id).where(orm.Spawner.id == identity[0])
        return session is None or session.execute(query).first() is None

    @property
    def session(self) -> Session | None:
        """The session of the hub's database; None for a spawner without a row."""
        return session_of(self._spawner.orm_spawner)
