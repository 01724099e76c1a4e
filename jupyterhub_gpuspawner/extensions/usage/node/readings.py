"""Read the use of GPUs from the NVIDIA driver, or of AMD's from the kernel's files, without a process.

Any call may fail; what it would have told is then unknown. Source of the former: NVML API reference, nvml.h of
CUDA 13.2.
"""

from __future__ import annotations

import ctypes
import os
import re
from ctypes import byref, c_char_p, c_double, c_int, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.node.hardware import text_of
from jupyterhub_gpuspawner.node.nvml import HANDLE, Nvml, NvmlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, ClassVar

    from jupyterhub_gpuspawner.wire.documents import PlacedGpu


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


class Utilization(ctypes.Structure):
    """nvmlUtilization_t, in percent."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class GpmSupport(ctypes.Structure):
    """nvmlGpmSupport_t."""

    _fields_ = (("version", c_uint), ("isSupportedDevice", c_uint))

    def __init__(self) -> None:
        super().__init__(version=1)


class GpmMetric(ctypes.Structure):
    """nvmlGpmMetric_t."""

    _fields_ = (
        ("metricId", c_uint),
        ("nvmlReturn", c_int),
        ("value", c_double),
        ("shortName", c_char_p),
        ("longName", c_char_p),
        ("unit", c_char_p),
    )


class GpmMetricsGet(ctypes.Structure):
    """nvmlGpmMetricsGet_t, with more places for metrics than any driver has."""

    _fields_ = (
        ("version", c_uint),
        ("numMetrics", c_uint),
        ("sample1", c_void_p),
        ("sample2", c_void_p),
        ("metrics", GpmMetric * 512),
    )


class UseNvml(Nvml):
    """NVML with what it measures."""

    functions: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **Nvml.functions,
        "nvmlDeviceGetHandleByUUID": ("", c_char_p, [HANDLE]),
        "nvmlDeviceGetHandleByPciBusId": ("_v2", c_char_p, [HANDLE]),
        "nvmlDeviceGetPowerUsage": ("", HANDLE, [c_uint]),
        "nvmlDeviceGetTotalEnergyConsumption": ("", HANDLE, [c_ulonglong]),
        "nvmlDeviceGetUtilizationRates": ("", HANDLE, [Utilization]),
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": ("", HANDLE, [HANDLE]),
        "nvmlDeviceGetGpuInstanceId": ("", HANDLE, [c_uint]),
        "nvmlGpmQueryDeviceSupport": ("", HANDLE, [GpmSupport]),
        "nvmlGpmSampleAlloc": ("", [HANDLE]),
        "nvmlGpmMigSampleGet": ("", HANDLE, c_uint, HANDLE),
    }


@dataclass(frozen=True)
class HostReading:
    """What was read of the job at one time; None is unknown."""

    cpu_seconds: float | None = None
    """The job's counter."""
    memory_mib: int | None = None


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
        self._nvml = UseNvml()
        self._shared = shared
        self._gpus = list(gpus)
        self._devices: dict[int, Any] = {}
        self._mig: dict[int, MigUtilization] = {}

    def read(self) -> tuple[tuple[GpuReading, ...], tuple[str, ...]]:
        """A reading for each GPU, in order, and why some are unknown."""
        readings, problems = [], []
        for number, gpu in enumerate(self._gpus):
            try:
                reading = self._read(number, gpu)
                if reading == UNKNOWN:  # the device is lost, or its MIG device is gone: the next time it says why
                    self._devices.pop(number, None)
                    self._mig.pop(number, None)
                readings.append(reading)
            except NvmlError as error:
                readings.append(UNKNOWN)
                problems.append(f"The use of GPU {gpu.index} is unknown: {error}.")
        return tuple(readings), tuple(problems)

    def _read(self, number: int, gpu: PlacedGpu) -> GpuReading:
        device = self._devices.get(number)
        if device is None:
            device = self._devices[number] = self._handle(gpu)
        total, used = self._memory(device)
        processes = self._nvml.processes(device)
        if self._shared:
            own = None if processes is None else [process for process in processes if _is_own(process.pid)]
            mine = None if own is None or any(process.usedGpuMemory == _UNKNOWN_MEMORY for process in own) else own
            used = None if mine is None else sum(process.usedGpuMemory for process in mine) >> 20
            return GpuReading(None, total, used, None if own is None else len(own))
        process_count = None if processes is None else len(processes)
        if gpu.mig is not None:
            if number not in self._mig:
                self._mig[number] = MigUtilization(self._nvml, device)
            return GpuReading(self._mig[number].read(), total, used, process_count)
        milliwatts = self._nvml.ask("nvmlDeviceGetPowerUsage", device)
        millijoules = self._nvml.ask("nvmlDeviceGetTotalEnergyConsumption", device)
        rates = self._nvml.ask("nvmlDeviceGetUtilizationRates", device)
        return GpuReading(
            float(rates.gpu) if rates is not None and rates.gpu <= 100 else None,
            total,
            used,
            process_count,
            None if milliwatts is None or milliwatts > _MOST_MILLIWATTS else milliwatts / 1000,
            None if millijoules is None else millijoules / 1000,
        )

    def _handle(self, gpu: PlacedGpu) -> Any:
        """The GPU or MIG device, by its UUID or PCI address; raises NvmlError."""
        if gpu.uuid:
            function, name = "nvmlDeviceGetHandleByUUID", gpu.uuid
        elif gpu.pci and gpu.mig is None:
            function, name = "nvmlDeviceGetHandleByPciBusId", gpu.pci
        else:
            raise NvmlError("neither its UUID nor its PCI address is known")
        try:
            return self._nvml.call(function, name)
        except NvmlError as error:
            raise NvmlError(f"{function} failed: {error}", error.value) from error

    def _memory(self, device: Any) -> tuple[int | None, int | None]:
        """All memory and what is used, in MiB."""
        memory = self._nvml.memory(device)
        if memory is None or memory.total == _UNKNOWN_MEMORY:
            return None, None
        total, used = int(memory.total), int(memory.used)
        return total >> 20, used >> 20 if used <= total else None


def _is_own(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


_AMD = "0x1002"
_DEVICES = "sys/bus/pci/devices"


def is_amd(gpu: PlacedGpu, root: str = "/") -> bool:
    """Whether it is AMD's: then the kernel's files tell its use, and NVML does not know it."""
    return bool(gpu.pci) and text_of(root, _DEVICES, f"{gpu.pci[:-1]}0", "vendor") == _AMD


def read_amd(gpu: PlacedGpu, *, shared: bool, root: str = "/") -> GpuReading:
    """A reading of one of AMD's GPUs; unknown for a partition, since the files count the whole GPU.

    Source: the kernel's documentation of amdgpu, "GPU sysfs Power/Thermal Controls and Monitoring" and "Memory usage".
    """
    path = os.path.join(root, _DEVICES, gpu.pci)
    if text_of(path, "current_compute_partition") not in ("", "SPX"):
        return UNKNOWN
    total, used = (_mib(text_of(path, f"mem_info_vram_{what}")) for what in ("total", "used"))
    busy = text_of(path, "gpu_busy_percent")
    if shared:  # the rest is that of all who use it
        return GpuReading(memory_mib=total)
    percent = float(busy) if busy.isdigit() and int(busy) <= 100 else None
    return GpuReading(percent, total, used if total and used is not None and used <= total else None)


def _mib(text: str) -> int | None:
    return int(text) >> 20 if text.isdigit() else None


def is_shared(environ: Iterable[str]) -> bool:
    """Whether the job has parts of GPUs by Slurm's shard or mps, by the names of its environment variables."""
    return not {"SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}.isdisjoint(environ)


# Utilisation of a MIG device by GPU performance monitoring (GPM), which Hopper and newer GPUs have.
#
# NVML's ordinary utilisation does not exist for MIG devices. GPM compares two samples of the device: the first reading
# is therefore unknown. Source: nvml.h of CUDA 13.2, "GPM NVML".

GRAPHICS_UTIL = 1
"""NVML_GPM_METRIC_GRAPHICS_UTIL: percent of the time in which the device did anything."""


class MigUtilization:
    """The utilisation of one MIG device, between two readings."""

    def __init__(self, nvml: UseNvml, device: Any) -> None:
        self._nvml = nvml
        self._samples: list[Any] = []
        """Two: that of the last reading, and that for the next."""
        self._have_one = False
        try:
            self._parent = nvml.call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", device)
            self._instance = nvml.call("nvmlDeviceGetGpuInstanceId", device)
            if nvml.call("nvmlGpmQueryDeviceSupport", self._parent).isSupportedDevice:
                self._samples = [nvml.call("nvmlGpmSampleAlloc") for _ in range(2)]
        except NvmlError:
            return  # it cannot be measured

    def read(self) -> float | None:
        """Percent since the last reading; None where it cannot be measured, and in the first."""
        if not self._samples:
            return None
        before, now = self._samples
        try:
            self._nvml.call("nvmlGpmMigSampleGet", self._parent, self._instance, now)
        except NvmlError:
            self._have_one = False
            return None
        self._samples = [now, before]
        if not self._have_one:
            self._have_one = True
            return None
        query = GpmMetricsGet(version=1, numMetrics=1, sample1=before, sample2=now)
        metric = query.metrics[0]
        metric.metricId = GRAPHICS_UTIL
        try:
            self._nvml.check("nvmlGpmMetricsGet", byref(query))
        except NvmlError:
            return None
        return float(metric.value) if metric.nvmlReturn == 0 and 0.0 <= metric.value <= 100.0 else None


# CPU time and memory of the job: from Slurm's cgroup of it, or else of its processes.
#
# Sources: Slurm's cgroup documentation (``job_ID`` is a folder in the hierarchy, version 1 and 2), cgroups(7), proc(5).

_JOB = re.compile(r"job_\d+", re.ASCII)


def read_host(server: int, root: str = "/", *, job: str = "") -> HostReading:
    """What the job of this process has used; unknown where neither its cgroup nor its processes tell it.

    Its processes are ``server``, what that has started, and what has ``job`` in its environment: a process that was
    detached is nobody's child.
    """
    cpu, memory = _of_cgroup(root)
    if cpu is None or memory is None:
        of_processes = _of_processes(server, root, job)
        cpu = of_processes.cpu_seconds if cpu is None else cpu
        memory = of_processes.memory_mib if memory is None else memory
    return HostReading(cpu, memory)


def _of_cgroup(root: str) -> tuple[float | None, int | None]:
    """CPU seconds and MiB of the job's cgroup; the page cache that the kernel can take back is not counted."""
    folders = _job_folders(text_of(f"{root}proc/self/cgroup"), root)
    cpu: float | None = None
    memory: int | None = None
    for controllers, folder in folders:
        if cpu is None and not controllers:
            spent = _field(text_of(f"{folder}/cpu.stat"), "usage_usec")
            cpu = None if spent is None else spent / 1e6
        if cpu is None and "cpuacct" in controllers:
            nanoseconds = text_of(f"{folder}/cpuacct.usage")
            cpu = int(nanoseconds) / 1e9 if nanoseconds.isdigit() else None
        if memory is None and (not controllers or "memory" in controllers):
            v2 = not controllers
            used = text_of(f"{folder}/{'memory.current' if v2 else 'memory.usage_in_bytes'}")
            cache = _field(text_of(f"{folder}/memory.stat"), "inactive_file" if v2 else "total_inactive_file")
            memory = max(0, int(used) - (cache or 0)) >> 20 if used.isdigit() else None
    return cpu, memory


def _job_folders(text: str, root: str) -> list[tuple[tuple[str, ...], str]]:
    """Controllers (none: version 2) and folder of the job's cgroup in each hierarchy of /proc/self/cgroup."""
    folders: list[tuple[tuple[str, ...], str]] = []
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        parts = path.split("/")
        depth = next((n for n, part in enumerate(parts) if _JOB.fullmatch(part)), None)
        if depth is None:
            continue
        controllers = tuple(name for name in names.split(",") if name)
        for mount in (names, *controllers, "unified") if controllers else ("", "unified"):
            folder = os.path.join(root, "sys/fs/cgroup", mount) + "/".join(parts[: depth + 1])
            if os.path.isdir(folder):
                folders.append((controllers, folder))
                break
    return folders


def _of_processes(server: int, root: str, job: str) -> HostReading:
    """CPU seconds and memory of the server and the job's other processes, without memory that they share."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    try:
        second = os.sysconf("SC_CLK_TCK")
        names = os.listdir(f"{root}proc")
    except OSError:
        return HostReading()
    me = os.geteuid()
    for name in names:
        try:
            if not name.isdigit() or os.stat(f"{root}proc/{name}").st_uid != me:
                continue
            # the command's name, in parentheses, may hold anything
            fields = text_of(f"{root}proc/{name}/stat").rpartition(")")[2].split()
            parents[int(name)] = int(fields[1])
            spent[int(name)] = sum(map(int, fields[11:15])) / second
        except (OSError, ValueError, IndexError):
            continue
    if server not in parents:
        return HostReading()
    detached = [pid for pid in parents if job and child.has_variable(pid, f"SLURM_JOB_ID={job}", f"{root}proc")]
    roots = {server, *detached}
    own = [pid for pid in parents if child.descends(pid, roots, lambda pid: parents.get(pid, 0))]
    return HostReading(sum(spent[pid] for pid in own), sum(_private(pid, root) for pid in own) >> 20)


def _private(pid: int, root: str) -> int:
    """Bytes of a process in memory that are not of files and not shared; 0 if it has ended."""
    try:
        fields = text_of(f"{root}proc/{pid}/statm").split()
        return max(0, int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, IndexError):
        return 0


def _field(text: str, name: str) -> int | None:
    words: Iterable[list[str]] = (line.split() for line in text.splitlines())
    return next((int(word[1]) for word in words if len(word) == 2 and word[0] == name and word[1].isdigit()), None)
