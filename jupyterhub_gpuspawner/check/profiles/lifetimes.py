"""Times of a profile that contradict each other, or are almost surely meant in other units."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.check.profiles.judgement import request_of
from jupyterhub_gpuspawner.check.profiles.locations import Locations
from jupyterhub_gpuspawner.cluster.limits import length_of, partitions_of
from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.profiles.idle import Idle, IdleAction, idle_rule
from jupyterhub_gpuspawner.wire.documents import SAMPLES
from jupyterhub_gpuspawner.words import day, duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.profiles.resolve import ResolvedResources

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
    known = context.snapshot.partition_by_name
    partitions = [known[name] for name in partitions_of(resources, context.snapshot) if name in known]
    if not partitions:
        return
    if profile.extend is not None and all(
        each.max_time is not None and length_of(resources, each) >= each.max_time for each in partitions
    ):
        where = f"partition {resources.partition}" if resources.partition else "the default partition"
        yield EXTEND.warning(
            locations.of(profile, ("extend",)),
            f"no server can be extended: its time limit is already MaxTime of {where}.",
            "Set a shorter slurm.time, or take extend out of the profile.",
        )
    yield from _of_idle(profile, resources, max(length_of(resources, each) for each in partitions), locations)


def _of_idle(profile: Profile, asked: ResolvedResources, longest: float, locations: Locations) -> Iterator[Finding]:
    """Whether the job may end before the profile's own limit; the site's is for jobs of all lengths."""
    field = "gpu" if asked.gpus else "kernel"
    limit = getattr(profile.idle, field, None)
    if limit is not None and limit >= longest:
        yield IDLE.warning(
            locations.of(profile, ("idle", field)),
            f"servers count as idle after {duration(limit)}, and their jobs end after {duration(round(longest))}.",
            "Set a shorter time, or a longer slurm.time.",
        )
