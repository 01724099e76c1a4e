"""Read the use of GPUs from the NVIDIA driver, without a process.

Any call may fail; what it would have told is then unknown. Source: NVML API reference, nvml.h of
CUDA 13.2.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_char_p, c_double, c_int, c_uint, c_void_p
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.nvml import Nvml, NvmlError
from jupyterhub_gpuspawner.node.usage.window import UNKNOWN, GpuReading

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from jupyterhub_gpuspawner.wire.documents import PlacedGpu

_UNKNOWN_MEMORY = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE."""
_MOST_MILLIWATTS = 10_000_000
"""More than any GPU takes: a driver in trouble may answer with the largest number there is."""


class Gpus:
    """The server's GPUs; reads what is known of each."""

    def __init__(self, gpus: Sequence[PlacedGpu], *, shared: bool) -> None:
        """``shared``: other jobs may use the same GPUs (Slurm's shard and mps), so only this user's part is read.

        Raises OSError or NvmlError.
        """
        self._nvml = Nvml()
        self._shared = shared
        self._gpus = list(gpus)
        self._devices: dict[int, c_void_p] = {}
        self._mig: dict[int, MigUtilization] = {}

    def read(self) -> tuple[tuple[GpuReading, ...], tuple[str, ...]]:
        """A reading for each GPU, in order, and why some are unknown."""
        readings, problems = [], []
        for number, gpu in enumerate(self._gpus):
            try:
                readings.append(self._read(number, gpu))
            except NvmlError as error:
                readings.append(UNKNOWN)
                problems.append(f"The use of GPU {gpu.index} is unknown: {error}.")
        return tuple(readings), tuple(problems)

    def _read(self, number: int, gpu: PlacedGpu) -> GpuReading:
        device = self._devices.get(number)
        if device is None:
            device = self._devices[number] = self._handle(gpu)
        total, used = self._memory(device)
        processes = self._processes(device)
        if self._shared:
            own = None if processes is None else [process for process in processes if _is_own(process.pid)]
            mine = None if own is None or any(process.usedGpuMemory == _UNKNOWN_MEMORY for process in own) else own
            used = None if mine is None else sum(process.usedGpuMemory for process in mine) >> 20
            return GpuReading(None, total, used, None if own is None else len(own))
        process_count = None if processes is None else len(processes)
        if gpu.mig is not None:
            return GpuReading(self._of_part(number, device), total, used, process_count)
        milliwatts = self._ask("nvmlDeviceGetPowerUsage", device)
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption", device)
        return GpuReading(
            self._utilization(device),
            total,
            used,
            process_count,
            None if milliwatts is None or milliwatts > _MOST_MILLIWATTS else milliwatts / 1000,
            None if millijoules is None else millijoules / 1000,
        )

    def _ask(self, function: str, *arguments: Any) -> Any:
        """What a function of NVML returns; None if it fails."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except NvmlError:
            return None

    def _handle(self, gpu: PlacedGpu) -> c_void_p:
        """The GPU or MIG device, by its UUID or PCI address; raises NvmlError."""
        if gpu.uuid:
            function, name = "nvmlDeviceGetHandleByUUID", gpu.uuid
        elif gpu.pci and gpu.mig is None:
            function, name = "nvmlDeviceGetHandleByPciBusId", gpu.pci
        else:
            raise NvmlError("neither its UUID nor its PCI address is known")
        try:
            device: c_void_p = getattr(self._nvml, function)(name)
        except NvmlError as error:
            raise NvmlError(f"{function} failed: {error}", error.value) from error
        return device

    def _utilization(self, device: c_void_p) -> float | None:
        rates = self._ask("nvmlDeviceGetUtilizationRates", device)
        return float(rates.gpu) if rates is not None and rates.gpu <= 100 else None

    def _memory(self, device: c_void_p) -> tuple[int | None, int | None]:
        """All memory and what is used, in MiB."""
        memory = self._ask("nvmlDeviceGetMemoryInfo", device, Nvml.nvmlMemory_v2)
        memory = memory or self._ask("nvmlDeviceGetMemoryInfo", device)
        if memory is None or memory.total == _UNKNOWN_MEMORY:
            return None, None
        total, used = int(memory.total), int(memory.used)
        return total >> 20, used >> 20 if used <= total else None

    def _processes(self, device: c_void_p) -> list[Any] | None:
        processes: list[Any] | None = self._ask("nvmlDeviceGetComputeRunningProcesses", device)
        return processes

    def _of_part(self, number: int, device: c_void_p) -> float | None:
        if number not in self._mig:
            self._mig[number] = MigUtilization(self._nvml, device)
        return self._mig[number].read()


def _is_own(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def is_shared(environ: Iterable[str]) -> bool:
    """Whether the job has parts of GPUs by Slurm's shard or mps, by the names of its environment variables."""
    return not {"SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}.isdisjoint(environ)


# Utilisation of a MIG device by GPU performance monitoring (GPM), which Hopper and newer GPUs have.
#
# NVML's ordinary utilisation does not exist for MIG devices. GPM compares two samples of the device: the first reading
# is therefore unknown. Source: nvml.h of CUDA 13.2, "GPM NVML".

GRAPHICS_UTIL = 1
"""NVML_GPM_METRIC_GRAPHICS_UTIL: percent of the time in which the device did anything."""
_METRICS = 512
"""Places for metrics; more than any driver has. Only the first is used."""


class Support(ctypes.Structure):
    """nvmlGpmSupport_t."""

    _fields_ = (("version", c_uint), ("supported", c_uint))


class Metric(ctypes.Structure):
    """nvmlGpmMetric_t."""

    _fields_ = (
        ("id", c_uint),
        ("result", c_int),
        ("value", c_double),
        ("short_name", c_char_p),
        ("long_name", c_char_p),
        ("unit", c_char_p),
    )


class MetricsGet(ctypes.Structure):
    """nvmlGpmMetricsGet_t."""

    _fields_ = (
        ("version", c_uint),
        ("number", c_uint),
        ("before", c_void_p),
        ("now", c_void_p),
        ("metrics", Metric * _METRICS),
    )


class MigUtilization:
    """The utilisation of one MIG device, between two readings."""

    def __init__(self, nvml: Nvml, device: c_void_p) -> None:
        self._nvml = nvml
        self._samples: list[c_void_p] = []
        """Two: that of the last reading, and that for the next."""
        self._have_one = False
        parent, instance, support = c_void_p(), c_uint(), Support(version=1)
        supported = not (
            nvml.call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", device, byref(parent))
            or nvml.call("nvmlDeviceGetGpuInstanceId", device, byref(instance))
            or nvml.call("nvmlGpmQueryDeviceSupport", parent, byref(support))
        )
        self._parent, self._instance = parent, instance
        if supported and support.supported:
            two = [c_void_p(), c_void_p()]
            if not any(nvml.call("nvmlGpmSampleAlloc", byref(sample)) for sample in two):
                self._samples = two

    def read(self) -> float | None:
        """Percent since the last reading; None where it cannot be measured, and in the first."""
        if not self._samples:
            return None
        before, now = self._samples
        if self._nvml.call("nvmlGpmMigSampleGet", self._parent, self._instance, now):
            self._have_one = False
            return None
        self._samples = [now, before]
        if not self._have_one:
            self._have_one = True
            return None
        query = MetricsGet(version=1, number=1, before=before, now=now)
        query.metrics[0].id = GRAPHICS_UTIL
        if self._nvml.call("nvmlGpmMetricsGet", byref(query)) or query.metrics[0].result:
            return None
        value = float(query.metrics[0].value)
        return value if 0.0 <= value <= 100.0 else None
