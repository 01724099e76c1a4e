"""Whether Slurm admits those who may use a profile, whether their jobs would start in time, and what Slurm itself says.

The last is asked with ``--user``: ``sbatch --test-only``, run as that user. Nothing is submitted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

from jupyterhub_gpuspawner.batch.job import JobSettings, batch_job, plain_request
from jupyterhub_gpuspawner.check.finding import Case, Code, Context, Finding
from jupyterhub_gpuspawner.check.requests import is_over
from jupyterhub_gpuspawner.check.run_as import PREFIX
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.extensions.availability.api import in_the_forms_words, of_start, others_wait
from jupyterhub_gpuspawner.extensions.availability.dry_run import dry_run
from jupyterhub_gpuspawner.extensions.availability.faults import verdict_of
from jupyterhub_gpuspawner.extensions.availability.forecast import availability_of
from jupyterhub_gpuspawner.extensions.availability.groups import allowed_groups
from jupyterhub_gpuspawner.extensions.availability.model.availability import availability
from jupyterhub_gpuspawner.extensions.availability.model.capacity import capacity_of
from jupyterhub_gpuspawner.extensions.availability.model.limits import Fault, fault_of, need_of, runs_until_end_of
from jupyterhub_gpuspawner.hub.choose.offer import WHERE, fields_set
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, permitted, queue_limit
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.accounts import refuse_root
from jupyterhub_gpuspawner.slurm.estimate import Chance
from jupyterhub_gpuspawner.slurm.job import job_owner, own_account
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.units import parse_wait
from jupyterhub_gpuspawner.words import duration, moment, some

AT_MOST = 500
"""People of one profile for whom Slurm's restrictions are examined."""


async def check_admitted(context: Context) -> AsyncIterator[Finding]:
    """Look whether Slurm admits those whom each profile's `allow` names, unless the profile is over."""
    for profile in context.of_slurm():
        if not is_over(profile, context):
            async for finding in _shut_out(profile, context):
                yield finding


async def _shut_out(profile: Profile, context: Context) -> AsyncIterator[Finding]:
    """Those who may use the profile, but not its partition or reservation."""
    resources, snapshot, now = context.unchanged(profile), context.snapshot, context.now.timestamp()
    if resources is None or snapshot is None or fault_of(resources, snapshot, now=now) is not None:  # for everybody
        return
    prefix = context.spawner.exec_prefix
    audience = sorted({*profile.allow.users} | context.people.members(profile.allow.groups))[:AT_MOST]
    if not prefix.strip():  # all jobs belong to one account
        audience = [own_account() or ""]
    shut_out: dict[Fault, list[str]] = {}
    for name in filter(None, audience):
        owner = job_owner(prefix, name)
        groups = await allowed_groups(snapshot, owner)
        fault = fault_of(resources, snapshot, now=now, user=owner, groups=groups)
        if fault is not None:
            shut_out.setdefault(fault, []).append(name)
    for fault, names in shut_out.items():
        verdict = verdict_of(fault)
        report = verdict.code.error if len(names) == len(audience) else verdict.code.warning
        text = f"{fault.clause}: profile {profile.slug} cannot be used by {some(names)}."
        yield report(context.location_of(Case(profile), fault.field), text, verdict.fix)


OUT = Code("nodes-out", "No node on which a profile's servers could run is in service.")
_BACK = {
    ("DRAIN", "FAIL"): "`scontrol update NodeName=NODE State=RESUME` puts a drained node back into service.",
    ("MAINTENANCE",): "Maintenance ends with its reservation; `scontrol show reservation` lists them.",
    (
        "INVALID",
        "INVALID_REG",
    ): "`slurmd -C` on a node prints its hardware, which slurm.conf must not exceed.",
    ("POWERED_DOWN",): "`scontrol update NodeName=NODE State=POWER_UP` runs ResumeProgram for a node without power.",
    ("DOWN", "NOT_RESPONDING", "UNKNOWN"): "Start slurmd on a node that is down or does not respond; "
    "`scontrol update NodeName=NODE State=RESUME` puts it back unless ReturnToService does.",
    ("POWERING_DOWN", "POWER_DOWN", "REBOOT_ISSUED"): "A node that reboots or is powered down comes back by itself.",
}
"""What to do, by a node's states (sinfo(1)); of a node the first that it has counts."""


async def check_nodes(context: Context) -> AsyncIterator[Finding]:
    """Whether all nodes that could run a profile's servers are out of service."""
    out: dict[str, list[str]] = {}
    fixes: dict[str, str] = {}
    for profile in context.of_slurm():
        resources = context.unchanged(profile)
        if context.snapshot is not None and resources is not None and not is_over(profile, context):
            now = availability(resources, context.snapshot, now=context.now.timestamp())
            if now.out_of_service:
                out.setdefault(now.out_of_service, []).append(profile.slug)
                fixes[now.out_of_service] = _fixes(resources, context.snapshot)
    for clause, profiles in out.items():
        which = f"profile{'s' * (len(profiles) > 1)} {some(profiles)}"
        yield OUT.warning("Slurm", f"{clause}, so servers of {which} wait.", fixes[clause])


def _fixes(resources: Resources, snapshot: ClusterSnapshot) -> str:
    """What brings the nodes back that a request needs."""
    nodes = [
        node
        for name in snapshot.partitions_of(resources.partition)
        for node in capacity_of(snapshot)
        .nodes(name, constraint=resources.constraint or "", reservation=resources.reservation_name)
        .all
        if not node.usable and node.offers(need_of(resources, snapshot.partition_by_name[name], snapshot))
    ]
    matching = (next((states for states in _BACK if not node.states.isdisjoint(states)), ()) for node in nodes)
    return " ".join(_BACK[states] for states in dict.fromkeys(matching) if states)


SHORT_WAIT = Code("queue-timeout-short", "A server would wait longer now than the hub lets it wait (`queue_timeout`).")


async def check_waits(context: Context) -> AsyncIterator[Finding]:
    """Whether the hub would give a start up before Slurm is expected to start its job."""
    for profile in context.of_slurm():
        for finding in _of_wait(profile, context) if not is_over(profile, context) else ():
            yield finding


def _of_wait(profile: Profile, context: Context) -> Iterator[Finding]:
    resources, site = context.unchanged(profile), context.spawner
    limit = queue_limit(profile.queue_timeout, parse_wait(site.queue_timeout))
    if context.snapshot is None or resources is None or limit is None:
        return
    now = context.now.timestamp()
    expected = availability(resources, context.snapshot, now=now).estimate.likely
    if expected is None or expected - now <= limit:
        return
    own = profile.queue_timeout is not None
    yield SHORT_WAIT.warning(
        context.location(profile, "queue_timeout") if own else context.setting("queue_timeout"),
        f"a server of profile {profile.slug} would now wait about {duration(expected - now)}, and the hub gives up "
        f"after {duration(limit)}.",
        "Allow a longer wait.",
    )


ENDS_EARLY = Code("ends-early", "Slurm would end a server with its reservation, before its time limit.")


async def check_ends(context: Context) -> AsyncIterator[Finding]:
    """Whether servers that are started now end before their time limit."""
    for profile in context.of_slurm():
        resources, snapshot = context.unchanged(profile), context.snapshot
        if resources is None or snapshot is None or is_over(profile, context):
            continue
        own, now = snapshot.reservation_by_name.get(resources.reservation_name), context.now.timestamp()
        partitions = map(snapshot.partition_by_name.get, snapshot.partitions_of(resources.partition))
        times = [runs_until_end_of(own, one, resources, now=now) for one in partitions if one is not None]
        left = next((seconds for seconds in times if seconds is not None and seconds > 0), None)
        if left is not None:
            yield ENDS_EARLY.warning(
                context.location_of(Case(profile), "time"),
                f"Slurm would end a server of profile {profile.slug} after {duration(left)}, with reservation "
                f"{resources.reservation_name}.",
                "Request no more time than that, or extend the reservation.",
            )


# What Slurm itself says of each profile for one user.

TRIAL = Code("trial", "Slurm would start the job of this user.")
REFUSED = Code("trial-refused", "Slurm would refuse the job of this user, or never start it.")
FAILED = Code("trial-fails", "Nothing can be run as this user, or the user has no account.", as_user=True)
NOT_OFFERED = Code("trial-not-offered", "The user may not use the profile now.")
OF_FORM = Code("trial-of-form", "The job depends on what the site's own form sends.")
UNTRIED = Code("trial-missing", "Slurm could not be asked what it would do with the job.")
_TRIED = WHERE | {"slurm.account", "slurm.qos"}


async def check_trials(context: Context) -> AsyncIterator[Finding]:
    """Try the job of each profile that the user may use, and of options that decide where it goes."""
    user = context.options.user
    if not user or context.slurm_error is not None:
        return
    groups_of_user = sorted(name for name, members in context.people.groups.items() if user in members)
    groups = context.options.groups or tuple(groups_of_user)
    spawner = context.site.spawner(user, groups, cluster=context.cluster)
    try:
        await refuse_root(user)
    except ConfigError as error:
        yield FAILED.error(f"user {user}", error.message, error.hint)
        return
    if not context.has_profiles:
        settings = spawner.plain_settings({})
        if settings.options:
            names = ", ".join(sorted(settings.options))
            yield OF_FORM.ok(f"user {user}", f"not tried: what the form sends decides ({names}).")
        else:
            request = plain_request(settings, username=user, server_name="")
            yield await _answer(spawner, settings, request, f"user {user}", context)
    for profile in context.chosen():
        closed = permitted(profile, user, groups, context.now)
        if closed is not None:
            yield NOT_OFFERED.ok(f"{context.location(profile)}, user {user}", f"{closed.text}.")
            continue
        for case in context.cases(profile):
            if case.option and not fields_set(profile.profile_options[case.option]) & _TRIED:
                continue
            where = f"{context.location(profile, *case.path)}, user {user}"
            try:
                request = context.request(case, user=user, groups=groups, now=context.now)
                finding = await _answer(spawner, spawner.settings_of(request), request, where, context)
            except RequestError as error:
                finding = REFUSED.error(where, error.message, error.hint)
            yield finding
            if finding.code == FAILED.name:  # as it would for every other profile
                return


async def _answer(
    spawner: GPUSlurmSpawner, settings: JobSettings, request: JobRequest, where: str, context: Context
) -> Finding:
    """Slurm's answer for the request of a user, whose spawner this is; raises RequestError."""
    now = context.now.timestamp()
    by_snapshot = None
    if context.snapshot is not None:
        by_snapshot = await availability_of(spawner, request, context.snapshot, now=now)
    try:
        script = batch_job(settings, request, await spawner.account(settings), start_id="").script
        answer = await dry_run(context.client, script, request.username, exec_prefix=spawner.exec_prefix)
    except SlurmUnavailable:
        raise
    except SubmitRejected as error:
        if by_snapshot is not None and by_snapshot.out_of_service:  # sbatch says no more than that none is left
            return OUT.ok(where, f"{by_snapshot.sentence}.")
        return REFUSED.error(where, error.message, error.hint)
    except ConfigError as error:
        if error.where == PREFIX:
            return FAILED.error(context.setting(PREFIX), error.fault, error.hint)
        return FAILED.error(where, error.message, error.hint)
    except GPUSpawnerError as error:
        return UNTRIED.warning(where, error.message, error.hint)
    trial = replace(of_start(answer, now=now), taken_at=now)
    trial = in_the_forms_words(trial, by_snapshot, others_wait=others_wait(by_snapshot, context.snapshot))
    if trial.chance is Chance.NEVER:
        return REFUSED.error(where, f"{trial.sentence}.", "Open the partition, or name one that admits the user.")
    likely = trial.estimate.likely
    time = moment(context.now.fromtimestamp(likely, context.now.tzinfo)) if likely is not None else ""
    return TRIAL.ok(where, trial.sentence.format(time=time))
