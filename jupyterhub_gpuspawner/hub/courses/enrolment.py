"""Who takes a course and who teaches it, among the users and groups of this hub. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.courses.roster import people

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from jupyterhub_gpuspawner.courses.course import Course
    from jupyterhub_gpuspawner.courses.folder import CourseFile

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

    def outside(self, name: str) -> bool:
        """Whether the admin's settings keep this name off every roster."""
        if self.pattern and re.fullmatch(self.pattern, name) is None:
            return True
        return bool(self.within) and not any(name in self.groups.get(group, ()) for group in self.within)


@dataclass(frozen=True)
class Enrolment:
    """The people of a course."""

    people: tuple[str, ...] = ()
    """Participants, in the order of the roster."""
    instructors: tuple[str, ...] = ()
    """Users who are named as instructors."""
    instructor_groups: tuple[str, ...] = ()
    """Groups that are named as instructors, and exist."""
    faults: tuple[str, ...] = ()
    """Sentences about names that are left out."""


def enrolment(course: Course, listed: Collection[str], hub: HubPeople) -> Enrolment:
    """The people of ``course``; ``listed`` are the names in its roster's file."""
    found = people(course.roster, listed, hub.groups)
    faults: list[str] = []
    if found.unknown_groups:
        faults.append(f"The roster names groups that JupyterHub does not have: {some(found.unknown_groups)}.")
    names, strange = _as_users(found.names, hub)
    if strange:
        faults.append(f"The roster names people who cannot be users of this hub: {some(strange)}.")
    admins = [name for name in names if name in hub.admins]
    if admins:
        faults.append(f"The roster names administrators of the hub, who are left out: {some(admins)}.")
    outside = [name for name in names if name not in hub.admins and hub.outside(name)]
    if outside:
        faults.append(f"The roster names people whom this hub does not allow on courses: {some(outside)}.")
    left_out = {*admins, *outside}
    teaching, strangers = _as_users(course.instructors.users, hub)
    if strangers:
        faults.append(f"The instructors include names that cannot be users of this hub: {some(strangers)}.")
    unknown = [group for group in course.instructors.groups if group not in hub.groups]
    if unknown:
        faults.append(f"The instructors include groups that JupyterHub does not have: {some(unknown)}.")
    return Enrolment(
        people=tuple(name for name in names if name not in left_out),
        instructors=teaching,
        instructor_groups=tuple(group for group in course.instructors.groups if group in hub.groups),
        faults=tuple(faults),
    )


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


def _as_users(names: Iterable[str], hub: HubPeople) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The users' names, each once, and what cannot be one."""
    good: dict[str, None] = {}
    strange: dict[str, None] = {}
    for name in names:
        user = hub.user_name(name)
        if user is None:
            strange[name] = None
        else:
            good[user] = None
    return tuple(good), tuple(strange)


def some(names: Sequence[str]) -> str:
    """The first of ``names``, and the number of the others."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
