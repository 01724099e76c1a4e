"""How many people could start a profile at the same time, now: counted node by node, as for the session of a course."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code, Finding
from jupyterhub_gpuspawner.check.profiles.judgement import request_of
from jupyterhub_gpuspawner.check.profiles.locations import Locations
from jupyterhub_gpuspawner.cluster.limits import length_of, partitions_of
from jupyterhub_gpuspawner.courses.hub_limits import of_hub
from jupyterhub_gpuspawner.courses.rehearsal import check_session
from jupyterhub_gpuspawner.courses.sessions import Session
from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.profiles.resolve import queue_limit
from jupyterhub_gpuspawner.site.courses import hub_limits
from jupyterhub_gpuspawner.words import people

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.jobs.accounting import Accounting
    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.profiles.resolve import ResolvedResources

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
    of_slurm = [each for each in context.profiles if each.kind == "slurm"]
    profiles = [each for each in of_slurm if context.options.profile in ("", each.slug)]
    people_of = {each.slug: _people(each, context) for each in profiles}
    accounting = await _accounting(
        sorted({name for names, real in people_of.values() if real for name in names}), context
    )
    locations, found = Locations(context), list[Finding]()
    for profile in profiles:
        names, real = people_of[profile.slug]
        found += _of_profile(profile, names, accounting if real else None, context, locations, real=real)
    return found


async def _accounting(names: Sequence[str], context: Context) -> Accounting | None:
    """The accounting of the people of all profiles; None without any, and where it cannot be read."""
    try:
        return await context.client.accounting(names) if names else None
    except GPUSpawnerError:  # which is told where accounts are looked for
        return None


def _people(profile: Profile, context: Context) -> tuple[list[str], bool]:
    """As many names as were asked for, and whether they are those of the profile's people."""
    wanted = context.options.people
    known = sorted({*profile.allow.users} | context.people.members(profile.allow.groups))
    if len(known) >= wanted:
        return known[:wanted], True
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
    session = Session(context.now, context.now + timedelta(seconds=length), "now")
    report = check_session(
        session, request.resources, context.snapshot, names, opens=context.now, accounting=accounting
    )
    said = [each.text for each in report.problems if real or each.kind != "people"]
    if report.fit >= wanted and not said:
        yield SEATS.ok(where, f"{people(wanted)} could start now")
    else:
        counted = any(each.kind == "seats" for each in report.problems)
        head = [] if counted else [f"{report.fit} of {people(wanted)} could start now."]
        yield FEW.warning(where, " ".join([*head, *said]), "Request less for each, or let fewer people start at once.")
    limits = hub_limits(context.site)
    limits = replace(
        limits,
        start_timeout=request.start_timeout or limits.start_timeout,
        queue_timeout=queue_limit(request.queue_timeout, limits.queue_timeout),
    )
    for problem in of_hub(limits, wanted, length, reserved=bool(request.resources.reservation)):
        yield LIMIT.warning(where, problem.text)


def _length(resources: ResolvedResources, context: Context) -> float:
    assert context.snapshot is not None  # noqa: S101 - find
    known = context.snapshot.partition_by_name
    lengths = [
        length_of(resources, known[name]) for name in partitions_of(resources, context.snapshot) if name in known
    ]
    return min([*lengths, _LONG]) if lengths else _LONG
