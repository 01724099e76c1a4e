"""The starts of this hub, in a table of our own in the hub's database.

A start is recorded before sbatch runs. A job without a server is cancelled only if its start is recorded here: a hub
restored from a backup has the same name, secret and servers, but no record of what was started since.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Column, Connection, String, Table, Unicode, delete, insert, select
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.hub.site.database import TO_START, transaction, written
from jupyterhub_gpuspawner.hub.site.tables import SECONDS, TABLES, delete_older, delete_rows_of

RETENTION_SECONDS = 180 * 86400.0
"""Seconds that a record is kept: longer than a server runs."""
_BATCH_SIZE = 200
"""Starts in one query; databases limit the number of parameters."""

_TABLE = Table(
    "gpuspawner_starts",
    TABLES,
    Column("start_id", String(64), primary_key=True),
    Column("user_name", Unicode(255), nullable=False),
    Column("server_name", Unicode(255), nullable=False),
    Column("made_at", SECONDS, nullable=False),
)


@dataclass(frozen=True)
class RecordedStart:
    """The user and the server of a start."""

    user: str
    server: str


class StartRecords:
    """The table, through JupyterHub's session; every query blocks for as long as the database takes."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, start_id: str, start: RecordedStart, *, patience: float = TO_START) -> bool:
        """Record a start as soon as the database takes it; return False if it does not in ``patience`` seconds.

        Raises SQLAlchemyError for an error that a later try cannot mend.
        """
        row = {"start_id": start_id, "user_name": start.user, "server_name": start.server, "made_at": time.time()}

        def write() -> None:
            with transaction(self._session):
                # a commit whose answer was lost with the connection may have succeeded
                self._session.execute(delete(_TABLE).where(_TABLE.c.start_id == start_id))
                self._session.execute(insert(_TABLE).values(**row))

        return await written(self._session, write, patience)

    def find(self, start_ids: Collection[str]) -> dict[str, RecordedStart]:
        """Those of ``start_ids`` that are recorded; raises SQLAlchemyError."""
        wanted, recorded = sorted(start_ids), dict[str, RecordedStart]()
        for at in range(0, len(wanted), _BATCH_SIZE):
            query = select(_TABLE).where(_TABLE.c.start_id.in_(wanted[at : at + _BATCH_SIZE]))
            for row in self._session.execute(query):
                recorded[row.start_id] = RecordedStart(row.user_name, row.server_name)
        return recorded

    def forget_old(self) -> None:
        """Delete records older than :data:`RETENTION_SECONDS`; raises SQLAlchemyError."""
        delete_older(self._session, _TABLE.c.made_at, RETENTION_SECONDS)


def forget_starts(connection: Connection, user: str) -> int:
    """Delete all records of a user's starts, and return how many there were. Raises SQLAlchemyError.

    A job that still runs is then left alone if the hub ever loses its server.
    """
    return delete_rows_of(user, _TABLE.c.user_name, connection)
