"""A server's use of its GPUs and cores, as the process beside it sends it to the hub. Pure, standard library only.

It comes by ``POST /hub/api/gpuspawner/usage`` with the server's own token. Users can end or change the process that
sends it, so it is advice; the hub checks its form in :mod:`~jupyterhub_gpuspawner.hub.report.usage_reader`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

USAGE_VERSION = 1
SAMPLES = 10
"""Samples in a summary."""
FIRST_SAMPLES = 2
"""Samples in the first summary of a server, so that its card does not stay empty for long."""
LONGEST = 3600.0
"""Seconds after which samples that could not be sent are dropped."""


@dataclass(frozen=True)
class GpuUse:
    """The use of a GPU or MIG device. None is unknown, which does not mean that it is idle."""

    index: int
    uuid: str = ""
    mig: str | None = None
    utilization: float | None = None
    """Percent of the time in which a kernel ran, in the last sample."""
    utilization_mean: float | None = None
    """Mean of the samples in which it was known."""
    utilization_max: float | None = None
    utilization_samples: int = 0
    """Number of samples in which it was known."""
    memory_mib: int | None = None
    """All of its memory."""
    memory_used_mib: int | None = None
    memory_used_max_mib: int | None = None
    processes: int | None = None
    """Compute processes that use it."""
    power_watts: float | None = None
    """None for a MIG device and for a GPU that is shared: NVML measures the whole GPU."""
    energy_joules: float | None = None
    """Used in the summary's time."""
    mig_device: int | None = None
    """The number of a MIG device on its GPU, as ``nvidia-smi -L`` counts; None for a whole GPU, and if not known."""


@dataclass(frozen=True)
class UsageSummary:
    """A server's use since its last summary."""

    job_id: str | None = None
    seconds: float = 0.0
    """Length of the time that it is about, which ends when it is sent."""
    samples: int = 0
    interval: float = 0.0
    """Seconds between two samples."""
    final: bool = False
    """The server has ended."""
    simulated: bool = False
    """The GPUs are simulated, and so is their use."""
    gpus: tuple[GpuUse, ...] = ()
    """In the order of the placement."""
    cores: float | None = None
    """Cores that the job used, in the time between the last two samples: CPU seconds per second."""
    cores_mean: float | None = None
    cores_max: float | None = None
    memory_mib: int | None = None
    """Memory that the job used, without the page cache."""
    memory_max_mib: int | None = None
    problems: tuple[str, ...] = ()
    """Why something is unknown."""

    def dumps(self) -> str:
        """The summary as JSON."""
        return json.dumps({"version": USAGE_VERSION, **asdict(self)})
