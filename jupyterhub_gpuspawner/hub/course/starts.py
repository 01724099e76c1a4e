"""The starts that courses have asked for, in a table of our own in the hub's database.

A start is recorded before JupyterHub is asked for it, so that no hub, however often it is restarted, asks twice for the
same person and session.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from sqlalchemy import Column, Integer, String, Table, Unicode, UnicodeText, bindparam, delete, insert, select
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.hub.site.database import SECONDS, transaction
from jupyterhub_gpuspawner.hub.site.schema import TABLES

RETENTION_SECONDS = 30 * 86400.0
"""Seconds that a record is kept."""
FAULT_LIMIT = 1000
"""Characters of a fault that are kept."""

_TABLE = Table(
    "gpuspawner_course_starts",
    TABLES,
    Column("course", String(64), primary_key=True),
    Column("session", String(32), primary_key=True),
    Column("user", Unicode(255), primary_key=True),
    Column("stage", String(16), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("asked_at", SECONDS, nullable=False),
    Column("ready_at", SECONDS, nullable=False),
    Column("fault", Unicode(FAULT_LIMIT), nullable=False),
)


class Stage(str, Enum):
    """How far a start for a course is."""

    LEFT = "left"
    """Nothing is started: the server was active already, or a person stopped it before it had been started."""
    ASKED = "asked"
    """Its turn has not come (no tries yet), or JupyterHub was asked and Slurm has not accepted a job yet: a hub that is
    restarted has to ask again."""
    STARTED = "started"
    """Slurm has accepted the job, or the server is ready."""
    VISITED = "visited"
    """The server became ready, and somebody has opened it since."""
    FAILED = "failed"
    UNVISITED = "unvisited"
    """The server was stopped, since nobody had opened it."""


@dataclass(frozen=True)
class CourseStart:
    """A start for one person and session."""

    user: str
    stage: Stage
    tries: int = 0
    """How often JupyterHub was asked."""
    asked_at: float = 0.0
    """Seconds since the epoch, as all times here."""
    ready_at: float = 0.0
    """When the server was first seen ready; 0 until then."""
    fault: str = ""
    """Why the last try failed, in JupyterHub's or Slurm's words; escape it."""


class CourseStarts:
    """The table, through JupyterHub's session.

    Every method blocks for as long as the database takes, and may raise SQLAlchemyError.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, course: str, session: str) -> dict[str, CourseStart]:
        """The starts of a session, by user."""
        query = select(_TABLE).where(_TABLE.c.course == course, _TABLE.c.session == session)
        return {row.user: _start(row) for row in self._session.execute(query)}

    def under_way(self) -> frozenset[tuple[str, str]]:
        """The courses and sessions in which starts are at :attr:`Stage.ASKED`."""
        rows = select(_TABLE.c.course, _TABLE.c.session).where(_TABLE.c.stage == Stage.ASKED.value).distinct()
        return frozenset((row.course, row.session) for row in self._session.execute(rows))

    def get(self, course: str, session: str, user: str) -> CourseStart | None:
        """The start for one person; None where there was none."""
        query = select(_TABLE).filter_by(course=course, session=session, user=user)
        row = self._session.execute(query).one_or_none()
        return _start(row) if row is not None else None

    def keep(self, course: str, session: str, start: CourseStart) -> None:
        """Write a start, in the place of the one for the same person and session, and commit."""
        self.keep_all(course, session, [start])

    def keep_all(self, course: str, session: str, starts: Iterable[CourseStart]) -> None:
        """Write starts of one session as :meth:`keep` does, all of them or none, with one commit."""
        key = {"course": course, "session": session}
        rows = [
            {**key, **asdict(start), "stage": start.stage.value, "fault": start.fault[:FAULT_LIMIT]} for start in starts
        ]
        if not rows:
            return
        old = delete(_TABLE).filter_by(**key).where(_TABLE.c.user == bindparam("person"))
        with transaction(self._session):
            self._session.execute(old, [{"person": row["user"]} for row in rows])
            self._session.execute(insert(_TABLE), rows)

    def forget_old(self) -> None:
        """Delete records older than :data:`RETENTION_SECONDS`."""
        with transaction(self._session):
            self._session.execute(delete(_TABLE).where(_TABLE.c.asked_at < time.time() - RETENTION_SECONDS))


def _start(row: Any) -> CourseStart:
    return CourseStart(row.user, Stage(row.stage), row.tries, row.asked_at, row.ready_at, row.fault)


# What instructors did on a course's page, in a table of our own in the hub's database.


_RECENT_ACTIONS_TABLE = Table(
    "gpuspawner_course_actions",
    TABLES,
    Column("id", Integer, primary_key=True),
    Column("course", String(64), nullable=False, index=True),
    Column("at", SECONDS, nullable=False),
    Column("text", UnicodeText, nullable=False),
)


class RecentActions:
    """The table, through JupyterHub's session.

    Every method blocks for as long as the database takes, and may raise SQLAlchemyError.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def latest(self, course: str, number: int) -> tuple[tuple[str, float], ...]:
        """The last actions, newest first: a sentence, and when it was done in seconds since the epoch."""
        query = (
            select(_RECENT_ACTIONS_TABLE)
            .where(_RECENT_ACTIONS_TABLE.c.course == course)
            .order_by(_RECENT_ACTIONS_TABLE.c.id.desc())
            .limit(number)
        )
        return tuple((row.text, row.at) for row in self._session.execute(query))

    def keep(self, course: str, sentences: Iterable[str], at: float) -> None:
        """Write what was done at one time, delete what is older than :data:`RETENTION_SECONDS`, and commit."""
        with transaction(self._session):
            self._session.execute(
                delete(_RECENT_ACTIONS_TABLE).where(_RECENT_ACTIONS_TABLE.c.at < time.time() - RETENTION_SECONDS)
            )
            for text in sentences:
                self._session.execute(insert(_RECENT_ACTIONS_TABLE).values(course=course, at=at, text=text))
