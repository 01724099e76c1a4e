"""Whether the users and groups of ``allow`` exist, and whether Slurm admits them where their jobs would go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code, Finding
from jupyterhub_gpuspawner.check.profiles.cases import Case
from jupyterhub_gpuspawner.check.profiles.faults import BY_FAULT
from jupyterhub_gpuspawner.check.profiles.judgement import request_of
from jupyterhub_gpuspawner.check.profiles.locations import Locations
from jupyterhub_gpuspawner.cluster.limits import fault_of
from jupyterhub_gpuspawner.errors import RefusalKind, RequestError
from jupyterhub_gpuspawner.hub.site.account import allowed_groups, job_owner
from jupyterhub_gpuspawner.profiles.resolve import permitted
from jupyterhub_gpuspawner.site.people import has_account, is_unix_group
from jupyterhub_gpuspawner.slurm.snapshot import own_account
from jupyterhub_gpuspawner.words import some

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.cluster.limits import Fault
    from jupyterhub_gpuspawner.profiles.profile import Profile

NO_GROUP = Code("group-missing", "`allow` names a group that JupyterHub does not have, so it admits nobody.")
NO_USER = Code("user-missing", "`allow` names a user who is neither an account of this machine nor one of JupyterHub.")
AT_MOST = 500
"""People of one profile for whom Slurm's restrictions are examined."""


async def check_allowed(context: Context) -> list[Finding]:
    """Look at each profile's `allow`, unless the profile is over."""
    locations, found = Locations(context), list[Finding]()
    for profile in context.profiles:
        closed = permitted(profile, "", profile.allow.groups, context.now)
        if closed is not None and closed.kind is RefusalKind.ENDED:
            continue
        found += _of_groups(profile, context, locations)
        found += await _of_users(profile, context, locations)
        if profile.kind == "slurm" and context.snapshot is not None:
            found += await _of_slurm(profile, context, locations)
    return found


def _of_groups(profile: Profile, context: Context, locations: Locations) -> list[Finding]:
    people = context.people
    if people.at_sign_in:
        return []
    known = f"Its groups are {some(sorted(people.groups))}." if people.groups else "It has none."
    where = locations.of(profile, ("allow", "groups"))
    fix = "Correct the name, or add the group to c.JupyterHub.load_groups."
    found = []
    for name in profile.allow.groups:
        if name in people.groups:
            continue
        if people.unread:
            text = f"group {name!r} is not in c.JupyterHub.load_groups, and {people.unread}."
        elif is_unix_group(name):
            text = f"{name!r} is a Unix group, and JupyterHub has no group of that name. {known}"
        else:
            text = f"JupyterHub has no group {name!r}. {known}"
        found.append(NO_GROUP.warning(where, text, fix))
    return found


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
    found = []
    for fault, names in shut_out.items():
        code, fix = BY_FAULT[fault.field, fault.kind]
        report = code.error if len(names) == len(audience) else code.warning
        where = locations.of_fault(profile, Case(), fault.field)
        found.append(report(where, f"{fault.clause}: profile {profile.slug} cannot be used by {some(names)}.", fix))
    return found
