"""Whether the accounts, QOS and licences that profiles request exist."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.check.profiles.cases import Case, cases_of
from jupyterhub_gpuspawner.check.profiles.judgement import request_of
from jupyterhub_gpuspawner.check.profiles.locations import Locations
from jupyterhub_gpuspawner.courses.limits import licenses_of
from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError, SlurmUnavailable
from jupyterhub_gpuspawner.words import some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.profiles.profile import Profile

NO_ACCOUNT = Code("account-missing", "A profile charges an account that the cluster does not have.")
NO_QOS = Code("qos-missing", "A profile requests a QOS that the cluster does not have.")
NO_LICENSE = Code("license-missing", "A profile requests a licence that the cluster does not have, or more of it.")
UNREAD = Code("accounting-unread", "Slurm's accounting could not be read, so accounts and QOS are not checked.")

_LICENSE = re.compile(r"[A-Za-z0-9_.-]+")


async def check_accounts(context: Context) -> list[Finding]:
    """Ask slurmdbd for accounts and QOS, and slurmctld for licences, if a profile names one."""
    return [*await _of_accounting(context), *await _of_licenses(context)]


async def _of_licenses(context: Context) -> list[Finding]:
    asked: dict[tuple[str, str, int], None] = {}
    locations = Locations(context)
    for profile in context.profiles:
        for case in cases_of(profile) if profile.kind == "slurm" else ():
            try:
                options = request_of(profile, case.options, context).resources.options
            except RequestError:
                continue
            where = locations.of_fault(profile, case, "extra")
            # not alternatives (a|b) and not those of a server beyond the cluster (a@server)
            asked |= {(where, *each): None for each in licenses_of(options).items() if _LICENSE.fullmatch(each[0])}
    if not asked or context.snapshot is None:
        return []
    try:
        there = await context.client.licenses()
    except SlurmUnavailable:
        raise
    except GPUSpawnerError as error:
        return [UNREAD.warning("Slurm", f"licences are not checked: {error.message}", error.hint)]
    found = []
    for where, name, number in asked:
        if number <= there.get(name, 0):
            continue
        text = (
            f"there are {there[name]} licences {name}, not {number}."
            if name in there
            else f"there is no licence {name}."
        )
        fix = f"Name one of {some(sorted(there))}." if there else "`scontrol show licenses` lists none."
        found.append(NO_LICENSE.error(where, text, "Request no more than that." if name in there else fix))
    return found


async def _of_accounting(context: Context) -> list[Finding]:
    asked = [(profile, *each) for profile in context.profiles for each in _asked(profile, context)]
    if not asked or context.snapshot is None:
        return []
    try:
        accounting = await context.client.accounting(())
    except GPUSpawnerError as error:
        return [UNREAD.warning("Slurm", f"accounts and QOS are not checked: {error.message}", error.hint)]
    if accounting is None:
        return []
    enforced, locations = accounting.enforced, Locations(context)
    known = {
        "account": (NO_ACCOUNT, {name.lower() for name in accounting.accounts}, "associations"),
        "qos": (NO_QOS, {name.lower() for name in accounting.qos}, "qos"),
    }
    found = []
    for profile, case, kind, name in asked:
        code, names, rule = known[kind]
        if name.lower() in names or (kind == "qos" and rule not in enforced):
            continue
        text = f"there is no {'account' if kind == 'account' else 'QOS'} {name}."
        fix = f"Name one of {some(sorted(names))}."
        found.append(code.error(locations.of_fault(profile, case, kind), text, fix))
    return found


def _asked(profile: Profile, context: Context) -> Iterator[tuple[Case, str, str]]:
    """Each account and QOS that the profile may request, with the first case that does, and its kind."""
    seen = set[tuple[str, str]]()
    for case in cases_of(profile) if profile.kind == "slurm" else ():
        try:
            resources = request_of(profile, case.options, context).resources
        except RequestError:
            continue
        for kind, name in (("account", resources.account), ("qos", resources.qos)):
            if name and (kind, name) not in seen:
                seen.add((kind, name))
                yield case, kind, name
