"""What Slurm answers to a profile's job as a user, and how many people could start it at the same time, now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding
from jupyterhub_gpuspawner.check.offered import Case, Locations, cases_of, request_of
from jupyterhub_gpuspawner.check.run_as import PREFIX
from jupyterhub_gpuspawner.cluster.availability import Chance
from jupyterhub_gpuspawner.cluster.limits import length_of, partitions_of
from jupyterhub_gpuspawner.courses.check import of_hub
from jupyterhub_gpuspawner.courses.dates import CourseDate
from jupyterhub_gpuspawner.courses.rehearsal import check_session
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.hub.choose.offer import WHERE, fields_set
from jupyterhub_gpuspawner.hub.choose.trial import availability_of, of_start, undelayed
from jupyterhub_gpuspawner.hub.site.account import refuse_root
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start.build import JobSettings, batch_job, plain_request
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, permitted, queue_limit
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.site.courses import hub_limits
from jupyterhub_gpuspawner.slurm.accounting import Accounting
from jupyterhub_gpuspawner.words import moment, people

SEATS = Code("seats", "So many people as were asked for (`--people`) could start the profile now.")
FEW = Code("seats-few", "Fewer people than were asked for could start the profile now.")
LIMIT = Code("seats-limit", "A setting of the hub concerns so many people at once.")
_LONG = timedelta(hours=8).total_seconds()
"""The length of a job that has no time limit."""


async def check_seats(context: Context) -> list[Finding]:
    """Count the seats of the profile that was asked for, or of each."""
    wanted = context.options.people
    if not wanted or context.snapshot is None:
        return []
    of_slurm = [profile for profile in context.profiles if profile.kind == "slurm"]
    profiles = [profile for profile in of_slurm if context.options.profile in ("", profile.slug)]
    people_of = {profile.slug: _people(profile, context) for profile in profiles}
    accounting = await _accounting(
        sorted({name for names, real in people_of.values() if real for name in names}), context
    )
    locations, findings = Locations(context), list[Finding]()
    for profile in profiles:
        names, real = people_of[profile.slug]
        findings += _of_profile(profile, names, accounting if real else None, context, locations, real=real)
    return findings


async def _accounting(names: Sequence[str], context: Context) -> Accounting | None:
    """The accounting of the people of all profiles; None without any, and where it cannot be read."""
    try:
        return await context.client.accounting(names) if names else None
    except GPUSpawnerError:  # which is told where accounts are looked for
        return None


def _people(profile: Profile, context: Context) -> tuple[list[str], bool]:
    """As many names as were asked for, and whether they are those of the profile's people."""
    wanted = context.options.people
    names = sorted({*profile.allow.users} | context.people.members(profile.allow.groups))
    if len(names) >= wanted:
        return names[:wanted], True
    return [f"person {number}" for number in range(1, wanted + 1)], False


def _of_profile(
    profile: Profile,
    names: Sequence[str],
    accounting: Accounting | None,
    context: Context,
    locations: Locations,
    *,
    real: bool,
) -> Iterator[Finding]:
    assert context.snapshot is not None  # noqa: S101 - find
    where, wanted = locations.of(profile), len(names)
    try:
        request = request_of(profile, {}, context, now=context.now)
    except RequestError as error:
        yield FEW.warning(where, f"nobody of {people(wanted)} could start now: {error.message}", error.hint)
        return
    length = _length(request.resources, context)
    session = CourseDate(context.now, context.now + timedelta(seconds=length), "now")
    report = check_session(
        session, request.resources, context.snapshot, names, opens=context.now, accounting=accounting
    )
    texts = [problem.text for problem in report.problems if real or problem.kind != "people"]
    if report.fit >= wanted and not texts:
        yield SEATS.ok(where, f"{people(wanted)} could start now")
    else:
        counted = any(problem.kind == "seats" for problem in report.problems)
        head = [] if counted else [f"{report.fit} of {people(wanted)} could start now."]
        yield FEW.warning(where, " ".join([*head, *texts]), "Request less for each, or let fewer people start at once.")
    limits = hub_limits(context.site)
    limits = replace(
        limits,
        start_timeout=request.start_timeout or limits.start_timeout,
        queue_timeout=queue_limit(request.queue_timeout, limits.queue_timeout),
    )
    for problem in of_hub(limits, wanted, length, reserved=bool(request.resources.reservation_name)):
        yield LIMIT.warning(where, problem.text)


def _length(resources: Resources, context: Context) -> float:
    assert context.snapshot is not None  # noqa: S101 - find
    partition_by_name = context.snapshot.partition_by_name
    lengths = [
        length_of(resources, partition_by_name[name])
        for name in partitions_of(resources, context.snapshot)
        if name in partition_by_name
    ]
    return min([*lengths, _LONG]) if lengths else _LONG


# What Slurm itself says of each profile for one user: ``sbatch --test-only``, run as that user. Submits nothing.

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
        plain: GPUSlurmSpawner = context.site.spawner(user, groups)
        settings = plain.job_settings()
        request = plain_request(settings, username=user, server_name="")
        return [await _answer(plain, settings, request, f"user {user}", context)]
    findings, locations = list[Finding](), Locations(context)
    for profile in context.profiles:
        if profile.kind != "slurm" or context.options.profile not in ("", profile.slug):
            continue
        closed = permitted(profile, user, groups, context.now)
        if closed is not None:
            findings.append(NOT_OFFERED.ok(f"{locations.of(profile)}, user {user}", f"{closed.text}."))
            continue
        for case in cases_of(profile):
            if not case.option or fields_set(profile.profile_options[case.option]) & _TRIED:
                findings.append(await _of_case(profile, case, context, locations, groups))
                if findings[-1].code == FAILED.name:  # as it would for every other profile
                    return findings
    return findings


def _groups(context: Context) -> tuple[str, ...]:
    """JupyterHub's groups of the user: as given, else those that are known."""
    user = context.options.user
    names = sorted(name for name, members in context.people.groups.items() if user in members)
    return context.options.groups or tuple(names)


async def _of_case(
    profile: Profile, case: Case, context: Context, locations: Locations, groups: tuple[str, ...]
) -> Finding:
    user = context.options.user
    where = f"{locations.of(profile, case.path)}, user {user}"
    try:
        request = request_of(profile, case.options, context, user=user, groups=groups, now=context.now)
        spawner: GPUProfilesSpawner = context.site.spawner(user, groups)
        return await _answer(spawner, spawner.settings_of(request), request, where, context)
    except RequestError as error:
        return REFUSED.error(where, error.message, error.hint)


async def _answer(
    spawner: GPUSlurmSpawner, settings: JobSettings, request: JobRequest, where: str, context: Context
) -> Finding:
    """Slurm's answer for the request of a user, whose spawner this is."""
    user = context.options.user
    try:
        job = batch_job(settings, request, await spawner.account(settings), start_id="")
        answer = await context.client.test_only(
            job.script, prefix=spawner.as_user(), environment={"USER": user, "LOGNAME": user}
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
    trial = undelayed(of_start(answer, now=now), await availability_of(spawner, request, context.snapshot, now=now))
    if trial.chance is Chance.NEVER:
        return REFUSED.error(where, f"{trial.sentence}.", "Open the partition, or name one that admits the user.")
    time = moment(context.now.fromtimestamp(trial.starts_at, context.now.tzinfo)) if trial.starts_at else ""
    return TRIAL.ok(where, trial.sentence.format(time=time))
