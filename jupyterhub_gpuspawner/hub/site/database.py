"""The hub's database where it fails: one session, rolled back, and waits until it takes changes again.

JupyterHub works on one SQLAlchemy session for all of its life. A transaction that failed must be rolled back before the
session can be used at all; JupyterHub does so where a request fails, and nobody does where a start, a poll or a task of
ours fails. And what JupyterHub cannot write when a server has ended leaves the server half ended: pending for ever, or
ready without a process. So a spawner of ours says that its server has started or ended when the hub can note it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jupyterhub import orm
from sqlalchemy import update
from sqlalchemy.exc import DBAPIError, PendingRollbackError, SQLAlchemyError
from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.jupyterhub_compat import session_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between two tries; the last one again and again."""
TO_START, TO_TELL, TO_STOP = 60.0, 20.0, 600.0
"""Seconds for which the news of a server that has started, has ended, or is stopped, waits for the database."""
AWAY = (DBAPIError, PendingRollbackError)
"""What is raised while the database is away, full or locked: it may be another time."""


def fault(error: SQLAlchemyError) -> str:
    """What the database said, for a log; the statement and its values, which follow it, are not for all to read."""
    return str(error).partition("\n")[0]


def roll_back(session: Session) -> None:
    """Make the session usable again after an error; what was not committed is lost."""
    with suppress(SQLAlchemyError):  # the connection may be gone with the transaction
        session.rollback()


async def written(session: Session, write: Callable[[], None], patience: float) -> bool:
    """Call ``write``, which commits, until the database takes it or ``patience`` seconds are over; whether it did.

    Raises what ``write`` raises if that is no fault of the database's. The session is rolled back after each failure.
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
                get_logger().warning("The hub's database takes no changes now; trying on: %s", fault(error))
        else:
            return True
        pause = PAUSES[min(tries, len(PAUSES) - 1)]
        if time.monotonic() + pause > ends_at:
            return False
        await asyncio.sleep(pause)
        tries += 1


async def takes_changes(orm_spawner: Any, patience: float) -> bool:
    """Wait until the database takes a change of this spawner's row; whether it did within ``patience`` seconds.

    A commit without a change asks the database nothing, and a question alone does not find that a disk is full: so the
    row is written as it is. True for a spawner that is not in the database.
    """
    session = session_of(orm_spawner)

    def write() -> None:
        assert session is not None  # noqa: S101 - for mypy
        row = update(orm.Spawner).where(orm.Spawner.id == orm_spawner.id).values(user_id=orm.Spawner.user_id)
        session.execute(row, execution_options={"synchronize_session": False})
        session.commit()

    return session is None or await written(session, write, patience)
