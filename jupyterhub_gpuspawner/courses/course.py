"""A course as its file describes it. An instructor writes it, so it is a user's word and holds no code and no path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from jupyterhub_gpuspawner.courses.dates import CourseDate, SessionRule, Zone, dates_of
from jupyterhub_gpuspawner.courses.roster import Groups, InstructorNames, Roster
from jupyterhub_gpuspawner.profiles.profile import SLUG
from jupyterhub_gpuspawner.profiles.schema import (
    BadValue,
    Duration,
    Frozen,
    Memory,
    Prose,
    Time,
    matching,
    validated,
    whole,
)


class Instructors(Frozen):
    """Who teaches the course."""

    users: InstructorNames = ()
    """User names. A name or a list of names alone stands for a table with this field."""
    groups: Groups = ()
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
    """A profile of the admin's, with values for its options; numbers may be lowered further.

    No number may exceed what the profile allows with these options, and a number that the profile leaves to Slurm
    cannot be set.
    """

    slug: Annotated[str, matching(SLUG, "the slug of a profile")]
    """The profile. A slug alone stands for a table with this field."""
    options: dict[str, str | int | float] = Field(default_factory=dict)
    """Values of the profile's options, as a participant could choose them; of an option that sets a field of
    ``environment``, one of its listed choices. The others have their default values."""
    gpus: Annotated[int, whole(0, 1024)] | None = None
    """GPUs of each participant."""
    cpus: Annotated[int, whole(1, 65536)] | None = None
    """CPUs of each participant."""
    memory: Memory | None = None
    """Memory of each participant, in MiB, or with K, M, G or T."""
    time: Time | None = None
    """Time limit of each server, in sbatch's formats (a bare number is minutes). In a session with a reservation it is
    lowered so that the server ends with the session."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        return {"slug": value} if isinstance(value, str) else value


class Materials(Frozen):
    """What nbgitpuller fetches into the participant's home folder; it must be installed where the servers run."""

    git: Annotated[
        str,
        # nbgitpuller clones into a folder of this name: never into .jupyter or .ssh
        matching(
            r"https://[A-Za-z0-9.-]+(?::[0-9]+)?/(?:[A-Za-z0-9_.~+%@-]+/)*[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}/?",
            "an https address of a git repository whose name begins with a letter or a digit",
        ),
    ]
    """The repository; it must be readable without a password."""
    branch: Annotated[str, matching(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,200}", "the name of a branch")] = "main"
    """Its branch."""
    open: Annotated[
        str, matching(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./ -]{0,400}", "a path in the repository, without ..")
    ] = ""
    """The file or folder to open."""

    @property
    def pull_path(self) -> str:
        """The path on the server at which nbgitpuller fetches the materials and then opens them in JupyterLab.

        It clones into a folder with the repository's name in the server's root folder. Its own name for that folder
        would end in ``.git`` where the address does.
        """
        folder = self.git.rstrip("/").rpartition("/")[2].removesuffix(".git")
        opened = "/".join(part for part in (folder, self.open.strip("/")) if part)
        query = {
            "repo": self.git,
            "branch": self.branch,
            "targetpath": folder,
            "urlpath": f"lab/tree/{quote(opened)}",
        }
        return f"/git-pull?{urlencode(query, quote_via=quote)}"


class Course(Frozen):
    """One course."""

    name: Prose
    """Its title, as participants read it."""
    instructors: Instructors
    roster: Roster
    profile: ChosenProfile
    sessions: tuple[SessionRule, ...]
    """When the course takes place; sessions must not overlap."""
    zone: Zone | None = None
    """Time zone of the sessions. Default: the hub's."""
    start_ahead: Duration | None = None
    """How long before each session the servers of the roster are started. Default: they are not."""
    unvisited_after: Duration = 1800
    """A server started ahead that nobody has opened this long after the session's start is stopped. Default: 30min;
    kept in seconds."""
    outside_sessions: Literal["no", "without_reservation"] = "no"
    """Whether participants may start a server of the course between its sessions, and before the first: ``no``, or
    ``without_reservation``, on what the profile uses otherwise."""
    materials: Materials | None = None
    """What each participant's server fetches and opens first, with nbgitpuller."""
    message: Prose | None = None
    """What participants read on the course's card."""

    @field_validator("sessions")
    @classmethod
    def _any(cls, value: tuple[SessionRule, ...]) -> tuple[SessionRule, ...]:
        if not value:
            raise BadValue("must have at least one session")
        return value

    @model_validator(mode="after")
    def _sessions_do_not_overlap(self) -> Course:
        _ = self.dates
        return self

    @cached_property
    def dates(self) -> tuple[CourseDate, ...]:
        """All sessions, in the order of time; a course may have hundreds, and a hub many courses."""
        return dates_of(self.sessions, ZoneInfo(self.zone) if self.zone is not None else None)


def parse_course(value: Any, where: Callable[[Sequence[str | int]], str]) -> Course:
    """A course; raises ConfigError for its first fault, located by ``where``, without quoting the file."""
    return validated(Course, value, where, quoting=False)


def calendar(slug: str, course: Course, *, hub: str, now: datetime) -> str:
    """The course's dates as iCalendar (RFC 5545): one event for each.

    ``hub`` names the hub, so that two hubs' events are not taken for the same; ``now`` is the time of the file. An
    event keeps its UID when its times change, so that a calendar replaces it.
    """
    from icalendar import Calendar, Event  # takes long, and no hub needs it

    document = Calendar()
    document.add("prodid", "-//jupyterhub-gpuspawner//courses//EN")
    document.add("version", "2.0")
    document.add("name", course.name)
    for course_date in course.dates:
        event = Event()
        event.add("uid", f"{slug}-{course_date.name}@{hub}")
        event.add("dtstamp", now)
        event.add("dtstart", course_date.start)
        event.add("dtend", course_date.end)
        event.add("summary", course.name)
        about = [course.message] if course.message else []
        if course_date.reservation:
            about.append(f"Slurm reservation: {course_date.reservation}")
        if about:
            event.add("description", "\n".join(about))
        document.add_component(event)
    document.add_missing_timezones()
    text: str = document.to_ical().decode()
    return text
