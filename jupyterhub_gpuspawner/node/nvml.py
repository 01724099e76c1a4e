"""NVML, the library of the NVIDIA driver, through ctypes, and what it knows of a node's GPUs.

Any call may fail: not supported on this model, no permission in this container, a GPU that fell off the bus, a library
that does not match the driver. A failure leaves one value unknown and is reported in one sentence; "not supported" and
"not found" are answers, not failures. Source: NVML API reference, nvml.h of CUDA 13.2.

pynvml has all of NVML. Carried in the launcher's archive it would add 0.6 s to each launch, and many nodes have none.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char, c_char_p, c_int, c_uint, c_ulong, c_ulonglong, c_void_p
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.placement.topology import (
    MIG_OFF,
    MIG_ON,
    PAGE_TO_RETIRE,
    ROW_NOT_REMAPPED,
    ROW_TO_REMAP,
    Gpu,
    NodeTopology,
)
from jupyterhub_gpuspawner.units import format_cpulist

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, ClassVar


LIBRARY = "libnvidia-ml.so.1"
INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 2, 3, 4, 6
INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND, GPU_IS_LOST = 7, 13, 15
"""nvmlReturn_t."""
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

    def __init__(self) -> None:
        super().__init__(version=ctypes.sizeof(self) | 2 << 24)


class Process(ctypes.Structure):
    """nvmlProcessInfo_t of the calls that end in ``_v3``."""

    _fields_ = (
        ("pid", c_uint),
        ("usedGpuMemory", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    )


class Pci(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = (
        ("busIdLegacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pciDeviceId", c_uint),
        ("pciSubSystemId", c_uint),
        ("busId", c_char * 32),
    )


HANDLE = c_void_p
Text, Mask = c_char * 96, c_ulong * 64
"""A mask of CPUs or NUMA nodes has 4096 bits, more than any kernel counts."""
_LENGTH, _WORDS, _NODE_SCOPE, _P2P_READ = c_uint(96), c_uint(64), c_uint(0), c_int(0)


class Nvml:
    """An open NVML."""

    functions: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "nvmlDeviceGetCount": ("_v2", [c_uint]),
        "nvmlDeviceGetHandleByIndex": ("_v2", c_uint, [HANDLE]),
        "nvmlSystemGetDriverVersion": ("", [Text], _LENGTH),
        "nvmlDeviceGetUUID": ("", HANDLE, [Text], _LENGTH),
        "nvmlDeviceGetName": ("", HANDLE, [Text], _LENGTH),
        "nvmlDeviceGetPciInfo": ("_v3", HANDLE, [Pci]),
        "nvmlDeviceGetMemoryInfo": ("", HANDLE, [Memory]),
        "nvmlDeviceGetMemoryInfo_v2": ("", HANDLE, [Memory2]),
        "nvmlDeviceGetNumaNodeId": ("", HANDLE, [c_uint]),
        "nvmlDeviceGetMemoryAffinity": ("", HANDLE, _WORDS, [Mask], _NODE_SCOPE),
        "nvmlDeviceGetCpuAffinity": ("", HANDLE, _WORDS, [Mask]),
        "nvmlDeviceGetMinorNumber": ("", HANDLE, [c_uint]),
        "nvmlDeviceGetMaxPcieLinkGeneration": ("", HANDLE, [c_uint]),
        "nvmlDeviceGetRetiredPagesPendingStatus": ("", HANDLE, [c_uint]),
        "nvmlDeviceGetRemappedRows": ("", HANDLE, [c_uint], [c_uint], [c_uint], [c_uint]),
        "nvmlDeviceGetMigMode": ("", HANDLE, [c_uint], [c_uint]),
        "nvmlDeviceGetMaxMigDeviceCount": ("", HANDLE, [c_uint]),
        "nvmlDeviceGetMigDeviceHandleByIndex": ("", HANDLE, c_uint, [HANDLE]),
        "nvmlDeviceGetTopologyCommonAncestor": ("", HANDLE, HANDLE, [c_int]),
        "nvmlDeviceGetP2PStatus": ("", HANDLE, HANDLE, _P2P_READ, [c_int]),
        "nvmlDeviceGetNvLinkState": ("", HANDLE, c_uint, [c_int]),
        "nvmlDeviceGetNvLinkVersion": ("", HANDLE, c_uint, [c_uint]),
        "nvmlDeviceGetNvLinkRemotePciInfo": ("_v2", HANDLE, c_uint, [Pci]),
        "nvmlDeviceGetNvLinkRemoteDeviceType": ("", HANDLE, c_uint, [c_int]),
    }
    """What the library adds to a function's name, then its arguments: a type is that of an argument of :meth:`call`, a
    list has the type of a result, and anything else is passed as it is."""

    def __init__(self) -> None:
        """Load the library; raises OSError if there is none, NvmlError if the driver does not work."""
        self._library = ctypes.CDLL(LIBRARY)
        try:
            self.check("nvmlInit_v2")
        except NvmlError as error:
            raise NvmlError(f"nvmlInit_v2 failed: {error}", error.value) from None

    def call(self, name: str, *arguments: Any) -> Any:
        """The result of one of :attr:`functions`, or a list of several; raises NvmlError."""
        suffix, *signature = self.functions[name]
        given, passed, results = iter(arguments), [], []
        for kind in signature:
            if isinstance(kind, list):
                results.append(kind[0]())
                passed.append(byref(results[-1]))
            else:
                passed.append(kind(_plain(next(given))) if isinstance(kind, type) else kind)
        self.check(name + suffix, *passed)
        values = [_value(result) for result in results]
        return values[0] if len(values) == 1 else values

    def check(self, function: str, *arguments: Any) -> None:
        """Call it; raises NvmlError, with 13 (function not found) where the library is older than the function."""
        pointer = getattr(self._library, function, None)
        code = FUNCTION_NOT_FOUND if pointer is None else int(pointer(*arguments))
        if code:
            raise NvmlError(self._words(code), code)

    def _words(self, code: int) -> str:
        """NVML's text for a return code."""
        text = getattr(self._library, "nvmlErrorString", None)
        if text is not None:
            text.restype = c_char_p
        return ((text and text(code)) or b"").decode(errors="replace") or f"error {code}"

    def ask(self, function: str, *arguments: Any) -> Any:
        """What :meth:`call` returns; None if it fails."""
        try:
            return self.call(function, *arguments)
        except NvmlError:
            return None

    def memory(self, device: Any) -> Any:
        """The device's memory; None if it is unknown."""
        # in the second version of this call, used memory excludes what the driver reserves for itself
        return self.ask("nvmlDeviceGetMemoryInfo_v2", device) or self.ask("nvmlDeviceGetMemoryInfo", device)

    def processes(self, device: Any) -> list[Process] | None:
        """The compute processes of all users on a device; None if they are unknown."""
        room = PROCESSES
        while True:
            count, processes = c_uint(room), (Process * room)()
            try:
                self.check("nvmlDeviceGetComputeRunningProcesses_v3", device, byref(count), processes)
            except NvmlError as error:
                if error.value != INSUFFICIENT_SIZE or room > PROCESSES:
                    return None
                room = int(count.value) + PROCESSES
            else:
                return list(processes[: count.value])


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return value.value if isinstance(value, c_void_p) else value


def _value(result: Any) -> Any:
    if isinstance(result, Text):
        return result.value.decode(errors="replace")
    if isinstance(result, Mask):
        return list(result)
    return result if isinstance(result, (ctypes.Structure, c_void_p)) else result.value


_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvmlGpuTopologyLevel_t; 0 is the same board, for which nvidia-smi prints PIX."""
_NVLINK_GENERATIONS = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
"""nvmlNvlinkVersion_t is an enumeration: 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0, 6.0."""
_MAX_NVLINKS = 36
_REMOTE_GPU, _REMOTE_NPU, _REMOTE_SWITCH = 0, 1, 2
"""nvmlIntNvLinkDeviceType_t."""
_NO_BUS_ID = "fffffff"
"""Begins the bus id of a device that a virtual machine hides."""
_NO_PEER_ACCESS = range(1, 6)
"""nvmlGpuP2PStatus_t: 0 is OK, 6 unknown, and these are the reasons why not."""
_ANSWERS = (NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND)


def read(nodes_with_cpus: Sequence[int] = (), devices: Sequence[str] = ()) -> NodeTopology:
    """Every GPU that NVML shows, with MIG devices instead of their GPU; raises OSError or NvmlError.

    Inside a device cgroup these are only the job's GPUs, numbered from 0; ``devices`` are the PCI bus ids of all GPUs
    of the node. If ``nodes_with_cpus`` is given, a NUMA node near to a GPU counts as the GPU's own only if it is one of
    these.
    """
    return GpuReader(Nvml(), nodes_with_cpus, devices).topology()


class GpuReader:
    """Reads the GPUs; every call goes through :meth:`ask` or :meth:`call`."""

    def __init__(self, nvml: Nvml, nodes_with_cpus: Sequence[int] = (), devices: Sequence[str] = ()) -> None:
        self.nvml = nvml
        self.nodes = frozenset(nodes_with_cpus)
        self.devices = frozenset(devices)
        self.failures: dict[tuple[str, str], set[int]] = {}
        self.lost: dict[int, str] = {}
        """GPUs that do not respond, and NVML's word for it."""
        self.problems: list[str] = []
        self.notes: list[str] = []

    def ask(self, gpu: int | None, function: str, *arguments: Any) -> Any:
        """What the call returns; None if it fails, which is recorded for this GPU."""
        value, error = self.call(function, *arguments)
        if gpu is not None and error is not None and error.value == GPU_IS_LOST:
            self.lost[gpu] = str(error)
        else:
            self._record(gpu, function, error)
        return value

    def _record(self, gpu: int | None, function: str, error: NvmlError | None) -> None:
        """Keep that a call has failed, unless its error is an answer."""
        if error is not None and error.value not in _ANSWERS:
            self.failures.setdefault((function, str(error)), set()).update(() if gpu is None else (gpu,))

    def call(self, function: str, *arguments: Any) -> tuple[Any, NvmlError | None]:
        """What the call returned, and what it raised."""
        try:
            return self.nvml.call(function, *arguments), None
        except NvmlError as error:
            return None, error

    def topology(self) -> NodeTopology:
        """Everything that NVML knows about the GPUs."""
        driver = self.ask(None, "nvmlSystemGetDriverVersion") or ""
        handles = self.handles()
        parents = {index: self._gpu(index, handle) for index, handle in handles.items()}
        sliced = {index: self._mig_devices(parents[index], handle) for index, handle in handles.items()}
        between = self._links(handles, parents, frozenset(index for index, devices in sliced.items() if devices))
        gpus = [gpu for index, devices in sliced.items() for gpu in devices or [parents[index]]]
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
        _, _, pending, failed = self.nvml.ask("nvmlDeviceGetRemappedRows", handle) or (0, 0, 0, 0)
        if failed:
            return ROW_NOT_REMAPPED
        if pending:  # after correctable errors as well as after uncorrectable ones
            return ROW_TO_REMAP
        if self.nvml.ask("nvmlDeviceGetRetiredPagesPendingStatus", handle) == 1:
            return PAGE_TO_RETIRE
        mode = self.nvml.ask("nvmlDeviceGetMigMode", handle)
        if mode and mode[0] != mode[1]:
            return MIG_ON if mode[1] else MIG_OFF
        return ""

    def handles(self) -> dict[int, Any]:
        """A handle for each GPU that this process may see; None for one that does not respond."""
        handles: dict[int, Any] = {}
        for index in range(self.ask(None, "nvmlDeviceGetCount") or 0):
            handle, error = self.call("nvmlDeviceGetHandleByIndex", index)
            if error is not None and error.value == NO_PERMISSION:
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
            uuid=self.ask(index, "nvmlDeviceGetUUID", handle) or "",
            pci=_pci(self.ask(index, "nvmlDeviceGetPciInfo", handle)),
            name=self.ask(index, "nvmlDeviceGetName", handle) or "",
            memory_mib=None if memory is None else int(memory.total) // 2**20,
            numa_node=near[0] if len(near) == 1 else None,
            cpus=self._mask(index, "nvmlDeviceGetCpuAffinity", handle),
            minor=_within(1023, self.ask(index, "nvmlDeviceGetMinorNumber", handle)),
            pcie_generation=_within(99, self.ask(index, "nvmlDeviceGetMaxPcieLinkGeneration", handle)) or None,
            numa_affinity=nodes,
            gpu_numa_id=own,
        )

    def _whole_memory(self, index: int, handle: Any) -> Any:
        """The memory of a GPU; with MIG its devices count, and a user may not be allowed to ask for the whole."""
        mode = self.nvml.ask("nvmlDeviceGetMigMode", handle)
        if mode and mode[0] == 1:
            return self.nvml.ask("nvmlDeviceGetMemoryInfo", handle)
        return self.ask(index, "nvmlDeviceGetMemoryInfo", handle)

    def _mask(self, index: int, function: str, handle: Any) -> tuple[int, ...]:
        """Numbers of the bits that are set in a CPU or node mask."""
        words = self.ask(index, function, handle) or ()
        return tuple(64 * w + bit for w, word in enumerate(words) for bit in range(64) if word >> bit & 1)

    def mig_handles(self, index: int, handle: Any) -> list[Any]:
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
        for device in self.mig_handles(parent.index, handle):
            name = self.ask(parent.index, "nvmlDeviceGetName", device) or ""
            memory = self.ask(parent.index, "nvmlDeviceGetMemoryInfo", device)
            devices.append(
                replace(
                    parent,
                    uuid=self.ask(parent.index, "nvmlDeviceGetUUID", device) or "",
                    name=name or parent.name,
                    memory_mib=None if memory is None else int(memory.total) // 2**20,
                    mig=name.partition("MIG ")[2] or "unknown",
                    nvlink_generation=None,
                )
            )
        if not devices:
            self.problems.append(f"GPU {parent.index} has MIG enabled but no MIG device, so nothing can run on it.")
        return devices

    def _links(
        self, handles: dict[int, Any], gpus: dict[int, Gpu], sliced: frozenset[int]
    ) -> dict[tuple[int, int], str]:
        """The link word of each pair of GPU indices; of one GPU, that between its MIG devices."""
        direct, switched = self._nvlinks(handles, gpus)
        words = {(a, a): "PHB" for a in handles}
        apart: set[int] = set()
        for b, a in combinations(handles, 2):
            count = max(direct.get((a, b), 0), direct.get((b, a), 0)) or min(switched.get(a, 0), switched.get(b, 0))
            is_sliced = not sliced.isdisjoint((a, b))
            word = f"NV{count}" if count and not is_sliced else self._ancestor(a, b, handles)
            if word in ("PIX", "PXB") and (is_sliced or self._is_apart(a, handles[a], handles[b])):
                word = "PHB"
                apart.update(() if is_sliced else (a, b))
            words[a, b] = words[b, a] = word
        if apart:
            self.notes.append(f"GPUs {format_cpulist(apart)} have no peer access by their switch, which counts as PHB.")
        return words

    def _is_apart(self, index: int, one: Any, other: Any) -> bool:
        """Whether the driver says that two GPUs cannot read each other's memory, as most GeForce and RTX cannot."""
        return self.ask(index, "nvmlDeviceGetP2PStatus", one, other) in _NO_PEER_ACCESS

    def _ancestor(self, a: int, b: int, handles: dict[int, Any]) -> str:
        if not self.lost.keys().isdisjoint((a, b)):
            return "?"
        level, error = self.call("nvmlDeviceGetTopologyCommonAncestor", handles[a], handles[b])
        self._record(a, "nvmlDeviceGetTopologyCommonAncestor", error)
        return _ANCESTORS.get(level, "?")

    def _nvlinks(
        self, handles: dict[int, Any], gpus: dict[int, Gpu]
    ) -> tuple[dict[tuple[int, int], int], dict[int, int]]:
        """Active NVLinks from GPU to GPU, and from each GPU to NVSwitches; sets each GPU's NVLink generation.

        Where no GPU's links lead to a device that can be identified, they lead to NVSwitches that the virtual machine
        hides: NCCL assumes the same (``src/graph/xml.cc``).
        """
        by_pci = {gpu.pci: gpu.index for gpu in gpus.values() if gpu.pci}
        direct: dict[tuple[int, int], int] = {}
        switched: dict[int, int] = {}
        unknown: dict[int, int] = {}
        active, elsewhere = 0, 0
        for a, handle in handles.items():
            for link in self._active(a, handle):
                far = _pci(self.ask(a, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link))
                b = by_pci.get(far)
                kind = self.ask(a, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
                active += 1
                if b is not None and b != a:
                    direct[a, b] = direct.get((a, b), 0) + 1
                elif kind == _REMOTE_SWITCH:
                    switched[a] = switched.get(a, 0) + 1
                elif far not in self.devices and kind != _REMOTE_NPU:  # else a GPU that a device cgroup hides
                    unknown[a] = unknown.get(a, 0) + 1
                    elsewhere += kind == _REMOTE_GPU and not far.startswith(_NO_BUS_ID)
                version = self.ask(a, "nvmlDeviceGetNvLinkVersion", handle, link)
                if version in _NVLINK_GENERATIONS:
                    gpus[a] = replace(gpus[a], nvlink_generation=_NVLINK_GENERATIONS[version])
        if unknown and not elsewhere and sum(unknown.values()) == active:
            self.notes.append("The driver does not say where the NVLinks lead; NVSwitches are assumed.")
            return direct, unknown
        for a, count in unknown.items():
            self.notes.append(f"GPU {a} has {count} active NVLinks to a device that cannot be identified.")
        return direct, switched

    def _active(self, index: int, handle: Any) -> list[int]:
        """Numbers of the active NVLinks; NVML refuses the first number out of range."""
        active = []
        for link in range(_MAX_NVLINKS if handle is not None and index not in self.lost else 0):
            state, error = self.call("nvmlDeviceGetNvLinkState", handle, link)
            if error is not None and error.value not in _ANSWERS:
                if error.value != INVALID_ARGUMENT:
                    self._record(index, "nvmlDeviceGetNvLinkState", error)
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


def _pci(info: Pci | None) -> str:
    """The device's name in sysfs, such as ``0000:07:00.0`` for NVML's ``00000000:07:00.0``."""
    words = info.busId.decode(errors="replace").lower().split(":", 1) if info is not None else []
    if len(words) != 2:
        return ""
    try:
        return f"{int(words[0], 16):04x}:{words[1]}"
    except ValueError:
        return ""
