"""What the courses of a site are checked against, and the jobs that their participants would get. Submits nothing."""

from __future__ import annotations

import asyncio
import copy
import re
import stat
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from inspect import cleandoc
from pathlib import Path
from urllib.parse import urlsplit

import click

from jupyterhub_gpuspawner.errors import ConfigError, SlurmUnavailable
from jupyterhub_gpuspawner.extensions.courses.additions import added_people_if_any
from jupyterhub_gpuspawner.extensions.courses.book import with_added
from jupyterhub_gpuspawner.extensions.courses.check import CourseInputs, HubLimits, SessionPlan, members, plans
from jupyterhub_gpuspawner.extensions.courses.course import Course, CourseDate
from jupyterhub_gpuspawner.extensions.courses.course_profile import (
    PREFIX,
    course_profile,
    next_session,
    opens_at,
    profiles_of,
)
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile, CourseFolder
from jupyterhub_gpuspawner.extensions.courses.rehearsal import PersonsAnswer, rehearsal_beside
from jupyterhub_gpuspawner.extensions.courses.report import SessionReport
from jupyterhub_gpuspawner.extensions.courses.settings import courses_dir_of
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve
from jupyterhub_gpuspawner.site.configuration import Site
from jupyterhub_gpuspawner.site.configured import configured_value
from jupyterhub_gpuspawner.site.people import people_of, read_database
from jupyterhub_gpuspawner.slurm.accounts import account_of
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

SETTING = "c.GPUProfilesSpawner.courses_dir"


@dataclass(frozen=True)
class SiteCourses:
    """The courses of a site's folder, each with the people whom instructors have added on the hub's pages."""

    files: tuple[CourseFile, ...]
    """By slug; also those with a fault."""
    fault: ConfigError | None
    """What is wrong with the folder, such as a file with a wrong name."""

    def named(self, name: str) -> tuple[CourseFile, Course]:
        """A course and its file; raises ConfigError, also for a fault in the file."""
        file = next((file for file in self.files if file.slug == name), None)
        if file is None:
            slugs = ", ".join(file.slug for file in self.files) or "none"
            raise self.fault or ConfigError(f"there is no course {name!r}.", hint=f"Courses are: {slugs}.")
        if file.fault is not None:
            raise file.fault
        assert file.course is not None
        return file, file.course


def courses_of(site: Site) -> SiteCourses:
    """Read them, which blocks; raises ConfigError in a hub without courses."""
    folder = CourseFolder(courses_dir_of(spawner_of(site))).read()
    added = added_people_of(site)
    files = (with_added(file, added.get(file.slug, ())) for file in folder.files)
    return SiteCourses(tuple(sorted(files, key=lambda file: file.slug)), folder.fault)


@dataclass(frozen=True)
class Checked:
    """What the check of one course found."""

    slug: str
    """Empty for the folder of courses, where that has a fault."""
    reports: Sequence[SessionReport]
    fault: ConfigError | None
    """What is wrong with its file."""

    @property
    def is_valid(self) -> bool:
        """Whether nothing is wrong."""
        return self.fault is None and all(report.fits for report in self.reports)


async def check_courses(site: Site, name: str = "", session: str = "", *, past: bool = False) -> list[Checked]:
    """Check a course, or without a name every course: the sessions that have not ended, with ``past`` all.

    Slurm is asked as each participant of a course's first session, and as one of those of each later session. Raises
    ConfigError, also for a named course without such a session, and SlurmUnavailable.
    """
    courses = await asyncio.to_thread(courses_of, site)
    if courses.fault is not None and not courses.files:
        raise courses.fault
    files = [courses.named(name)[0]] if name else courses.files
    inputs = await course_site(site, [file for file in files if file.fault is None])
    since = None if past else datetime.now().astimezone()
    planned = {file.slug: plans(file, inputs, only=session, since=since) for file in files}
    if name and not planned[name]:
        raise no_session(files[0], session or "from now on")
    every_plan = [plan for of_course in planned.values() for plan in of_course]
    rehearsal = await rehearsal_beside(spawner_of(site), every_plan, courses.files, inputs)
    checked = [Checked(file.slug, await rehearsal.reports(planned[file.slug]), file.fault) for file in files]
    return checked if name or courses.fault is None else [*checked, Checked("", (), courses.fault)]


def added_people_of(site: Site) -> Mapping[str, tuple[str, ...]]:
    """People whom instructors have added on the hub's pages, by course; empty where its database cannot be read."""
    if not site.config.GPUCourses.get("add_people", True):
        return {}
    try:
        return read_database(site.config, added_people_if_any) or {}
    except ConfigError:  # the check of groups says so
        return {}


async def rehearse(
    site: Site, name: str, session: str, *, only: Sequence[str], every: float
) -> tuple[CourseDate, AsyncIterator[PersonsAnswer], SessionReport | None]:
    """Ask Slurm for each participant, as that user, when their server would start (``sbatch --test-only``).

    Each is asked for as of the moment from which servers of the session may be started, or now if that is later. A
    question each ``every`` seconds, since each makes slurmctld evaluate the cluster. ``session`` empty: the next one.
    Returns the session, the answers as Slurm gives them, and whether all fit at the same time, of which an answer for
    one knows nothing: None if only some were asked for. Raises ConfigError, SlurmUnavailable.
    """
    courses = await asyncio.to_thread(courses_of, site)
    _, inputs, plan = await planned_session(site, courses, name, session)
    rehearsal = await rehearsal_beside(spawner_of(site), [plan], courses.files, inputs)
    together = None if only else await rehearsal.report(plan, as_users=())
    return plan.session, rehearsal.answers(plan, only or plan.people, every=every), together


async def planned_session(
    site: Site, courses: SiteCourses, name: str, session: str
) -> tuple[Course, CourseInputs, SessionPlan]:
    """A course with what it is checked against, and its session of this name, or without one the next.

    Raises ConfigError and SlurmUnavailable.
    """
    file, course = courses.named(name)
    inputs = await course_site(site, [file])
    plan = next(iter(plans(file, inputs, only=session, since=datetime.now().astimezone())), None)
    if plan is None:
        raise no_session(file, session or "from now on")
    return course, inputs, plan


async def course_site(
    site: Site, files: Sequence[CourseFile], *, snapshots: Mapping[str, ClusterSnapshot] | None = None
) -> CourseInputs:
    """What these courses are checked against: each cluster is asked once for all of them, none if they are given.

    Raises SlurmUnavailable where none responds.
    """
    spawner = spawner_of(site)
    snapshots = snapshots or await _snapshots(spawner)
    groups = (await asyncio.to_thread(people_of, site.config)).groups
    everybody = list(dict.fromkeys(name for file in files for name in members(file, groups)))
    courses = [file.course for file in files if file.course is not None]
    teachers = list(dict.fromkeys(user for course in courses for user in course.instructors.users))
    first = next(iter(snapshots))
    return CourseInputs(
        profiles=spawner.offered(),
        snapshots=snapshots,
        defaults=spawner.defaults(),
        groups=groups,
        without_account={name: await _without_account(spawner, everybody, name) for name in snapshots},
        hub=hub_limits(site),
        absent_instructors=() if spawner.req_homedir else await _without_account(spawner, teachers, first),
    )


async def _snapshots(spawner: GPUProfilesSpawner) -> dict[str, ClusterSnapshot]:
    """Those of the clusters that respond, by name; raises SlurmUnavailable where none does."""
    clusters = spawner.connections()
    asking = (cluster.client.snapshot() for cluster in clusters.values())
    answers = dict(zip(clusters, await asyncio.gather(*asking, return_exceptions=True), strict=True))
    snapshots = {name: answer for name, answer in answers.items() if isinstance(answer, ClusterSnapshot)}
    for answer in answers.values():
        if isinstance(answer, BaseException) and not (isinstance(answer, SlurmUnavailable) and snapshots):
            raise answer
    return snapshots


def hub_limits(site: Site) -> HubLimits:
    """The settings of the hub that concern many servers at once; services that JupyterHub would refuse do not count."""
    hub, spawner = site.config.JupyterHub, site.spawner("nobody")
    services = configured_value(hub.get("services"))
    listed = services if isinstance(services, list) else []
    commands = [service.get("command") for service in listed if isinstance(service, dict)]
    return HubLimits(
        concurrent_spawns=hub.get("concurrent_spawn_limit", HubLimits.concurrent_spawns),
        active_servers=hub.get("active_server_limit", HubLimits.active_servers),
        start_timeout=spawner.start_timeout,
        queue_timeout=spawner.site_queue_limit,
        culled_after=min(filter(None, map(_culled_after, commands)), default=None),
    )


def _culled_after(command: Sequence[object] | None) -> int | None:
    """The ``--timeout`` of jupyterhub-idle-culler, 600 s by default; None for another service."""
    words = [str(word) for word in command or ()]
    programs = {word.replace("-", "_").rpartition("/")[2] for word in words}
    if not programs & {"jupyterhub_idle_culler", "cull_idle_servers.py"}:
        return None
    timeout = re.search(r"(?:^|\n)--timeout[=\n]([0-9]+)(?:$|\n)", "\n".join(words))
    return int(timeout[1]) if timeout is not None else 600


def no_session(file: CourseFile, session: str) -> ConfigError:
    """The error for a session that the course does not have."""
    assert file.course is not None
    days = ", ".join(date.name for date in file.course.dates)
    return ConfigError(f"course {file.slug} has no session {session!r}.", hint=f"Its sessions are {days}.")


def spawner_of(site: Site) -> GPUProfilesSpawner:
    """The spawner of a hub with courses; raises ConfigError for one without."""
    spawner = site.spawner("nobody")
    if not isinstance(spawner, GPUProfilesSpawner) or not courses_dir_of(spawner):
        raise ConfigError("there are no courses.", where=SETTING, hint="Set it to a folder of course files.")
    return spawner


def address_of(site: Site) -> str:
    """The hub's address, or its path where the configuration has none that participants use."""
    hub = site.config.JupyterHub
    base = hub.get("base_url") or urlsplit(hub.get("bind_url", "")).path or "/"
    return f"{hub.get('public_url') or base}".rstrip("/") + "/hub/"


async def _without_account(spawner: GPUSlurmSpawner, names: Sequence[str], cluster: str) -> frozenset[str]:
    """People whose server could not be submitted on a cluster.

    With ``req_homedir`` the account need not exist on this machine.
    """
    missing = set()
    settings = spawner.effective(cluster)
    homes, accounts, of_hub = settings.req_homedir, spawner.connection(settings).accounts, not settings.query_prefix
    for name in names:
        try:
            account = await account_of(name, home=homes.replace("{username}", name), cluster=accounts)
        except ConfigError:
            missing.add(name)
            continue
        if of_hub and not homes and not await asyncio.to_thread(_may_be_folder, account.home):
            missing.add(name)
    return frozenset(missing)


def _may_be_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(Path(path).stat().st_mode)
    except FileNotFoundError:
        return False
    except OSError:  # a home that this account may not see
        return True


def with_courses(show: click.Command) -> click.Command:
    """``gpuspawner show`` with a word on the profiles of courses."""
    extended = copy.copy(show)
    extended.help = f"{cleandoc(show.help or '')}\n\n{_SHOWN}"
    return extended


_SHOWN = """\
For `course-NAME` it is the script of a participant in the course's session, the one that is open or the next; with
several profiles it is one script for each, in the order in which their seats are filled."""


def requests_of(
    site: Site, choice: Mapping[str, object], user: str, groups: Sequence[str], server: str
) -> Iterator[tuple[JobRequest, tuple[str, ...]]]:
    """What a participant requests who chooses a course's profile in the session that is open, or else the next one.

    With each profile of the session, and what is worth a note; nothing for another profile. Raises ConfigError or
    RequestError.
    """
    offering, slug = site.spawner(user, groups, server), str(choice["profile"])
    if not isinstance(offering, GPUProfilesSpawner) or not courses_dir_of(offering) or not slug.startswith(PREFIX):
        return
    spawner, now = spawner_of(site), datetime.now().astimezone()
    file, course = courses_of(site).named(slug.removeprefix(PREFIX))
    session = next_session(course, now)
    if session is None:
        raise no_session(file, "from now on")
    moment, defaults = max(now, opens_at(course, session)), spawner.defaults()
    profiles = profiles_of(course, session)
    for rank in range(len(profiles)):
        offered = course_profile(file, spawner.offered(), moment, defaults=defaults, session=session, rank=rank)
        request = resolve(
            (offered.profile,),
            choice,
            username=user,
            groups=groups,
            server_name=server,
            now=moment,
            defaults=defaults,
        )
        notes = list[str]()
        if not rank and user not in members(file, people_of(site.config).groups):
            notes.append(f"{user} is not on the roster of course {file.slug}, as far as is known here.")
        notes.append(f"This is the script at {moment:%Y-%m-%d %H:%M %Z}, for the session {session.name}.")
        if len(profiles) > 1:
            notes.append(
                f"Profile {offered.base}, number {rank + 1} of {len(profiles)} in the order in which seats are filled."
            )
        yield replace(request, offer=offered), tuple(notes)
