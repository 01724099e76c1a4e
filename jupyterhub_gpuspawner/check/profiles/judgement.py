"""Whether each request that a profile allows could ever run, by the judgement that the form shows to users."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, time
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.profiles.cases import Case, cases_of, highest, variants
from jupyterhub_gpuspawner.check.profiles.faults import BY_FAULT, REFUSED
from jupyterhub_gpuspawner.cluster.limits import fault_of
from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.profiles.profile import Allow
from jupyterhub_gpuspawner.profiles.resolve import moment_of, resolve
from jupyterhub_gpuspawner.profiles.resources import over_defaults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.check.profiles.locations import Locations
    from jupyterhub_gpuspawner.cluster.limits import Fault
    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.profiles.resolve import JobRequest
    from jupyterhub_gpuspawner.profiles.resources import ReservationRule

SOMEBODY = "somebody"


def first_moment(profile: Profile, now: datetime) -> datetime:
    """The first moment from ``now`` on at which the profile can be used, as far as its own dates say."""
    opens = profile.allow.from_
    if opens is not None:
        now = max(now, moment_of(opens))
    rule = profile.slurm.reservation
    if rule is not None and rule.pattern is None and rule.default is None and now.date() not in rule.dates:
        later = [day for day in rule.dates if day > now.date()]
        now = moment_of(min(later), time(12)) if later else now
    return now


def request_of(
    profile: Profile,
    options: Mapping[str, object],
    context: Context,
    *,
    user: str = SOMEBODY,
    groups: tuple[str, ...] = (),
    now: datetime | None = None,
) -> JobRequest:
    """The job of a user who may use the profile; raises RequestError."""
    return resolve(
        (profile.model_copy(update={"allow": Allow()}),),
        {"profile": profile.slug, **options},
        username=user,
        groups=groups,
        server_name="",
        now=now or first_moment(profile, context.now),
        defaults=context.defaults,
    )


def faults_of(profile: Profile, context: Context, locations: Locations) -> Iterator[Finding]:
    """Each request that can never run, with its place; nothing while Slurm does not answer.

    A value of an option is at fault only if no combination with those other options would run that decide which nodes
    are considered. What is wrong with the unchanged profile is not repeated for each of its options.
    """
    unchanged: Fault | RequestError | None = None
    for case in cases_of(profile):
        found = next((each for each in _tried(profile, case, context)), None)
        if found is None or (case.option and _same(found, unchanged)):
            continue
        unchanged = found if not case.option else unchanged
        if isinstance(found, RequestError):
            if not case.option:  # there is no job at all, which is a finding of its own
                continue
            yield REFUSED.error(locations.of(profile, case.path), found.message, found.hint)
            continue
        code, fix = BY_FAULT[found.field, found.kind]
        where = locations.of_fault(profile, case, found.field)
        yield code.error(where, f"{found.clause}.", _up_to(profile, case, context) or fix)


def _tried(profile: Profile, case: Case, context: Context) -> list[Fault | RequestError]:
    """The fault of a case; empty if the case, or with other options a variant of it, would run."""
    first: list[Fault | RequestError] = []
    for options in variants(profile, case) if case.option else (case.options,):
        found = fault_with(profile, options, context)
        if found is None:
            return []
        first = first or [found]
    return first


def fault_with(profile: Profile, options: Mapping[str, object], context: Context) -> Fault | RequestError | None:
    """Why a job with these options could never run; None if it could, and where that is not known."""
    try:
        resources = request_of(profile, options, context).resources
    except RequestError as error:
        return error
    if context.snapshot is None:
        return None
    moment, rule = first_moment(profile, context.now), dated_reservation(profile, context)
    waived = rule is not None and resources.reservation not in context.snapshot.reservation_by_name
    if waived:  # each of its days is a question of its own
        resources = replace(resources, reservation=None)
    found = fault_of(resources, context.snapshot, now=moment.timestamp())
    return None if waived and found is not None and found.field == "reservation" else found


def dated_reservation(profile: Profile, context: Context) -> ReservationRule | None:
    """The rule for the reservation of a profile, if its name changes with the day."""
    rule = over_defaults(profile.slurm, context.defaults).reservation
    return rule if rule is not None and (rule.dates or "%" in f"{rule.pattern}{rule.default}") else None


def _same(found: Fault | RequestError, other: Fault | RequestError | None) -> bool:
    if isinstance(found, RequestError) or isinstance(other, RequestError) or other is None:
        return str(found) == str(other)
    return (found.field, found.kind, found.clause) == (other.field, other.kind, other.clause)


def _up_to(profile: Profile, case: Case, context: Context) -> str:
    """The largest value of a range that would run, for the maximum of one."""
    option = profile.profile_options.get(case.option)
    if option is None or option.range is None or case.path[-1] != "max":
        return ""

    def runs(value: float) -> bool:
        tried = Case({**case.options, case.option: value}, case.option, case.path)
        return not _tried(profile, tried, context)

    most = highest(option.range, runs)
    unit = f" {option.range.unit}" if option.range.unit else ""
    return f"Set max to {most}: {most}{unit} is the most that can run." if most is not None else ""
