"""Reads the limits of accounting that some users' jobs come under, and the hub's rights: sacctmgr(1) and sshare(1)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.jobs.accounting import Accounting
from jupyterhub_gpuspawner.slurm.commands import good
from jupyterhub_gpuspawner.slurm.parse.accounting import (
    ASSOCIATION,
    DEFAULT_ACCOUNT,
    QOS,
    USAGE,
    parse_associations,
    parse_default_accounts,
    parse_qos,
    parse_usage,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyterhub_gpuspawner.jobs.accounting import Association
    from jupyterhub_gpuspawner.slurm.commands import Installation
    from jupyterhub_gpuspawner.slurm.parse.config import SlurmConfig

_AT_ONCE = 500
"""Users in one command's argument, of which Linux allows 128 KiB."""


async def read_accounting(slurm: Installation, config: SlurmConfig, users: Sequence[str]) -> Accounting:
    """What limits the jobs of these users.

    Four commands for up to five hundred users, one more where an account's minutes are limited. slurmdbd answers
    them; usage comes from slurmctld. Raises SlurmUnavailable and SlurmOutputError.
    """
    cluster = f"cluster={config.cluster_name}"
    shown = await _sacctmgr(slurm, "assoc", ASSOCIATION, cluster, "user=")
    accounts = {each.account: each for each in parse_associations(shown) if not each.user}
    qos = {each.name: each for each in parse_qos(await _sacctmgr(slurm, "qos", QOS))}
    found: list[Association] = []
    defaults: dict[str, str] = {}
    for at in range(0, len(users), _AT_ONCE):
        names = ",".join(users[at : at + _AT_ONCE])
        found += parse_associations(await _sacctmgr(slurm, "assoc", ASSOCIATION, cluster, f"user={names}"))
        defaults |= parse_default_accounts(await _sacctmgr(slurm, "user", DEFAULT_ACCOUNT, f"name={names}"))
    known = Accounting(accounts, tuple(found), qos, defaults, enforced=config.accounting_enforced)
    return replace(known, used_minutes=await _used(slurm, known))


async def _used(slurm: Installation, known: Accounting) -> Mapping[str, Mapping[str, int]]:
    concerned = {above.account for each in known.users for above in known.above(each.account)}
    limited = sorted(name for name in concerned if known.accounts[name].limits.group_minutes)
    if not limited:
        return {}
    answer = await slurm.run("sshare", "-n", "-P", "-A", ",".join(limited), "-o", ",".join(USAGE))
    return parse_usage(good("sshare", answer))


async def _sacctmgr(slurm: Installation, what: str, fields: Sequence[str], *conditions: str) -> str:
    where = ["where", *conditions] if conditions else []
    answer = await slurm.run("sacctmgr", "-n", "-P", "show", what, *where, f"format={','.join(fields)}")
    return good("sacctmgr", answer)
