"""What instructors did on a course's page, in a table of our own in the hub's database."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sqlalchemy import Column, Integer, String, Table, UnicodeText, delete, insert, select

from jupyterhub_gpuspawner.hub.site.database import SECONDS, transaction
from jupyterhub_gpuspawner.hub.site.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy.orm import Session

KEPT = 30 * 86400.0
"""Seconds that an action is kept."""

_TABLE = Table(
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
        asked = select(_TABLE).where(_TABLE.c.course == course).order_by(_TABLE.c.id.desc()).limit(number)
        return tuple((row.text, row.at) for row in self._session.execute(asked))

    def keep(self, course: str, sentences: Iterable[str], at: float) -> None:
        """Write what was done at one time, delete what is older than :data:`KEPT`, and commit."""
        with transaction(self._session):
            self._session.execute(delete(_TABLE).where(_TABLE.c.at < time.time() - KEPT))
            for text in sentences:
                self._session.execute(insert(_TABLE).values(course=course, at=at, text=text))
