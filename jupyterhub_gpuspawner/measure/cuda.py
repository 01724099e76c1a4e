"""Copies by CUDA's driver, through NVIDIA's own bindings (package cuda-bindings, our extra ``gpu``)."""

from __future__ import annotations

import os
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.measure.copies import CopyError, MeasuredGpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jupyterhub_gpuspawner.measure.copies import Buffer, Direction
    from jupyterhub_gpuspawner.placement.topology import NodeTopology

_NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""


class CudaUnavailableError(Exception):
    """Nothing can be copied here; the text says why and what would be right."""


class CudaDriver:
    """The GPUs that CUDA shows to this process, in the order of their PCI bus ids; raises CudaUnavailableError.

    ``topology`` tells their NVML indices and NUMA nodes.
    """

    def __init__(self, topology: NodeTopology) -> None:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        self._driver: Any = _load()
        self._known = {gpu.pci: gpu for gpu in topology.gpus if gpu.pci}
        self._devices = [self._call("cuDeviceGet", place) for place in range(self._call("cuDeviceGetCount"))]
        if not self._devices:
            raise CudaUnavailableError(_no_gpu())

    def gpus(self) -> Sequence[MeasuredGpu]:
        """In the order of their PCI bus ids."""
        return [self._gpu(place, device) for place, device in enumerate(self._devices)]

    def _gpu(self, place: int, device: Any) -> MeasuredGpu:
        name = _text(self._call("cuDeviceGetName", 256, device))
        pci = _text(self._call("cuDeviceGetPCIBusId", 32, device)).lower()
        known = self._known.get(pci)
        if known is None:
            return MeasuredGpu(index=place, name=name, pci=pci)
        return MeasuredGpu(index=known.index, name=name, pci=pci, numa_node=known.numa_node)

    @contextmanager
    def open(self, place: int, size: int) -> Iterator[_OpenDevice]:
        """Its primary context, current in this thread, and ``size`` bytes of its memory."""
        device = self._devices[place]
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
        """What the call returns beside its status; raises CopyError."""
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
        """Pin the buffer where it is; the copy is timed by the GPU's own events."""
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
