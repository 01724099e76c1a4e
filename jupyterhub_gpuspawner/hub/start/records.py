"""The starts of this hub, in a table of our own in the hub's database.

A start is recorded before sbatch runs. A job without a server is cancelled only if its start is recorded here: a hub
restored from a backup has the same name, secret and servers, but no record of what was started since.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Column, MetaData, String, Table, Unicode, delete, insert, select
from sqlalchemy.exc import SQLAlchemyError

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.site.database import SECONDS, have_table, roll_back

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy.orm import Session

KEPT = 180 * 86400.0
"""Seconds that a record is kept: longer than a server runs."""
_AT_ONCE = 200
"""Starts in one query; databases limit the number of parameters."""

_TABLE = Table(
    "gpuspawner_starts",
    MetaData(),
    Column("start_id", String(64), primary_key=True),
    Column("user_name", Unicode(255), nullable=False),
    Column("server_name", Unicode(255), nullable=False),
    Column("made_at", SECONDS, nullable=False),
)


class RecordFailed(GPUSpawnerError):
    """The hub's database could not record a start, so no job was submitted."""

    status_code = 503
    reason = "hub_database"


@dataclass(frozen=True)
class RecordedStart:
    """The user and the server of a start."""

    user: str
    server: str


class StartRecords:
    """The table, through JupyterHub's session; every method blocks for as long as the database takes."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, start_id: str, start: RecordedStart) -> None:
        """Record a start and commit; raises RecordFailed."""
        row = {"start_id": start_id, "user_name": start.user, "server_name": start.server, "made_at": time.time()}
        try:
            have_table(self._session, _TABLE)
            self._session.execute(insert(_TABLE).values(**row))
            self._session.commit()
        except SQLAlchemyError as error:
            roll_back(self._session)
            raise RecordFailed(
                "The hub's database could not record this start, so no job was submitted.",
                hint=f"Check the hub's database: {type(error).__name__}.",
            ) from error

    def find(self, start_ids: Collection[str]) -> dict[str, RecordedStart]:
        """Those of ``start_ids`` that are recorded; raises SQLAlchemyError."""
        wanted, found = sorted(start_ids), dict[str, RecordedStart]()
        if wanted:
            have_table(self._session, _TABLE)
        for at in range(0, len(wanted), _AT_ONCE):
            asked = select(_TABLE).where(_TABLE.c.start_id.in_(wanted[at : at + _AT_ONCE]))
            for row in self._session.execute(asked):
                found[row.start_id] = RecordedStart(row.user_name, row.server_name)
        return found

    def forget_old(self) -> None:
        """Delete records older than :data:`KEPT`; raises SQLAlchemyError."""
        have_table(self._session, _TABLE)
        self._session.execute(delete(_TABLE).where(_TABLE.c.made_at < time.time() - KEPT))
        self._session.commit()
