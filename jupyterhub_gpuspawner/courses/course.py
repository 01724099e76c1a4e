"""A course as its file describes it. An instructor writes it, so it is a user's word and holds no code and no path."""

from __future__ import annotations

from collections.abc import Callable, Sequence  # noqa: TC003 - pydantic reads annotations at runtime
from datetime import datetime, tzinfo
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from jupyterhub_gpuspawner.courses.roster import Roster, UserNames  # noqa: TC001 - pydantic reads annotations
from jupyterhub_gpuspawner.courses.sessions import Session, SessionRule, Zone, sessions
from jupyterhub_gpuspawner.profiles.profile import SLUG
from jupyterhub_gpuspawner.profiles.schema import (
    BadValue,
    Duration,
    Frozen,
    OneOrMany,
    Prose,
    Text,
    matching,
    validated,
)


class Instructors(Frozen):
    """Who teaches the course."""

    users: Annotated[tuple[UserNames, ...], OneOrMany] = ()
    groups: Annotated[tuple[Text, ...], OneOrMany] = ()
    """JupyterHub groups."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        """A name or a list of names stands for ``users``."""
        return {"users": value} if isinstance(value, (str, list)) else value

    @model_validator(mode="after")
    def _somebody(self) -> Instructors:
        if not (self.users or self.groups):
            raise BadValue("must name a user or a group")
        return self


class ChosenProfile(Frozen):
    """A profile of the admin's, with values for its options."""

    slug: Annotated[str, matching(SLUG, "the slug of a profile")]
    options: dict[str, str | int | float] = Field(default_factory=dict)
    """Values of the profile's options, as a participant could choose them."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        return {"slug": value} if isinstance(value, str) else value


class Materials(Frozen):
    """What nbgitpuller fetches into the participant's home folder."""

    git: Annotated[str, matching(r"https://[A-Za-z0-9.-]+(?::[0-9]+)?/[!-~]+", "an https address of a git repository")]
    branch: Annotated[str, matching(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,200}", "the name of a branch")] = "main"
    open: Annotated[
        str, matching(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./ -]{0,400}", "a path in the repository, without ..")
    ] = ""
    """The file or folder to open."""


class Course(Frozen):
    """One course."""

    name: Prose
    """Its title, as participants read it."""
    instructors: Instructors
    roster: Roster
    profile: ChosenProfile
    sessions: tuple[SessionRule, ...]
    zone: Zone | None = None
    """Time zone of the sessions. Default: the hub's."""
    start_ahead: Duration | None = None
    """How long before each session the servers of the roster are started. Default: they are not."""
    unvisited_after: Duration = 1800
    """A server started ahead that nobody has opened this long after the session's start is stopped."""
    materials: Materials | None = None
    message: Prose | None = None
    """What participants read on the course's card."""

    @field_validator("sessions")
    @classmethod
    def _any(cls, value: tuple[SessionRule, ...]) -> tuple[SessionRule, ...]:
        if not value:
            raise BadValue("must have at least one session")
        return value

    @model_validator(mode="after")
    def _sessions_are_apart(self) -> Course:
        self.calendar()
        return self

    def calendar(self) -> tuple[Session, ...]:
        """All sessions, in the order of time."""
        return sessions(self.sessions, self.timezone())

    def timezone(self) -> tzinfo:
        """The zone of the sessions' times."""
        local = datetime.now().astimezone().tzinfo
        assert local is not None  # noqa: S101 - astimezone() sets it
        return ZoneInfo(self.zone) if self.zone is not None else local


def parse_course(value: Any, where: Callable[[Sequence[str | int]], str]) -> Course:
    """A course; raises ConfigError for its first fault, located by ``where``, without quoting the file."""
    return validated(Course, value, where, quoting=False)
