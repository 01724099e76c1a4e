"""Whether running servers can be extended, where a profile allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.snapshot import own_account
from jupyterhub_gpuspawner.slurm.time_limit import operator_prefix

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding

EXTEND = Code("extend", "How the time limits of running servers are raised.")
CANNOT = Code("extend-fails", "A profile has `extend`, and time limits cannot be raised.")


async def check_extending(context: Context) -> list[Finding]:
    """Try the script that raises time limits, without a job."""
    if all(each.extend is None for each in context.profiles):
        return []
    extend_prefix = context.slurm_site.extend_prefix
    try:
        prefix = operator_prefix(extend_prefix)
        if await context.client.may_extend(prefix):
            how = f"by `{extend_prefix}`" if prefix else f"by {own_account() or 'this account'} itself"
            return [EXTEND.ok("extend", f"time limits are raised {how}")]
    except SlurmUnavailable:
        raise
    except GPUSpawnerError as error:
        return [CANNOT.error("extend", error.message, error.hint)]
    name = own_account() or "this account"
    return [
        CANNOT.warning(
            "extend",
            f"{name} is not a Slurm operator, so no server can be extended.",
            "Install the script `extend` and set c.GPUSlurmSpawner.extend_prefix, for example to sudo -n -u slurm "
            "(docs/howto/sudo.md).",
        )
    ]
