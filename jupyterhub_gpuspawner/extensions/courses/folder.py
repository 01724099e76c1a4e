"""A folder of course files, each read again when it changes; a faulty file keeps its last good version.

Instructors write to the folder, so its content is treated as data (:mod:`..profiles.folder`): only regular files are
read, their size, depth and number are bounded, and no error quotes a value. Reading blocks; the hub does it in a
thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.courses.course import Course, parse_course, parse_people, read_course
from jupyterhub_gpuspawner.profiles.folder import Files, FileState, folder_fault, opened, reread, snapshot_of
from jupyterhub_gpuspawner.profiles.schema import BadValue, dotted
from jupyterhub_gpuspawner.words import some

SIZE_LIMIT = 256 * 1024
"""Maximum size of a course's file, and of a roster's, in bytes."""
COURSES_LIMIT = 200
"""Maximum number of courses in a folder."""
_FILE = re.compile(r"([a-z0-9](?:[a-z0-9-]{0,54}[a-z0-9])?)\.ya?ml")
"""At most 56 characters: with ``course-`` before them they are the slug of a profile."""
_MEANT = re.compile(r"^[^.].*\.ya?ml(\.\w+)?$", re.IGNORECASE)
"""A file that its author takes for a course's: such as ``Deep Learning.yaml``, ``deep.YML``, ``deep.yaml.txt``."""
_UNSAFE = re.compile(r"[^\w .-]")


@dataclass(frozen=True)
class CourseFile:
    """A course as its files say it."""

    slug: str
    """Its file's name without ending; the course's name in URLs and on the command line."""
    course: Course | None = None
    """The last good version; None if there has been none."""
    listed: tuple[str, ...] = ()
    """The user names in the roster's CSV file; in a hub also those whom instructors have added."""
    fault: ConfigError | None = None
    """What is wrong with the file as it is now."""
    where: Callable[[Sequence[str | int]], str] = field(default=dotted, compare=False)
    """File, line and path of a field of ``course``, for errors that are found later."""
    name: str = ""
    """The file's name."""


@dataclass(frozen=True)
class Reading:
    """What the folder held when it was read."""

    files: tuple[CourseFile, ...] = ()
    """In the order in which they were first there."""
    fault: ConfigError | None = None
    """What is wrong with the folder itself, or with names of files in it."""
    readable: bool = True
    """The folder could be opened; otherwise the files are those of before."""


class CourseFolder:
    """The courses of a folder. Its methods block and never raise: a fault belongs to one file.

    Several people may write to the folder. A slug belongs to the file that had it first, and where there are too many
    courses, those that were there first stay.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.owners: dict[str, str] = {}
        """The file of each slug, oldest first; may be set before the first reading, to what an earlier process read."""
        self._states: dict[str, FileState[CourseFile]] = {}

    def read(self) -> Reading:
        """The folder as it is now."""
        fault, readable = None, True
        try:
            with opened(self.path) as folder:
                self.owners, fault = self._owners(folder)
                self._states = {
                    name: reread(folder, name, self._states.get(name), partial(_course, name=name, slug=slug))
                    for slug, name in self.owners.items()
                }
        except Exception as error:  # noqa: BLE001 - the courses read last go on
            readable, fault = False, folder_fault(self.path, error)
        return Reading(tuple(_current(name, state) for name, state in self._states.items()), fault, readable)

    def _owners(self, folder: int) -> tuple[dict[str, str], ConfigError | None]:
        """The file of each course, oldest first, and which files are ignored."""
        names = [name for name in os.listdir(folder) if _MEANT.search(name)]
        slugs = {name: match[1] for name in names if (match := _FILE.fullmatch(name)) is not None}
        former = {slug: name for slug, name in self.owners.items() if slugs.get(name) == slug}
        # an editor replaces a file, so times tell only which of the new ones is older
        new = sorted((_changed_at(folder, name), name) for name, slug in slugs.items() if former.get(slug) != name)
        owners = dict(former)
        for _, name in new:
            owners.setdefault(slugs[name], name)
        second = sorted(
            f"{name} (the course is that of {owners[slugs[name]]})" for name in slugs.keys() - owners.values()
        )
        faults = []
        if len(slugs) < len(names):
            wrong = some([_UNSAFE.sub("?", name)[:80] for name in sorted(set(names) - set(slugs))])
            faults.append(
                f"not read: {wrong}; a course's file has a name of at most 56 lower-case letters, digits and hyphens, "
                "and ends in .yaml"
            )
        if second:
            faults.append(f"a second file of the same name is ignored: {some(second)}")
        if len(owners) > COURSES_LIMIT:
            faults.append(f"the folder contains more than {COURSES_LIMIT} courses; the newest are ignored")
        fault = ConfigError("; ".join(faults), where=str(self.path)) if faults else None
        return dict(islice(owners.items(), COURSES_LIMIT)), fault


def _changed_at(folder: int, name: str) -> float:
    try:
        return snapshot_of(folder, name).st_ctime_ns
    except OSError:
        return inf


def _current(name: str, state: FileState[CourseFile]) -> CourseFile:
    file = state.content or CourseFile(Path(name).stem, name=name)
    return replace(file, fault=state.fault) if state.fault is not None else file


def _course(files: Files, name: str, slug: str) -> CourseFile:
    """Raises ConfigError with file, line and field."""
    document = read_course(files.text(name, limit=SIZE_LIMIT, where=name), name)
    course = parse_course(document.value, document.where)
    roster = course.roster
    listed: tuple[str, ...] = ()
    if roster.file is not None:
        text = files.text(roster.file, limit=SIZE_LIMIT, where=document.where(("roster", "file")))
        try:
            listed = parse_people(text, roster.column)
        except BadValue as error:
            raise ConfigError(error.rule, where=roster.file) from None
    return CourseFile(slug, course, listed, where=document.where, name=name)
