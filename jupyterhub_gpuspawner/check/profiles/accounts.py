"""Whether the accounts and QOS that profiles request exist in Slurm's accounting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Check, Code
from jupyterhub_gpuspawner.check.profiles.cases import Case, cases_of
from jupyterhub_gpuspawner.check.profiles.judgement import request_of
from jupyterhub_gpuspawner.check.profiles.places import Places
from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.words import some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.profiles.profile import Profile

NO_ACCOUNT = Code("account-missing", "A profile charges an account that the cluster does not have.")
NO_QOS = Code("qos-missing", "A profile requests a QOS that the cluster does not have.")
UNREAD = Code("accounting-unread", "Slurm's accounting could not be read, so accounts and QOS are not checked.")


async def find(context: Context) -> list[Finding]:
    """Ask slurmdbd for accounts and QOS, if a profile names one."""
    asked = [(profile, *each) for profile in context.profiles for each in _asked(profile, context)]
    if not asked or context.snapshot is None:
        return []
    try:
        accounting = await context.client.accounting(())
    except GPUSpawnerError as error:
        return [UNREAD.warning("Slurm", f"accounts and QOS are not checked: {error.message}", error.hint)]
    if accounting is None:
        return []
    enforced, places = accounting.enforced, Places(context)
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
        right = f"Name one of {some(sorted(names))}."
        found.append(code.error(places.of_fault(profile, case, kind), text, right))
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


CHECK = Check(find, (NO_ACCOUNT, NO_QOS, UNREAD))
