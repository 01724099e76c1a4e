"""Whether the clocks of this machine and of slurmctld's agree.

``scontrol show config`` begins with slurmctld's own time. The times on which pages and time-outs depend (a job's start
and end) are slurmctld's; munge refuses everything if clocks differ by more than five minutes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.words import duration

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding

CLOCK = Code("clock-differs", "The clocks of this machine and of slurmctld's differ by more than ten seconds.")
AT_MOST = 10.0
"""Seconds that are not reported; Slurm's time has whole seconds."""


async def check_clock(context: Context) -> list[Finding]:
    """Ask slurmctld for its time; unknown where it does not say."""
    if context.snapshot is None:
        return []
    before = time.time()
    told = (await context.client.config()).answered_at
    if told is None:
        return []
    ahead = max(before - (told + 1.0), told - time.time())
    if ahead <= AT_MOST:
        return []
    which = "ahead of" if told > before else "behind"
    return [
        CLOCK.error(
            "Slurm",
            f"slurmctld's clock is {duration(round(ahead))} {which} this machine's, so pages show wrong times and "
            "starts are given up too early or too late.",
            "Synchronise both with the same time server (`chronyc tracking`, `timedatectl`).",
        )
    ]
