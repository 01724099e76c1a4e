"""The mails of a hub in its database: those to send, and for a month those that were sent, so that none comes twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    Unicode,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.hub.extension import Letter
from jupyterhub_gpuspawner.hub.site.background import DAY_SECONDS
from jupyterhub_gpuspawner.hub.site.database import transaction
from jupyterhub_gpuspawner.hub.site.tables import SECONDS, delete_rows_of

_METADATA = MetaData()
MAILS = Table(
    "gpuspawner_mails",
    _METADATA,
    Column("id", Integer, primary_key=True),
    Column("user", Unicode(255), nullable=False, index=True),
    Column("about", String(255), nullable=False),
    Column("subject", Unicode(255), nullable=False),
    Column("text", Unicode(1000), nullable=False),
    Column("link", Unicode(1000), nullable=False),
    Column("at", SECONDS, nullable=False),
    Column("until", SECONDS, nullable=False),  # no longer sent then; 0: it was sent, or cannot be
)
NO_MAILS = Table("gpuspawner_no_mails", _METADATA, Column("user", Unicode(255), primary_key=True))
"""Those who want none."""
TABLES = (MAILS, NO_MAILS)
_REMEMBERED = 30 * DAY_SECONDS
"""Seconds after which a mail is deleted; nothing is told anew that long after it was told."""


@dataclass(frozen=True)
class Mail:
    """A mail that is to be sent."""

    id: int
    user: str
    subject: str
    text: str
    link: str
    at: float
    """When there was reason for it, in seconds since the epoch."""


class Outbox:
    """The mails of a hub. Each method blocks for as long as the database takes, and raises SQLAlchemyError."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, letters: Iterable[Letter], *, now: float, per_day: int) -> list[str]:
        """Keep those that are new; returns the names of people who had ``per_day`` today, and do not get theirs."""
        over = []
        with transaction(self._session):
            self._session.execute(delete(MAILS).where(MAILS.c.at < now - _REMEMBERED))
            for letter in letters:
                of_user = MAILS.c.user == letter.user
                about = letter.about[:255]
                if self._number(of_user, MAILS.c.about == about) or self._number(NO_MAILS.c.user == letter.user):
                    continue
                if self._number(of_user, MAILS.c.at > now - DAY_SECONDS) >= per_day:
                    over.append(letter.user)
                    continue
                row = {"user": letter.user, "about": about, "subject": letter.subject[:255], "text": letter.text[:1000]}
                row |= {"link": letter.link[:1000]}
                self._session.execute(insert(MAILS).values(**row, at=now, until=letter.until))
        return over

    def due(self, now: float) -> Sequence[Mail]:
        """Those to send, the oldest first."""
        wanted = select(MAILS).where(MAILS.c.until > now).order_by(MAILS.c.id)
        names = Mail.__dataclass_fields__
        return [Mail(**{name: row[name] for name in names}) for row in self._session.execute(wanted).mappings()]

    def done(self, mail: Mail) -> None:
        """It was sent, or can never be."""
        with transaction(self._session):
            self._session.execute(update(MAILS).where(MAILS.c.id == mail.id).values(until=0.0))

    def wants(self, user: str) -> bool:
        """Whether this user gets mails."""
        return not self._number(NO_MAILS.c.user == user)

    def allow(self, user: str, *, allowed: bool) -> None:
        """Have a user get mails or, from now on, none; what was to be sent is not, then."""
        with transaction(self._session):
            self._session.execute(delete(NO_MAILS).where(NO_MAILS.c.user == user))
            if not allowed:
                self._session.execute(insert(NO_MAILS).values(user=user))
                self._session.execute(update(MAILS).where(MAILS.c.user == user).values(until=0.0))

    def _number(self, *conditions: Any) -> int:
        return self._session.execute(select(func.count()).where(*conditions)).scalar() or 0


def forget(connection: Connection, user: str) -> dict[str, int]:
    """Delete what is kept of a user, and return how much it was. Raises SQLAlchemyError."""
    mails, refusals = (delete_rows_of(user, table.c.user, connection) for table in TABLES)
    return {"mails": mails, "refusals of mails": refusals}
