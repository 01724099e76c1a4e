"""Variables of the job's environment that change what sbatch does.

sbatch's variables (``SBATCH_...``) come before the ``#SBATCH`` lines of a script (sbatch(1), INPUT ENVIRONMENT
VARIABLES). The hub's own environment does not reach sbatch, except for what ``environment`` and ``env_keep`` pass on;
with the wrapper scripts nothing of it does, but the job still gets it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.check.finding import Code

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding

VARIABLE = Code(
    "slurm-variable",
    "A variable of Slurm's commands (SBATCH_..., SLURM_...) is passed to every job, and overrides what it asks for or "
    "what Slurm says in it.",
)
_HARMLESS = frozenset(("SLURM_CONF",))


async def check_environment(context: Context) -> list[Finding]:
    """Look at the variables that servers are given."""
    spawner: Any = context.slurm_site
    found = []
    for setting, names in (
        ("environment", spawner.environment),
        ("env_keep", [name for name in spawner.env_keep if name in os.environ]),
    ):
        for name in sorted(names):
            if name in _HARMLESS or not name.startswith(("SBATCH_", "SLURM_")):
                continue
            where = f"{spawner.configured_as(setting)}: {name}"
            if name.startswith("SBATCH_") and not (spawner.wrapper_dir and spawner.exec_prefix.strip()):
                what = (
                    "keeps the hub's variables from every job, so that no server can sign in to the hub"
                    if name == "SBATCH_EXPORT"
                    else "is read by sbatch, and overrides what profiles request"
                )
                found.append(VARIABLE.error(where, f"this variable {what}.", "Remove it."))
            else:
                found.append(
                    VARIABLE.warning(
                        where, "this variable changes what Slurm's commands do within every server.", "Remove it."
                    )
                )
    return found
