"""The courses that one user is offered: those that they take, and those that they teach, to try them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy.exc import SQLAlchemyError
from traitlets.log import get_logger

from jupyterhub_gpuspawner.courses.course_profile import CourseProfile, course_profile
from jupyterhub_gpuspawner.courses.folder import CourseFile
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.start.build import site_defaults

SETTING = "gpuspawner_courses"
"""Where the hub's tornado settings hold its courses."""


class EnrolledCourse(Protocol):
    """A course with its people; :class:`~..courses.book.HubCourse` is one."""

    @property
    def file(self) -> CourseFile:
        """Its file."""

    @property
    def people(self) -> Collection[str]:
        """User names of participants."""

    @property
    def instructors(self) -> Collection[str]:
        """User names of instructors."""

    @property
    def instructor_groups(self) -> Collection[str]:
        """JupyterHub groups of instructors."""


class Courses(Protocol):
    """The courses of a hub; :class:`~..courses.book.CourseBook` is one."""

    def courses(self) -> Sequence[EnrolledCourse]:
        """All courses as last read."""

    async def refresh(self) -> bool:
        """Read them again if they are old; raises SQLAlchemyError."""


def courses_of_hub(spawner: Any) -> Courses | None:
    """The courses of this spawner's hub; None outside of a hub, and in a hub without ``courses_dir``."""
    settings = getattr(spawner.user, "settings", None)
    courses: Courses | None = settings.get(SETTING) if settings else None
    return courses


async def refresh_courses(spawner: Any) -> None:
    """Have the hub's courses read again if they are old; whatever fails, the last ones are offered.

    Nobody's start, and no form, fails because of a course.
    """
    courses = courses_of_hub(spawner)
    if courses is not None:
        try:
            await courses.refresh()
        except SQLAlchemyError as error:
            spawner.log.warning("Courses are read later, since the database failed: %s", type(error).__name__)
        except Exception:
            spawner.log.exception("Courses are read later, since that failed")


def courses_offered(spawner: Any) -> tuple[CourseProfile, ...]:
    """The courses that a spawner's user takes or teaches, as they are now; those at fault are left out.

    Instructors can try a course at any time until it is over. Raises ConfigError for a fault in the hub's own profiles.
    """
    courses = _courses(spawner)
    if not courses:
        return ()
    name, groups = spawner.user.name, spawner.groups_of_user()
    taught = {course.file.slug for course in courses if _teaches(course, name, groups)}
    own = [course.file for course in courses if course.file.slug in taught or name in course.people]
    return tuple(offer for offer in _course_profiles(spawner, own, taught).values() if isinstance(offer, CourseProfile))


def course_faults(spawner: Any) -> tuple[ConfigError, ...]:
    """Why courses of this hub cannot be offered; ``spawner`` is anybody's."""
    return tuple(faults_of(spawner, [course.file for course in _courses(spawner)]).values())


def faults_of(spawner: Any, files: Sequence[CourseFile]) -> Mapping[str, ConfigError]:
    """Why courses cannot be offered with this hub's profiles, by their slugs; ``spawner`` needs no user.

    Empty while the profiles themselves are at fault, which is told where they are read.
    """
    try:
        by_slug = _course_profiles(spawner, [file for file in files if file.course is not None])
    except ConfigError:
        return {}
    return {slug: fault for slug, fault in by_slug.items() if isinstance(fault, ConfigError)}


def _courses(spawner: Any) -> list[EnrolledCourse]:
    hub = courses_of_hub(spawner)
    return [course for course in hub.courses() if course.file.course is not None] if hub is not None else []


def _course_profiles(
    spawner: Any, files: Sequence[CourseFile], taught: Collection[str] = ()
) -> dict[str, CourseProfile | ConfigError]:
    if not files:
        return {}
    now = datetime.now().astimezone()
    profiles, defaults = spawner.source.profiles(), site_defaults(spawner.site_settings())

    def profile_of(file: CourseFile) -> CourseProfile | ConfigError:
        try:
            return course_profile(file, profiles, now, defaults=defaults, trying=file.slug in taught)
        except ConfigError as error:
            return error
        except Exception as error:  # noqa: BLE001 - it belongs to this one course
            get_logger().debug("The course %s cannot be offered", file.slug, exc_info=True)
            return ConfigError(f"the course cannot be offered ({type(error).__name__})", where=file.where(()))

    return {file.slug: profile_of(file) for file in files}


def _teaches(course: EnrolledCourse, name: str, groups: Collection[str]) -> bool:
    return name in course.instructors or not set(groups).isdisjoint(course.instructor_groups)
