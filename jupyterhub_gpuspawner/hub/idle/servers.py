"""How the running servers of this hub stand by the idle policy, as the last check found, and *Keep*."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

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
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.idle.policy import Standing, State, Unused, Using, Verdict, follow, judge, span_of
from jupyterhub_gpuspawner.hub.jupyterhub_compat import session_of
from jupyterhub_gpuspawner.hub.report.server_report import Use
from jupyterhub_gpuspawner.hub.site.database import SECONDS, transaction
from jupyterhub_gpuspawner.hub.site.schema import TABLES
from jupyterhub_gpuspawner.profiles.profile import IdleAction, IdleRule
from jupyterhub_gpuspawner.wire.documents import SAMPLES, PlacementDocument

# Times in which servers did not use their GPUs, in a table of JupyterHub's database.
#
# A row is written once a time without use is ten minutes long, brought up to date while it lasts, and kept for 400
# days. The hub goes on with the rows of running servers when it is restarted, and ``gpuspawner idle`` reads the table.

RETENTION_SECONDS = 400 * 86400.0
"""Seconds after which a row is deleted."""
RESTORED_SECONDS = 7200.0
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


_FIELDS = [field.name for field in fields(IdleTime)]
_INSERT = insert(_TABLE)
_UPDATE = update(_TABLE).where(_TABLE.c.id == bindparam("row"))


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
            return [time if time.id is not None else self._insert(time) for time in times]

    def _insert(self, row: IdleTime) -> IdleTime:
        (row_id,) = self._session.execute(_INSERT, _values(row)).inserted_primary_key  # type: ignore[attr-defined]
        return replace(row, id=row_id)

    def forget_old(self) -> None:
        """Delete rows older than :data:`RETENTION_SECONDS`."""
        with transaction(self._session):
            self._session.execute(delete(_TABLE).where(_TABLE.c.seen < time.time() - RETENTION_SECONDS))

    def to_take_up(self, now: float | None = None) -> list[IdleTime]:
        """Those that a hub that was restarted goes on with."""
        at = time.time() if now is None else now
        wanted = select(_TABLE).where(_TABLE.c.over.is_(False), _TABLE.c.seen > at - RESTORED_SECONDS)
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


def _values(row: IdleTime) -> dict[str, Any]:
    """The columns of a row, without its id."""
    return {name: getattr(row, name) for name in _FIELDS if name != "id"}


def _time(row: Any) -> IdleTime:
    return IdleTime(**{name: row[name] for name in _FIELDS})


ROW_AFTER = 600.0
"""Seconds without use after which they are written to the database."""


DEFAULT = IdleRule()
NOT_YET = Verdict(State.UNKNOWN)
NO_VERDICT = Standing(gpus=False, using=Using.UNKNOWN)


class NotKept(RequestError):
    """A server is not kept: it is not idle, or was kept as often as its profile allows."""

    status_code = 409
    reason = "not_kept"


@dataclass(frozen=True)
class IdleServer:
    """How one server stands."""

    job_id: str
    gpus: bool
    rule: IdleRule = DEFAULT
    unused: Unused | None = None
    verdict: Verdict = NOT_YET
    standing: Standing = NO_VERDICT
    """Of what the verdict is."""
    read_to: float = 0.0
    """When the hub got the last summary that has been read."""
    keeps_before: int = 0
    """How often its user has kept it in earlier idle times."""
    keeps: int = 0
    """How often in this one."""
    kept: float = 0.0
    """For how many seconds it was kept in this one, by whomever."""
    told_at: float | None = None
    """When its user was first told, since it was last used or kept."""
    row: IdleTime | None = None
    """What the database has of this idle time."""

    @property
    def is_announced(self) -> bool:
        """Its user is told now."""
        return self.rule.action is not IdleAction.REPORT and self.verdict.state in (State.WARNED, State.DUE)

    @property
    def keeps_left(self) -> int:
        """How often its user can still keep it."""
        return max(0, self.rule.keep_times - self.keeps_before - self.keeps)

    def looked_at(
        self,
        usage: Sequence[Use],
        placement: PlacementDocument,
        rule: IdleRule,
        *,
        now: float,
        last_activity: float | None = None,
        in_session: bool = False,
        session_ended: float = 0.0,
    ) -> IdleServer:
        """How it stands after these summaries, of which those that have been read are left out. Pure."""
        fresh = [span_of(use, placement) for use in usage if use.at > self.read_to]
        unused = follow(self.unused, fresh)
        using = Using.UNKNOWN
        if usage and usage[-1].is_current(now):
            using = span_of(usage[-1], placement).using
        restarted = self.unused is not None and (unused is None or unused.since != self.unused.since)
        server = replace(
            self,
            rule=rule,
            unused=unused,
            read_to=usage[-1].at if usage else self.read_to,
            keeps_before=self.keeps_before + (self.keeps if restarted else 0),
            keeps=0 if restarted else self.keeps,
            kept=0.0 if restarted else self.kept,
            told_at=None if restarted else self.told_at,
            row=None if restarted else self.row,
        )
        standing = Standing(
            gpus=self.gpus,
            using=using,
            unused=unused,
            last_activity=last_activity,
            in_session=in_session,
            session_ended=session_ended,
            every=SAMPLES * usage[-1].summary.interval if usage else 0.0,
        )
        return server.with_verdict(standing, now)

    def with_verdict(self, standing: Standing, now: float) -> IdleServer:
        """With the verdict of now; told for the first time if that is due."""
        standing = replace(standing, kept=self.kept, told_at=self.told_at)
        server = replace(self, standing=standing, verdict=judge(standing, self.rule))
        if server.is_announced and server.told_at is None:
            return server.announced(now)
        return server if server.is_announced else replace(server, told_at=None)

    def announced(self, now: float) -> IdleServer:
        """Told at ``now`` for the first time."""
        standing = replace(self.standing, told_at=now)
        return replace(self, told_at=now, standing=standing, verdict=judge(standing, self.rule))

    def prolonged(self, now: float, *, staff: bool = False) -> IdleServer:
        """Left alone for as long as its rule says; that ``staff`` does not count as one of its user's times."""
        keeps = self.keeps if staff else self.keeps + 1
        server = replace(self, keeps=keeps, kept=self.kept + self.rule.keep_by, told_at=None)
        return server.with_verdict(self.standing, now)


SERVERS: dict[tuple[str, str], IdleServer] = {}
"""By user and server name: those that were running at the last check."""


def idle_server(user: str, name: str, job_id: str) -> IdleServer | None:
    """How the server of this job stands; None where it has not been looked at."""
    server = SERVERS.get((user, name))
    return server if server is not None and server.job_id == job_id else None


def keep(spawner: Any, job_id: str, *, now: float, staff: bool = False) -> IdleServer:
    """Have an idle server left alone for the time that its profile says; that is in the database when this returns.

    ``staff``: an instructor or administrator does it, which does not count as one of the profile's times. Raises
    NotKept, and SQLAlchemyError.
    """
    key = (spawner.user.name, spawner.name)
    server = idle_server(*key, job_id)
    if server is None or not server.is_announced:
        raise NotKept(words.NOT_IDLE)
    if not staff and not server.keeps_left:
        raise NotKept(words.NO_KEEP_LEFT)
    longer = server.prolonged(now, staff=staff)
    session = session_of(spawner.orm_spawner)
    if session is not None and longer.row is not None:
        row = replace(longer.row, keeps=longer.keeps, kept=longer.kept, told_at=longer.told_at, due_at=None)
        longer = replace(longer, row=IdleTimes(session).write([row])[0])
    SERVERS[key] = longer
    return longer
