"""What instructors tell the people of their courses, kept in the hub's database until the session's end.

For each course the last message to everybody is kept, and for each person the last one to them alone.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Column, Float, MetaData, String, Table, Unicode, delete, insert, select

from jupyterhub_gpuspawner.hub.site.database import have_table, roll_back

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy.orm import Session

    from jupyterhub_gpuspawner.hub.courses.book import HubCourse

TEXT_LIMIT = 500
"""Characters of a message."""
WITHOUT_SESSION = 86400.0
"""Seconds that a message is shown where the course has no session to come."""

_TABLE = Table(
    "gpuspawner_course_messages",
    MetaData(),
    Column("course", String(64), primary_key=True),
    Column("user", Unicode(255), primary_key=True),
    Column("sender", Unicode(255), nullable=False),
    Column("text", Unicode(TEXT_LIMIT), nullable=False),
    Column("at", Float, nullable=False),
    Column("until", Float, nullable=False),
)


@dataclass(frozen=True)
class Message:
    """A message of an instructor; sender and text must be escaped where they are shown."""

    course: str
    """The course's slug."""
    user: str
    """To whom; empty: to everybody in the course."""
    sender: str
    text: str
    at: float
    """Seconds since the epoch."""
    until: float
    """When it is no longer shown."""


def clean_text(text: str) -> str:
    """The text as it is kept: one line for each line, without control characters, at most :data:`TEXT_LIMIT` long."""
    lines = ("".join(each for each in line if each.isprintable()).strip() for line in text.splitlines())
    return "\n".join(filter(None, lines))[:TEXT_LIMIT]


def shown_until(course: HubCourse, now: float) -> float:
    """When a message of now expires: with the session under way, else with the next one."""
    ends = (session.end.timestamp() for session in course.sessions)
    return next((end for end in ends if end > now), now + WITHOUT_SESSION)


class Messages:
    """The messages of a hub. Writing blocks for as long as the database takes; reading is from memory."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[tuple[str, str], Message] | None = None

    def keep(self, messages: Iterable[Message]) -> None:
        """Keep messages in the place of earlier ones to the same people; raises SQLAlchemyError."""
        known = self._loaded()
        messages = tuple(messages)
        try:
            self._session.execute(delete(_TABLE).where(_TABLE.c.until < time.time()))
            for message in messages:
                self._session.execute(delete(_TABLE).filter_by(course=message.course, user=message.user))
                self._session.execute(insert(_TABLE).values(**asdict(message)))
            self._session.commit()
        except BaseException:
            roll_back(self._session)
            raise
        known.update({(message.course, message.user): message for message in messages})

    def shown_to(self, user: str, courses: Iterable[HubCourse], *, now: float | None = None) -> tuple[Message, ...]:
        """What a participant of ``courses`` reads now, the newest first; raises SQLAlchemyError at the first call."""
        at = time.time() if now is None else now
        known = self._loaded()
        found = (known.get((course.slug, to)) for course in courses for to in ("", user))
        shown = (message for message in found if message is not None and message.until > at)
        return tuple(sorted(shown, key=lambda message: -message.at))

    def _loaded(self) -> dict[tuple[str, str], Message]:
        if self._known is None:
            have_table(self._session, _TABLE)
            rows = self._session.execute(select(_TABLE)).mappings()
            self._known = {(row["course"], row["user"]): Message(**row) for row in rows}
        return self._known
