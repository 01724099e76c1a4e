"""Whether each profile results in a job that can be submitted, and would run with each of its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.check.finding import Code, Severity
from jupyterhub_gpuspawner.check.profiles.cases import cases_of
from jupyterhub_gpuspawner.check.profiles.judgement import faults_of, first_moment, request_of
from jupyterhub_gpuspawner.check.profiles.locations import Locations
from jupyterhub_gpuspawner.cluster.availability import availability
from jupyterhub_gpuspawner.errors import ConfigError, RefusalKind, RequestError
from jupyterhub_gpuspawner.hub.site.account import job_owner
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.start.build import site_profile
from jupyterhub_gpuspawner.profiles.profile import LEAST_MEMORY, SlugTaken, doubts_of
from jupyterhub_gpuspawner.profiles.resolve import permitted, queue_limit
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.site.configuration import SOMEBODY
from jupyterhub_gpuspawner.units import parse_wait
from jupyterhub_gpuspawner.words import day, duration, rounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.profiles.profile import Profile

FILE = Code("profile-file", "A file in `profiles_dir` is not valid, may not be read, or sets a field it may not set.")
TAKEN = Code("slug-taken", "A file has a profile whose slug another profile had before; it is left out.")
PROFILE = Code("profile", "A profile results in a job that can be submitted, and would run with each of its options.")
NO_JOB = Code("profile-no-job", "No job can be made from a profile, or with a value of one of its options.")
DOUBT = Code("value-doubtful", "A value is valid and almost surely a mistake.")
MENDED = Code("template-mended", "The hub corrects the admin's own `batch_script` for each job.")
SHORT_WAIT = Code("queue-timeout-short", "A server would wait longer now than the hub lets it wait (`queue_timeout`).")


async def check_offered(context: Context) -> list[Finding]:
    """Make the job of each profile and option, for somebody who may use it, and judge it."""
    locations = Locations(context)
    if not isinstance(context.spawner, GPUProfilesSpawner):
        return _of_site(context, locations)
    found = [*_of_files(context.spawner.profile_errors())]
    for profile in context.profiles:
        own = [*_of_profile(profile, context, locations)]
        if all(each.severity is not Severity.ERROR for each in own):
            found.append(PROFILE.ok(locations.of(profile), _told(profile, context)))
        found += own
    return found


def _of_files(errors: Sequence[ConfigError]) -> Iterator[Finding]:
    for error in errors:
        text = error.message.removeprefix(f"{error.where}: ")
        if isinstance(error, SlugTaken):
            yield TAKEN.error(error.where, text, "Give this profile a slug of its own.")
        else:
            yield FILE.error(error.where, text, error.hint)


def _of_site(context: Context, locations: Locations) -> list[Finding]:
    """In a hub without profiles the site's defaults are the only request."""
    profile = site_profile(context.slurm_site).model_copy(update={"slurm": Resources()})
    return [*faults_of(profile, context, locations)]


def _of_profile(profile: Profile, context: Context, locations: Locations) -> Iterator[Finding]:
    for told in doubts_of(profile):
        _, field, text = told.split(": ", 2)
        yield DOUBT.warning(locations.of(profile, field.split(".")), text, f"Give at least {LEAST_MEMORY}M.")
    if _ended(profile, context):
        return
    yield from _of_scripts(profile, context, locations)
    if profile.kind == "slurm":
        yield from faults_of(profile, context, locations)
        yield from _of_wait(profile, context, locations)


def _ended(profile: Profile, context: Context) -> bool:
    closed = permitted(profile, *_somebody(profile), context.now)
    return closed is not None and closed.kind is RefusalKind.ENDED


def _somebody(profile: Profile) -> tuple[str, tuple[str, ...]]:
    """A user whom ``allow`` admits, and their groups."""
    return (*profile.allow.users, SOMEBODY.name)[0], profile.allow.groups


def _told(profile: Profile, context: Context) -> str:
    """For whom the profile is, and why it is not offered today."""
    told = f"{profile.display_name} ({profile.kind})"
    closed = permitted(profile, *_somebody(profile), context.now)
    first = first_moment(profile, context.now)
    if closed is not None:
        told += f", not offered now: {closed.text}"
    elif first.date() > context.now.date():
        told += f", not offered today: its next reservation is for {day(first.date())}"
    return told


def _of_scripts(profile: Profile, context: Context, locations: Locations) -> Iterator[Finding]:
    """What keeps a batch script from being written, and what is corrected in the admin's own."""
    user, groups = _somebody(profile)
    for case in cases_of(profile):
        spawner: Any = context.site.spawner(user, groups)
        try:
            request = request_of(profile, case.options, context, user=user, groups=groups)
            spawner.prepare(request)
            notes = spawner.batch_job(SOMEBODY).notes if request.kind == "slurm" else ()
        except RequestError as error:
            if not case.option:  # of an option, the judgement says it
                yield NO_JOB.error(locations.of(profile, error.field.split(".")), error.message, error.hint)
                return
            continue
        except ConfigError as error:
            yield NO_JOB.error(locations.of(profile, case.path), error.message, error.hint)
            return
        for note in notes:
            yield MENDED.warning(spawner.configured_as("batch_script"), note, "Correct the template.")


def _of_wait(profile: Profile, context: Context, locations: Locations) -> Iterator[Finding]:
    """Whether the hub would give a start up before Slurm is expected to start its job."""
    if context.snapshot is None:
        return
    site = context.slurm_site
    limit = queue_limit(profile.queue_timeout, parse_wait(site.queue_timeout))
    try:
        resources = request_of(profile, {}, context).resources
    except RequestError:
        return
    now = context.now.timestamp()
    owner = job_owner(site.exec_prefix, SOMEBODY.name)
    told = availability(resources, context.snapshot, now=now, shared=owner != SOMEBODY.name)
    expected = told.starts_at if told.starts_at is not None else told.expected_at
    if limit is None or expected is None or expected - now <= limit:
        return
    own = profile.queue_timeout is not None
    yield SHORT_WAIT.warning(
        locations.of(profile, ("queue_timeout",)) if own else site.configured_as("queue_timeout"),
        f"a server of profile {profile.slug} would now wait about {rounded(expected - now)}, and the hub gives up "
        f"after {duration(limit)}.",
        "Allow a longer wait.",
    )
