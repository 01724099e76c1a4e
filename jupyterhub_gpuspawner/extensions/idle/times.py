"""Times in which servers did not use their GPUs, in a table of JupyterHub's database.

A row is written once a time without use is ten minutes long, brought up to date while it lasts, and kept for 400
days. The hub goes on with the rows of running servers when it is restarted, and ``gpuspawner idle`` reads the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Integer,
    MetaData,
    String,
    Table,
    Unicode,
    bindparam,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.hub.site.database import transaction
from jupyterhub_gpuspawner.hub.site.tables import SECONDS, delete_older, delete_rows_of

RETENTION_SECONDS = 400 * 86400.0
"""Seconds after which a row is deleted."""
RESTORED_SECONDS = 7200.0
"""Seconds after which a restarted hub no longer goes on with a row: a node drops what it could not send in an hour."""

TABLE = Table(
    "gpuspawner_idle",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("user", Unicode(255), nullable=False),
    Column("server", Unicode(255), nullable=False),
    Column("profile", Unicode(255), nullable=False),
    Column("job_id", String(64), nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("since", SECONDS, nullable=False),
    Column("seen", SECONDS, nullable=False),
    Column("most", SECONDS, nullable=False),
    Column("held_mib", Integer, nullable=False),
    Column("due_at", SECONDS),
    Column("action", String(16), nullable=False),
    Column("told_at", SECONDS),
    Column("keeps", Integer, nullable=False),
    Column("kept", SECONDS, nullable=False),
    Column("stopped", Boolean, nullable=False),
    Column("over", Boolean, nullable=False),
)


@dataclass(frozen=True)
class IdleTime:
    """A time in which a server used nothing. Times are in seconds since the epoch."""

    user: str
    server: str
    """Empty for the default server."""
    profile: str
    """The profile's slug."""
    job_id: str
    gpus: int
    """GPUs that it held."""
    since: float
    seen: float
    """Until when that is known."""
    most: float = 0.0
    """The highest utilisation, in per cent; cores for a server without GPUs."""
    held_mib: int = 0
    """GPU memory that was held."""
    due_at: float | None = None
    """When the policy would have stopped the server, or did; None where it was not idle for so long."""
    action: str = "report"
    told_at: float | None = None
    keeps: int = 0
    """How often its user has kept it in this time."""
    kept: float = 0.0
    """By how many seconds."""
    stopped: bool = False
    """The policy has stopped it."""
    over: bool = False
    """It was used again, or has ended."""
    id: int | None = None
    """In the table; None before it is there."""


_FIELDS = [field.name for field in fields(IdleTime)]
_INSERT = insert(TABLE)
_UPDATE = update(TABLE).where(TABLE.c.id == bindparam("row"))


class IdleTimes:
    """The table in a hub. Each method blocks for as long as the database takes, and raises SQLAlchemyError."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def write(self, times: Iterable[IdleTime]) -> list[IdleTime]:
        """Write these, in one transaction; returns them with their ids."""
        times = list(times)
        rows = [_values(time) | {"row": time.id} for time in times if time.id is not None]
        with transaction(self._session):
            if rows:  # one statement for all: the hub waits for this
                self._session.execute(_UPDATE, rows)
            return [time if time.id is not None else replace(time, id=self._insert(time)) for time in times]

    def _insert(self, row: IdleTime) -> int:
        (row_id,) = self._session.execute(_INSERT, _values(row)).inserted_primary_key  # type: ignore[attr-defined]
        return int(row_id)

    def forget_old(self) -> None:
        """Delete rows older than :data:`RETENTION_SECONDS`."""
        delete_older(self._session, TABLE.c.seen, RETENTION_SECONDS)

    def to_take_up(self) -> list[IdleTime]:
        """Those that are not over as far as the table says, the oldest first."""
        wanted = select(TABLE).where(TABLE.c.over.is_(False)).order_by(TABLE.c.id)
        return [_time(row) for row in self._session.execute(wanted).mappings()]

    def keeps(self) -> dict[tuple[str, str, str], int]:
        """How often servers have been kept in all, by user, server and job."""
        key = (TABLE.c.user, TABLE.c.server, TABLE.c.job_id)
        wanted = select(*key, func.sum(TABLE.c.keeps)).where(TABLE.c.keeps > 0).group_by(*key)
        return {(user, server, job): int(keeps) for user, server, job, keeps in self._session.execute(wanted)}


def due_since(connection: Connection, since: float) -> Sequence[IdleTime]:
    """The times after which the policy would have stopped a server, or did, that lasted until ``since`` or later.

    Empty where the table was never made. Raises SQLAlchemyError.
    """
    if not inspect(connection).has_table(TABLE.name):
        return ()
    wanted = select(TABLE).where(TABLE.c.due_at.is_not(None), TABLE.c.seen >= since).order_by(TABLE.c.since)
    return [_time(row) for row in connection.execute(wanted).mappings()]


def forget(connection: Connection, user: str) -> dict[str, int]:
    """Delete all times of a user, and return how many there were. Raises SQLAlchemyError."""
    return {"idle time": delete_rows_of(user, TABLE.c.user, connection)}


def _values(row: IdleTime) -> dict[str, Any]:
    """The columns of a row, without its id."""
    return {name: getattr(row, name) for name in _FIELDS if name != "id"}


def _time(row: Any) -> IdleTime:
    return IdleTime(**{name: row[name] for name in _FIELDS})
