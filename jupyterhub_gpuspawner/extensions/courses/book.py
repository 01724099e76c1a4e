"""The courses of a hub: the files of ``courses_dir``, with people resolved against the hub's users and groups.

There is one :class:`CourseBook` for each hub. While a reading of the folder hangs, the courses that were read last go
on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.courses.course import Course, CourseDate, people
from jupyterhub_gpuspawner.extensions.courses.course_profile import group_name
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile, CourseFolder, Reading
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.spawners.shared_folder import FolderReader
from jupyterhub_gpuspawner.words import some

# Who takes a course and who teaches it, among the users and groups of this hub.

NAMES_LIMIT = 50_000
"""Maximum number of names in all courses of a hub, members of groups included: all are looked up every minute."""
NAMED = 5
"""People whom a sentence names; of the others it gives the number."""


@dataclass(frozen=True)
class HubPeople:
    """What is known of the hub's users and groups."""

    groups: Mapping[str, Collection[str]]
    """Groups with the names of their members; those that were made for courses are not among them."""
    admins: Collection[str] = ()
    user_name: Callable[[str], str | None] = str
    """The authenticator's form of a name; None for a name that cannot be a user's."""
    pattern: str = ""
    """The setting ``GPUCourses.people``."""
    within: Sequence[str] = ()
    """The setting ``GPUCourses.groups``."""
    added: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """People whom instructors have added on a course's page, by course."""
    add_people: bool = False
    """The setting ``GPUCourses.add_people``."""

    def outside(self, name: str) -> bool:
        """Whether the admin's settings keep this name off every roster."""
        if self.pattern and re.fullmatch(self.pattern, name) is None:
            return True
        return bool(self.within) and not any(name in self.groups.get(group, ()) for group in self.within)


def too_many(files: Sequence[CourseFile], groups: Mapping[str, Collection[str]]) -> frozenset[str]:
    """The slugs of courses with which all courses would have more than :data:`NAMES_LIMIT` names; the first stay."""
    total, left_out = 0, set()
    for file in files:
        if file.course is None:
            continue
        roster, instructors = file.course.roster, file.course.instructors
        names = len(roster.names) + len(file.listed) + sum(len(groups.get(group, ())) for group in roster.groups)
        names += len(instructors.users) + len(instructors.groups)
        if total + names > NAMES_LIMIT:
            left_out.add(file.slug)
        else:
            total += names
    return frozenset(left_out)


def as_users(names: Iterable[str], hub: HubPeople) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The users' names, each once, and what cannot be one."""
    users = {name: hub.user_name(name) for name in names}
    valid = dict.fromkeys(user for user in users.values() if user is not None)
    return tuple(valid), tuple(name for name, user in users.items() if user is None)


def with_added(file: CourseFile, added: Sequence[str]) -> CourseFile:
    """The course's file with people who were added to its roster."""
    return replace(file, listed=tuple(dict.fromkeys((*file.listed, *added)))) if added else file


FRESH = 60.0
"""Seconds after which the folder is read again."""
CROWDED = (
    f"The course is left out, since with it the courses of this hub would have more than {NAMES_LIMIT} names, counted "
    "once for each course: an administrator must remove courses that are over."
)
UNKNOWN = (
    "JupyterHub does not know these people yet, and no server can be started for them before they have signed in "
    "once: {names}."
)


@dataclass(frozen=True)
class HubCourse:
    """A course as this hub knows it."""

    slug: str
    """The name of its file without ending; in URLs and on the command line."""
    file: CourseFile
    people: tuple[str, ...] = ()
    """The participants' user names, in the order of the roster."""
    instructors: tuple[str, ...] = ()
    """User names of instructors that the file names."""
    instructor_groups: tuple[str, ...] = ()
    """JupyterHub groups of instructors."""
    faults: tuple[str, ...] = ()
    """What is wrong, for instructors and admins; each is a sentence, and may contain text of the file's author."""
    unknown: tuple[str, ...] = ()
    """Those of the people whom JupyterHub does not know yet: nothing can be started for them."""
    sessions: tuple[CourseDate, ...] = ()
    """In the order of time."""
    added: tuple[str, ...] = ()
    """Those of the people whom instructors have added on the course's page."""
    takes_additions: bool = False
    """Instructors may add people on its page."""

    @property
    def course(self) -> Course | None:
        """The last good version of the file; None if there has been none."""
        return self.file.course

    @property
    def title(self) -> str:
        """The course's name, as participants read it."""
        return self.course.name if self.course is not None else self.slug

    @property
    def group(self) -> str:
        """The JupyterHub group of its participants."""
        return group_name(self.slug)

    @property
    def role(self) -> str:
        """The JupyterHub role of its instructors."""
        return role_name(self.slug)

    def session_at(self, moment: datetime | None = None) -> CourseDate | None:
        """The session under way at ``moment`` (default: now), which has a time zone; None where there is none."""
        at = moment or datetime.now(timezone.utc)
        return next((session for session in self.sessions if session.start <= at < session.end), None)

    def next_session(self, moment: datetime | None = None) -> CourseDate | None:
        """The first session that begins after ``moment`` (default: now); None where there is none."""
        at = moment or datetime.now(timezone.utc)
        return next((session for session in self.sessions if session.start > at), None)


def role_name(slug: str) -> str:
    """The JupyterHub role of a course's instructors."""
    return f"course-{slug}-instructors"


@dataclass(frozen=True)
class RoleStatus:
    """What became of the group and the role of a course."""

    refused: str = ""
    """Why it has none: a sentence."""
    unknown: tuple[str, ...] = ()
    """People of the course whom the hub does not know."""


@dataclass
class CourseBook:
    """The courses of one hub, as last read."""

    path: str
    """The setting ``courses_dir``."""
    people_of: Callable[[Collection[str]], HubPeople]
    """The users and groups of the hub, with the members of these groups; raises SQLAlchemyError."""
    profile_faults: Callable[[Sequence[CourseFile]], Mapping[str, ConfigError]] = lambda _files: {}
    """Why courses cannot be offered with the hub's profiles, by their slugs."""
    clock: Callable[[], float] = time.monotonic
    on_read: Callable[[], None] | None = None
    """Called after each reading."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """The file of each course as an earlier process read them, oldest first."""
    read_at: float | None = None
    """The clock at the last completed reading; None before the first."""
    _folder: CourseFolder = field(init=False)
    _reader: FolderReader[Reading] = field(init=False)
    _reading: Reading = field(default_factory=Reading)
    _courses: tuple[HubCourse, ...] = ()
    _statuses: Mapping[str, RoleStatus] = field(default_factory=dict)
    _logged: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._folder = CourseFolder(self.path)
        self._folder.owners = dict(self.owners)
        self._reader = FolderReader(self.path, self._folder.read, self._reading, "the courses last read go on")

    @property
    def fault(self) -> ConfigError | None:
        """What is wrong with the folder, for administrators."""
        return self._reader.fault or self._reading.fault

    @property
    def readable(self) -> bool:
        """The folder could be read at the last reading; otherwise the courses are those of before, or none."""
        return self._reading.readable

    def courses(self) -> tuple[HubCourse, ...]:
        """All courses as last read, by slug; also those whose file has never been good (``course`` is None)."""
        return self._courses

    def get(self, slug: str) -> HubCourse | None:
        """The course of this name; None where there is none."""
        return next((course for course in self._courses if course.slug == slug), None)

    def courses_of(self, user: str) -> tuple[HubCourse, ...]:
        return tuple(course for course in self._courses if user in course.people)

    async def refresh(self, max_age: float = FRESH) -> bool:
        """Read the folder and the hub's groups, unless that was done less than ``max_age`` seconds ago.

        Waits for a few seconds at most; returns whether the courses are that fresh now. Raises SQLAlchemyError.
        """
        if self.read_at is not None and self.clock() - self.read_at < max_age:
            return True
        if not await self._reader.refresh():
            return False
        reading = self._reader.last
        if self._reading is not reading:  # the first of those who waited
            self._reading = reading
            self.read_at = self.clock()
            self.resolve()
            if self.on_read is not None:
                self.on_read()
        return True

    def resolve(self) -> None:
        """Resolve rosters and instructors against the hub's users and groups as they are now.

        Raises SQLAlchemyError.
        """
        named = {
            group
            for file in self._reading.files
            if file.course is not None
            for group in (*file.course.roster.groups, *file.course.instructors.groups)
        }
        hub = self.people_of(named)
        files = tuple(with_added(file, hub.added.get(file.slug, ())) for file in self._reading.files)
        crowded = too_many(files, hub.groups)
        faults = self.profile_faults(files)
        self._courses = tuple(
            _left_out(file, CROWDED)
            if file.slug in crowded
            else _resolved(file, hub, self._statuses.get(file.slug, RoleStatus()), faults.get(file.slug))
            for file in sorted(files, key=lambda file: file.slug)
        )
        self._log_faults()

    def people_changed(self) -> None:
        """Take up that people were added or removed: at once for forms, and for groups and rights soon.

        Raises SQLAlchemyError.
        """
        self.resolve()
        if self.on_read is not None:
            self.on_read()

    def take(self, statuses: Mapping[str, RoleStatus]) -> bool:
        """Take up how the courses stand, by slug; return whether that has changed one. Raises SQLAlchemyError."""
        changed = statuses != self._statuses
        self._statuses = dict(statuses)
        if changed:
            self.resolve()
        return changed

    def _log_faults(self) -> None:
        faults = frozenset(f"{course.slug}: {fault}" for course in self._courses for fault in course.faults)
        if self.fault is not None:
            faults |= {str(self.fault)}
        for fault in sorted(faults - self._logged):
            get_logger().error("Error in a course: %s", fault)
        for fault in sorted(self._logged - faults):
            get_logger().info("Error corrected in a course: %s", fault)
        self._logged = faults


def _resolved(file: CourseFile, hub: HubPeople, status: RoleStatus, profile_fault: ConfigError | None) -> HubCourse:
    """See :func:`with_people`; where that fails, the course is left out."""
    try:
        return with_people(file, hub, status, profile_fault)
    except Exception as error:  # noqa: BLE001 - such as one of the site's authenticator: it belongs to this one course
        get_logger().debug("The people of the course %s are not known", file.slug, exc_info=True)
        return _left_out(file, f"The people of the course are not known ({type(error).__name__}).")


def _left_out(file: CourseFile, fault: str) -> HubCourse:
    """A course as if its file had never been good: it has no people, and its group and role stay as they are."""
    return HubCourse(file.slug, replace(file, course=None), faults=(fault,))


def with_people(
    file: CourseFile, hub: HubPeople, status: RoleStatus, profile_fault: ConfigError | None = None
) -> HubCourse:
    """The course of a file in this hub. One without a group has no people, so that nobody can act on them."""
    faults = [str(fault) for fault in (file.fault, profile_fault) if fault is not None]
    if file.course is None:
        return HubCourse(file.slug, file, faults=tuple(faults))
    course = enrolled(file.course, file, hub)
    faults.extend(course.faults)
    if status.refused:
        return HubCourse(file.slug, file, faults=(*faults, status.refused), sessions=file.course.dates)
    on_roster = frozenset(course.people)
    unknown = tuple(name for name in status.unknown if name in on_roster)
    if unknown:
        faults.append(UNKNOWN.format(names=some(unknown, at_most=NAMED)))
    return replace(course, faults=tuple(faults), unknown=unknown)


def enrolled(course: Course, file: CourseFile, hub: HubPeople) -> HubCourse:
    """The course with its people, and sentences about names that are left out."""
    roster, instructors = people(course.roster, file.listed, hub.groups), course.instructors
    names, strange = as_users(roster.names, hub)
    admins = [name for name in names if name in hub.admins]
    outside = [name for name in names if name not in hub.admins and hub.outside(name)]
    teaching, strangers = as_users(instructors.users, hub)
    unknown = [group for group in instructors.groups if group not in hub.groups]
    left_out = (
        (roster.unknown_groups, "The roster names groups that JupyterHub does not have"),
        (strange, "The roster names people who cannot be users of this hub"),
        (admins, "The roster names administrators of the hub, who are left out"),
        (outside, "The roster names people whom this hub does not allow on courses"),
        (strangers, "The instructors include names that cannot be users of this hub"),
        (unknown, "The instructors include groups that JupyterHub does not have"),
    )
    taking = tuple(name for name in names if name not in {*admins, *outside})
    added, _ = as_users(hub.added.get(file.slug, ()), hub)
    return HubCourse(
        file.slug,
        file,
        people=taking,
        instructors=teaching,
        instructor_groups=tuple(group for group in instructors.groups if group in hub.groups),
        faults=tuple(f"{sentence}: {some(names, at_most=NAMED)}." for names, sentence in left_out if names),
        sessions=course.dates,
        added=tuple(name for name in added if name in taking),
        takes_additions=hub.add_people,
    )


class BookOfHub:
    """The courses that a hub has, in its :class:`~.hub.site.state.HubState`."""

    book: CourseBook | None = None
    """None without ``courses_dir``."""


def course_book(settings: Mapping[str, Any]) -> CourseBook | None:
    """The courses of the hub with these tornado settings (``handler.settings``, ``user.settings``).

    None in a hub without ``courses_dir``.
    """
    return state_of(settings).of(BookOfHub).book
