"""What Slurm allows the account that the hub's questions come from: its own, or that of ``query_prefix``."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import SlurmUnavailable
from jupyterhub_gpuspawner.slurm.login_node.accounts import SystemAccount, parse_identity

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.slurm.commands import Installation
    from jupyterhub_gpuspawner.slurm.parse.config import SlurmConfig


def own_account() -> str:
    """The name of this process's account; empty for a uid without a name."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return ""


async def asking_account(slurm: Installation) -> SystemAccount:
    """The account that Slurm sees in the hub's questions; its name is empty for a uid without one.

    Raises SlurmUnavailable and SlurmOutputError where another machine has to be asked and does not answer.
    """
    if not slurm.query_prefix:
        return SystemAccount(own_account(), os.geteuid())
    answer = await slurm.run("id")
    if answer.code != 0:
        raise SlurmUnavailable(f"id failed on the login node: {answer.stderr.strip()[:200]}")
    return parse_identity(answer.stdout)


async def has_all_rights(slurm: Installation, config: SlurmConfig) -> bool:
    """Whether the account is root, SlurmUser, an operator or an administrator; False where that cannot be determined.

    Slurm shows these accounts everything, whatever PrivateData says, and lets them raise time limits.
    """
    try:
        me = await asking_account(slurm)
        if me.uid in (0, config.slurm_uid):
            return True
        if not config.accounting or not me.name:
            return False
        answer = await slurm.run(
            "sacctmgr", "-n", "-P", "show", "user", "where", f"name={me.name}", "format=AdminLevel"
        )
    except SlurmUnavailable:
        return False
    return answer.code == 0 and answer.stdout.strip() in ("Operator", "Administrator")
