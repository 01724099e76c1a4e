"""What the check of a course found, as values and as the JSON of ``gpuspawner course check --json``. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jupyterhub_gpuspawner.courses.course import CourseDate
from jupyterhub_gpuspawner.courses.limits import Admission
from jupyterhub_gpuspawner.courses.seats import Seats

VERSION = 1
"""Version of the course check document."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a session."""

    kind: str
    """What it is about: ``reservation``, ``people``, ``profile``, ``partition``, ``time``, ``seats``, ``limit``,
    ``hub`` or ``unknown``."""
    text: str
    """For an instructor."""
    hint: bool = False
    """Worth knowing, but everybody gets in."""


@dataclass(frozen=True)
class SessionReport:
    """What the check found for one session."""

    session: CourseDate
    seats: Seats
    remarks: tuple[Problem, ...] = ()
    """Problems and hints."""
    admission: Admission | None = None
    """Whom accounting's limits let in; None without accounting, and where nobody's job could start anyway."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong."""
        return tuple(problem for problem in self.remarks if not problem.hint)

    @property
    def hints(self) -> tuple[Problem, ...]:
        """What is worth knowing."""
        return tuple(problem for problem in self.remarks if problem.hint)

    @property
    def fit(self) -> int:
        """How many people get in: the lowest of seats and limits."""
        return self.seats.fit if self.admission is None else min(self.seats.fit, self.admission.fit)

    @property
    def tight(self) -> str:
        """What keeps people out: a resource, or a limit of accounting by Slurm's name; empty where nothing does."""
        if self.admission is not None and self.admission.fit < self.seats.fit:
            return self.admission.tight
        return self.seats.tight

    @property
    def fits(self) -> bool:
        """Whether everybody fits and nothing is wrong."""
        return self.fit >= self.seats.wanted and not self.problems


@dataclass(frozen=True)
class SessionDocument:
    """One session in the course check document."""

    session: str
    """Its date, such as ``2026-03-02``; with its time where a day has several sessions."""
    wanted: int
    """People on the roster."""
    fit: int
    """How many of them can have a server at the same time."""
    tight: str
    """What keeps the others out: ``gpus``, ``shards``, ``cpus``, ``memory``, ``nodes``, ``licenses``, ``account``,
    ``qos``, or Slurm's name of a limit, such as ``GrpTRES``; empty where all fit, or nothing alone would help."""
    problems: tuple[str, ...]
    """What is wrong, in sentences. The check fails if there are any."""
    hints: tuple[str, ...]
    """What is worth knowing, in sentences."""


@dataclass(frozen=True)
class CheckDocument:
    """What ``gpuspawner course check NAME --json`` prints.

    Without NAME it prints ``{"courses": [...]}`` with a document for each course.
    """

    course: str
    """Its file's name, without the ending."""
    fault: str | None
    """What is wrong with the course's file; null where it is correct."""
    sessions: tuple[SessionDocument, ...]
    """Those that have not ended, or all of them with ``--all``."""
    version: int = VERSION


def check_document(course: str, reports: Sequence[SessionReport], fault: str | None = None) -> CheckDocument:
    """The document of one course."""
    return CheckDocument(
        course,
        fault,
        tuple(
            SessionDocument(
                session=report.session.name,
                wanted=report.seats.wanted,
                fit=report.fit,
                tight=report.tight,
                problems=tuple(problem.text for problem in report.problems),
                hints=tuple(problem.text for problem in report.hints),
            )
            for report in reports
        ),
    )
