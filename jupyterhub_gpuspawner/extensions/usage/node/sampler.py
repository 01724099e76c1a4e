"""A process beside the server that samples what it uses, and sends a summary to the hub from time to time.

It is the process that reports the server's port (:mod:`~jupyterhub_gpuspawner.node.report`), which then is a
thread of it; it ends with the server. Whatever fails here, the server does not notice.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.demo.simulated_use import simulated_use
from jupyterhub_gpuspawner.extensions.usage.node import readings
from jupyterhub_gpuspawner.extensions.usage.node.readings import UNKNOWN, GpuReading, HostReading
from jupyterhub_gpuspawner.extensions.usage.node.summary import (
    SAMPLES,
    USAGE_VERSION,
    Bar,
    GpuUse,
    UsageSummary,
    gpu_memory_used,
    host_bars,
    in_short,
    memory_used,
    percent,
    percent_of,
    processes,
)
from jupyterhub_gpuspawner.node.child import DeadlineThread
from jupyterhub_gpuspawner.node.report import RefusedError, post
from jupyterhub_gpuspawner.placement.topology import LIST_LIMIT, as_line, gpu_name
from jupyterhub_gpuspawner.units import count_cpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from jupyterhub_gpuspawner.node.report import PortReporter
    from jupyterhub_gpuspawner.wire.documents import PlacementDocument

    Readings = tuple[tuple[GpuReading, ...], tuple[str, ...]]


FIRST_SAMPLES = 2
"""Samples in the first summary of a server, so that its card does not stay empty for long."""
LONGEST = 3600.0
"""Seconds after which samples that could not be sent are dropped."""
DRIVER_PATIENCE = 10.0
"""Seconds that the driver has for one sample."""
HUB_PATIENCE = 30.0
"""Seconds that sending a summary may take, with looking up the hub's name."""
LAST_PATIENCE = 1.0
"""The same for the last summary, whose answer is not waited for."""
FILE = "GPUSPAWNER_USAGE_FILE"
"""The variable that names a file for the last sample, to be shown beside the server; not set: nothing shows it."""
LOW, ENOUGH = 0.9, 0.8
"""Parts of its memory at which a job has little left, and at which it has enough again."""
_GONE = (404, 405)
"""The hub's status where it takes no summaries of this server."""


class UnwantedError(Exception):
    """The hub takes no summaries of this server."""


def sample(
    about: UsageSummary,
    *,
    read_sample: Callable[[], Sample],
    send: Callable[[UsageSummary], bool],
    over: Callable[[float], bool],
) -> bool:
    """Sample and send until the server has ended (True), or the hub does not want it (False).

    ``send`` returns whether the hub has taken a summary, or raises UnwantedError. ``over`` waits for so many seconds,
    or until the server has ended, and returns whether it has. The first sample is taken after an interval, so as not to
    compete with the server's start. Samples whose summary the hub did not take are part of the next one; after an hour
    they are dropped.
    """
    if over(about.interval):
        return True
    window = Window(read_sample())
    wanted, due = FIRST_SAMPLES, window.start.at
    try:
        while True:
            due = max(due + about.interval, window.last.at)
            if over(due - window.last.at):  # without another sample: Slurm waits for this process, too
                send(replace(window.summary(about), final=True))
                return True
            window.add(read_sample())
            if window.samples >= wanted:
                if send(window.summary(about)) or window.seconds > LONGEST:
                    window, wanted = Window(window.last), SAMPLES
                else:
                    wanted = window.samples + SAMPLES
    except UnwantedError:
        return False


def accompany(settings: Mapping[str, Any], reporter: PortReporter, over: Callable[[float], bool]) -> None:
    """Sample the server every ``interval`` seconds until it ends, or the hub does not want it."""
    placement, environ, server = reporter.report.placement, reporter.environ, reporter.server
    interval = float(settings["interval"])
    about = UsageSummary(
        job_id=placement.job_id,
        interval=interval,
        simulated=placement.simulated,
        gpus=tuple(
            GpuUse(gpu.index, gpu.uuid, gpu.mig, memory_mib=gpu.memory_mib, mig_device=gpu.mig_device)
            for gpu in placement.gpus
        )[:LIST_LIMIT],
    )
    sending, looking = DeadlineThread(), JobSampler(placement, environ, server)

    before: deque[Sample] = deque(maxlen=1)
    whole = memory_of_job(placement, environ)
    low_since: float | None = None

    def read_sample() -> Sample:
        nonlocal low_since
        latest = looking.read_sample()
        low_since = memory_low_since(low_since, latest.host.memory_mib, whole, now=time.time())
        host = host_of(latest, before, count_cpus(placement.cpus), whole) | {"low_since": low_since}
        show(latest, about, environ.get(FILE, ""), host=host)
        before.append(latest)
        return latest

    sample(about, read_sample=read_sample, send=lambda summary: _send(summary, environ, sending), over=over)


def memory_of_job(placement: PlacementDocument, environ: Mapping[str, str]) -> int:
    """MiB that the job has on this node, by Slurm's variables; 0 where they do not say it."""
    per_node, per_cpu = environ.get("SLURM_MEM_PER_NODE", ""), environ.get("SLURM_MEM_PER_CPU", "")  # MiB
    slurms = environ.get("SLURM_CPUS_ON_NODE", "")  # may be cores, or more than the server is bound to
    cpus = int(slurms) if slurms.isdigit() else count_cpus(placement.cpus)
    return int(per_node) if per_node.isdigit() else int(per_cpu) * cpus if per_cpu.isdigit() else 0


def memory_low_since(since: float | None, used: int | None, whole: int, *, now: float) -> float | None:
    """Since when little is left of the job's memory, in seconds since the epoch; None while there is enough.

    ``used`` and ``whole`` are MiB, and ``since`` is the last answer. Memory in use that goes up and down around the
    limit is one occasion, and while it is not known nothing changes.
    """
    if used is None or not whole:
        return since
    if since is None:
        return now if used >= LOW * whole else None
    return since if used >= ENOUGH * whole else None


def host_of(sample: Sample, before: Sequence[Sample], cpus: int, whole: int) -> dict[str, Any]:
    """The job's use of memory in words, and of so many CPUs and ``whole`` MiB (0: not known) as bars."""
    used, cores = sample.host.memory_mib, _cores(before[0], sample) if before else None
    return {"memory": memory_used(used, whole or None), "bars": host_bars(cores, cpus, used, whole or None)}


def show(sample: Sample, about: UsageSummary, file: str, *, host: Mapping[str, Any]) -> None:
    """Write a sample to ``file``, in place of the one before; where none is named, nothing.

    Whatever shows it does so also while the hub does not respond. Nothing depends on it: an error is ignored.
    """
    if not file:
        return
    memory = [(reading.memory_used_mib, of.memory_mib) for of, reading in zip(about.gpus, sample.gpus)]
    bars: list[Bar] = []
    for of, reading, used_and_whole in zip(about.gpus, sample.gpus, memory):
        facts = (percent(reading.utilization), gpu_memory_used(used_and_whole), processes(reading.processes))
        name = gpu_name(of.index, of.mig, of.mig_device)
        bars.append((name, ", ".join(filter(None, facts)), percent_of(reading.utilization, 100)))
    document = {
        "version": USAGE_VERSION,
        "at": time.time(),
        "interval": about.interval,
        "simulated": about.simulated,
        "short": in_short([reading.utilization for reading in sample.gpus], gpu_memory_used(*memory)),
        "gpus": bars,
        "host": host,
        "problems": sample.problems,
    }
    try:
        with open(f"{file}.new", "w", encoding="utf-8") as writing:
            json.dump(document, writing)
        os.replace(f"{file}.new", file)
    except OSError:
        return


class JobSampler:
    """Takes samples of the server's GPUs and of its job."""

    def __init__(self, placement: PlacementDocument, environ: Mapping[str, str], server: int) -> None:
        self._gpus = placement.gpus[:LIST_LIMIT]
        self._simulated = placement.simulated
        self._environ = environ
        self._server = server
        self._driver_thread = DeadlineThread()
        self._driver: readings.Gpus | None = None

    def read_sample(self) -> Sample:
        """A sample now; a driver that does not respond in time leaves its part unknown."""
        gpus: tuple[GpuReading, ...] = ()
        problems: tuple[str, ...] = ()
        if self._gpus:
            try:
                gpus, problems = self._driver_thread.ask(self._read_gpus, DRIVER_PATIENCE)
            except TimeoutError:
                problems = (
                    f"The use of the GPUs is unknown: the driver did not respond within {DRIVER_PATIENCE:g} s.",
                )
            except Exception as error:  # noqa: BLE001 - whatever the driver does, the job's part is known
                problems = (as_line(f"The use of the GPUs is unknown: {error}."),)
        spent = readings.read_host(self._server, job=self._environ.get("SLURM_JOB_ID", ""))
        return Sample(time.monotonic(), same_number(gpus, len(self._gpus)), spent, problems)

    def _read_gpus(self) -> Readings:
        if self._simulated:
            now = time.time()
            return tuple(
                GpuReading(
                    **vars(simulated_use(gpu.index, gpu.memory_mib, now, mig=gpu.mig is not None, uuid=gpu.uuid))
                )
                for gpu in self._gpus
            ), ()
        shared = readings.is_shared(self._environ)
        if all(map(readings.is_amd, self._gpus)):
            return tuple(readings.read_amd(gpu, shared=shared) for gpu in self._gpus), ()
        if self._driver is None:
            self._driver = readings.Gpus(self._gpus, shared=shared)
        return self._driver.read()


def _send(summary: UsageSummary, environ: Mapping[str, str], thread: DeadlineThread) -> bool:
    body = summary.dumps().encode()
    patience = LAST_PATIENCE if summary.final else HUB_PATIENCE
    try:
        thread.ask(lambda: post(body, environ, to="usage", wait=not summary.final), patience)
    except RefusedError as refused:
        if refused.status in _GONE:
            raise UnwantedError from refused
        return False
    except (OSError, ValueError):  # TimeoutError is one of the first
        return False
    return True


# Samples of a server's use, and the summary of those that the hub has not got yet. Pure.


@dataclass(frozen=True)
class Sample:
    """The GPUs, in the order of the placement, and the job at one time."""

    at: float
    """Seconds of a clock that never goes back."""
    gpus: tuple[GpuReading, ...] = ()
    host: HostReading = field(default_factory=HostReading)
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
