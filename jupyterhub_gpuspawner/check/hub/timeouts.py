"""Time-outs of a start that are shorter than what happens meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.hub.site.slurm_settings import OBSERVE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding

START = Code(
    "start-timeout-short",
    "start_timeout is shorter than what happens between the job's start and the launcher's report.",
)
HTTP = Code("http-timeout-short", "http_timeout is shorter than JupyterLab commonly takes to start.")
LAUNCHER = 20.0
"""Seconds that the launcher may take for its first report, beside reading the hardware (``node/launch.py``)."""
HTTP_AT_LEAST = 15
"""Seconds; JupyterHub's default is 30."""


async def check_timeouts(context: Context) -> list[Finding]:
    """Compare the settings with the launcher's time, JupyterLab's and that of nodes which are powered off."""
    return [*_of_starts(context), *await _of_power_saving(context)]


def _of_starts(context: Context) -> Iterator[Finding]:
    site = context.slurm_site
    least = OBSERVE_SECONDS + LAUNCHER
    starts = {site.configured_as("start_timeout"): site.start_timeout}
    answers = {site.configured_as("http_timeout"): site.http_timeout}
    for profile in context.profiles:
        if profile.kind != "slurm":
            continue
        if profile.start_timeout is not None:
            starts[f"profile {profile.slug}: start_timeout"] = profile.start_timeout
        if "http_timeout" in profile.traits:
            answers[f"profile {profile.slug}: traits.http_timeout"] = profile.traits["http_timeout"]
    for where, seconds in starts.items():
        if seconds < least:
            yield START.warning(
                where,
                f"{seconds} s is less than the launcher may take on a node ({least:g} s), without the modules or the "
                "environment of a profile.",
                "Use the default of 300, or more; time in the queue does not count.",
            )
    for where, seconds in answers.items():
        if seconds < HTTP_AT_LEAST:
            yield HTTP.warning(
                where,
                f"{seconds} s is less than JupyterLab takes to start from a busy file system.",
                "Use 30, JupyterHub's default, or more.",
            )


async def _of_power_saving(context: Context) -> list[Finding]:
    """Nodes that are powered off are booted after the allocation, while start_timeout runs."""
    snapshot, site = context.snapshot, context.slurm_site
    if snapshot is None or not any(_may_be_off(each.states) for each in snapshot.nodes):
        return []
    try:
        boot = (await context.client.config()).resume_timeout
    except SlurmOutputError:
        return []
    if boot is None or site.start_timeout >= boot:
        return []
    return [
        START.warning(
            site.configured_as("start_timeout"),
            f"{site.start_timeout} s is less than a node that is powered off may take to boot (ResumeTimeout, {boot} "
            "s).",
            f"Set it to {boot + 120} or more.",
        )
    ]


def _may_be_off(states: frozenset[str]) -> bool:
    return bool(states & {"CLOUD", "POWERED_DOWN", "POWERING_UP", "POWERING_DOWN"})
