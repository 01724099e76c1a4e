"""Times in which servers did not use their GPUs, in a table of JupyterHub's database.

A row is written once a time without use is ten minutes long, brought up to date while it lasts, and kept for 400 days.
The hub goes on with the rows of running servers when it is restarted, and ``gpuspawner idle`` reads the table.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from sqlalchemy import (
    Boolean,
    Column,
    Integer,
    String,
    Table,
    Unicode,
    bindparam,
    delete,
    func,
    insert,
    inspect,
    select,
    update,
)

from jupyterhub_gpuspawner.hub.site.database import SECONDS, transaction
from jupyterhub_gpuspawner.hub.site.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Session

KEPT = 400 * 86400.0
"""Seconds after which a row is deleted."""
TAKEN_UP = 7200.0
"""Seconds after which a restarted hub no longer goes on with a row: a node drops what it could not send in an hour."""

_TABLE = Table(
    "gpuspawner_idle",
    TABLES,
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


_FIELDS = [each.name for each in fields(IdleTime)]
_INSERT = insert(_TABLE)
_UPDATE = update(_TABLE).where(_TABLE.c.id == bindparam("row"))


class IdleTimes:
    """The table in a hub. Each method blocks for as long as the database takes, and raises SQLAlchemyError."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def write(self, times: Iterable[IdleTime]) -> list[IdleTime]:
        """Write these, in one transaction; returns them with their ids."""
        times = list(times)
        known = [_values(each) | {"row": each.id} for each in times if each.id is not None]
        with transaction(self._session):
            if known:  # one statement for all: the hub waits for this
                self._session.execute(_UPDATE, known)
            return [each if each.id is not None else self._insert(each) for each in times]

    def _insert(self, each: IdleTime) -> IdleTime:
        (made,) = self._session.execute(_INSERT, _values(each)).inserted_primary_key  # type: ignore[attr-defined]
        return replace(each, id=made)

    def forget_old(self) -> None:
        """Delete rows older than :data:`KEPT`."""
        with transaction(self._session):
            self._session.execute(delete(_TABLE).where(_TABLE.c.seen < time.time() - KEPT))

    def to_take_up(self, now: float | None = None) -> list[IdleTime]:
        """Those that a hub that was restarted goes on with."""
        at = time.time() if now is None else now
        wanted = select(_TABLE).where(_TABLE.c.over.is_(False), _TABLE.c.seen > at - TAKEN_UP)
        return [_time(row) for row in self._session.execute(wanted).mappings()]

    def keeps(self) -> dict[tuple[str, str, str], int]:
        """How often servers have been kept in all, by user, server and job."""
        key = (_TABLE.c.user, _TABLE.c.server, _TABLE.c.job_id)
        wanted = select(*key, func.sum(_TABLE.c.keeps)).where(_TABLE.c.keeps > 0).group_by(*key)
        return {(user, server, job): int(keeps) for user, server, job, keeps in self._session.execute(wanted)}


def due_since(connection: Connection, since: float) -> Sequence[IdleTime]:
    """The times after which the policy would have stopped a server, or did, that lasted until ``since`` or later.

    Empty where the table was never made. Raises SQLAlchemyError.
    """
    if not inspect(connection).has_table(_TABLE.name):
        return ()
    wanted = select(_TABLE).where(_TABLE.c.due_at.is_not(None), _TABLE.c.seen >= since).order_by(_TABLE.c.since)
    return [_time(row) for row in connection.execute(wanted).mappings()]


def forget_user(connection: Connection, user: str) -> int:
    """Delete all times of a user, and return how many there were. Raises SQLAlchemyError."""
    if not inspect(connection).has_table(_TABLE.name):
        return 0
    number = connection.execute(delete(_TABLE).where(_TABLE.c.user == user)).rowcount
    connection.commit()
    return number


def _values(each: IdleTime) -> dict[str, Any]:
    """The columns of a row, without its id."""
    return {name: getattr(each, name) for name in _FIELDS if name != "id"}


def _time(row: Any) -> IdleTime:
    return IdleTime(**{name: row[name] for name in _FIELDS})
