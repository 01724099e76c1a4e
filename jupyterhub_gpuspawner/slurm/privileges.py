"""What Slurm allows the account that this process runs as."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import SlurmUnavailable

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.slurm.commands import Installation
    from jupyterhub_gpuspawner.slurm.parse.config import SlurmConfig


def own_account() -> str:
    """The name of the account; empty for a uid without a name."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return ""


async def has_all_rights(slurm: Installation, config: SlurmConfig) -> bool:
    """Whether the account is root, SlurmUser, an operator or an administrator; False where that cannot be determined.

    Slurm shows these accounts everything, whatever PrivateData says, and lets them raise time limits.
    """
    if slurm.prefix:
        return False  # the prefix may make it any account
    if os.geteuid() == 0 or os.geteuid() == config.slurm_uid:
        return True
    me = own_account()
    if not config.accounting or not me:
        return False
    try:
        answer = await slurm.run("sacctmgr", "-n", "-P", "show", "user", "where", f"name={me}", "format=AdminLevel")
    except SlurmUnavailable:
        return False
    return answer.code == 0 and answer.stdout.strip() in ("Operator", "Administrator")
