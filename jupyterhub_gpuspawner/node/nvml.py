"""NVML, the library of the NVIDIA driver, through ctypes, with pynvml's names, arguments, results and errors.

It stands in for pynvml where a node's Python has none, and in the sampler, where pynvml would take 4 MiB of memory for
as long as a server runs. Source: NVML API reference, nvml.h of CUDA 13.2.
"""

from __future__ import annotations

import ctypes
import warnings
from ctypes import byref, c_char, c_char_p, c_double, c_int, c_uint, c_ulonglong, c_void_p
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.placement.topology import (
    MIG_OFF,
    MIG_ON,
    PAGE_TO_RETIRE,
    ROW_NOT_REMAPPED,
    ROW_TO_REMAP,
    Gpu,
    NodeTopology,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


LIBRARY = "libnvidia-ml.so.1"
_INSUFFICIENT_SIZE = 7
"""NVML_ERROR_INSUFFICIENT_SIZE: there are more processes than fit."""
PROCESSES = 64
"""Processes on a GPU that are counted in the first call."""


class NvmlError(Exception):
    """A call failed; the text says how, and ``value`` is NVML's return code."""

    def __init__(self, text: str, value: int | None = None) -> None:
        super().__init__(text)
        self.value = value


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class Memory2(ctypes.Structure):
    """nvmlMemory_v2_t: the used memory does not include what the driver reserves."""

    _fields_ = (
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    )


class Utilization(ctypes.Structure):
    """nvmlUtilization_t, in percent."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class Process(ctypes.Structure):
    """nvmlProcessInfo_t of the calls that end in ``_v3``; the memory is called as in pynvml."""

    _fields_ = (
        ("pid", c_uint),
        ("usedGpuMemory", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    )


class Pci(ctypes.Structure):
    """nvmlPciInfo_t; the field is called as in pynvml."""

    _fields_ = (
        ("busIdLegacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pciDeviceId", c_uint),
        ("pciSubSystemId", c_uint),
        ("busId", c_char * 32),
    )


class GpmSupport(ctypes.Structure):
    """nvmlGpmSupport_t; the field is called as in pynvml."""

    _fields_ = (("version", c_uint), ("isSupportedDevice", c_uint))

    def __init__(self) -> None:
        super().__init__(version=1)


class GpmMetric(ctypes.Structure):
    """nvmlGpmMetric_t; the fields are called as in pynvml."""

    _fields_ = (
        ("metricId", c_uint),
        ("nvmlReturn", c_int),
        ("value", c_double),
        ("shortName", c_char_p),
        ("longName", c_char_p),
        ("unit", c_char_p),
    )


class GpmMetricsGet(ctypes.Structure):
    """nvmlGpmMetricsGet_t, with more places for metrics than any driver has; the fields are called as in pynvml."""

    _fields_ = (
        ("version", c_uint),
        ("numMetrics", c_uint),
        ("sample1", c_void_p),
        ("sample2", c_void_p),
        ("metrics", GpmMetric * 512),
    )


Text = c_char * 96

_HANDLE, _LINK, _OTHER = c_void_p, c_uint, c_void_p
_ONE_RESULT: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "nvmlDeviceGetCount": ("_v2", (), c_uint),
    "nvmlDeviceGetHandleByIndex": ("_v2", (c_uint,), c_void_p),
    "nvmlDeviceGetHandleByUUID": ("", (c_char_p,), c_void_p),
    "nvmlDeviceGetHandleByPciBusId": ("_v2", (c_char_p,), c_void_p),
    "nvmlSystemGetDriverVersion": ("", (), Text),
    "nvmlDeviceGetUUID": ("", (_HANDLE,), Text),
    "nvmlDeviceGetName": ("", (_HANDLE,), Text),
    "nvmlDeviceGetPciInfo": ("_v3", (_HANDLE,), Pci),
    "nvmlDeviceGetNumaNodeId": ("", (_HANDLE,), c_uint),
    "nvmlDeviceGetMinorNumber": ("", (_HANDLE,), c_uint),
    "nvmlDeviceGetMaxPcieLinkGeneration": ("", (_HANDLE,), c_uint),
    "nvmlDeviceGetRetiredPagesPendingStatus": ("", (_HANDLE,), c_uint),
    "nvmlDeviceGetPowerUsage": ("", (_HANDLE,), c_uint),
    "nvmlDeviceGetTotalEnergyConsumption": ("", (_HANDLE,), c_ulonglong),
    "nvmlDeviceGetUtilizationRates": ("", (_HANDLE,), Utilization),
    "nvmlDeviceGetMaxMigDeviceCount": ("", (_HANDLE,), c_uint),
    "nvmlDeviceGetMigDeviceHandleByIndex": ("", (_HANDLE, c_uint), c_void_p),
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": ("", (_HANDLE,), c_void_p),
    "nvmlDeviceGetGpuInstanceId": ("", (_HANDLE,), c_uint),
    "nvmlGpmQueryDeviceSupport": ("", (_HANDLE,), GpmSupport),
    "nvmlGpmSampleAlloc": ("", (), c_void_p),
    "nvmlDeviceGetTopologyCommonAncestor": ("", (_HANDLE, _OTHER), c_int),
    "nvmlDeviceGetNvLinkState": ("", (_HANDLE, _LINK), c_int),
    "nvmlDeviceGetNvLinkVersion": ("", (_HANDLE, _LINK), c_uint),
    "nvmlDeviceGetNvLinkRemotePciInfo": ("_v2", (_HANDLE, _LINK), Pci),
    "nvmlDeviceGetNvLinkRemoteDeviceType": ("", (_HANDLE, _LINK), c_int),
}
"""Functions whose last argument takes the result: what the library adds to pynvml's name, the arguments, the result.

The length of a text follows it.
"""


class Nvml:
    """An open NVML: the functions of pynvml that :class:`Driver` and the sampler call."""

    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION = 2, 3, 4
    NVML_ERROR_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND, NVML_ERROR_GPU_IS_LOST = 6, 13, 15
    nvmlMemory_v2 = ctypes.sizeof(Memory2) | 2 << 24

    def __init__(self) -> None:
        """Load the library; raises OSError if there is none, NvmlError if the driver does not work."""
        self._library = ctypes.CDLL(LIBRARY)
        try:
            self._check("nvmlInit_v2")
        except NvmlError as error:
            raise NvmlError(f"nvmlInit_v2 failed: {error}", error.value) from None

    def _words(self, code: int) -> str:
        """NVML's text for a return code."""
        try:
            text = self._library.nvmlErrorString
        except AttributeError:
            return f"error {code}"
        text.restype = ctypes.c_char_p
        return (text(code) or b"").decode(errors="replace") or f"error {code}"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """One of the functions with one result."""
        if name not in _ONE_RESULT:
            raise AttributeError(name)
        suffix, kinds, kind_of_result = _ONE_RESULT[name]

        def function(*arguments: Any) -> Any:
            result = kind_of_result()
            length = (c_uint(ctypes.sizeof(result)),) if kind_of_result is Text else ()
            converted = (kind(_plain(argument)) for kind, argument in zip(kinds, arguments))
            self._check(name + suffix, *converted, byref(result), *length)
            if kind_of_result is Text:
                return result.value.decode(errors="replace")
            return result if isinstance(result, (ctypes.Structure, c_void_p)) else result.value

        return function

    def _check(self, function: str, *arguments: Any) -> None:
        """Call it; raises NvmlError, with 13 (function not found) where the library is older than the function."""
        try:
            code = int(getattr(self._library, function)(*arguments))
        except AttributeError:
            code = self.NVML_ERROR_FUNCTION_NOT_FOUND
        if code:
            raise NvmlError(self._words(code), code)

    def nvmlDeviceGetMemoryInfo(self, device: c_void_p, version: int | None = None) -> Memory | Memory2:
        memory = Memory() if version is None else Memory2(version=version)
        self._check(f"nvmlDeviceGetMemoryInfo{'' if version is None else '_v2'}", device, byref(memory))
        return memory

    def nvmlDeviceGetMigMode(self, device: c_void_p) -> list[int]:
        now, pending = c_uint(), c_uint()
        self._check("nvmlDeviceGetMigMode", device, byref(now), byref(pending))
        return [now.value, pending.value]

    def nvmlDeviceGetRemappedRows(self, device: c_void_p) -> tuple[int, ...]:
        numbers = [c_uint() for _ in range(4)]
        self._check("nvmlDeviceGetRemappedRows", device, *map(byref, numbers))
        return tuple(number.value for number in numbers)

    def nvmlDeviceGetMemoryAffinity(self, device: c_void_p, words: int, scope: int) -> list[int]:
        mask = (ctypes.c_ulong * words)()
        self._check("nvmlDeviceGetMemoryAffinity", device, c_uint(words), mask, c_uint(scope))
        return list(mask)

    def nvmlDeviceGetCpuAffinity(self, device: c_void_p, words: int) -> list[int]:
        mask = (ctypes.c_ulong * words)()
        self._check("nvmlDeviceGetCpuAffinity", device, c_uint(words), mask)
        return list(mask)

    def nvmlDeviceGetComputeRunningProcesses(self, device: c_void_p) -> list[Any]:
        room = PROCESSES
        while True:
            count, processes = c_uint(room), (Process * room)()
            try:
                self._check("nvmlDeviceGetComputeRunningProcesses_v3", device, byref(count), processes)
            except NvmlError as error:
                if error.value != _INSUFFICIENT_SIZE or room > PROCESSES:
                    raise
                room = int(count.value) + PROCESSES
            else:
                return list(processes[: count.value])

    def nvmlGpmMigSampleGet(self, device: c_void_p, instance: int, sample: c_void_p) -> None:
        self._check("nvmlGpmMigSampleGet", device, c_uint(instance), sample)

    def nvmlGpmMetricsGet(self, metrics: GpmMetricsGet) -> None:
        self._check("nvmlGpmMetricsGet", byref(metrics))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return value.value if isinstance(value, c_void_p) else value


# Read the GPUs through NVML, by pynvml (nvidia-ml-py) or, where the node's Python has none, by :class:`Nvml`.
#
# Any call may fail: not supported on this model, no permission in this container, a GPU that fell off the bus, a
# library that does not match the driver. A failure leaves one value unknown and is reported in one sentence; "not
# supported" and "not found" are answers, not failures.

_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvmlGpuTopologyLevel_t; 0 is the same board, for which nvidia-smi prints PIX."""
_NVLINK_GENERATIONS = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
"""nvmlNvlinkVersion_t is an enumeration: 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0, 6.0."""
_MAX_NVLINKS = 36
_REMOTE_GPU, _REMOTE_SWITCH = 0, 2
_NODE_SCOPE = 0
IDLE_MIB = 1024
"""An idle GPU uses less memory than this, or less than a fiftieth of its memory if that is more."""
_MASK_WORDS = 64
"""64-bit words of a CPU or node mask: 4096, more than any kernel counts."""


class UnavailableError(Exception):
    """NVML cannot be used on this node; the text says why."""


def read(nodes_with_cpus: Sequence[int] = (), devices: Sequence[str] = ()) -> NodeTopology:
    """Every GPU that NVML shows, with MIG devices instead of their GPU; raises :class:`UnavailableError`.

    Inside a device cgroup these are only the job's GPUs, numbered from 0; ``devices`` are the PCI bus ids of all GPUs
    of the node. If ``nodes_with_cpus`` is given, a NUMA node near to a GPU counts as the GPU's own only if it is one of
    these.
    """
    return Driver(_opened(), nodes_with_cpus, devices).topology()


def in_use() -> dict[str, str]:
    """What uses each busy GPU or MIG device, by UUID; raises :class:`UnavailableError`."""
    return Driver(_opened()).in_use()


def _opened() -> Any:
    """pynvml, or what stands in for it, with an open NVML; raises :class:`UnavailableError`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pynvml
    except Exception:  # noqa: BLE001 - there is none, or a broken one
        pynvml = None
    try:
        if pynvml is None:
            return Nvml()
        pynvml.nvmlInit()
    except Exception as error:
        raise UnavailableError(str(error)) from error
    return pynvml


class Driver:
    """One open NVML; every call goes through :meth:`ask`."""

    def __init__(self, pynvml: Any, nodes_with_cpus: Sequence[int] = (), devices: Sequence[str] = ()) -> None:
        self.nvml = pynvml
        self.nodes = frozenset(nodes_with_cpus)
        self.devices = frozenset(devices)
        self.failures: dict[tuple[str, str], set[int]] = {}
        self.lost: dict[int, str] = {}
        """GPUs that do not respond, and NVML's word for it."""
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.silent = tuple(
            getattr(pynvml, name)
            for name in ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_NOT_FOUND", "NVML_ERROR_FUNCTION_NOT_FOUND")
        )

    def ask(self, gpu: int | None, function: str, *arguments: Any) -> Any:
        """What the call returns; None if it fails, which is recorded for this GPU."""
        value, error = self.call(function, *arguments)
        if gpu is not None and getattr(error, "value", None) == self.nvml.NVML_ERROR_GPU_IS_LOST:
            self.lost[gpu] = str(error)
        else:
            self._record(gpu, function, error)
        return value

    def _record(self, gpu: int | None, function: str, error: Exception | None) -> None:
        """Keep that a call has failed, unless its error is an answer."""
        if error is not None and getattr(error, "value", None) not in self.silent:
            self.failures.setdefault((function, str(error)), set()).update(() if gpu is None else (gpu,))

    def call(self, function: str, *arguments: Any) -> tuple[Any, Exception | None]:
        """What the call returned, and what it raised."""
        try:
            return getattr(self.nvml, function)(*arguments), None
        except AttributeError:
            return None, None
        except Exception as error:  # noqa: BLE001 - NVMLError, and ctypes' own
            return None, error

    def memory(self, device: Any) -> Any:
        """The device's memory; None if it is unknown."""
        # In the second version of this call, used memory excludes what the driver reserves for itself.
        version = getattr(self.nvml, "nvmlMemory_v2", None)
        memory = None if version is None else self.call("nvmlDeviceGetMemoryInfo", device, version)[0]
        return memory or self.call("nvmlDeviceGetMemoryInfo", device)[0]

    def topology(self) -> NodeTopology:
        """Everything that NVML knows about the GPUs."""
        driver = _text(self.ask(None, "nvmlSystemGetDriverVersion"))
        handles = self._handles()
        parents = {index: self._gpu(index, handle) for index, handle in handles.items()}
        between = self._links(handles, parents)
        gpus: list[Gpu] = []
        for index, handle in handles.items():
            gpus += self._mig_devices(parents[index], handle) or [parents[index]]
        links = tuple(tuple("X" if a is b else between[a.index, b.index] for b in gpus) for a in gpus)
        faults = {index: self._fault(index, handle) for index, handle in handles.items()}
        return NodeTopology(
            gpus=tuple(replace(gpu, fault=faults[gpu.index]) for gpu in gpus),
            links=links,
            source="nvml",
            driver=driver,
            problems=(*self._sentences(), *self.problems),
            notes=tuple(self.notes),
        )

    def _fault(self, index: int, handle: Any) -> str:
        """What the node's admin should know of a GPU; empty if nothing is known to be wrong."""
        if index in self.lost:
            return self.lost[index]
        _, _, pending, failed = self.call("nvmlDeviceGetRemappedRows", handle)[0] or (0, 0, 0, 0)
        if failed:
            return ROW_NOT_REMAPPED
        if pending:  # after correctable errors as well as after uncorrectable ones
            return ROW_TO_REMAP
        if self.call("nvmlDeviceGetRetiredPagesPendingStatus", handle)[0] == 1:
            return PAGE_TO_RETIRE
        mode = self.call("nvmlDeviceGetMigMode", handle)[0]
        if mode and mode[0] != mode[1]:
            return MIG_ON if mode[1] else MIG_OFF
        return ""

    def in_use(self) -> dict[str, str]:
        """By processes, which NVML lists for all users; without any, by more memory in use than an idle GPU has."""
        used: dict[str, str] = {}
        for index, whole in self._handles().items():
            for device in self._mig_handles(index, whole) or [whole]:
                by = self._user(index, device)
                if by:
                    used[_text(self.ask(index, "nvmlDeviceGetUUID", device))] = by
        return used

    def _user(self, index: int, device: Any) -> str:
        if device is None:
            return ""
        count = len(self.ask(index, "nvmlDeviceGetComputeRunningProcesses", device) or ())
        if count:
            return f"{count} process{'es' if count > 1 else ''}"
        memory = self.memory(device)
        used, total = (0, 0) if memory is None else (int(memory.used) >> 20, int(memory.total) >> 20)
        return f"{used} MiB of memory" if used > max(IDLE_MIB, total // 50) else ""

    def _handles(self) -> dict[int, Any]:
        """A handle for each GPU that this process may see; None for one that does not respond."""
        handles: dict[int, Any] = {}
        for index in range(self.ask(None, "nvmlDeviceGetCount") or 0):
            handle, error = self.call("nvmlDeviceGetHandleByIndex", index)
            if error is not None and getattr(error, "value", None) == self.nvml.NVML_ERROR_NO_PERMISSION:
                continue
            if error is not None:
                self.lost[index] = str(error)
            handles[index] = handle
        return handles

    def _gpu(self, index: int, handle: Any) -> Gpu:
        if handle is None:
            return Gpu(index=index)
        memory = self._whole_memory(index, handle)
        nodes = self._mask(index, "nvmlDeviceGetMemoryAffinity", handle)
        own = _within(4095, self.ask(index, "nvmlDeviceGetNumaNodeId", handle))
        near = [node for node in nodes if node in self.nodes] if self.nodes else [node for node in nodes if node != own]
        return Gpu(
            index=index,
            uuid=_text(self.ask(index, "nvmlDeviceGetUUID", handle)),
            pci=_pci(self.ask(index, "nvmlDeviceGetPciInfo", handle)),
            name=_text(self.ask(index, "nvmlDeviceGetName", handle)),
            memory_mib=None if memory is None else int(memory.total) // 2**20,
            numa_node=near[0] if len(near) == 1 else None,
            cpus=self._mask(index, "nvmlDeviceGetCpuAffinity", handle, scoped=False),
            minor=_within(1023, self.ask(index, "nvmlDeviceGetMinorNumber", handle)),
            pcie_generation=_within(99, self.ask(index, "nvmlDeviceGetMaxPcieLinkGeneration", handle)) or None,
            numa_affinity=nodes,
            gpu_numa_id=own,
        )

    def _whole_memory(self, index: int, handle: Any) -> Any:
        """The memory of a GPU; with MIG its devices count, and a user may not be allowed to ask for the whole."""
        mode = self.call("nvmlDeviceGetMigMode", handle)[0]
        if mode and mode[0] == 1:
            return self.call("nvmlDeviceGetMemoryInfo", handle)[0]
        return self.ask(index, "nvmlDeviceGetMemoryInfo", handle)

    def _mask(self, index: int, function: str, handle: Any, *, scoped: bool = True) -> tuple[int, ...]:
        """Numbers of the bits that are set in a CPU or node mask."""
        words = self.ask(index, function, handle, _MASK_WORDS, *((_NODE_SCOPE,) if scoped else ()))
        if words is None:
            return ()
        return tuple(64 * w + bit for w, word in enumerate(words) for bit in range(64) if int(word) >> bit & 1)

    def _mig_handles(self, index: int, handle: Any) -> list[Any]:
        """Those of a GPU's MIG devices; all slots are tried, since some may be empty."""
        slots = 0 if handle is None else self.ask(index, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
        devices = (self.ask(index, "nvmlDeviceGetMigDeviceHandleByIndex", handle, slot) for slot in range(slots))
        return [device for device in devices if device is not None]

    def _mig_devices(self, parent: Gpu, handle: Any) -> list[Gpu]:
        """The MIG devices of a GPU; an empty list if MIG is off."""
        mode = None if handle is None else self.ask(parent.index, "nvmlDeviceGetMigMode", handle)
        if not mode or mode[0] != 1:
            return []
        devices = []
        for device in self._mig_handles(parent.index, handle):
            name = _text(self.ask(parent.index, "nvmlDeviceGetName", device))
            memory = self.ask(parent.index, "nvmlDeviceGetMemoryInfo", device)
            devices.append(
                replace(
                    parent,
                    uuid=_text(self.ask(parent.index, "nvmlDeviceGetUUID", device)),
                    name=name or parent.name,
                    memory_mib=None if memory is None else int(memory.total) // 2**20,
                    mig=name.partition("MIG ")[2] or "unknown",
                    nvlink_generation=None,
                )
            )
        if not devices:
            self.problems.append(f"GPU {parent.index} has MIG enabled but no MIG device, so nothing can run on it.")
        return devices

    def _links(self, handles: dict[int, Any], gpus: dict[int, Gpu]) -> dict[tuple[int, int], str]:
        """The link word of each pair of GPU indices; ``PHB`` within a GPU, that is, between its MIG devices."""
        direct, switched = self._nvlinks(handles, gpus)
        words = {}
        for a in handles:
            words[a, a] = "PHB"
            for b in handles:
                if b >= a:
                    continue
                count = max(direct.get((a, b), 0), direct.get((b, a), 0)) or min(switched.get(a, 0), switched.get(b, 0))
                words[a, b] = words[b, a] = f"NV{count}" if count else self._ancestor(a, b, handles)
        return words

    def _ancestor(self, a: int, b: int, handles: dict[int, Any]) -> str:
        if not self.lost.keys().isdisjoint((a, b)):
            return "?"
        level, error = self.call("nvmlDeviceGetTopologyCommonAncestor", handles[a], handles[b])
        self._record(a, "nvmlDeviceGetTopologyCommonAncestor", error)
        return _ANCESTORS.get(level, "?")

    def _nvlinks(
        self, handles: dict[int, Any], gpus: dict[int, Gpu]
    ) -> tuple[dict[tuple[int, int], int], dict[int, int]]:
        """Active NVLinks from GPU to GPU, and from each GPU to NVSwitches; sets each GPU's NVLink generation."""
        by_pci = {gpu.pci: gpu.index for gpu in gpus.values() if gpu.pci}
        direct: dict[tuple[int, int], int] = {}
        switched: dict[int, int] = {}
        for a, handle in handles.items():
            lost = 0
            for link in self._active(a, handle):
                far = _pci(self.ask(a, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link))
                b = by_pci.get(far)
                kind = self.ask(a, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
                if b is not None and b != a:
                    direct[a, b] = direct.get((a, b), 0) + 1
                elif kind == _REMOTE_SWITCH:
                    switched[a] = switched.get(a, 0) + 1
                elif far not in self.devices:  # else a GPU that a device cgroup hides
                    lost += kind in (None, _REMOTE_GPU)
                version = self.ask(a, "nvmlDeviceGetNvLinkVersion", handle, link)
                if version in _NVLINK_GENERATIONS:
                    gpus[a] = replace(gpus[a], nvlink_generation=_NVLINK_GENERATIONS[version])
            if lost:
                self.notes.append(f"GPU {a} has {lost} active NVLinks to a device that cannot be identified.")
        return direct, switched

    def _active(self, index: int, handle: Any) -> list[int]:
        """Numbers of the active NVLinks; NVML refuses the first number out of range."""
        active = []
        for link in range(_MAX_NVLINKS if handle is not None and index not in self.lost else 0):
            state, error = self.call("nvmlDeviceGetNvLinkState", handle, link)
            value = getattr(error, "value", None)
            if value == self.nvml.NVML_ERROR_INVALID_ARGUMENT:
                break
            if error is not None and value not in self.silent:
                self.failures.setdefault(("nvmlDeviceGetNvLinkState", str(error)), set()).add(index)
                break
            if state == 1:
                active.append(link)
        return active

    def _sentences(self) -> list[str]:
        """One sentence for each GPU that is lost and each failed call, with all GPUs on which it failed."""
        lost = [f"GPU {gpu} does not respond: {text}." for gpu, text in sorted(self.lost.items())]
        return lost + [
            f"{function} failed{f' on GPU {format_cpulist(gpus)}' if gpus else ''}: {error}."
            for (function, error), gpus in self.failures.items()
        ]


def _within(high: int, value: Any) -> int | None:
    """The number if it is plausible: drivers also answer -1, or all bits set."""
    return value if isinstance(value, int) and 0 <= value <= high else None


def _text(value: Any) -> str:
    """A string from NVML; old versions of pynvml return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _pci(info: Any) -> str:
    """The device's name in sysfs, such as ``0000:07:00.0`` for NVML's ``00000000:07:00.0``."""
    words = _text(getattr(info, "busId", "")).lower().split(":", 1)
    if len(words) != 2:
        return ""
    try:
        return f"{int(words[0], 16):04x}:{words[1]}"
    except ValueError:
        return ""
