"""What a user is offered for courses: those that they take, and those that they teach, to try them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.extensions.courses.book import course_book
from jupyterhub_gpuspawner.extensions.courses.check import rank_of_next
from jupyterhub_gpuspawner.extensions.courses.course import CourseDate
from jupyterhub_gpuspawner.extensions.courses.course_profile import (
    PREFIX,
    course_profile,
    next_session,
    occasion_of,
    profiles_of,
    request_of,
    slug_of,
)
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.profiles.offered import Occasion, Offered
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

FOR_SEATS = 60.0
"""Seconds that the snapshot may be old by which a course's seats are filled; its own later starts are known."""
INSTRUCTORS_NAMED = 3
"""Instructors whom somebody who is not on their course is told to ask, at most."""


def courses_of_hub(spawner: Any) -> Any | None:
    """The courses of this spawner's hub; None outside of a hub, and in a hub without ``courses_dir``."""
    settings = getattr(spawner.user, "settings", None)
    return course_book(settings or {})


async def refresh_courses(spawner: Any) -> None:
    """Have the hub's courses read again if they are old; whatever fails, the last ones are offered.

    Nobody's start, and no form, fails because of a course.
    """
    courses = courses_of_hub(spawner)
    if courses is not None:
        try:
            await courses.refresh()
            own = [course for course in _courses(spawner) if spawner.user.name in course.people]
            if any(len(date.profiles) > 1 for course in own for date in course.file.course.dates):
                views = [cluster.view for cluster in spawner.connections().values()]
                await asyncio.gather(*(view.recent(FOR_SEATS) for view in views))
        except SQLAlchemyError as error:
            spawner.log.warning("Courses are read later, since the database failed: %s", type(error).__name__)
        except Exception:
            spawner.log.exception("Courses are read later, since that failed")


def courses_offered(spawner: Any) -> tuple[Offered, ...]:
    """The courses that a spawner's user takes or teaches, as they are now; those at fault are left out.

    Instructors can try a course at any time until it is over. Raises ConfigError for a fault in the hub's own profiles.
    """
    courses = _courses(spawner)
    if not courses:
        return ()
    name, groups = spawner.user.name, spawner.groups_of_user()
    taught = {course.file.slug for course in courses if _teaches(course, name, groups)}
    own = [course.file for course in courses if course.file.slug in taught or name in course.people]
    people = {course.file.slug: course.people for course in courses}
    offered = _course_profiles(spawner, own, taught, people=people)
    return tuple(offer for offer in offered.values() if isinstance(offer, Offered))


def occasion(settings: Mapping[str, Any], slug: str) -> Occasion | None:
    """The course whose profile has this slug, in the hub with these tornado settings; None where there is none."""
    book = course_book(settings)
    course = book.get(slug.removeprefix(PREFIX)) if book is not None and slug.startswith(PREFIX) else None
    return occasion_of(course.slug, course.course) if course is not None and course.course is not None else None


def refusal(spawner: Any, slug: str) -> str:
    """Why a spawner's user is not offered the profile with this slug: it is a course's that they are not on.

    Empty where it is no course's, or one of theirs.
    """
    name = spawner.user.name
    course = next((course for course in _courses(spawner) if slug_of(course.file.slug) == slug), None)
    if course is None or name in course.people or _teaches(course, name, spawner.groups_of_user()):
        return ""
    instructors = " or ".join(course.instructors[:INSTRUCTORS_NAMED]) or "the instructor"
    reader = getattr(spawner.handler, "current_user", None)
    who = "You are" if reader is None or reader.name == name else f"{name} is"
    your = f"; your user name is {name}" if who == "You are" else ""
    remedy = f"Tell {instructors}, who can add you." if course.takes_additions else f"Tell {instructors}."
    return f"{who} not on the list of this course{your}. {remedy}"


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


def _courses(spawner: Any) -> list[Any]:
    hub = courses_of_hub(spawner)
    return [course for course in hub.courses() if course.file.course is not None] if hub is not None else []


def _course_profiles(
    spawner: Any,
    files: Sequence[CourseFile],
    taught: Collection[str] = (),
    *,
    people: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Offered | ConfigError]:
    """The profile of each course by its slug: of several that of the first seat that is left, if ``people`` are given.

    They are the participants of each course.
    """
    if not files:
        return {}
    now = datetime.now().astimezone()
    profiles, defaults = spawner.source.profiles(), spawner.defaults()

    def profile_of(file: CourseFile) -> Offered | ConfigError:
        try:
            assert file.course is not None
            session, trying = next_session(file.course, now), file.slug in taught
            offers = [
                course_profile(file, profiles, now, defaults=defaults, trying=trying, rank=rank)
                for rank in range(len(profiles_of(file.course, session)))
            ]
            if session is None or len(offers) == 1 or not people:
                return offers[0]
            chosen = _next_seat(spawner, session, offers, people[file.slug])
            accepted = next(profile.alternatives for profile in profiles if profile.slug == chosen.base)
            return replace(chosen, others=tuple(o for o in offers if o is not chosen and o.base in accepted))
        except ConfigError as error:
            return error
        except Exception as error:  # noqa: BLE001 - it belongs to this one course
            get_logger().debug("The course %s cannot be offered", file.slug, exc_info=True)
            return ConfigError(f"the course cannot be offered ({type(error).__name__})", where=file.where(()))

    return {file.slug: profile_of(file) for file in files}


def _next_seat(spawner: Any, session: CourseDate, offers: Sequence[Offered], people: Sequence[str]) -> Offered:
    """The profile that the next server of a course gets: the first that has a seat left, or else the last.

    Where nothing is known of the cluster, and where one of them starts no Slurm job, it is the first.
    """
    clusters = spawner.connections()
    responding = {name: cluster for name, cluster in clusters.items() if not cluster.silent}
    views = {name: cluster.view for name, cluster in (responding or clusters).items()}
    snapshots = {name: view.latest for name, view in views.items() if view.latest is not None}
    if any(offer.profile.kind != "slurm" for offer in offers):
        return offers[0]
    now = datetime.now().astimezone()
    try:
        user, groups, defaults = spawner.user.name, spawner.groups_of_user(), spawner.defaults()
        requests = [request_of(offer.profile, user, groups, now, defaults) for offer in offers]
    except RequestError:  # it is not open now, or not for this user, which is told where it is chosen
        return offers[0]
    if not any((request.resources.cluster or "") in snapshots for request in requests):
        return offers[0]
    waiting = _waiting(spawner, people, offers[0].profile.slug, snapshots)
    return offers[rank_of_next(requests, session, snapshots, people, now=now.timestamp(), waiting=waiting)]


def _waiting(
    spawner: Any, people: Collection[str], slug: str, snapshots: Mapping[str, ClusterSnapshot]
) -> Counter[int]:
    """How many other servers of a course are active and hold nothing yet by their cluster: by the profile's rank."""
    names = frozenset(people)
    allocated = {(name, job.job_id) for name, snapshot in snapshots.items() for job in snapshot.jobs if job.nodes}
    servers = (
        server
        for user in list(spawner.user.settings.get("users", {}).values())
        if user.name in names
        for server in list(user.spawners.values())
    )
    return Counter(
        server.chosen.rank
        for server in servers
        if server is not spawner
        and server.active
        and getattr(server.chosen, "profile", "") == slug
        and (server.cluster, server.job_id) not in allocated
    )


def _teaches(course: Any, name: str, groups: Collection[str]) -> bool:
    return name in course.instructors or not set(groups).isdisjoint(course.instructor_groups)
