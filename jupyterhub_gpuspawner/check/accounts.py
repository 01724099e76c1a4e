"""Whether the accounts, QOS, licences, users, groups and reservations that profiles name exist."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import date, time, timedelta

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding
from jupyterhub_gpuspawner.check.offered import (
    BY_FAULT,
    RESERVATION_MISSING,
    Case,
    Locations,
    cases_of,
    dated_reservation,
    request_of,
)
from jupyterhub_gpuspawner.cluster.limits import Fault, fault_of
from jupyterhub_gpuspawner.courses.limits import licenses_of
from jupyterhub_gpuspawner.errors import GPUSpawnerError, RefusalKind, RequestError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.site.account import allowed_groups, job_owner
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import moment_of, permitted
from jupyterhub_gpuspawner.profiles.resources import ReservationRule
from jupyterhub_gpuspawner.site.people import has_account, is_unix_group
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.slurm.snapshot_reader import own_account
from jupyterhub_gpuspawner.words import day as in_words
from jupyterhub_gpuspawner.words import some

NO_ACCOUNT = Code("account-missing", "A profile charges an account that the cluster does not have.")
NO_QOS = Code("qos-missing", "A profile requests a QOS that the cluster does not have.")
NO_LICENSE = Code("license-missing", "A profile requests a licence that the cluster does not have, or more of it.")
UNREAD = Code("accounting-unread", "Slurm's accounting could not be read, so accounts and QOS are not checked.")

_LICENSE = re.compile(r"[A-Za-z0-9_.-]+")


async def check_accounts(context: Context) -> list[Finding]:
    """Ask slurmdbd for accounts and QOS, and slurmctld for licences, if a profile names one."""
    return [*await _of_accounting(context), *await _of_licenses(context)]


async def _of_licenses(context: Context) -> list[Finding]:
    requests: dict[tuple[str, str, int], None] = {}
    locations = Locations(context)
    for profile in context.profiles:
        for case in cases_of(profile) if profile.kind == "slurm" else ():
            try:
                options = request_of(profile, case.options, context).resources.options
            except RequestError:
                continue
            where = locations.of_fault(profile, case, "extra")
            # not alternatives (a|b) and not those of a server beyond the cluster (a@server)
            requests |= {
                (where, name, count): None for name, count in licenses_of(options).items() if _LICENSE.fullmatch(name)
            }
    if not requests or context.snapshot is None:
        return []
    try:
        there = await context.client.licenses()
    except SlurmUnavailable:
        raise
    except GPUSpawnerError as error:
        return [UNREAD.warning("Slurm", f"licences are not checked: {error.message}", error.hint)]
    findings = []
    for where, name, number in requests:
        if number <= there.get(name, 0):
            continue
        text = (
            f"there are {there[name]} licences {name}, not {number}."
            if name in there
            else f"there is no licence {name}."
        )
        fix = f"Name one of {some(sorted(there))}." if there else "`scontrol show licenses` lists none."
        findings.append(NO_LICENSE.error(where, text, "Request no more than that." if name in there else fix))
    return findings


async def _of_accounting(context: Context) -> list[Finding]:
    requests = [(profile, *case) for profile in context.profiles for case in _queries(profile, context)]
    if not requests or context.snapshot is None:
        return []
    try:
        accounting = await context.client.accounting(())
    except GPUSpawnerError as error:
        return [UNREAD.warning("Slurm", f"accounts and QOS are not checked: {error.message}", error.hint)]
    if accounting is None:
        return []
    enforced, locations = accounting.enforced, Locations(context)
    answers = {
        "account": (NO_ACCOUNT, {name.lower() for name in accounting.accounts}, "associations"),
        "qos": (NO_QOS, {name.lower() for name in accounting.qos}, "qos"),
    }
    findings = []
    for profile, case, kind, name in requests:
        code, names, rule = answers[kind]
        if name.lower() in names or (kind == "qos" and rule not in enforced):
            continue
        text = f"there is no {'account' if kind == 'account' else 'QOS'} {name}."
        fix = f"Name one of {some(sorted(names))}."
        findings.append(code.error(locations.of_fault(profile, case, kind), text, fix))
    return findings


def _queries(profile: Profile, context: Context) -> Iterator[tuple[Case, str, str]]:
    """Each account and QOS that the profile may request, with the first case that does, and its kind."""
    done = set[tuple[str, str]]()
    for case in cases_of(profile) if profile.kind == "slurm" else ():
        try:
            resources = request_of(profile, case.options, context).resources
        except RequestError:
            continue
        for kind, name in (("account", resources.account), ("qos", resources.qos)):
            if name and (kind, name) not in done:
                done.add((kind, name))
                yield case, kind, name


# Whether the users and groups of ``allow`` exist, and whether Slurm admits them where their jobs would go.

NO_GROUP = Code("group-missing", "`allow` names a group that JupyterHub does not have, so it admits nobody.")
NO_USER = Code("user-missing", "`allow` names a user who is neither an account of this machine nor one of JupyterHub.")
AT_MOST = 500
"""People of one profile for whom Slurm's restrictions are examined."""


async def check_allowed(context: Context) -> list[Finding]:
    """Look at each profile's `allow`, unless the profile is over."""
    locations, findings = Locations(context), list[Finding]()
    for profile in context.profiles:
        closed = permitted(profile, "", profile.allow.groups, context.now)
        if closed is not None and closed.kind is RefusalKind.ENDED:
            continue
        findings += _of_groups(profile, context, locations)
        findings += await _of_users(profile, context, locations)
        if profile.kind == "slurm" and context.snapshot is not None:
            findings += await _of_slurm(profile, context, locations)
    return findings


def _of_groups(profile: Profile, context: Context, locations: Locations) -> list[Finding]:
    people = context.people
    if people.at_sign_in:
        return []
    groups = f"Its groups are {some(sorted(people.groups))}." if people.groups else "It has none."
    where = locations.of(profile, ("allow", "groups"))
    fix = "Correct the name, or add the group to c.JupyterHub.load_groups."
    findings = []
    for name in profile.allow.groups:
        if name in people.groups:
            continue
        if people.unread:
            text = f"group {name!r} is not in c.JupyterHub.load_groups, and {people.unread}."
        elif is_unix_group(name):
            text = f"{name!r} is a Unix group, and JupyterHub has no group of that name. {groups}"
        else:
            text = f"JupyterHub has no group {name!r}. {groups}"
        findings.append(NO_GROUP.warning(where, text, fix))
    return findings


async def _of_users(profile: Profile, context: Context, locations: Locations) -> list[Finding]:
    unknown = [name for name in profile.allow.users if name not in context.people.users]
    missing = [name for name in unknown if not await asyncio.to_thread(has_account, name)]
    return [
        NO_USER.warning(
            locations.of(profile, ("allow", "users")),
            f"{name!r} is neither an account of this machine nor a user of JupyterHub.",
            "Correct the name, unless this user is still to sign in for the first time.",
        )
        for name in missing
    ]


async def _of_slurm(profile: Profile, context: Context, locations: Locations) -> list[Finding]:
    """Those who may use the profile, but not its partition or reservation."""
    assert context.snapshot is not None  # noqa: S101 - find
    try:
        resources = request_of(profile, {}, context).resources
    except RequestError:
        return []
    now = context.now.timestamp()
    if fault_of(resources, context.snapshot, now=now) is not None:  # for everybody
        return []
    prefix = context.slurm_site.exec_prefix
    audience = sorted({*profile.allow.users} | context.people.members(profile.allow.groups))[:AT_MOST]
    if not prefix.strip():  # all jobs belong to one account
        audience = [own_account() or ""]
    shut_out: dict[Fault, list[str]] = {}
    for name in filter(None, audience):
        owner = job_owner(prefix, name)
        groups = await allowed_groups(context.snapshot, owner)
        fault = fault_of(resources, context.snapshot, now=now, user=owner, groups=groups)
        if fault is not None:
            shut_out.setdefault(fault, []).append(name)
    findings = []
    for fault, names in shut_out.items():
        code, fix = BY_FAULT[fault.field, fault.kind]
        report = code.error if len(names) == len(audience) else code.warning
        where = locations.of_fault(profile, Case(), fault.field)
        findings.append(report(where, f"{fault.clause}: profile {profile.slug} cannot be used by {some(names)}.", fix))
    return findings


# Reservations whose name changes with the day: whether they exist on the days to come.

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
        finding
        for profile in context.profiles
        if profile.kind == "slurm" and (rule := dated_reservation(profile, context)) is not None
        for finding in _of_rule(profile, rule, context, context.snapshot, locations)
    ]


def _of_rule(
    profile: Profile, rule: ReservationRule, context: Context, snapshot: ClusterSnapshot, locations: Locations
) -> Iterator[Finding]:
    today = context.now.date()
    near = [today + timedelta(days=number) for number in range(AHEAD)]
    days = {date: rule.on(date) for date in near if rule.pattern or rule.default or date in rule.dates}
    days |= {date: rule.on(date) for date in sorted(rule.dates) if date >= today}
    days = {day: name for day, name in days.items() if name and _open(profile, day)}
    if any(record.kind == "reservation" for record in snapshot.unread):
        return  # one may be among those that were not understood
    there = {day: name for day, name in days.items() if name in snapshot.reservation_by_name}
    for day, name in days.items():
        where = locations.of(profile, ("slurm", "reservation", *([day.isoformat()] if day in rule.dates else [])))
        if day not in there:
            if day in rule.dates or not there:
                report = RESERVATION_MISSING.error if day == today or not there else RESERVATION_MISSING.warning
                yield report(where, f"there is no reservation {name}, which is for {in_words(day)}.", _RIGHT)
            if day not in rule.dates and not there:
                return  # the other names of a pattern would say the same
        elif not _on(day, name or "", snapshot):
            text = f"reservation {name} is not on {in_words(day)}, for which the profile names it."
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
