"""Read the use of GPUs from the NVIDIA driver, without a process.

pynvml would do the same calls. It is not used here, because it takes 4 MiB of memory, which each server would pay for
as long as it runs. Any call may fail; what it would have told is then unknown. Source: NVML API reference, nvml.h of
CUDA 13.2.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_uint, c_ulonglong, c_void_p
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.nvml import MEMORY_2, Memory, Memory2, Nvml, NvmlError
from jupyterhub_gpuspawner.node.usage.window import UNKNOWN, GpuReading

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from jupyterhub_gpuspawner.wire.documents import PlacedGpu

_UNKNOWN_MEMORY = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE."""
_MOST_MILLIWATTS = 10_000_000
"""More than any GPU takes: a driver in trouble may answer with the largest number there is."""


class Utilization(ctypes.Structure):
    """nvmlUtilization_t, in percent."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class Driver(Nvml):
    """NVML, as a sample needs it."""

    def number(self, function: str, device: c_void_p, kind: type[Any] = c_uint) -> int | None:
        """What a call with one result tells; None if it fails."""
        value = kind()
        return None if self.call(function, device, byref(value)) else int(value.value)

    def handle(self, gpu: PlacedGpu) -> c_void_p:
        """The GPU or MIG device, by its UUID or PCI address; raises NvmlError."""
        device = c_void_p()
        if gpu.uuid:
            self.require("nvmlDeviceGetHandleByUUID", gpu.uuid.encode(), byref(device))
        elif gpu.pci and gpu.mig is None:
            self.require("nvmlDeviceGetHandleByPciBusId_v2", gpu.pci.encode(), byref(device))
        else:
            raise NvmlError("neither its UUID nor its PCI address is known")
        return device


class Gpus:
    """The server's GPUs; reads what is known of each."""

    def __init__(self, gpus: Sequence[PlacedGpu], *, shared: bool) -> None:
        """``shared``: other jobs may use the same GPUs (Slurm's shard and mps), so only this user's part is read.

        Raises OSError or NvmlError.
        """
        self._nvml = Driver()
        self._shared = shared
        self._gpus = list(gpus)
        self._devices: dict[int, c_void_p] = {}
        self._mig: dict[int, Any] = {}

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

    def _read(self, place: int, gpu: PlacedGpu) -> GpuReading:
        device = self._devices.get(place)
        if device is None:
            device = self._devices[place] = self._nvml.handle(gpu)
        total, used = self._memory(device)
        processes = self._processes(device)
        if self._shared:
            own = None if processes is None else [process for process in processes if _is_own(process.pid)]
            mine = None if own is None or any(process.memory == _UNKNOWN_MEMORY for process in own) else own
            used = None if mine is None else sum(process.memory for process in mine) >> 20
            return GpuReading(None, total, used, None if own is None else len(own))
        number = None if processes is None else len(processes)
        if gpu.mig is not None:
            return GpuReading(self._of_part(place, device), total, used, number)
        milliwatts = self._nvml.number("nvmlDeviceGetPowerUsage", device)
        millijoules = self._nvml.number("nvmlDeviceGetTotalEnergyConsumption", device, c_ulonglong)
        return GpuReading(
            self._utilization(device),
            total,
            used,
            number,
            None if milliwatts is None or milliwatts > _MOST_MILLIWATTS else milliwatts / 1000,
            None if millijoules is None else millijoules / 1000,
        )

    def _utilization(self, device: c_void_p) -> float | None:
        rates = Utilization()
        if self._nvml.call("nvmlDeviceGetUtilizationRates", device, byref(rates)):
            return None
        return float(rates.gpu) if rates.gpu <= 100 else None

    def _memory(self, device: c_void_p) -> tuple[int | None, int | None]:
        """All memory and what is used, in MiB."""
        memory: Memory | Memory2 = Memory2(version=MEMORY_2)
        if self._nvml.call("nvmlDeviceGetMemoryInfo_v2", device, byref(memory)):
            memory = Memory()
            if self._nvml.call("nvmlDeviceGetMemoryInfo", device, byref(memory)):
                return None, None
        total, used = int(memory.total), int(memory.used)
        if total == _UNKNOWN_MEMORY:
            return None, None
        return total >> 20, used >> 20 if used <= total else None

    def _processes(self, device: c_void_p) -> list[Any] | None:
        code, processes = self._nvml.processes(device)
        return None if code else processes

    def _of_part(self, number: int, device: c_void_p) -> float | None:
        from jupyterhub_gpuspawner.node.usage import gpm

        if number not in self._mig:
            self._mig[number] = gpm.MigUtilization(self._nvml, device)
        use: float | None = self._mig[number].read()
        return use


def _is_own(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def is_shared(environ: Iterable[str]) -> bool:
    """Whether the job has parts of GPUs by Slurm's shard or mps, by the names of its environment variables."""
    return not {"SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}.isdisjoint(environ)
