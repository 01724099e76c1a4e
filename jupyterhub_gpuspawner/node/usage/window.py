"""Samples of a server's use, and the summary of those that the hub has not got yet. Pure."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyterhub_gpuspawner.wire.documents import GpuUse, UsageSummary


@dataclass(frozen=True)
class GpuReading:
    """What was read of a GPU or MIG device at one time; None is unknown."""

    utilization: float | None = None
    """Percent."""
    memory_mib: int | None = None
    memory_used_mib: int | None = None
    processes: int | None = None
    power_watts: float | None = None
    energy_joules: float | None = None
    """The GPU's counter."""


UNKNOWN = GpuReading()


@dataclass(frozen=True)
class HostReading:
    """What was read of the job at one time; None is unknown."""

    cpu_seconds: float | None = None
    """The job's counter."""
    memory_mib: int | None = None


@dataclass(frozen=True)
class Sample:
    """The GPUs, in the order of the placement, and the job at one time."""

    at: float
    """Seconds of a clock that never goes back."""
    gpus: tuple[GpuReading, ...] = ()
    host: HostReading = HostReading()
    problems: tuple[str, ...] = ()


class Window:
    """The samples since the last summary that the hub has taken.

    Memory does not grow with their number: only sums and maxima are kept.
    """

    def __init__(self, start: Sample) -> None:
        """``start`` is the sample that the time begins with; it belongs to the summary before."""
        self.start = self.last = start
        self.samples = 0
        self._gpus = [_Gpu(reading) for reading in start.gpus]
        self._cores = _Values()
        self._memory = _Values()

    @property
    def seconds(self) -> float:
        """From its beginning to the last sample."""
        return self.last.at - self.start.at

    def add(self, sample: Sample) -> None:
        """Take one more sample, with as many GPUs as those before."""
        self.samples += 1
        self._cores.add(_cores(self.last, sample))
        self._memory.add(sample.host.memory_mib)
        for gpu, reading in zip(self._gpus, sample.gpus):
            gpu.add(reading)
        self.last = sample

    def summary(self, about: UsageSummary) -> UsageSummary:
        """The summary of these samples; ``about`` has the job and the identity of each GPU."""
        return replace(
            about,
            seconds=round(self.seconds, 1),
            samples=self.samples,
            gpus=tuple(gpu.use(of) for gpu, of in zip(self._gpus, about.gpus)),
            cores=_tenth(self._cores.last, 100),
            cores_mean=_tenth(self._cores.mean, 100),
            cores_max=_tenth(self._cores.most, 100),
            memory_mib=_whole(self._memory.last),
            memory_max_mib=_whole(self._memory.most),
            problems=self.last.problems,
        )


class _Values:
    """Last value, mean and maximum of those that are known."""

    def __init__(self) -> None:
        self.last: float | None = None
        self.most: float | None = None
        self.known = 0
        self._sum = 0.0

    def add(self, value: float | None) -> None:
        self.last = value
        if value is not None:
            self.known += 1
            self._sum += value
            self.most = value if self.most is None else max(self.most, value)

    @property
    def mean(self) -> float | None:
        return self._sum / self.known if self.known else None


class _Gpu:
    def __init__(self, start: GpuReading) -> None:
        self._energy: float | None = start.energy_joules
        self._used: float | None = None if start.energy_joules is None else 0.0
        self._utilization, self._memory = _Values(), _Values()
        self._last = start

    def add(self, reading: GpuReading) -> None:
        self._utilization.add(reading.utilization)
        self._memory.add(reading.memory_used_mib)
        before, now = self._energy, reading.energy_joules
        if now is not None:
            # the counter starts anew with the driver
            gone = now - before if before is not None and now >= before else 0.0
            self._used = (self._used or 0.0) + gone
            self._energy = now
        self._last = reading

    def use(self, of: GpuUse) -> GpuUse:
        last = self._last
        return replace(
            of,
            utilization=_tenth(last.utilization),
            utilization_mean=_tenth(self._utilization.mean),
            utilization_max=_tenth(self._utilization.most),
            utilization_samples=self._utilization.known,
            memory_mib=last.memory_mib if last.memory_mib is not None else of.memory_mib,
            memory_used_mib=last.memory_used_mib,
            memory_used_max_mib=_whole(self._memory.most),
            processes=last.processes,
            power_watts=_tenth(last.power_watts),
            energy_joules=_tenth(self._used),
        )


def _cores(before: Sample, now: Sample) -> float | None:
    """Cores in use between two samples; the counter may go back where processes have left the job."""
    spent, seconds = (before.host.cpu_seconds, now.host.cpu_seconds), now.at - before.at
    if spent[0] is None or spent[1] is None or seconds <= 0:
        return None
    return max(0.0, spent[1] - spent[0]) / seconds


def _tenth(value: float | None, parts: int = 10) -> float | None:
    return None if value is None else round(value * parts) / parts


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def same_number(gpus: Iterable[GpuReading], number: int) -> tuple[GpuReading, ...]:
    """As many readings as there are GPUs; missing ones are unknown."""
    first = tuple(gpus)[:number]
    return first + (UNKNOWN,) * (number - len(first))


# The use of simulated GPUs: a curve that depends only on the time and the GPU's number, or the MIG device's UUID.
#
# Each is busy for twelve minutes and idle for eight, not all at the same time. What is simulated is marked as such
# wherever it is shown.

PERIOD, BUSY = 1200, 720
"""Seconds of one turn, and those of it in which the GPU is busy."""
MEMORY_MIB = 12288
"""Memory of a GPU for which the topology names none."""


def reading(index: int, memory_mib: int | None, now: float, *, mig: bool = False, uuid: str = "") -> GpuReading:
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
    return GpuReading(
        utilization=float(use),
        memory_mib=total,
        memory_used_mib=round(total * (0.4 + 0.2 * noise)) if busy else total // 25,
        processes=1 if busy else 0,
        power_watts=None if mig else 30.0 + 2 * use,
    )
