"""What the check of a course found, as values and as the JSON of ``gpuspawner course check --json``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.courses.course import CourseDate
from jupyterhub_gpuspawner.extensions.seats.count import SeatCount

VERSION = 2
"""Version of the course check document."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a session."""

    kind: str
    """What it is about: ``reservation``, ``people``, ``profile``, ``partition``, ``time``, ``seats``, ``limit``,
    ``hub``, ``silent`` (a cluster does not respond) or ``unknown``."""
    text: str
    """For an instructor."""
    hint: bool = False
    """Worth knowing, but everybody gets in."""


@dataclass(frozen=True)
class SessionReport:
    """What the check found for one session."""

    session: CourseDate
    wanted: int
    """People on the roster."""
    seats: SeatCount | None = None
    """None where nobody's job could start anyway."""
    refused: int = 0
    """How many people's job Slurm would refuse."""
    remarks: tuple[Problem, ...] = ()
    """Problems and hints."""

    @property
    def not_counted(self) -> tuple[str, ...]:
        """Sentences: what may keep people from starting that was not considered."""
        return self.seats.not_counted if self.seats is not None else ()

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
        """How many people get in, at most as many as were tried."""
        fit = self.seats.fit if self.seats is not None else 0
        return min(fit, self.wanted - self.refused) if self.refused else fit

    @property
    def more(self) -> bool:
        """Whether perhaps even more get in."""
        return self.seats is not None and 0 < self.seats.tried <= self.fit

    @property
    def fits(self) -> bool:
        """Whether everybody gets in and nothing is wrong."""
        return self.fit >= self.wanted and not self.problems

    @property
    def fit_in_words(self) -> str:
        """``46 fit``, ``75 or more fit``, ``46 fit, by estimate``; see :attr:`provisos`."""
        return f"{self.fit}{' or more' if self.more else ''} fit{self.provisos}"

    @property
    def provisos(self) -> str:
        """What a number of seats is to be read with, as the end of a sentence; empty where Slurm counted everything."""
        by_hand = ", by estimate" if self.seats is not None and self.seats.estimate else ""
        return f"{by_hand}{', as far as it is counted' if self.not_counted and self.fit else ''}"


@dataclass(frozen=True)
class SessionDocument:
    """One session in the course check document."""

    session: str
    """Its date, such as ``2026-03-02``; with its time where a day has several sessions."""
    wanted: int
    """People on the roster."""
    fit: int
    """How many can have a server at the same time; one and a half times the roster where more were not tried."""
    counted: str
    """Who has counted: ``slurm``, ``estimate``, or nobody (empty), where the problems say why nothing starts."""
    problems: tuple[str, ...]
    """What is wrong, in sentences. The check fails if there are any."""
    hints: tuple[str, ...]
    """What is worth knowing, in sentences."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """How many people's jobs wait, by Slurm's reason."""
    beside: int | None = None
    """How many of those with GPUs have all their cores beside them; null where that is not known."""
    not_counted: tuple[str, ...] = ()
    """What may keep people from starting that was not considered, in sentences: fewer may start than ``fit``."""


@dataclass(frozen=True)
class CheckDocument:
    """What ``gpuspawner course check NAME --json`` prints.

    Without NAME it prints ``{"courses": [...]}`` with a document for each course.
    """

    course: str
    """Its file's name, without the ending; empty where the folder of courses has a fault, such as a file's name."""
    fault: str | None
    """What is wrong with the course's file; null where it is correct."""
    sessions: tuple[SessionDocument, ...]
    """Those that have not ended, or all of them with ``--all``."""
    version: int = VERSION


def check_document(course: str, reports: Sequence[SessionReport], fault: ConfigError | None = None) -> CheckDocument:
    """The document of one course."""
    return CheckDocument(course, str(fault) if fault is not None else None, tuple(map(_document, reports)))


def _document(report: SessionReport) -> SessionDocument:
    seats = report.seats
    return SessionDocument(
        session=report.session.name,
        wanted=report.wanted,
        fit=report.fit,
        counted="" if seats is None else "estimate" if seats.estimate else "slurm",
        problems=tuple(problem.text for problem in report.problems),
        hints=tuple(problem.text for problem in report.hints),
        waiting=seats.waiting if seats is not None else {},
        beside=seats.beside if seats is not None and seats.with_gpu else None,
        not_counted=report.not_counted,
    )
