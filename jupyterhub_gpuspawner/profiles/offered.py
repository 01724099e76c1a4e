"""A profile as one user is offered it at one moment, and for what occasion. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # pydantic is not imported where only the request of a job is
    from jupyterhub_gpuspawner.profiles.profile import Profile


class Times(NamedTuple):
    """The times of one session, in seconds since the epoch."""

    opens: float
    """When its servers may be started."""
    start: float
    end: float


@dataclass(frozen=True)
class Occasion:
    """For what a profile is offered to some users beside the hub's own, such as a course."""

    name: str
    """Its short name, in events and records."""
    title: str
    """As its people read it."""
    group: str
    """The JupyterHub group of its people: whoever may start servers of this group may start this profile for them."""
    sessions: tuple[Times, ...] = ()
    """When its servers are meant to be used, in order."""


@dataclass(frozen=True)
class Offered:
    """A profile as a user is offered it now; one of the hub's own has no occasion."""

    profile: Profile
    """What they start."""
    occasion: Occasion | None = None
    base: str = ""
    """The slug of the hub's profile that it narrows; empty for one of the hub's own."""
    rank: int = 0
    """Which of an occasion's profiles that is, from 0, in the order in which their seats are filled."""
    starts: datetime | None = None
    """When the session begins that is open, or else the next one; None without one."""
    ends: datetime | None = None
    """When that session ends."""
    is_open: bool = False
    """Servers of that session may be started now."""
    note: str = ""
    """What the form says beside that."""
    others: tuple[Offered, ...] = ()
    """What serves the occasion as well: while a server of this one waits, one of these that is free may be started."""

    @property
    def ends_at(self) -> float | None:
        """When the session ends that is open, in seconds since the epoch; None where none is."""
        return self.ends.timestamp() if self.is_open and self.ends is not None else None
