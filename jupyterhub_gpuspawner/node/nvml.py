"""NVML, the library of the NVIDIA driver, through ctypes, with pynvml's names, arguments, results and errors.

It stands in for pynvml where a node's Python has none, and in the sampler, where pynvml would take 4 MiB of memory for
as long as a server runs. Source: NVML API reference, nvml.h of CUDA 13.2.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
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


MEMORY_2 = ctypes.sizeof(Memory2) | 2 << 24
"""nvmlMemory_v2, the version of that structure."""


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


_HANDLE, _LINK, _OTHER = c_void_p, c_uint, c_void_p
_ONE_RESULT: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "nvmlDeviceGetCount": ("_v2", (), c_uint),
    "nvmlDeviceGetHandleByIndex": ("_v2", (c_uint,), c_void_p),
    "nvmlDeviceGetHandleByUUID": ("", (c_char_p,), c_void_p),
    "nvmlDeviceGetHandleByPciBusId": ("_v2", (c_char_p,), c_void_p),
    "nvmlDeviceGetPciInfo": ("_v3", (_HANDLE,), Pci),
    "nvmlDeviceGetNumaNodeId": ("", (_HANDLE,), c_uint),
    "nvmlDeviceGetMinorNumber": ("", (_HANDLE,), c_uint),
    "nvmlDeviceGetMaxPcieLinkGeneration": ("", (_HANDLE,), c_uint),
    "nvmlDeviceGetPowerUsage": ("", (_HANDLE,), c_uint),
    "nvmlDeviceGetTotalEnergyConsumption": ("", (_HANDLE,), c_ulonglong),
    "nvmlDeviceGetUtilizationRates": ("", (_HANDLE,), Utilization),
    "nvmlDeviceGetMaxMigDeviceCount": ("", (_HANDLE,), c_uint),
    "nvmlDeviceGetMigDeviceHandleByIndex": ("", (_HANDLE, c_uint), c_void_p),
    "nvmlDeviceGetTopologyCommonAncestor": ("", (_HANDLE, _OTHER), c_int),
    "nvmlDeviceGetNvLinkState": ("", (_HANDLE, _LINK), c_int),
    "nvmlDeviceGetNvLinkVersion": ("", (_HANDLE, _LINK), c_uint),
    "nvmlDeviceGetNvLinkRemotePciInfo": ("_v2", (_HANDLE, _LINK), Pci),
    "nvmlDeviceGetNvLinkRemoteDeviceType": ("", (_HANDLE, _LINK), c_int),
}
"""Functions whose last argument takes the result: what the library adds to pynvml's name, the arguments, the result."""


class Nvml:
    """An open NVML: the functions of pynvml that :mod:`.observe.nvml` and the sampler call."""

    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION = 2, 3, 4
    NVML_ERROR_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND = 6, 13
    nvmlMemory_v2 = MEMORY_2  # noqa: N815 - these names are pynvml's

    def __init__(self) -> None:
        """Load the library; raises OSError if there is none, NvmlError if the driver does not work."""
        self._library = ctypes.CDLL(LIBRARY)
        code = self.call("nvmlInit_v2")
        if code:
            raise NvmlError(f"nvmlInit_v2 failed: {self._words(code)}", code)

    def call(self, function: str, *arguments: Any) -> int:
        """NVML's return code; 13 (function not found) where the library is older than the function."""
        try:
            return int(getattr(self._library, function)(*arguments))
        except AttributeError:
            return self.NVML_ERROR_FUNCTION_NOT_FOUND

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
            self._check(
                name + suffix, *(kind(_plain(argument)) for kind, argument in zip(kinds, arguments)), byref(result)
            )
            return result if kind_of_result in (Pci, Utilization, c_void_p) else result.value

        return function

    def _check(self, function: str, *arguments: Any) -> None:
        code = self.call(function, *arguments)
        if code:
            raise NvmlError(self._words(code), code)

    def _text(self, function: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(96)
        self._check(function, *arguments, buffer, c_uint(len(buffer)))
        return buffer.value.decode(errors="replace")

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: D102, N802
        return self._text("nvmlSystemGetDriverVersion")

    def nvmlDeviceGetUUID(self, device: c_void_p) -> str:  # noqa: D102, N802
        return self._text("nvmlDeviceGetUUID", device)

    def nvmlDeviceGetName(self, device: c_void_p) -> str:  # noqa: D102, N802
        return self._text("nvmlDeviceGetName", device)

    def nvmlDeviceGetMemoryInfo(self, device: c_void_p, version: int | None = None) -> Memory | Memory2:  # noqa: D102, N802
        memory = Memory() if version is None else Memory2(version=version)
        self._check(f"nvmlDeviceGetMemoryInfo{'' if version is None else '_v2'}", device, byref(memory))
        return memory

    def nvmlDeviceGetMigMode(self, device: c_void_p) -> list[int]:  # noqa: D102, N802
        now, pending = c_uint(), c_uint()
        self._check("nvmlDeviceGetMigMode", device, byref(now), byref(pending))
        return [now.value, pending.value]

    def nvmlDeviceGetMemoryAffinity(self, device: c_void_p, words: int, scope: int) -> list[int]:  # noqa: D102, N802
        mask = (ctypes.c_ulong * words)()
        self._check("nvmlDeviceGetMemoryAffinity", device, c_uint(words), mask, c_uint(scope))
        return list(mask)

    def nvmlDeviceGetCpuAffinity(self, device: c_void_p, words: int) -> list[int]:  # noqa: D102, N802
        mask = (ctypes.c_ulong * words)()
        self._check("nvmlDeviceGetCpuAffinity", device, c_uint(words), mask)
        return list(mask)

    def nvmlDeviceGetComputeRunningProcesses(self, device: c_void_p) -> list[Any]:  # noqa: D102, N802
        room = PROCESSES
        while True:
            count, processes = c_uint(room), (Process * room)()
            code = self.call("nvmlDeviceGetComputeRunningProcesses_v3", device, byref(count), processes)
            if code == 0:
                return list(processes[: count.value])
            if code != _INSUFFICIENT_SIZE or room > PROCESSES:
                raise NvmlError(self._words(code), code)
            room = int(count.value) + PROCESSES


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return value.value if isinstance(value, c_void_p) else value
