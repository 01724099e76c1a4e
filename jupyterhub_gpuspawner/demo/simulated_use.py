"""The use of simulated GPUs: a curve that depends only on the time and the GPU's number, or the MIG device's UUID.

Each is busy for ten minutes and idle for ten, not all at the same time. What is simulated is marked as such
wherever it is shown.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

PERIOD, BUSY = 1200, 600
"""Seconds of one turn, and those of it in which the GPU is busy."""
MEMORY_MIB = 12288
"""Memory of a GPU for which the topology names none."""


@dataclass(frozen=True)
class SimulatedUse:
    """What a GPU, or a MIG device, is used for at one time."""

    utilization: float
    """In percent."""
    memory_mib: int
    memory_used_mib: int
    processes: int
    power_watts: float | None
    """None for a MIG device."""


def simulated_use(index: int, memory_mib: int | None, now: float, *, mig: bool = False, uuid: str = "") -> SimulatedUse:
    """The simulated use at ``now`` (seconds since the epoch); a MIG device has no power.

    ``index`` of a MIG device is that of its GPU; ``uuid`` tells it from the GPU's other devices.
    """
    total = memory_mib or MEMORY_MIB
    seed, ahead = index, index * 300
    if mig and uuid:
        seed = zlib.crc32(uuid.encode())
        ahead = seed % PERIOD
    seconds = int(now) + ahead
    busy = seconds % PERIOD < BUSY
    noise = zlib.crc32(b"%d %d" % (seed, seconds // 30)) % 1000 / 1000
    use = round(70 + 25 * noise) if busy else 0
    return SimulatedUse(
        utilization=float(use),
        memory_mib=total,
        memory_used_mib=round(total * (0.4 + 0.2 * noise)) if busy else total // 25,
        processes=1 if busy else 0,
        power_watts=None if mig else 30.0 + 2 * use,
    )
