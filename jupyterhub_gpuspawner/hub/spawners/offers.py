"""What one user is offered, and what they may choose: profiles of the configuration and of a folder, and courses.

The folder is shared by all users of a hub. It may be on a file system that hangs, so it is read in a thread of its own
and never in the hub's event loop: a request waits a few seconds at most, and then uses the result of the last reading.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from jupyterhub.scopes import Scope
from sqlalchemy.exc import SQLAlchemyError
from traitlets.log import get_logger

from jupyterhub_gpuspawner.courses.check import rank_of_next
from jupyterhub_gpuspawner.courses.course import Course
from jupyterhub_gpuspawner.courses.course_profile import (
    PREFIX,
    CourseProfile,
    course_profile,
    group_name,
    profiles_of,
    slug_of,
)
from jupyterhub_gpuspawner.courses.folder import CourseFile
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.hub.job.ending import database_away, spawn_failure
from jupyterhub_gpuspawner.hub.jupyterhub_compat import START_SERVERS, session_of
from jupyterhub_gpuspawner.hub.site.database import TO_START, takes_changes, written
from jupyterhub_gpuspawner.profiles.files import NOTHING, ProfileFolder, Rights
from jupyterhub_gpuspawner.profiles.profile import Profile, SlugTaken, parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

PATIENCE = 3.0
"""Seconds that a request waits for the folder to be read."""
REST = 30.0
"""Seconds between two readings of a folder that holds too many files."""


@dataclass(frozen=True)
class FolderContent:
    """What was found when the folder was read."""

    profiles: tuple[Profile, ...] = ()
    errors: tuple[ConfigError, ...] = ()
    missing: bool = False
    crowded: bool = False


class SharedFolder:
    """A folder of profiles, shared by all users of a hub; each of its faults is logged once.

    Each reading is done in a daemon thread, so that the hub can exit while it hangs.
    """

    def __init__(self, path: str, rights: Rights = NOTHING) -> None:
        self.path = path
        self._folder = ProfileFolder(path, rights)
        self._reading: Future[FolderContent] | None = None
        self._begun = 0.0
        self._content = FolderContent()
        self._taken: tuple[ConfigError, ...] = ()
        self._logged: frozenset[str] = frozenset()

    def _read(self) -> Future[FolderContent]:
        last, reading = self._last, Future[FolderContent]()

        def read() -> None:
            profiles = self._folder.profiles()
            reading.set_result(FolderContent(profiles, self._folder.errors, self._folder.missing, self._folder.crowded))

        self._reading, self._begun = reading, time.monotonic()
        try:
            threading.Thread(target=read, name="profiles", daemon=True).start()
        except RuntimeError:  # no thread can be started now
            fault = ConfigError("the folder cannot be read: this process has too many threads", where=self.path)
            reading.set_result(replace(last, errors=(fault,)))
        return reading

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """Faults in the folder's files, and in reading it, as of the last reading."""
        silent: tuple[ConfigError, ...] = ()
        hangs = self._reading is not None and not self._reading.done()
        if hangs and time.monotonic() - self._begun >= PATIENCE:
            silent = (
                ConfigError(
                    "the folder is not responding; the profiles last read from it are offered", where=self.path
                ),
            )
        return (*silent, *self._last.errors, *self._taken)

    @property
    def missing(self) -> bool:
        """Whether the folder was missing when it was last read."""
        return self._last.missing

    def file_of(self, slug: str) -> str:
        """The name of the file that a profile was read from; empty if there is none."""
        return self._folder.owners.get(slug, "")

    def owners(self) -> dict[str, str]:
        """The file of each profile's slug, as of the last reading."""
        return dict(self._folder.owners)

    def remember(self, owners: Mapping[str, str]) -> None:
        """Let files keep the slugs that they had when an earlier process read them; no effect once it has been read."""
        if self._reading is None:
            self._folder.owners = dict(owners)

    @property
    def _last(self) -> FolderContent:
        if self._reading is not None and self._reading.done():
            self._content = self._reading.result()
        return self._content

    async def refresh(self) -> None:
        """Read the folder anew and wait for that, for :data:`PATIENCE` seconds at most; not while a reading hangs."""
        before = self._reading
        if before is not None and not await self._answered(before):
            return
        if self._reading is before:
            if before is not None and self._last.crowded and time.monotonic() - self._begun < REST:
                return
            self._read()
        if self._reading is not None:
            await self._answered(self._reading)

    async def _answered(self, reading: Future[FolderContent]) -> bool:
        left = self._begun + PATIENCE - time.monotonic()
        if not reading.done() and left > 0:
            await asyncio.wait({asyncio.wrap_future(reading)}, timeout=left)
        return reading.done()

    def first_reading(self) -> None:
        """Read the folder if it never was, and wait for that: at the hub's start, and in programs without a loop."""
        if self._reading is None:
            wait({self._read()}, timeout=PATIENCE)

    def besides(self, slugs: Collection[str]) -> tuple[Profile, ...]:
        """Return the profiles as last read, without those whose slug is in ``taken``; never raises."""
        self.first_reading()
        profiles = self._last.profiles
        self._taken = tuple(
            SlugTaken(
                f"{profile.slug!r} is also the slug of a profile in the configuration; this one is left out",
                where=self.file_of(profile.slug),
            )
            for profile in profiles
            if profile.slug in slugs
        )
        self._log_changes()
        return tuple(profile for profile in profiles if profile.slug not in slugs)

    def _log_changes(self) -> None:
        faults = frozenset(map(str, self.errors))
        for fault in sorted(faults - self._logged):
            get_logger().error("Error in the profiles of %s: %s", self.path, fault)
        for fault in sorted(self._logged - faults):
            get_logger().info("Error corrected in the profiles of %s: %s", self.path, fault)
        self._logged = faults


@lru_cache(maxsize=8)
def profile_folder(path: str, rights: Rights = NOTHING) -> SharedFolder:
    """Return the folder at ``path``, which is shared by all users of the hub."""
    return SharedFolder(path, rights)


EXAMPLES = "`gpuspawner files DIR --profiles` writes examples."
NO_PROFILE = "There is no profile to offer."
OFFER_PROFILES = (
    "Set c.GPUProfilesSpawner.profiles, or put files with profiles into c.GPUProfilesSpawner.profiles_dir; " + EXAMPLES
)


@dataclass(frozen=True)
class ProfileSource:
    """The profiles that a hub offers: those of its configuration, then those of its folder."""

    configured: Sequence[object]
    """Profiles of the configuration, as the admin wrote them."""
    folder: SharedFolder | None = None
    setting: str = "profiles"
    """The setting with the configured profiles, for paths in errors."""

    def configured_profiles(self) -> tuple[Profile, ...]:
        """Return the profiles of the configuration; raises ConfigError, which names the profile and the field."""
        return parse_profiles(self.configured, name=self.setting) if self.configured else ()

    def check_folder(self, setting: str) -> None:
        """Raise ConfigError if the folder, which ``setting`` names, is missing; or, without one, if nothing is offered.

        A folder may be filled later.
        """
        if self.folder is None:
            self.profiles()
            return
        self.folder.first_reading()
        if self.folder.missing:
            raise ConfigError(
                f"there is no folder {self.folder.path!r}.",
                where=setting,
                hint="Create it, and put YAML files with profiles into it; " + EXAMPLES,
            )

    def profiles(self) -> tuple[Profile, ...]:
        """Return all profiles, those of the folder as last read.

        Raises ConfigError for a fault in a configured profile, and if there is no profile at all. A fault in a file of
        the folder affects that file only: it is left out, or kept at its last good version.
        """
        profiles = self.configured_profiles()
        if self.folder is not None:
            profiles += self.folder.besides({profile.slug for profile in profiles})
        if profiles:
            return profiles
        hint = OFFER_PROFILES
        if self.folder is not None and self.folder.errors:
            hint = f"In {self.folder.path}: {self.folder.errors[0]}"
        raise ConfigError(NO_PROFILE, hint=hint)

    async def refresh(self) -> None:
        """Read the folder anew, if there is one."""
        if self.folder is not None:
            await self.folder.refresh()

    def errors(self) -> tuple[ConfigError, ...]:
        """Return the faults in files of the folder; their last good versions are offered."""
        return self.folder.errors if self.folder is not None else ()


# The courses that one user is offered: those that they take, and those that they teach, to try them.

SETTING = "gpuspawner_courses"
"""Where the hub's tornado settings hold its courses."""
FOR_SEATS = 60.0
"""Seconds that the snapshot may be old by which a course's seats are filled; its own later starts are known."""
INSTRUCTORS_NAMED = 3
"""Instructors whom somebody who is not on their course is told to ask, at most."""


def courses_of_hub(spawner: Any) -> Any | None:
    """The courses of this spawner's hub; None outside of a hub, and in a hub without ``courses_dir``."""
    settings = getattr(spawner.user, "settings", None)
    return settings.get(SETTING) if settings else None


async def refresh_courses(spawner: Any) -> None:
    """Have the hub's courses read again if they are old; whatever fails, the last ones are offered.

    Nobody's start, and no form, fails because of a course.
    """
    courses = courses_of_hub(spawner)
    if courses is not None:
        try:
            await courses.refresh()
            own = [course for course in _courses(spawner) if spawner.user.name in course.people]
            if any(_has_several_profiles(course.file.course) for course in own):
                views = [connection.cluster for connection in spawner.connections().values()]
                await asyncio.gather(*(view.recent(FOR_SEATS) for view in views))
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
    people = {course.file.slug: course.people for course in courses}
    offered = _course_profiles(spawner, own, taught, people=people)
    return tuple(offer for offer in offered.values() if isinstance(offer, CourseProfile))


def refuse_strangers(spawner: Any, slug: object, offered: Sequence[Profile]) -> None:
    """Raise RequestError where ``slug`` is the profile of a course of this hub that its user is not on."""
    if not isinstance(slug, str) or any(profile.slug == slug for profile in offered):
        return
    name = spawner.user.name
    course = next((course for course in _courses(spawner) if slug_of(course.file.slug) == slug), None)
    if course is None or name in course.people or _teaches(course, name, spawner.groups_of_user()):
        return
    instructors = " or ".join(course.instructors[:INSTRUCTORS_NAMED]) or "the instructor"
    reader = getattr(spawner.handler, "current_user", None)
    who = "You are" if reader is None or reader.name == name else f"{name} is"
    your = f"; your user name is {name}" if who == "You are" else ""
    remedy = f"Tell {instructors}, who can add you." if course.takes_additions else f"Tell {instructors}."
    raise RequestError(f"{who} not on the list of this course{your}. {remedy}", field="profile")


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
) -> dict[str, CourseProfile | ConfigError]:
    """The profile of each course by its slug: of several that of the first seat that is left, if ``people`` are given.

    They are the participants of each course.
    """
    if not files:
        return {}
    now = datetime.now().astimezone()
    profiles, defaults = spawner.source.profiles(), spawner.defaults()

    def profile_of(file: CourseFile) -> CourseProfile | ConfigError:
        try:
            trying = file.slug in taught
            first = course_profile(file, profiles, now, defaults=defaults, trying=trying)
            assert file.course is not None
            number = len(profiles_of(file.course, first.session))
            others = [
                course_profile(file, profiles, now, defaults=defaults, trying=trying, rank=rank)
                for rank in range(1, number)
            ]
            return _next_seat(spawner, [first, *others], people[file.slug]) if people and others else first
        except ConfigError as error:
            return error
        except Exception as error:  # noqa: BLE001 - it belongs to this one course
            get_logger().debug("The course %s cannot be offered", file.slug, exc_info=True)
            return ConfigError(f"the course cannot be offered ({type(error).__name__})", where=file.where(()))

    return {file.slug: profile_of(file) for file in files}


def _has_several_profiles(course: Course | None) -> bool:
    return course is not None and any(len(date.profiles) > 1 for date in course.dates)


def _next_seat(spawner: Any, offers: Sequence[CourseProfile], people: Sequence[str]) -> CourseProfile:
    """The profile that the next server of a course gets: the first that has a seat left, or else the last.

    Where nothing is known of the cluster, and where one of them starts no Slurm job, it is the first.
    """
    session, connections = offers[0].session, spawner.connections()
    responding = {name: connection for name, connection in connections.items() if not connection.silent}
    views = {name: connection.cluster for name, connection in (responding or connections).items()}
    snapshots = {name: view.latest for name, view in views.items() if view.latest is not None}
    if session is None or any(offer.profile.kind != "slurm" for offer in offers):
        return offers[0]
    now = datetime.now().astimezone()
    try:
        requests = [
            resolve(
                (offer.profile,),
                {"profile": offer.profile.slug},
                username=spawner.user.name,
                groups=spawner.groups_of_user(),
                server_name="",
                now=now,
                defaults=spawner.defaults(),
            )
            for offer in offers
        ]
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


# Applies the user options of one start: JupyterHub's ``apply_user_options``; and who may choose them.

FOR_OTHERS = (
    "For somebody else you can start the profile of a course that you teach, and nothing else. To choose a profile or "
    "options for them, you need the scope admin:servers."
)


async def apply_user_options(spawner: Any, user_options: Mapping[str, object]) -> None:
    """Check the options of form, link or REST, store them normalised, and build the child of a profiles spawner."""
    await spawner.refresh_profiles()
    if not await takes_changes(spawner.orm_spawner, TO_START):  # whom a profile is for is read from the database
        raise database_away()
    try:
        request = spawner.resolve(user_options)
        spawner.prepare(request)
    except GPUSpawnerError as error:
        raise spawn_failure(error, server=spawner._log_name, contact=spawner.contact) from error  # noqa: SLF001 - ours
    spawner.user_options = dict(request.options)
    session = session_of(spawner.orm_spawner)
    if session is None:
        return

    def write() -> None:
        spawner.orm_spawner.user_options = dict(request.options)
        session.commit()

    # at once: JupyterHub rolls back at the next request of anybody what a hook that awaits has left uncommitted
    if not await written(session, write, TO_START):
        raise database_away()


def chooses_freely(handler: Any, user_name: str) -> bool:
    """Whether the sender of a request may choose the profile and options of a user's servers.

    They decide what runs as the user, so that is the user alone, and who starts the servers of all users or administers
    this user's. Others can start servers for the sake of a course, or since one was shared with them.
    """
    requester = handler.current_user
    if requester.kind == "user" and requester.name == user_name:
        return True
    everybody = handler.parsed_scopes.get(START_SERVERS) is Scope.ALL
    return everybody or bool(handler.has_scope(f"admin:servers!user={user_name}"))


def is_taught_course(handler: Any, options: Any) -> bool:
    """Whether these options name the profile of a course whose servers the sender of a request may start, alone."""
    profile = options.get("profile") if isinstance(options, dict) and len(options) == 1 else None
    return isinstance(profile, str) and profile.startswith(PREFIX) and _may_start(handler, profile.removeprefix(PREFIX))


def refuse_choice_of_others(spawner: Any, request: JobRequest) -> None:
    """Raise RequestError where somebody starts for another user what is not a course of theirs.

    A start without a request is the hub's own.
    """
    handler = spawner.handler
    if handler is None or chooses_freely(handler, spawner.user.name):
        return
    if not request.course or not _may_start(handler, request.course):
        raise RequestError(FOR_OTHERS, field="profile")


def _may_start(handler: Any, course: str) -> bool:
    return bool(handler.has_scope(f"{START_SERVERS}!group={group_name(course)}"))
