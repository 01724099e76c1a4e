"""The messages of a hub, kept in its database until they expire: for each audience the last one."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlalchemy import Column, MetaData, String, Table, Unicode, delete, insert, select
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.hub.site.database import transaction
from jupyterhub_gpuspawner.hub.site.tables import SECONDS

# A message, and to whom it is.

TEXT_LIMIT = 500
"""Characters of a message."""


class Kind(str, Enum):
    """What the people who read a message have in common."""

    HUB = "everybody"
    """They use this hub."""
    COURSE = "course"
    """They take a course; :attr:`Audience.user` names one of them."""
    USER = "user"
    """It is one user of the hub."""
    SERVER = "server"
    """One server of one user; the default server has no name."""
    PROFILE = "profile"
    """They run a server of a profile, by its slug."""
    CLUSTER = "cluster"
    """They run a server on one of the clusters that the hub names."""
    NODE = "node"
    """They run a server on a node."""


@dataclass(frozen=True)
class Audience:
    """To whom a message is."""

    kind: Kind
    name: str = ""
    """Of the course, the server, the profile, the cluster or the node; ``CLUSTER/NODE`` is a node of one cluster."""
    user: str = ""


EVERYBODY = Audience(Kind.HUB)


@dataclass(frozen=True)
class Message:
    """A message of an instructor or administrator; sender and text must be escaped where they are shown."""

    to: Audience
    sender: str
    text: str
    at: float
    """Seconds since the epoch."""
    until: float
    """When it is no longer shown."""

    @property
    def course(self) -> str:
        """The slug of the course whose instructor has sent it; empty for an administrator's."""
        return self.to.name if self.to.kind is Kind.COURSE else ""


def clean_text(text: str) -> str:
    """The text as it is kept: one line for each line, without control characters, at most :data:`TEXT_LIMIT` long."""
    lines = ("".join(character for character in line if character.isprintable()).strip() for line in text.splitlines())
    return "\n".join(filter(None, lines))[:TEXT_LIMIT]


TABLE = Table(
    "gpuspawner_messages",
    MetaData(),
    Column("kind", String(16), primary_key=True),
    Column("name", Unicode(255), primary_key=True),
    Column("user", Unicode(255), primary_key=True),
    Column("sender", Unicode(255), nullable=False),
    Column("text", Unicode(TEXT_LIMIT), nullable=False),
    Column("at", SECONDS, nullable=False),
    Column("until", SECONDS, nullable=False),
)
_STORE = "gpuspawner_messages"
"""Where a session keeps its store, in SQLAlchemy's dictionary for such things."""


class Messages:
    """The messages of a hub. Writing blocks for as long as the database takes; reading is from memory."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[Audience, Message] | None = None

    def keep(self, messages: Iterable[Message]) -> None:
        """Keep messages in the place of earlier ones to the same people; raises SQLAlchemyError."""
        shown, now = self._loaded(), time.time()
        messages = tuple(messages)
        with transaction(self._session):
            self._session.execute(delete(TABLE).where(TABLE.c.until < now))
            for message in messages:
                self._session.execute(delete(TABLE).filter_by(**_row(message.to)))
                fields = {"sender": message.sender, "text": message.text, "at": message.at, "until": message.until}
                self._session.execute(insert(TABLE).values(**_row(message.to), **fields))
        for audience in [to for to, message in shown.items() if message.until < now]:
            del shown[audience]
        shown.update({message.to: message for message in messages})

    def withdraw(self, audience: Audience) -> bool:
        """Show the message to this audience no longer; returns whether there was one. Raises SQLAlchemyError."""
        messages = self._loaded()
        with transaction(self._session):
            self._session.execute(delete(TABLE).filter_by(**_row(audience)))
        return messages.pop(audience, None) is not None

    def shown_to(self, audiences: Iterable[Audience], *, now: float | None = None) -> tuple[Message, ...]:
        """What somebody who belongs to ``audiences`` reads now, the newest first.

        Raises SQLAlchemyError at the first call.
        """
        messages = self._loaded()
        shown = (messages.get(audience) for audience in dict.fromkeys(audiences)) if messages else ()
        return _current((message for message in shown if message is not None), now)

    def shown(self, *, now: float | None = None) -> tuple[Message, ...]:
        """All that are shown to somebody now, the newest first; raises SQLAlchemyError at the first call."""
        return _current(self._loaded().values(), now)

    def _loaded(self) -> dict[Audience, Message]:
        if self._known is None:
            by_audience: dict[Audience, Message] = {}
            for row in self._session.execute(select(TABLE)).mappings():
                to = Audience(Kind(row["kind"]), row["name"], row["user"])
                by_audience[to] = Message(to, row["sender"], row["text"], row["at"], row["until"])
            self._known = by_audience
        return self._known


def messages_of(session: Session) -> Messages:
    """The messages in this session's database; JupyterHub has one session for all of its life."""
    store: Messages = session.info.setdefault(_STORE, Messages(session))
    return store


def _row(audience: Audience) -> dict[str, Any]:
    return {"kind": audience.kind.value, "name": audience.name, "user": audience.user}


def _current(messages: Iterable[Message], now: float | None) -> tuple[Message, ...]:
    at = time.time() if now is None else now
    return tuple(sorted((message for message in messages if message.until > at), key=lambda message: -message.at))
