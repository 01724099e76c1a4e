"""Failures of the hub's database: roll the session back, and wait until the database takes changes again.

JupyterHub uses one SQLAlchemy session for all of its life. After a failed transaction the session must be rolled back
before it can be used again. JupyterHub does so if a request fails, but not if a start, a poll or a task of ours fails.
And if JupyterHub cannot write to the database when a server ends, the server stays half ended: pending for ever, or
ready without a process. So our spawners report that a server has started or ended only when the hub can write it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from sqlalchemy import (
    Float,
    event,
    update,
)
from sqlalchemy.engine import Engine, ExceptionContext
from sqlalchemy.exc import DBAPIError, PendingRollbackError, SQLAlchemyError
from sqlalchemy.orm import Session
from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.jupyterhub_compat import session_of

PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between tries; the last one is repeated."""
TO_START, TO_POLL, TO_STOP = 60.0, 20.0, 600.0
"""Seconds to wait for the database when a server has started, has ended, or is stopped."""
AWAY_MESSAGE = "The hub's database did not respond while your server was being started. Please start it again."
SECONDS = Float(53)
"""The type of a column with seconds since the epoch, or a number of seconds.

MySQL and MariaDB give a ``FLOAT`` without precision four bytes, which is two minutes off for a time of today.
"""
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
        assert session is not None  # noqa: S101 - for mypy
        row = update(orm.Spawner).where(orm.Spawner.id == orm_spawner.id).values(user_id=orm.Spawner.user_id)
        session.execute(row, execution_options={"synchronize_session": False})
        session.commit()

    return session is None or await written(session, write, patience)


def describe_errors(engine: Engine) -> None:
    """Give every error of this database a message for users, in place of the driver's, which names files and hosts.

    JupyterHub writes to the database before it calls a spawner, and shows ``jupyterhub_message`` of whatever a start
    raises.
    """

    @event.listens_for(engine, "handle_error")
    def describe(context: ExceptionContext) -> None:
        if context.sqlalchemy_exception is not None:
            vars(context.sqlalchemy_exception)["jupyterhub_message"] = AWAY_MESSAGE


def register_descriptions(app: JupyterHub) -> None:
    """Describe the errors of this hub's database as soon as it is opened."""
    app.observe(lambda change: describe_errors(change.new.kw["bind"]), "session_factory")
