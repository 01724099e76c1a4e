"""Whether each profile, with its options at their defaults, results in a job that can be submitted today."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Check, Code
from jupyterhub_gpuspawner.check.site import SOMEBODY
from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.profile import doubts_of
from jupyterhub_gpuspawner.profiles.resolve import permitted

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.profiles.profile import Profile

FILE = Code("profile-file", "A file in `profiles_dir` is not valid, may not be read, or sets a field it may not set.")
PROFILE = Code("profile", "A profile results in a job that can be submitted today.")
NO_JOB = Code("profile-no-job", "No job can be made from a profile today.")
DOUBT = Code("value-doubtful", "A value is valid and almost surely a mistake.")


async def find(context: Context) -> list[Finding]:
    """Make the job of each profile, for somebody who may use it."""
    if not isinstance(context.spawner, GPUProfilesSpawner):
        return []
    found = [FILE.error("profile file", str(error)) for error in context.spawner.profile_errors()]
    found += [_of_profile(each, context) for each in context.profiles]
    return found + [
        DOUBT.warning(f"profile {each.slug}", told.partition(": ")[2])
        for each in context.profiles
        for told in doubts_of(each)
    ]


def _of_profile(profile: Profile, context: Context) -> Finding:
    allow = profile.allow
    user = (*allow.users, SOMEBODY.name)[0]
    subject, told = f"profile {profile.slug}", f"{profile.display_name} ({profile.kind})"
    closed = permitted(profile, user, allow.groups, context.now)
    if closed is not None:
        return PROFILE.ok(subject, f"{told}, not offered now: {closed.text}")
    spawner = context.site.spawner(user, allow.groups)
    try:
        spawner.prepare(spawner.resolve({"profile": profile.slug}))
        if isinstance(spawner.child_spawner, GPUSlurmSpawner):
            spawner.child_spawner.batch_job(SOMEBODY)
    except (ConfigError, RequestError) as error:
        return NO_JOB.error(subject, error.message, error.hint)
    return PROFILE.ok(subject, told)


CHECK = Check(find, (FILE, PROFILE, NO_JOB, DOUBT))
