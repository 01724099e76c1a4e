"""What a course is checked against: the hub's configuration, this machine's accounts, and Slurm's answer."""

from __future__ import annotations

import asyncio
import math
import stat
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from traitlets.config import Config

from jupyterhub_gpuspawner.courses.check import (
    CourseInputs,
    HubLimits,
    check_course,
    excluded_from,
    members,
    request_of,
)
from jupyterhub_gpuspawner.courses.course import Course
from jupyterhub_gpuspawner.courses.course_profile import opens_at
from jupyterhub_gpuspawner.courses.dates import CourseDate
from jupyterhub_gpuspawner.courses.folder import CourseFile, CourseFolder
from jupyterhub_gpuspawner.courses.report import SessionReport
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError, SubmitRejected
from jupyterhub_gpuspawner.hub.site.account import account_of, configured_value
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start.build import batch_job, site_defaults
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resources import Resources, over_defaults
from jupyterhub_gpuspawner.site.configuration import Site
from jupyterhub_gpuspawner.site.people import people_of
from jupyterhub_gpuspawner.slurm.accounting import Accounting
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

SETTING = "c.GPUProfilesSpawner.courses_dir"


@dataclass(frozen=True)
class Rehearsed:
    """Slurm's answer for one participant."""

    user: str
    starts_at: float | None
    """When their server would start, in seconds since the epoch; None: Slurm would refuse it."""
    refusal: str = ""


@dataclass(frozen=True)
class Rehearsal:
    """Slurm's answers for the participants of one session."""

    session: CourseDate
    answers: AsyncIterator[Rehearsed]
    """One after the other, as Slurm gives them."""
    together: SessionReport | None
    """Whether all fit at the same time, of which an answer for one knows nothing; None if only some were asked for."""


@dataclass(frozen=True)
class Checked:
    """What the check of one course found."""

    slug: str
    reports: Sequence[SessionReport] = ()
    fault: ConfigError | None = None
    """What is wrong with its file."""

    @property
    def is_valid(self) -> bool:
        """Whether nothing is wrong."""
        return self.fault is None and all(report.fits for report in self.reports)


async def check_named_course(site: Site, name: str, session: str = "", *, past: bool = False) -> Checked:
    """Check one course; raises ConfigError, SlurmUnavailable. See :func:`check_courses`."""
    file, inputs = await _read(site, name)
    reports = _reports(file, inputs, session, past=past)
    if not reports:
        raise no_session(file, session or "from now on")
    return Checked(name, reports)


async def check_courses(site: Site, *, past: bool = False) -> Sequence[Checked]:
    """Check every course: the sessions that have not ended, with ``past`` all. Raises ConfigError, SlurmUnavailable."""
    courses = CourseFolder(spawner_of(site).courses_dir)
    files = await asyncio.to_thread(courses.courses)
    if courses.fault is not None and not files:
        raise courses.fault
    valid = [file for file in files if file.fault is None]
    inputs = await course_site(site, valid)
    return [
        Checked(file.slug, fault=file.fault)
        if file.fault is not None
        else Checked(file.slug, _reports(file, inputs, "", past=past))
        for file in sorted(files, key=lambda file: file.slug)
    ]


def _reports(file: CourseFile, inputs: CourseInputs, session: str, *, past: bool) -> Sequence[SessionReport]:
    return check_course(file, inputs, only=session, since=None if past else datetime.now().astimezone())


async def rehearse(site: Site, name: str, session: str, *, only: Sequence[str], every: float) -> Rehearsal:
    """Ask Slurm for each participant, as that user, when their server would start (``sbatch --test-only``).

    Each is asked for as of the moment from which servers of the session may be started, or now if that is later. A
    question each ``every`` seconds, since each makes slurmctld evaluate the cluster. ``session`` empty: the next one.
    Raises ConfigError, SlurmUnavailable.
    """
    file, inputs = await _read(site, name)
    assert file.course is not None  # noqa: S101 - course_file
    coming = [date for date in file.course.dates if date.end.timestamp() > time.time()]
    wanted = [date for date in file.course.dates if date.name == session] if session else coming[:1]
    if not wanted:
        raise no_session(file, session or "from now on")
    users = only or members(file, inputs.groups or {})
    together = None if only else check_course(file, inputs, only=wanted[0].name)[0]
    return Rehearsal(wanted[0], _answers(site, file, inputs, wanted[0], users, every=every), together)


async def _answers(
    site: Site, file: CourseFile, inputs: CourseInputs, session: CourseDate, users: Sequence[str], *, every: float
) -> AsyncIterator[Rehearsed]:
    excluded = excluded_from(file, session, inputs, users)
    for number, user in enumerate(users):
        if user in excluded:
            yield Rehearsed(user, None, excluded[user])
            continue
        if number:
            await asyncio.sleep(every)
        yield await _answer(site, file, inputs, session, user)


async def _answer(site: Site, file: CourseFile, inputs: CourseInputs, session: CourseDate, user: str) -> Rehearsed:
    assert file.course is not None  # noqa: S101 - course_file
    spawner = site.spawner(user, [group for group, inside in (inputs.groups or {}).items() if user in inside])
    try:
        request = request_of(file, session, inputs, user)
        settings = spawner.settings_of(request)
        job = batch_job(settings, request, await spawner.account(settings), start_id="")
        client: SlurmClient = spawner.connection().client
        environment = {"USER": user, "LOGNAME": user}
        script = _begun_at(job.script, opens_at(file.course, session).timestamp())
        answer = await client.test_only(script, prefix=spawner.as_user(), environment=environment)
    except (ConfigError, RequestError, SubmitRejected) as error:
        return Rehearsed(user, None, error.message)
    return Rehearsed(user, answer.starts_at)


def _begun_at(script: str, moment: float) -> str:
    """The batch script for a job that may not begin before this moment.

    In seconds from now, as sbatch reads times of day in its own time zone, which need not be that of this machine.
    """
    seconds = math.ceil(moment - time.time())
    shebang, _, rest = script.partition("\n")
    return f"{shebang}\n#SBATCH --begin=now+{seconds}\n{rest}" if seconds > 0 else script


async def _read(site: Site, name: str) -> tuple[CourseFile, CourseInputs]:
    file = course_file(spawner_of(site).courses_dir, name)
    return file, await course_site(site, [file])


async def course_site(
    site: Site,
    files: Sequence[CourseFile],
    *,
    client: SlurmClient | None = None,
    snapshot: ClusterSnapshot | None = None,
) -> CourseInputs:
    """What these courses are checked against: Slurm is asked once for all of them, and not for a given snapshot."""
    spawner = spawner_of(site)
    groups = (await asyncio.to_thread(people_of, site.config)).groups
    defaults = site_defaults(spawner.site_settings())
    client = client or spawner.connection().client
    everybody = list(dict.fromkeys(name for file in files for name in members(file, groups)))
    accounting, unknown = await _accounting(client, everybody)
    courses = [file.course for file in files if file.course is not None]
    teachers = list(dict.fromkeys(user for course in courses for user in course.instructors.users))
    profiles = spawner.offered()
    return CourseInputs(
        profiles=profiles,
        snapshot=snapshot or await client.snapshot(),
        defaults=defaults,
        groups=groups,
        without_account=await _without_account(spawner, everybody),
        accounting=accounting,
        licenses=await client.licenses() if _wants_licenses(profiles, defaults) else None,
        hub=hub_limits(site),
        absent_instructors=() if spawner.req_homedir else await _without_account(spawner, teachers),
        everybody=True,
        unknown=unknown,
    )


def _wants_licenses(profiles: Sequence[Profile], defaults: Resources) -> bool:
    options = [
        line
        for profile in profiles
        if profile.slurm is not None
        for line in over_defaults(profile.slurm, defaults).extra or ()
    ]
    return any(line.startswith(("--licenses", "-L")) for line in options)


def hub_limits(site: Site) -> HubLimits:
    """The settings of the hub that concern many servers at once."""
    hub, spawner = site.config.JupyterHub, site.spawner("nobody")
    return HubLimits(
        concurrent_spawns=hub.get("concurrent_spawn_limit", HubLimits.concurrent_spawns),
        active_servers=hub.get("active_server_limit", HubLimits.active_servers),
        start_timeout=spawner.start_timeout,
        queue_timeout=spawner.site_queue_limit if isinstance(spawner, GPUSlurmSpawner) else None,
        culled_after=min(filter(None, map(_culled_after, _services(hub))), default=None),
    )


def _services(hub: Config) -> Sequence[Mapping[str, Any]]:
    """The hub's services; those that JupyterHub would refuse are left out."""
    services = configured_value(hub.get("services"))
    return [service for service in services if isinstance(service, dict)] if isinstance(services, list) else []


def _culled_after(service: Mapping[str, Any]) -> int | None:
    """The ``--timeout`` of jupyterhub-idle-culler, 600 s by default; None for another service."""
    words = [str(word) for word in service.get("command") or ()]
    if not any(
        word.replace("-", "_").rpartition("/")[2] in ("jupyterhub_idle_culler", "cull_idle_servers.py")
        for word in words
    ):
        return None
    for word, following in zip(words, [*words[1:], ""], strict=True):
        value = word.partition("=")[2] if word.startswith("--timeout=") else following if word == "--timeout" else ""
        if value.isdecimal():
            return int(value)
    return 600


async def _accounting(client: SlurmClient, names: Sequence[str]) -> tuple[Accounting | None, Sequence[str]]:
    """The limits of Slurm's accounting, and a sentence where they could not be read."""
    if not names:
        return None, ()
    try:
        return await client.accounting(names), ()
    except GPUSpawnerError as error:
        return None, [f"The limits of Slurm's accounting are not known: {error}"]


def no_session(file: CourseFile, session: str) -> ConfigError:
    """The error for a session that the course does not have."""
    assert file.course is not None  # noqa: S101 - course_file
    days = ", ".join(date.name for date in file.course.dates)
    return ConfigError(f"course {file.slug} has no session {session!r}.", hint=f"Its sessions are {days}.")


def named_course(site: Site, name: str) -> Course:
    """A course of the hub's folder; raises ConfigError, also for a fault in its file."""
    course = course_file(spawner_of(site).courses_dir, name).course
    assert course is not None  # noqa: S101 - course_file
    return course


def spawner_of(site: Site) -> GPUProfilesSpawner:
    """The spawner of a hub with courses; raises ConfigError for one without."""
    spawner = site.spawner("nobody")
    if not isinstance(spawner, GPUProfilesSpawner) or not spawner.courses_dir:
        raise ConfigError("there are no courses.", where=SETTING, hint="Set it to a folder of course files.")
    return spawner


def course_file(folder: str, name: str) -> CourseFile:
    """The file of a course, without a fault; raises ConfigError."""
    courses = CourseFolder(folder)
    files = {file.slug: file for file in courses.courses()}
    if name not in files:
        slugs = ", ".join(files) or "none"
        raise courses.fault or ConfigError(f"there is no course {name!r}.", hint=f"Courses are: {slugs}.")
    fault = files[name].fault
    if fault is not None:
        raise fault
    return files[name]


def address_of(site: Site) -> str:
    """The hub's address, or its path where the configuration has none that participants use."""
    hub = site.config.JupyterHub
    base = hub.get("base_url") or urlsplit(hub.get("bind_url", "")).path or "/"
    return f"{hub.get('public_url') or base}".rstrip("/") + "/hub/"


async def _without_account(slurm: GPUSlurmSpawner, names: Sequence[str]) -> frozenset[str]:
    """People whose server could not be submitted; with ``req_homedir`` the account need not exist on this machine."""
    missing = set()
    for name in names:
        try:
            home = slurm.req_homedir.replace("{username}", name)
            account = await account_of(name, home=home, cluster=slurm.connection().accounts)
        except ConfigError:
            missing.add(name)
            continue
        of_here = not slurm.req_homedir and not slurm.query_prefix
        if of_here and not await asyncio.to_thread(_may_be_folder, account.home):
            missing.add(name)
    return frozenset(missing)


def _may_be_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(Path(path).stat().st_mode)
    except FileNotFoundError:
        return False
    except OSError:  # a home that this account may not see
        return True
