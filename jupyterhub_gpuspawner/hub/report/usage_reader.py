"""Reads the summaries of a server's use: a strict model in which every field has its type and its bounds.

The models have the fields of :mod:`~jupyterhub_gpuspawner.wire.documents`, whose classes they return.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictInt

from jupyterhub_gpuspawner.hub.report.reader import (
    Document,
    GpuIndex,
    Items,
    MiB,
    ReportError,
    Text,
    read,
    strict_json,
)
from jupyterhub_gpuspawner.wire.documents import REPORT_LIMIT, USAGE_VERSION, GpuUse, UsageSummary

Percent = Annotated[float, Field(ge=0, le=100, strict=True)]
Seconds = Annotated[float, Field(ge=0, le=86400, strict=True)]
Watts = Annotated[float, Field(ge=0, le=1e5, strict=True)]
Joules = Annotated[float, Field(ge=0, le=1e10, strict=True)]
Cores = Annotated[float, Field(ge=0, le=65536, strict=True)]
Number = Annotated[StrictInt, Field(ge=0, le=1_000_000)]


class _GpuUse(Document):
    index: GpuIndex
    uuid: Text = ""
    mig: Text | None = None
    utilization: Percent | None = None
    utilization_mean: Percent | None = None
    utilization_max: Percent | None = None
    utilization_samples: Number = 0
    memory_mib: MiB | None = None
    memory_used_mib: MiB | None = None
    memory_used_max_mib: MiB | None = None
    processes: Number | None = None
    power_watts: Watts | None = None
    energy_joules: Joules | None = None
    mig_device: GpuIndex | None = None


class _Summary(Document):
    version: Annotated[StrictInt, Field(ge=1, le=USAGE_VERSION)]
    job_id: Text | None = None
    seconds: Seconds = 0.0
    samples: Number = 0
    interval: Seconds = 0.0
    final: StrictBool = False
    simulated: StrictBool = False
    gpus: Items[_GpuUse] = []  # noqa: RUF012 - pydantic copies it
    cores: Cores | None = None
    cores_mean: Cores | None = None
    cores_max: Cores | None = None
    memory_mib: MiB | None = None
    memory_max_mib: MiB | None = None
    problems: Items[Text] = []  # noqa: RUF012 - pydantic copies it

    def summary(self) -> UsageSummary:
        values: dict[str, Any] = self.values()
        del values["version"]
        values["gpus"] = tuple(GpuUse(**gpu.values()) for gpu in self.gpus)
        return UsageSummary(**values)


def parse_usage(body: bytes) -> UsageSummary:
    """Read a summary; raises :class:`~.reader.ReportError` naming the first field at fault."""
    if len(body) > REPORT_LIMIT:
        raise ReportError(f"usage: {len(body)} bytes are more than the limit of {REPORT_LIMIT}")
    return read(_Summary, strict_json(body, "usage"), "usage").summary()
