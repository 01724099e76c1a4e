"""The job that a user would get for a choice on the form, which is not submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from jupyterhub_gpuspawner.courses.check import members
from jupyterhub_gpuspawner.courses.course_profile import PREFIX, course_profile, opens_at
from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.start.build import BatchJob, batch_job, plain_request, site_defaults
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve
from jupyterhub_gpuspawner.site.configuration import Site
from jupyterhub_gpuspawner.site.courses import course_file, no_session, spawner_of
from jupyterhub_gpuspawner.site.people import people_of


async def job_of(
    site: Site, choice: Mapping[str, object], *, user: str, groups: Sequence[str] = (), server: str = ""
) -> BatchJob:
    """The job for a user's ``choice``; that of a course is as of its session. Raises ConfigError or RequestError."""
    spawner = site.spawner(user, groups, server)
    notes = tuple[str, ...]()
    if isinstance(spawner, GPUProfilesSpawner):
        slug, offered = str(choice["profile"]), [profile.slug for profile in spawner.offered()]
        if spawner.courses_dir and slug.startswith(PREFIX) and slug not in offered:
            request, notes = _course_request(site, choice, user, groups, server)
        else:
            request = spawner.resolve(choice)
        if request.kind != "slurm":
            raise RequestError(
                f"Profile {choice['profile']!r} is not a Slurm job and has no batch script.", field="profile"
            )
        settings = spawner.settings_of(request)
    else:
        settings = spawner.job_settings()
        request = plain_request(settings, username=user, server_name=server)
    job = batch_job(settings, request, await spawner.account(settings), start_id="")
    return replace(job, notes=(*notes, *job.notes))


def _course_request(
    site: Site, choice: Mapping[str, object], user: str, groups: Sequence[str], server: str
) -> tuple[JobRequest, tuple[str, ...]]:
    """What a participant requests who chooses a course's profile in the session that is open, or else the next one.

    And what is worth a note. Raises ConfigError or RequestError.
    """
    spawner, now = spawner_of(site), datetime.now().astimezone()
    file = course_file(spawner.courses_dir, str(choice["profile"]).removeprefix(PREFIX))
    assert file.course is not None  # noqa: S101 - course_file
    session = next((date for date in file.course.dates if now < date.end), None)
    if session is None:
        raise no_session(file, "from now on")
    moment, defaults = max(now, opens_at(file.course, session)), site_defaults(spawner.site_settings())
    offered = course_profile(file, spawner.offered(), moment, defaults=defaults, session=session)
    request = resolve(
        (offered.profile,),
        choice,
        username=user,
        groups=groups,
        server_name=server,
        now=moment,
        defaults=defaults,
    )
    notes = [f"This is the script at {moment:%Y-%m-%d %H:%M %Z}, for the session {session.name}."]
    if user not in members(file, people_of(site.config).groups):
        notes.append(f"{user} is not on the roster of course {file.slug}, as far as is known here.")
    return replace(request, course=file.slug), tuple(notes)
