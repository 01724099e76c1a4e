"""How fast pinned memory is copied to and from each GPU, from each NUMA node.

The same measurement as a copy test under numactl: ``numactl -m0 -N0``, ``-m1 -N1``, and without numactl. Copies are
made with the CUDA driver API, through NVIDIA's bindings (package cuda-bindings, extra ``gpu``).
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from statistics import median
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from jupyterhub_gpuspawner.node import placing
from jupyterhub_gpuspawner.placement.topology import NodeTopology

T = TypeVar("T")
Direction = Literal["h2d", "d2h"]
DIRECTIONS: tuple[Direction, ...] = ("h2d", "d2h")
"""Host to device, device to host."""
WARM_UP = 2
"""Copies made before those that are measured."""
MIB = 2**20
_MOVE_PAGES = {"x86_64": 279, "aarch64": 239, "ppc64le": 301}
_SAMPLES = 256
_PAGE = mmap.PAGESIZE
_NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MeasuredGpu(_Document):
    """A GPU that was measured."""

    index: int
    """NVML index; CUDA's where the two could not be matched."""
    name: str = ""
    pci: str = ""
    numa_node: int | None = None
    """NUMA node nearest to it, by kernel number; null where unknown."""


class Copies(_Document):
    """Copies of one kind: one GPU, one binding of the host's memory, one direction."""

    gpu: int
    """The GPU's index."""
    bound_to: int | None
    """NUMA node that CPU and memory were bound to; null: not bound."""
    direction: Direction
    gbps: tuple[float, ...] = Field(min_length=1)
    """GB/s (10^9 bytes a second) of each copy."""
    memory_on: tuple[int, ...] = ()
    """NUMA nodes that held the host's memory, according to the kernel; empty where it does not say."""

    @property
    def median_gbps(self) -> float:
        """Median of all copies, in GB/s."""
        return median(self.gbps)


class Bandwidth(_Document):
    """All measurements on a node: version 1 of the document that ``--json`` prints."""

    version: Literal[1] = 1
    size_mib: int
    """MiB of one copy."""
    gpus: tuple[MeasuredGpu, ...]
    copies: tuple[Copies, ...]
    problems: tuple[str, ...] = ()

    def find(self, gpu: int, bound_to: int | None, direction: Direction) -> Copies | None:
        """The copies of one kind; None if they could not be made."""
        return next((c for c in self.copies if (c.gpu, c.bound_to, c.direction) == (gpu, bound_to, direction)), None)


class CopyError(Exception):
    """A copy, or something that it needs, failed; the text says why."""


@dataclass(frozen=True)
class Buffer:
    """Memory of the host."""

    address: int
    size: int
    """Bytes."""
    memory_on: tuple[int, ...] = ()
    """NUMA nodes, by kernel number."""


class ThisHost:
    """The node that this process runs on; the CPUs of its NUMA nodes come from ``topology``."""

    def __init__(self, topology: NodeTopology) -> None:
        self._cpus = {node.id: node.cpus for node in topology.numa_nodes}

    def nodes(self) -> tuple[int, ...]:
        """NUMA nodes with CPUs that this process may use."""
        allowed = set(placing.allowed_cpus())
        return tuple(sorted(node for node, cpus in self._cpus.items() if allowed.intersection(cpus)))

    def on(self, node: int | None, work: Callable[[], T]) -> T:
        """Run ``work`` bound to ``node``, or unbound for None, in a new thread: its binding ends with the thread.

        Raises CopyError if the kernel refuses.
        """

        def bound() -> T:
            if node is not None:
                self._bind(node)
            return work()

        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(bound).result()

    def _bind(self, node: int) -> None:
        _, problems = placing.bind_cpus(self._cpus[node])
        policy, more = placing.bind_memory("bind", (node,))
        if problems or more:
            raise CopyError(" ".join((*problems, *more)).rstrip("."))
        if policy != f"bind:{node}":
            raise CopyError(f"the memory policy is {policy}, though bind:{node} was set")

    @contextmanager
    def buffer(self, size: int) -> Iterator[Buffer]:
        """Anonymous memory of ``size`` bytes, every page touched by this thread."""
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        view = (ctypes.c_char * size).from_buffer(memory)
        try:
            address = ctypes.addressof(view)
            ctypes.memset(address, 1, size)
            yield Buffer(address, size, nodes_of(address, size))
        finally:
            del view
            memory.close()


def nodes_of(address: int, size: int) -> tuple[int, ...]:
    """NUMA nodes of a sample of the pages (move_pages(2)); empty where the kernel does not say."""
    number = _MOVE_PAGES.get(os.uname().machine)
    if number is None:
        return ()
    first = address - address % _PAGE
    pages = range(first, address + size, _PAGE)
    sampled = pages[:: max(1, len(pages) // _SAMPLES)]
    addresses = (ctypes.c_void_p * len(sampled))(*sampled)
    status = (ctypes.c_int * len(sampled))()
    arguments = (ctypes.c_long(0), ctypes.c_ulong(len(sampled)), addresses, None, status, ctypes.c_int(0))
    if ctypes.CDLL(None).syscall(ctypes.c_long(number), *arguments) != 0:
        return ()
    return tuple(sorted({node for node in status if node >= 0}))


class CudaUnavailableError(Exception):
    """CUDA cannot be used here; the text says why and what to do."""


class CudaDriver:
    """The GPUs that CUDA shows to this process, in the order of their PCI bus ids; raises CudaUnavailableError.

    Their NVML indices and NUMA nodes come from ``topology``.
    """

    def __init__(self, topology: NodeTopology) -> None:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        self._driver: Any = _load()
        self._known = {gpu.pci: gpu for gpu in topology.gpus if gpu.pci}
        self._devices = [self._call("cuDeviceGet", ordinal) for ordinal in range(self._call("cuDeviceGetCount"))]
        if not self._devices:
            raise CudaUnavailableError(_no_gpu())

    def gpus(self) -> Sequence[MeasuredGpu]:
        """The GPUs in the order of their PCI bus ids."""
        return [self._gpu(ordinal, device) for ordinal, device in enumerate(self._devices)]

    def _gpu(self, ordinal: int, device: Any) -> MeasuredGpu:
        name = _text(self._call("cuDeviceGetName", 256, device))
        pci = _text(self._call("cuDeviceGetPCIBusId", 32, device)).lower()
        gpu = self._known.get(pci)
        if gpu is None:
            return MeasuredGpu(index=ordinal, name=name, pci=pci)
        return MeasuredGpu(index=gpu.index, name=name, pci=pci, numa_node=gpu.numa_node)

    @contextmanager
    def open(self, ordinal: int, size: int) -> Iterator[_OpenDevice]:
        """Make the GPU's primary context current in this thread, and allocate ``size`` bytes on it."""
        device = self._devices[ordinal]
        context = self._call("cuDevicePrimaryCtxRetain", device)
        try:
            self._call("cuCtxSetCurrent", context)
            memory = self._call("cuMemAlloc", size)
            try:
                yield _OpenDevice(self._call, self._driver.CUstream(0), memory)
            finally:
                self._call("cuMemFree", memory)
        finally:
            self._call("cuDevicePrimaryCtxRelease", device)

    def _call(self, function: str, *arguments: Any) -> Any:
        """Call a driver function and return its value without the status; raises CopyError."""
        try:
            status, *values = getattr(self._driver, function)(*arguments)
        except Exception as error:
            raise CopyError(f"{function}: {error}") from error
        if int(status):
            raise CopyError(f"{function} failed: {status.name}")
        return values[0] if values else None


class _OpenDevice:
    """A GPU whose context is current in this thread."""

    def __init__(self, call: Callable[..., Any], stream: Any, memory: Any) -> None:
        self._call = call
        self._stream = stream
        self._memory = memory

    @contextmanager
    def pinned(self, buffer: Buffer) -> Iterator[Callable[[Direction], float]]:
        """Pin the buffer in place; copies are timed with CUDA events."""
        self._call("cuMemHostRegister", buffer.address, buffer.size, 0)
        events: list[Any] = []
        try:
            events += [self._call("cuEventCreate", 0) for _ in range(2)]

            def copy(direction: Direction) -> float:
                start, end = events
                self._call("cuEventRecord", start, self._stream)
                if direction == "h2d":
                    self._call("cuMemcpyHtoDAsync", self._memory, buffer.address, buffer.size, self._stream)
                else:
                    self._call("cuMemcpyDtoHAsync", buffer.address, self._memory, buffer.size, self._stream)
                self._call("cuEventRecord", end, self._stream)
                self._call("cuEventSynchronize", end)
                return float(self._call("cuEventElapsedTime", start, end)) / 1e3

            yield copy
        finally:
            for event in events:
                self._call("cuEventDestroy", event)
            self._call("cuMemHostUnregister", buffer.address)


def _load() -> Any:
    try:
        driver: Any = import_module("cuda.bindings.driver")
    except ImportError as error:
        raise CudaUnavailableError(
            f"NVIDIA's cuda-bindings cannot be imported ({error}); pip install 'jupyterhub-gpuspawner[gpu]'"
        ) from error
    try:
        [status] = driver.cuInit(0)
    except Exception as error:
        raise CudaUnavailableError(
            "there is no NVIDIA driver here (libcuda.so.1 cannot be loaded), so no GPU"
        ) from error
    if int(status) == _NO_DEVICE:
        raise CudaUnavailableError(_no_gpu())
    if int(status):
        raise CudaUnavailableError(f"CUDA cannot be used: {status.name}")
    return driver


def _no_gpu() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "CUDA finds no GPU here" + ("" if visible is None else f"; CUDA_VISIBLE_DEVICES is {visible!r}")


def _text(value: bytes) -> str:
    return value.split(b"\0", 1)[0].decode(errors="replace")


def measure(
    cuda: CudaDriver,
    host: ThisHost,
    *,
    nodes: Sequence[int],
    size_mib: int,
    repeats: int,
    only: Iterable[int] | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Bandwidth:
    """Copy to and from each GPU (if ``only`` is given, those with its indices), unbound and bound to each of ``nodes``.

    A copy that fails is recorded in ``problems``, and the rest is still measured.
    """
    wanted = None if only is None else set(only)
    chosen = [(ordinal, gpu) for ordinal, gpu in enumerate(cuda.gpus()) if wanted is None or gpu.index in wanted]
    copies: list[Copies] = []
    problems: list[str] = []
    for ordinal, gpu in chosen:
        for node in (None, *nodes):
            report(f"GPU {gpu.index}, {'not bound' if node is None else f'bound to NUMA node {node}'}")
            work = partial(_copies, cuda, host, ordinal, gpu.index, node, size_mib=size_mib, repeats=repeats)
            try:
                copies += host.on(node, work)
            except CopyError as error:
                where = "Not bound" if node is None else f"Bound to NUMA node {node}"
                problems.append(f"{where}, GPU {gpu.index} was not measured: {error}.")
    gpus = tuple(gpu for _, gpu in chosen)
    return Bandwidth(size_mib=size_mib, gpus=gpus, copies=tuple(copies), problems=tuple(problems))


def _copies(
    cuda: CudaDriver, host: ThisHost, ordinal: int, index: int, node: int | None, *, size_mib: int, repeats: int
) -> list[Copies]:
    size = size_mib * MIB
    with cuda.open(ordinal, size) as gpu, host.buffer(size) as buffer, gpu.pinned(buffer) as copy:
        copies = []
        for direction in DIRECTIONS:
            for _ in range(WARM_UP):
                copy(direction)
            rates = tuple(round(size / copy(direction) / 1e9, 2) for _ in range(repeats))
            copies.append(Copies(gpu=index, bound_to=node, direction=direction, gbps=rates, memory_on=buffer.memory_on))
        return copies
