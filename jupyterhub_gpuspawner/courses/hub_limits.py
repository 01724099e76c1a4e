"""The hub's own limits that a course of many people may reach. Pure. Source: JupyterHub's configuration reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.courses.report import Problem
from jupyterhub_gpuspawner.words import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY = 10
"""People who load the same software at once without being slowed down."""
SHORT_START = 120
"""A start_timeout in seconds that many people who read the same modules or image at once may exceed."""


@dataclass(frozen=True)
class HubLimits:
    """Settings of the hub that concern many servers at once."""

    concurrent_spawns: int = 100
    """concurrent_spawn_limit; 0: no limit. Jobs that wait in Slurm's queue do not count."""
    active_servers: int = 0
    """active_server_limit; 0: no limit. Jobs that wait do count."""
    start_timeout: int = 0
    """Seconds from a job's start to a server that responds; 0: not known."""
    queue_timeout: int | None = None
    """Seconds that a server's job may wait in Slurm's queue; None: no limit."""
    culled_after: int | None = None
    """Seconds without activity after which a service stops servers; None without one that is recognised."""


def of_hub(limits: HubLimits, wanted: int, session_length: float, *, reserved: bool) -> Iterator[Problem]:
    """What so many people at once meet, in a session of this length in seconds, with a reservation or without."""
    if 0 < limits.active_servers < wanted:
        yield Problem(
            "hub",
            f"The hub runs at most {limits.active_servers} servers at a time, those of others included "
            f"(active_server_limit), and {wanted} are needed.",
        )
    if 0 < limits.concurrent_spawns < wanted:
        yield Problem(
            "hub",
            f"If all {wanted} people start at once, the hub takes {limits.concurrent_spawns} and asks the others to "
            "try again (concurrent_spawn_limit). Starting servers ahead of the session avoids this.",
            hint=True,
        )
    if 0 < limits.start_timeout < SHORT_START and wanted > MANY:
        yield Problem(
            "hub",
            f"A server must respond {duration(limits.start_timeout)} after its job has started (start_timeout). That "
            f"is short when {wanted} people load the same software at once.",
            hint=True,
        )
    if reserved and limits.queue_timeout is not None:
        yield Problem(
            "hub",
            f"A server that is started more than {duration(limits.queue_timeout)} before the reservation begins is "
            "given up while it waits (queue_timeout).",
            hint=True,
        )
    if limits.culled_after is not None and limits.culled_after < session_length:
        yield Problem(
            "hub",
            f"The hub stops servers after {duration(limits.culled_after)} without activity (idle culler), "
            "also during the session.",
            hint=True,
        )
