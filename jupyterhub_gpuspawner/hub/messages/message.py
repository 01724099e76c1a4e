"""A message, and to whom it is. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

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
    NODE = "node"
    """They run a server on a node."""


@dataclass(frozen=True)
class Audience:
    """To whom a message is."""

    kind: Kind
    name: str = ""
    """Of the course, the server, the profile or the node."""
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
    lines = ("".join(each for each in line if each.isprintable()).strip() for line in text.splitlines())
    return "\n".join(filter(None, lines))[:TEXT_LIMIT]
