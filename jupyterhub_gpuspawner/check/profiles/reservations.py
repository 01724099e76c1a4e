"""Reservations whose name changes with the day: whether they exist on the days to come."""

from __future__ import annotations

from datetime import time, timedelta
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.check.profiles.faults import RESERVATION_MISSING
from jupyterhub_gpuspawner.check.profiles.judgement import dated_reservation
from jupyterhub_gpuspawner.check.profiles.locations import Locations
from jupyterhub_gpuspawner.profiles.resolve import moment_of, permitted
from jupyterhub_gpuspawner.words import day as in_words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot
    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.profiles.resources import ReservationRule

OTHER_DAY = Code("reservation-other-day", "A reservation is not on the day for which a profile names it.")
AHEAD = 7
"""Days that are examined of a pattern such as ``ml-hpc-%u``."""
_REPEATED = frozenset({"DAILY", "HOURLY", "WEEKDAY", "WEEKEND", "WEEKLY"})
_RIGHT = "Create the reservation, or correct the name."


async def check_reservations(context: Context) -> list[Finding]:
    """Look at the days to come of each profile's reservation."""
    if context.snapshot is None:
        return []
    locations = Locations(context)
    return [
        each
        for profile in context.profiles
        if profile.kind == "slurm" and (rule := dated_reservation(profile, context)) is not None
        for each in _of_rule(profile, rule, context, context.snapshot, locations)
    ]


def _of_rule(
    profile: Profile, rule: ReservationRule, context: Context, snapshot: ClusterSnapshot, locations: Locations
) -> Iterator[Finding]:
    today = context.now.date()
    near = [today + timedelta(days=number) for number in range(AHEAD)]
    days = {each: rule.on(each) for each in near if rule.pattern or rule.default or each in rule.dates}
    days |= {each: rule.on(each) for each in sorted(rule.dates) if each >= today}
    days = {each: name for each, name in days.items() if name and _open(profile, each)}
    if any(each.kind == "reservation" for each in snapshot.unread):
        return  # one may be among those that were not understood
    there = {each: name for each, name in days.items() if name in snapshot.reservation_by_name}
    for each, name in days.items():
        where = locations.of(profile, ("slurm", "reservation", *([each.isoformat()] if each in rule.dates else [])))
        if each not in there:
            if each in rule.dates or not there:
                report = RESERVATION_MISSING.error if each == today or not there else RESERVATION_MISSING.warning
                yield report(where, f"there is no reservation {name}, which is for {in_words(each)}.", _RIGHT)
            if each not in rule.dates and not there:
                return  # the other names of a pattern would say the same
        elif not _on(each, name or "", snapshot):
            text = f"reservation {name} is not on {in_words(each)}, for which the profile names it."
            yield OTHER_DAY.warning(where, text, "Move the reservation, or correct the name.")


def _open(profile: Profile, day: date) -> bool:
    """Whether the profile may be used at some time of a day."""
    noon = moment_of(day, time(12))
    somebody = (*profile.allow.users, "")[0]
    return permitted(profile, somebody, profile.allow.groups, noon) is None


def _on(day: date, name: str, snapshot: ClusterSnapshot) -> bool:
    own = snapshot.reservation_by_name[name]
    if own.flags & _REPEATED:
        return True
    begin = moment_of(day).timestamp()
    end = moment_of(day + timedelta(days=1)).timestamp()
    return (own.start is None or own.start < end) and (own.end is None or own.end > begin)
