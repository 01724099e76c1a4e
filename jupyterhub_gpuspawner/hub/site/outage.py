"""An outage of the hub's database: what people and the log read of it, and that no connection outlives it.

A connection keeps what it met when it was opened. SQLite opens a file that it may not write to for reading alone, and
the connection stays so when the file can be written again (sqlite3_db_readonly); one of Postgres keeps the
``default_transaction_read_only`` of its beginning, or leads to a server that is no longer the primary. From the pool
such a connection would fail every so many writes until the hub is restarted. So none is used a second time that was
opened to a file that could not be written, or used during an outage.

They are closed when they are returned, which has rolled their transaction back: SQLite keeps the lock of a connection
that is closed while an exception still refers to one of its cursors.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from jupyterhub.app import JupyterHub
from sqlalchemy import event, update
from sqlalchemy.engine import URL, Engine, ExceptionContext
from sqlalchemy.exc import (
    DatabaseError,
    InterfaceError,
    InternalError,
    OperationalError,
    PendingRollbackError,
    SQLAlchemyError,
)
from sqlalchemy.pool import ConnectionPoolEntry
from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.site.background import every
from jupyterhub_gpuspawner.hub.site.database import (
    AWAY_MESSAGE,
    SCHEMA,
    fault,
    is_in_memory,
    transaction,
    write_fix,
)

RETRY_SECONDS = 5.0
"""Seconds between two tries to write to a database that failed."""
LINE_SECONDS = 60.0
"""Seconds between two lines about a database that takes no changes."""
_WRITE = update(SCHEMA).values(version=SCHEMA.c.version)
_READ_ONLY = "gpuspawner_read_only"


class Outage:
    """A time in which the hub's database takes no changes, from the first error to the first write that succeeds.

    A connection that is opened to a file that cannot be written begins one, too.

    One line in the log each minute says so, whoever met the errors.
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


def _may_write(url: URL) -> bool:
    """False for an SQLite file that cannot be written."""
    is_file = url.get_backend_name() == "sqlite" and not (url.database or "").startswith("file:")
    return not is_file or os.access(url.database or "", os.W_OK)


def _write(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(_WRITE)


def register_outage(app: JupyterHub) -> Callable[[JupyterHub], object]:
    """Watch this hub's database as soon as it is opened; return what begins to retry writes to one that failed."""
    outage = Outage(app)
    app.observe(lambda change: outage.watch(change.new.kw["bind"]), "session_factory")
    return lambda app: every(app, RETRY_SECONDS, outage.retry, "The look at the database")
