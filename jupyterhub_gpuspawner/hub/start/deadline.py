"""The deadline of a start, measured in elapsed time, across restarts of the hub.

The wall clock may be set while no hub runs. Until the machine is rebooted, CLOCK_BOOTTIME says how much time has
passed. After a reboot the wall clock does; then a start gets at most its whole time again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Clocks:
    """The machine's clocks at one moment."""

    wall: float
    """Seconds since the epoch."""
    since_boot: float
    """Seconds since the machine was booted, including suspend."""
    boot: str
    """The kernel's id of this boot; empty if unknown."""


def clocks() -> Clocks:
    """The clocks now."""
    return Clocks(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), _boot())


@lru_cache(maxsize=1)
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


@dataclass(frozen=True)
class Deadline:
    """A moment on both clocks."""

    wall: int
    """Seconds since the epoch."""
    since_boot: float | None = None
    boot: str = ""

    @classmethod
    def after(cls, seconds: float, now: Clocks) -> Deadline:
        """The moment ``seconds`` from now."""
        return cls(round(now.wall + seconds), now.since_boot + seconds if now.boot else None, now.boot)

    def left(self, now: Clocks, *, at_most: float) -> float:
        """Seconds until then, from 0 to ``at_most``."""
        known = self.since_boot is not None and self.boot == now.boot
        left = self.since_boot - now.since_boot if known and self.since_boot is not None else self.wall - now.wall
        return min(max(left, 0.0), at_most)

    def to_state(self) -> dict[str, Any]:
        """For the spawner's state."""
        more = {} if self.since_boot is None else {"start_by_boot": [self.boot, round(self.since_boot, 1)]}
        return {"start_by": self.wall, **more}


def parse_deadline(state: Mapping[str, Any]) -> Deadline | None:
    """Read what :meth:`Deadline.to_state` wrote, with or without the time since boot; None for anything else."""
    wall, machine = state.get("start_by"), state.get("start_by_boot")
    if not isinstance(wall, int) or isinstance(wall, bool):
        return None
    if isinstance(machine, list) and len(machine) == 2:
        boot, since = machine
        if isinstance(boot, str) and boot and isinstance(since, (int, float)) and not isinstance(since, bool):
            return Deadline(wall, float(since), boot)
    return Deadline(wall)
