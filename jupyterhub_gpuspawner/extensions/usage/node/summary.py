"""A server's use of its GPUs and cores, as the process beside it sends it to the hub.

It comes by ``POST /hub/api/gpuspawner/usage`` with the server's own token. Users can end or change the process that
sends it, so it is advice; the hub checks its form in :mod:`~jupyterhub_gpuspawner.extensions.usage.use`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.wire.documents import STRICT
from jupyterhub_gpuspawner.words import counted, gpu_gigabytes, memory, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.wire import bounds

USAGE_VERSION = 1
SAMPLES = 10
"""Samples in a summary."""
UNKNOWN = "use unknown"
LISTED = 4
"""GPUs of which a few words name each."""
Bar = tuple[str, str, int]
"""What is measured, how much of it is used in words, and in percent."""


@dataclass(frozen=True)
class GpuUse:
    """The use of a GPU or MIG device. None is unknown, which does not mean that it is idle."""

    __pydantic_config__ = STRICT

    index: bounds.GpuIndex
    uuid: bounds.Text = ""
    mig: bounds.Text | None = None
    utilization: bounds.Percent | None = None
    """Percent of the time in which a kernel ran, in the last sample."""
    utilization_mean: bounds.Percent | None = None
    """Mean of the samples in which it was known."""
    utilization_max: bounds.Percent | None = None
    utilization_samples: bounds.Count = 0
    """Number of samples in which it was known."""
    memory_mib: bounds.MiB | None = None
    """All of its memory."""
    memory_used_mib: bounds.MiB | None = None
    memory_used_max_mib: bounds.MiB | None = None
    processes: bounds.Count | None = None
    """Compute processes that use it."""
    power_watts: bounds.Watts | None = None
    """None for a MIG device and for a GPU that is shared: NVML measures the whole GPU."""
    energy_joules: bounds.Joules | None = None
    """Used in the summary's time."""
    mig_device: bounds.GpuIndex | None = None
    """The number of a MIG device on its GPU, as ``nvidia-smi -L`` counts; None for a whole GPU, and if not known."""


@dataclass(frozen=True)
class UsageSummary:
    """A server's use since its last summary."""

    __pydantic_config__ = STRICT

    job_id: bounds.Text | None = None
    seconds: bounds.Seconds = 0.0
    """Length of the time that it is about, which ends when it is sent."""
    samples: bounds.Count = 0
    interval: bounds.Seconds = 0.0
    """Seconds between two samples."""
    final: bool = False
    """The server has ended."""
    simulated: bool = False
    """The GPUs are simulated, and so is their use."""
    gpus: bounds.Items[GpuUse] = ()
    """In the order of the placement."""
    cores: bounds.Cores | None = None
    """Cores that the job used, in the time between the last two samples: CPU seconds per second."""
    cores_mean: bounds.Cores | None = None
    cores_max: bounds.Cores | None = None
    memory_mib: bounds.MiB | None = None
    """Memory that the job used, without the page cache."""
    memory_max_mib: bounds.MiB | None = None
    problems: bounds.Items[bounds.Text] = ()
    """Why something is unknown."""

    def dumps(self) -> str:
        """The summary as JSON."""
        return json.dumps({"version": USAGE_VERSION, **asdict(self)})


def gpu_memory_used(*gpus: tuple[int | None, int | None]) -> str:
    """``5.8 of 12 GB``: what is used of one GPU's memory, or of several together; empty where it is not known.

    Each is used and whole memory, in MiB. The rule of all pages: the whole has the size in the product's name
    (``gpu_gigabytes``), and of it as large a part is used as the driver reports. So a full GPU is full, and the
    same size stands on the form, the card and in JupyterLab. Exact MiB stand in the card's details.
    """
    used, size = 0.0, 0
    for used_mib, whole_mib in gpus:
        if used_mib is None:
            return ""
        gigabytes = gpu_gigabytes(whole_mib) or 0
        used += used_mib * gigabytes / whole_mib if whole_mib else used_mib / 1024
        size = size + gigabytes if gigabytes and size >= 0 else -1
    if not gpus:
        return ""
    amount = f"{nearest(used)}" if used >= 10 or not used else f"{nearest(10 * used) / 10:.1f}"
    return f"{amount} of {size} GB" if size > 0 else f"{amount} GB"


def memory_used(used_mib: int | None, whole_mib: int | None) -> str:
    """``2.1 of 8 GiB``, ``120 of 512 MiB``, ``2.1 GiB``; empty where it is not known."""
    if used_mib is None:
        return ""
    if whole_mib is not None and whole_mib < 1024:
        return f"{used_mib} of {memory(whole_mib)}"
    if not whole_mib and used_mib < 1024:
        return memory(used_mib)
    gib = used_mib / 1024
    used = f"{nearest(gib)}" if gib >= 10 else f"{nearest(10 * gib) / 10:.1f}"
    return f"{used} of {memory(whole_mib)}" if whole_mib else f"{used} GiB"


def percent(value: float | None) -> str:
    """``83 %``, with a space that does not break."""
    return UNKNOWN if value is None else f"{nearest(value)}\N{NO-BREAK SPACE}%"


def processes(number: int | None) -> str:
    """``2 processes``; empty where it is unknown."""
    return "" if number is None else "no process" if number == 0 else f"{number} process{'es' if number > 1 else ''}"


def percent_of(used: float | None, whole: float | None) -> int:
    """How much of the whole is used, in percent; 0 where either is not known."""
    return min(100, nearest(100 * used / whole)) if used and whole else 0


def host_bars(cores: float | None, cpus: int, memory_mib: int | None, whole_mib: int | None) -> tuple[Bar, ...]:
    """What is used of the job's cores and memory; without what is not known."""
    bars = (
        ("CPUs", cpus_used(cores, cpus).removesuffix("CPUs").strip(), percent_of(cores, cpus)),
        ("memory", memory_used(memory_mib, whole_mib), percent_of(memory_mib, whole_mib)),
    )
    return tuple(bar for bar in bars if bar[1])


def in_short(utilizations: Sequence[float | None], memory: str) -> str:
    """``GPU 83 % / 5 %, 21 of 40 GB``: all GPUs of a server together, unknown is not idle; empty without any.

    Of more than four GPUs it has the mean of those that are known.
    """
    values = [value for value in utilizations if value is not None]
    if not values:
        use = UNKNOWN
    elif len(utilizations) <= LISTED:
        use = " / ".join("unknown" if value is None else percent(value) for value in utilizations)
    else:
        missing = len(utilizations) - len(values)
        use = f"{percent(sum(values) / len(values))} on average{f', {missing} unknown' if missing else ''}"
    return f"GPU {', '.join(filter(None, [use, memory]))}" if utilizations else ""


def cpus_used(cores: float | None, number: int) -> str:
    """``0.5 of 4 CPUs``, ``0.5 cores``; empty where it is not known."""
    if cores is None:
        return ""
    used = f"{nearest(10 * cores) / 10:.1f}"
    return f"{used} of {counted(number, 'CPU')}" if number else f"{used} cores"
