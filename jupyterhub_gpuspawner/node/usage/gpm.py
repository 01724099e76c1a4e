"""Utilisation of a MIG device by GPU performance monitoring (GPM), which Hopper and newer GPUs have.

NVML's ordinary utilisation does not exist for MIG devices. GPM compares two samples of the device: the first reading is
therefore unknown. Source: nvml.h of CUDA 13.2, "GPM NVML".
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_double, c_int, c_uint, c_void_p
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Protocol

    class Calls(Protocol):
        """An open NVML."""

        def call(self, function: str, *arguments: Any) -> int: ...  # noqa: D102


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

    def __init__(self, nvml: Calls, device: c_void_p) -> None:
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
