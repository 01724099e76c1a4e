"""What a course is checked against: the hub's configuration, this machine's accounts, and Slurm's answer."""

from __future__ import annotations

import asyncio
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.courses.check import Site as CourseSite
from jupyterhub_gpuspawner.courses.check import check_course, members, request_of
from jupyterhub_gpuspawner.courses.folder import CourseFolder
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError, SubmitRejected
from jupyterhub_gpuspawner.hub.site.account import account_of
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.start.build import site_defaults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from jupyterhub_gpuspawner.cli.site import Site
    from jupyterhub_gpuspawner.courses.course import Course
    from jupyterhub_gpuspawner.courses.folder import CourseFile
    from jupyterhub_gpuspawner.courses.rehearsal import SessionReport
    from jupyterhub_gpuspawner.courses.sessions import Session
    from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
    from jupyterhub_gpuspawner.jobs.accounting import Accounting
    from jupyterhub_gpuspawner.profiles.resolve import JobRequest
    from jupyterhub_gpuspawner.slurm.client import SlurmClient

SETTING = "c.GPUProfilesSpawner.courses_dir"


@dataclass(frozen=True)
class Rehearsed:
    """Slurm's answer for one participant."""

    user: str
    starts_at: float | None
    """When their server would start, in seconds since the epoch; None: Slurm would refuse it."""
    refusal: str = ""


async def check_named_course(site: Site, name: str, session: str = "") -> Sequence[SessionReport]:
    """The report on each session of a course; raises ConfigError, SlurmUnavailable."""
    file, found = await _read(site, name)
    reports = check_course(file, found, only=session)
    if not reports:
        raise _no_session(file, session)
    return reports


async def rehearse(
    site: Site, name: str, session: str, *, only: Sequence[str], every: float
) -> AsyncIterator[tuple[Session, Rehearsed]]:
    """Ask Slurm for each participant, as that user, when their server would start (``sbatch --test-only``).

    A question each ``every`` seconds, since each makes slurmctld evaluate the cluster. ``session`` empty: the next one.
    Raises ConfigError, SlurmUnavailable.
    """
    file, found = await _read(site, name)
    assert file.course is not None  # noqa: S101 - _file
    coming = [each for each in file.course.calendar() if each.end.timestamp() > time.time()]
    wanted = [each for each in file.course.calendar() if each.name == session] if session else coming[:1]
    if not wanted:
        raise _no_session(file, session or "from now on")
    for number, user in enumerate(only or members(file, found.groups or {})):
        if number:
            await asyncio.sleep(every)
        yield wanted[0], await _answer(site, request_of(file.course, wanted[0], found, user), user, found)


async def _answer(site: Site, request: JobRequest, user: str, found: CourseSite) -> Rehearsed:
    spawner = site.spawner(user, [group for group, inside in (found.groups or {}).items() if user in inside])
    spawner.prepare(request)
    child = spawner.child_spawner
    try:
        job = child.batch_job(await child.account())
        client: SlurmClient = child.connection().client
        environment = {"USER": user, "LOGNAME": user}
        answer = await client.test_only(job.script, prefix=child.as_user(), environment=environment)
    except (ConfigError, RequestError, SubmitRejected) as error:
        return Rehearsed(user, None, error.message)
    return Rehearsed(user, answer.starts_at)


async def _read(site: Site, name: str) -> tuple[CourseFile, CourseSite]:
    spawner = _spawner(site)
    file = _file(spawner.courses_dir, name)
    groups = configured_groups(site)
    slurm = spawner.slurm_site()
    client = slurm.connection().client
    accounting, unknown = await _accounting(client, members(file, groups))
    found = CourseSite(
        profiles=spawner.offered(),
        snapshot=await client.snapshot(),
        defaults=site_defaults(slurm),
        groups=groups,
        without_account=await _without_account(slurm, members(file, groups)),
        accounting=accounting,
        unknown=unknown,
    )
    return file, found


async def _accounting(client: SlurmClient, names: Sequence[str]) -> tuple[Accounting | None, Sequence[str]]:
    """The limits of Slurm's accounting, and a sentence where they could not be read."""
    if not names:
        return None, ()
    try:
        return await client.accounting(names), ()
    except GPUSpawnerError as error:
        return None, [f"The limits of Slurm's accounting are not known: {error}"]


def _no_session(file: CourseFile, session: str) -> ConfigError:
    assert file.course is not None  # noqa: S101 - _file
    days = ", ".join(each.name for each in file.course.calendar())
    return ConfigError(f"course {file.slug} has no session {session!r}.", hint=f"Its sessions are {days}.")


def named_course(site: Site, name: str) -> Course:
    """A course of the hub's folder; raises ConfigError, also for a fault in its file."""
    course = _file(_spawner(site).courses_dir, name).course
    assert course is not None  # noqa: S101 - _file
    return course


def _spawner(site: Site) -> GPUProfilesSpawner:
    spawner = site.spawner("nobody")
    if not isinstance(spawner, GPUProfilesSpawner) or not spawner.courses_dir:
        raise ConfigError("there are no courses.", where=SETTING, hint="Set it to a folder of course files.")
    return spawner


def _file(folder: str, name: str) -> CourseFile:
    courses = CourseFolder(folder)
    found = {file.slug: file for file in courses.courses()}
    if name not in found:
        known = ", ".join(found) or "none"
        raise courses.fault or ConfigError(f"there is no course {name!r}.", hint=f"Courses are: {known}.")
    fault = found[name].fault
    if fault is not None:
        raise fault
    return found[name]


def configured_groups(site: Site) -> Mapping[str, Collection[str]]:
    """The groups of ``c.JupyterHub.load_groups``; those of an authenticator are known to the running hub alone."""
    loaded = site.config.JupyterHub.get("load_groups", {})
    return {
        str(group): tuple(map(str, members.get("users", ()) if isinstance(members, dict) else members))
        for group, members in loaded.items()
    }


async def _without_account(slurm: GPUSlurmSpawner, names: Sequence[str]) -> frozenset[str]:
    """People whose server could not be submitted; with ``req_homedir`` the account need not exist on this machine."""
    missing = set()
    for name in names:
        try:
            account = await account_of(name, home=slurm.req_homedir.replace("{username}", name))
        except ConfigError:
            missing.add(name)
            continue
        if not slurm.req_homedir and not await asyncio.to_thread(_may_be_folder, account.home):
            missing.add(name)
    return frozenset(missing)


def _may_be_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(Path(path).stat().st_mode)
    except FileNotFoundError:
        return False
    except OSError:  # a home that this account may not see
        return True
