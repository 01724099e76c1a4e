"""Options of ``extra`` for which there is a field or a setting, and times of a profile that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime

from jupyterhub_gpuspawner.batch.script import options_of
from jupyterhub_gpuspawner.check.finding import Code, Context, Finding
from jupyterhub_gpuspawner.check.offered import Locations, cases_of, request_of
from jupyterhub_gpuspawner.cluster.limits import length_of, partitions_of
from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.profiles.profile import Idle, IdleAction, Profile, idle_rule
from jupyterhub_gpuspawner.profiles.resources import SBATCH_OPTIONS, Resources
from jupyterhub_gpuspawner.wire.documents import SAMPLES
from jupyterhub_gpuspawner.words import day, duration

FIELD = Code("extra-field", "`extra` has an option of sbatch for which profiles have a field, which it overrides.")
SETTING = Code("extra-setting", "`extra` has an option of sbatch that the hub sets itself for every job.")
NO_TOKEN = Code("extra-export", "`extra` keeps the hub's variables from jobs, so no server can sign in to the hub.")
FIELDS = {
    **SBATCH_OPTIONS,
    "cpus-per-task": "cpus",
    "exclusive": "exclusive",
    "gpus": "gpus",
    "gpus-per-node": "gpus",
    "gres": "gpus",
    "mem": "memory",
    "nodes": "nodes",
    "partition": "partition",
    "time": "time",
}
"""Fields of ``slurm`` by the options of sbatch that they stand for."""
BESIDE = {"cpus-per-gpu": "cpus", "gpus-per-task": "gpus", "mem-per-cpu": "memory", "mem-per-gpu": "memory"}
"""Fields that an option contradicts where they are set; without them it is the only way to say what it says."""
SETTINGS = {
    "chdir": "req_homedir",
    "job-name": "job_name",
    "output": "log_dir",
}
"""Settings by the options of sbatch that they stand for."""


async def check_extra(context: Context) -> list[Finding]:
    """Look at the options of each profile's job, and of each value of its options; those of a site once."""
    locations = Locations(context)
    findings: dict[Finding, None] = {}
    for profile in context.profiles:
        done = set[str]()
        for case in cases_of(profile) if profile.kind == "slurm" else ():
            try:
                resources = request_of(profile, case.options, context).resources
            except RequestError:
                continue
            for line in resources.options:
                if line in done:
                    continue
                done.add(line)
                where = locations.of_fault(profile, case, "extra")
                if line in (context.defaults.extra or ()) and line not in (profile.slurm.extra or ()):
                    where = context.slurm_site.configured_as("req_options")
                findings.update(dict.fromkeys(_of_line(where, line, resources, context)))
    return [*findings]


def _of_line(where: str, line: str, resources: Resources, context: Context) -> Iterator[Finding]:
    try:
        options = [*options_of(line)]
    except ValueError:  # sbatch says so
        return
    for name, value in options:
        option = f"--{name}={value}" if value else f"--{name}"
        field = FIELDS.get(name)
        if (name == "exclusive" and value) or (name == "gres" and not _asks_for_gpus(value)):
            field = None  # of one user or of other devices, for which there is no field
        if field is not None:
            yield FIELD.warning(where, f"{option} overrides slurm.{field}, {_SHOWN}", f"Set slurm.{field} instead.")
        elif name in BESIDE and getattr(resources, BESIDE[name]) is not None:
            beside = BESIDE[name]
            yield FIELD.warning(
                where, f"{option} contradicts slurm.{beside}, which is set as well.", f"Remove it, or slurm.{beside}."
            )
        elif name == "export" and value.split(",")[0] != "ALL":
            yield NO_TOKEN.error(
                where, f"{option} keeps the hub's variables from the job, so the server cannot sign in.", "Remove it."
            )
        elif name in SETTINGS:
            setting = context.slurm_site.configured_as(SETTINGS[name])
            yield SETTING.warning(where, f"{option} overrides {setting}.", f"Remove it, and set {setting} instead.")


def _asks_for_gpus(gres: str) -> bool:
    return any(part.partition(":")[0] in ("gpu", "shard") for part in gres.split(","))


_SHOWN = "which the form shows and by which it judges whether a job can start."


# Times of a profile that contradict each other, or are almost surely meant in other units.

NEVER = Code("profile-never", "The last day of a profile is before its first one, so nobody can ever use it.")
SHORT = Code("time-doubtful", "A time limit is so short that it is almost surely meant in hours.")
LEAST = 600
"""Seconds; in Slurm ``8`` and ``8:00`` are eight minutes."""
EXTEND = Code(
    "extend-too-long", "Servers of a profile that may be extended have the longest time limit of the partition already."
)
IDLE = Code("idle-too-long", "Servers of a profile end before they could count as idle.")

FINE = Code("idle-too-fine", "Times of an idle policy are shorter than the time between two summaries of use.")


async def check_lifetimes(context: Context) -> list[Finding]:
    """Look at each profile's `allow`, `extend` and `idle`, and at the site's `idle`."""
    locations = Locations(context)
    of_profiles = [finding for profile in context.profiles for finding in _of_profile(profile, context, locations)]
    if all(profile.idle is not None for profile in context.profiles):
        return of_profiles
    return [*of_profiles, *_of_samples(context.slurm_site.configured_as("idle"), None, context)]


def _of_profile(profile: Profile, context: Context, locations: Locations) -> Iterator[Finding]:
    first, last = _day(profile.allow.from_), _day(profile.allow.until)
    if first is not None and last is not None and last < first:
        yield NEVER.error(
            locations.of(profile, ("allow", "until")),
            f"the profile is offered from {day(first)} until {day(last)}, which is never.",
            "Correct one of the dates.",
        )
    for field, seconds in _time_limits(profile):
        if isinstance(seconds, int) and 60 <= seconds < LEAST:
            hours = seconds // 60
            text = f"the time limit is {duration(seconds)}; did you mean {hours} h?"
            yield SHORT.warning(locations.of(profile, field), text, f"Write {hours}:00:00 for hours.")
    if profile.idle is not None:
        yield from _of_samples(locations.of(profile, ("idle",)), profile.idle, context)
    yield from _of_running(profile, context, locations)


def _of_samples(where: str, idle: Idle | None, context: Context) -> Iterator[Finding]:
    """Whether a time of the policy is shorter than the time after which the hub next knows what a server uses."""
    site = context.slurm_site
    rule = idle_rule(idle, Idle(**site.idle))
    every = SAMPLES * site.usage_interval
    times = [rule.gpu, rule.kernel, *rule.leads, rule.keep_by if rule.keep_times else None]
    shortest = min((seconds for seconds in times if seconds is not None), default=every)
    if rule.action is not IdleAction.REPORT and shortest < every:
        yield FINE.warning(
            where,
            f"a time of {duration(shortest)} is shorter than the {duration(round(every))} between two summaries of "
            "use: warnings and stops come late by up to that, and Keep may gain nothing.",
            f"Set {site.configured_as('usage_interval')} to {max(1, shortest // SAMPLES)} s or less, or longer times.",
        )


def _time_limits(profile: Profile) -> Iterator[tuple[tuple[str, ...], int | str | None]]:
    """Each time limit of a profile and its options, with its field; of a range the largest."""
    yield ("slurm", "time"), profile.slurm.time
    for name, option in profile.profile_options.items():
        for key, choice in option.choices.items():
            yield ("profile_options", name, "choices", key, "slurm", "time"), choice.slurm.time
        if option.range is not None and option.range.sets == "slurm.time":
            yield ("profile_options", name, "range", "max"), option.range.override(option.range.max).slurm.time


def _day(moment: date | None) -> date | None:
    return moment.date() if isinstance(moment, datetime) else moment


def _of_running(profile: Profile, context: Context, locations: Locations) -> Iterator[Finding]:
    """What the time limit of the unchanged profile leaves for `extend` and `idle`."""
    if context.snapshot is None or (profile.idle is None and profile.extend is None):
        return
    try:
        resources = request_of(profile, {}, context).resources
    except RequestError:
        return
    partition_by_name = context.snapshot.partition_by_name
    partitions = [
        partition_by_name[name] for name in partitions_of(resources, context.snapshot) if name in partition_by_name
    ]
    if not partitions:
        return
    if profile.extend is not None and all(
        partition.max_time is not None and length_of(resources, partition) >= partition.max_time
        for partition in partitions
    ):
        where = f"partition {resources.partition}" if resources.partition else "the default partition"
        yield EXTEND.warning(
            locations.of(profile, ("extend",)),
            f"no server can be extended: its time limit is already MaxTime of {where}.",
            "Set a shorter slurm.time, or take extend out of the profile.",
        )
    yield from _of_idle(profile, resources, max(length_of(resources, partition) for partition in partitions), locations)


def _of_idle(profile: Profile, resources: Resources, longest: float, locations: Locations) -> Iterator[Finding]:
    """Whether the job may end before the profile's own limit; the site's is for jobs of all lengths."""
    field = "gpu" if resources.gpus else "kernel"
    limit = getattr(profile.idle, field, None)
    if limit is not None and limit >= longest:
        yield IDLE.warning(
            locations.of(profile, ("idle", field)),
            f"servers count as idle after {duration(limit)}, and their jobs end after {duration(round(longest))}.",
            "Set a shorter time, or a longer slurm.time.",
        )
