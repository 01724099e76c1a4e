"""A folder of course files, each read again when it changes; a faulty file keeps its last good version.

Instructors write to the folder, so its content is treated as data (:mod:`..profiles.files`): only regular files are
read, their size, depth and number are bounded, and no error quotes a value. Reading blocks; the hub does it in a
thread.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.courses.course import Course, parse_course
from jupyterhub_gpuspawner.courses.roster import parse_people
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.files.regular_file import (
    FOLDER_FLAGS,
    Signature,
    UnfitFile,
    look_at,
    read_regular,
    signature,
)
from jupyterhub_gpuspawner.profiles.files.yaml_text import YamlFault, read_document
from jupyterhub_gpuspawner.profiles.schema import BadValue, dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIZE_LIMIT = 256 * 1024
"""Maximum size of a course's file, and of a roster's, in bytes."""
COURSES_LIMIT = 200
"""Maximum number of courses in a folder."""
_FILE = re.compile(r"([a-z0-9](?:[a-z0-9-]{0,54}[a-z0-9])?)\.ya?ml")
"""At most 56 characters: with ``course-`` before them they are the slug of a profile."""


@dataclass(frozen=True)
class CourseFile:
    """A course as its files say it."""

    slug: str
    """Its file's name without ending; the course's name in URLs and on the command line."""
    course: Course | None = None
    """The last good version; None if there has been none."""
    listed: tuple[str, ...] = ()
    """The user names in the roster's CSV file."""
    fault: ConfigError | None = None
    """What is wrong with the file as it is now."""
    where: Callable[[Sequence[str | int]], str] = field(default=dotted, compare=False)
    """File, line and path of a field of ``course``, for errors that are found later."""


@dataclass
class _Seen:
    """What was read, and from which files."""

    signatures: tuple[Signature | None, ...]
    file: CourseFile


class CourseFolder:
    """The courses of a folder, by slug. Its methods block and never raise."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.fault: ConfigError | None = None
        """What is wrong with the folder itself, or with names of files in it."""
        self.readable = True
        """The folder could be opened at the last reading; otherwise the courses are those of before."""
        self._seen: dict[str, _Seen] = {}

    def courses(self) -> tuple[CourseFile, ...]:
        """The current courses, by slug."""
        self.fault, self.readable = None, True
        try:
            folder = os.open(self.path, FOLDER_FLAGS)
        except OSError as error:
            self.readable = False
            self.fault = ConfigError(f"the folder cannot be read: {error.strerror}", where=str(self.path))
            return tuple(seen.file for seen in self._seen.values())
        try:
            names = self._names(folder)
            self._seen = {name: self._read(folder, name) for name in names}
        finally:
            os.close(folder)
        return tuple(seen.file for seen in self._seen.values())

    def _names(self, folder: int) -> list[str]:
        names = sorted(name for name in os.listdir(folder) if name.endswith((".yaml", ".yml")) and name[0] != ".")
        wrong = [name for name in names if _FILE.fullmatch(name) is None]
        if wrong:
            self.fault = ConfigError(
                "a course's file has a name of at most 56 lower-case letters, digits and hyphens, and ends in .yaml; "
                f"{len(wrong)} of the files do not and are ignored",
                where=str(self.path),
            )
        good = [name for name in names if name not in wrong]
        if len(good) > COURSES_LIMIT:
            self.fault = ConfigError(
                f"the folder contains more than {COURSES_LIMIT} courses; the others are ignored", where=str(self.path)
            )
        return good[:COURSES_LIMIT]

    def _read(self, folder: int, name: str) -> _Seen:
        old = self._seen.get(name)
        roster = old.file.course.roster.file if old is not None and old.file.course is not None else None
        now = (_signature(folder, name), _signature(folder, roster) if roster else None)
        if old is not None and old.file.fault is None and old.signatures == now:
            return old
        match = _FILE.fullmatch(name)
        assert match is not None  # noqa: S101 - _names
        try:
            file = _course(folder, name, match[1])
        except ConfigError as error:
            good = old.file if old is not None else CourseFile(match[1])
            return _Seen(now, replace(good, fault=error))
        roster = file.course.roster.file if file.course is not None else None
        return _Seen((now[0], _signature(folder, roster) if roster else None), file)


def _signature(folder: int, name: str) -> Signature | None:
    try:
        return signature(look_at(folder, name))
    except OSError:
        return None


def _course(folder: int, name: str, slug: str) -> CourseFile:
    """Raises ConfigError with file, line and field."""
    try:
        document = read_document(_text(folder, name, name))
    except YamlFault as error:
        raise ConfigError(str(error), where=name if error.line is None else f"{name}:{error.line}") from None

    def where(path: Sequence[str | int]) -> str:
        place = f"{name}:{document.line([step if isinstance(step, int) else str(step) for step in path])}"
        return f"{place}: {dotted(path)}" if path else place

    course = parse_course(document.value, where)
    roster = course.roster
    if roster.file is None:
        return CourseFile(slug, course, where=where)
    try:
        listed = parse_people(_text(folder, roster.file, where(("roster", "file"))), roster.column)
        return CourseFile(slug, course, listed, where=where)
    except BadValue as error:
        raise ConfigError(error.rule, where=roster.file) from None


def _text(folder: int, name: str, where: str) -> str:
    try:
        return read_regular(folder, name, limit=SIZE_LIMIT).decode("utf-8-sig")
    except UnfitFile as error:
        raise ConfigError(f"the file {error}", where=where) from None
    except UnicodeDecodeError:
        raise ConfigError("the file is not UTF-8", where=where) from None
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", where=where) from None
