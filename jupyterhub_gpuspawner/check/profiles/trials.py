"""What Slurm itself says of each profile for one user: ``sbatch --test-only``, run as that user. Submits nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.check.accounts.prefix import PREFIX
from jupyterhub_gpuspawner.check.finding import Code, Finding
from jupyterhub_gpuspawner.check.profiles.cases import cases_of
from jupyterhub_gpuspawner.check.profiles.judgement import request_of
from jupyterhub_gpuspawner.check.profiles.locations import Locations
from jupyterhub_gpuspawner.cluster.availability import Chance
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.hub.api.trial import availability_of, of_start, undelayed
from jupyterhub_gpuspawner.hub.pages.choose.offer import WHERE, fields_set
from jupyterhub_gpuspawner.hub.site.account import refuse_root
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.start.build import plain_request
from jupyterhub_gpuspawner.profiles.resolve import permitted
from jupyterhub_gpuspawner.words import moment

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.profiles.cases import Case
    from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
    from jupyterhub_gpuspawner.profiles.profile import Profile

TRIAL = Code("trial", "Slurm would start the job of this user.")
REFUSED = Code("trial-refused", "Slurm would refuse the job of this user, or never start it.")
FAILED = Code("trial-fails", "Nothing can be run as this user, or the user has no account.")
NOT_OFFERED = Code("trial-not-offered", "The user may not use the profile now.")
UNTRIED = Code("trial-missing", "Slurm could not be asked what it would do with the job.")
_TRIED = WHERE | {"slurm.account", "slurm.qos"}


async def check_trials(context: Context) -> list[Finding]:
    """Try the job of each profile that the user may use, and of options that decide where it goes."""
    user, groups = context.options.user, _groups(context)
    if not user or context.slurm_error is not None:
        return []
    try:
        await refuse_root(user)
    except ConfigError as error:
        return [FAILED.error(f"user {user}", error.message, error.hint)]
    if not isinstance(context.spawner, GPUProfilesSpawner):
        site: Any = context.site.spawner(user, groups)
        site.request = plain_request(site, username=user, server_name="")
        return [await _answer(site, f"user {user}", context)]
    found, locations = list[Finding](), Locations(context)
    for profile in context.profiles:
        if profile.kind != "slurm" or context.options.profile not in ("", profile.slug):
            continue
        closed = permitted(profile, user, groups, context.now)
        if closed is not None:
            found.append(NOT_OFFERED.ok(f"{locations.of(profile)}, user {user}", f"{closed.text}."))
            continue
        for case in cases_of(profile):
            if not case.option or fields_set(profile.profile_options[case.option]) & _TRIED:
                found.append(await _of_case(profile, case, context, locations, groups))
                if found[-1].code == FAILED.name:  # as it would for every other profile
                    return found
    return found


def _groups(context: Context) -> tuple[str, ...]:
    """JupyterHub's groups of the user: as given, else those that are known."""
    user = context.options.user
    known = sorted(name for name, members in context.people.groups.items() if user in members)
    return context.options.groups or tuple(known)


async def _of_case(
    profile: Profile, case: Case, context: Context, locations: Locations, groups: tuple[str, ...]
) -> Finding:
    user = context.options.user
    where = f"{locations.of(profile, case.path)}, user {user}"
    try:
        request = request_of(profile, case.options, context, user=user, groups=groups, now=context.now)
        return await _answer(context.site.spawner(user, groups).rehearsal(request), where, context)
    except RequestError as error:
        return REFUSED.error(where, error.message, error.hint)


async def _answer(child: GPUSlurmSpawner, where: str, context: Context) -> Finding:
    """Slurm's answer for a prepared spawner."""
    user = context.options.user
    try:
        job = child.batch_job(await child.account())
        answer = await context.client.test_only(
            job.script, prefix=child.as_user(), environment={"USER": user, "LOGNAME": user}
        )
    except SlurmUnavailable:
        raise
    except SubmitRejected as error:
        return REFUSED.error(where, error.message, error.hint)
    except ConfigError as error:
        if error.where == PREFIX:
            where = context.slurm_site.configured_as(PREFIX)
        return FAILED.error(where, error.message.removeprefix(f"{PREFIX}: "), error.hint)
    except GPUSpawnerError as error:
        return UNTRIED.warning(where, error.message, error.hint)
    now = context.now.timestamp()
    trial = undelayed(of_start(answer, now=now), await availability_of(child, context.snapshot, now=now))
    if trial.chance is Chance.NEVER:
        return REFUSED.error(where, f"{trial.sentence}.", "Open the partition, or name one that admits the user.")
    time = moment(context.now.fromtimestamp(trial.starts_at, context.now.tzinfo)) if trial.starts_at else ""
    return TRIAL.ok(where, trial.sentence.format(time=time))
