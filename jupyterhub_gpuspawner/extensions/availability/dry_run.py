"""What Slurm would do with a batch script, asked as the user who would own the job. Nothing is submitted."""

from __future__ import annotations

import math
import time

from jupyterhub_gpuspawner.slurm.accounts import refuse_root
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import command_prefix
from jupyterhub_gpuspawner.slurm.squeue import WillRun


async def dry_run(client: SlurmClient, script: str, user: str, *, exec_prefix: str, begin: float = 0.0) -> WillRun:
    """Slurm's answer to a batch script, asked as the user (``sbatch --test-only``).

    The job may not begin before ``begin``, in seconds since the epoch. It is told to sbatch in seconds from now, since
    sbatch reads times of day in its own time zone, which need not be that of this machine. Raises GPUSpawnerError.
    """
    await refuse_root(user)
    if (seconds := math.ceil(begin - time.time())) > 0:
        script = script.replace("\n", f"\n#SBATCH --begin=now+{seconds}\n", 1)
    prefix, environment = command_prefix(exec_prefix, user), {"USER": user, "LOGNAME": user}
    return await client.test_only(script, prefix=prefix, environment=environment)
