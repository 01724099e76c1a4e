"""A server's use on its card: each GPU now and in the last hour, as a line and in words; and in a few words."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jupyterhub_gpuspawner.extensions.usage import words
from jupyterhub_gpuspawner.extensions.usage.node.summary import (
    SAMPLES,
    GpuUse,
    gpu_memory_used,
    host_bars,
    percent,
    percent_of,
    processes,
)
from jupyterhub_gpuspawner.extensions.usage.use import (
    RETENTION_SECONDS,
    ServerUsage,
    Use,
    mean_of,
    mean_use,
    usage_of,
)
from jupyterhub_gpuspawner.hub.extension import Place, ServerPart
from jupyterhub_gpuspawner.hub.spawners.server import Server, ServerState, gpus_of, kept_with
from jupyterhub_gpuspawner.hub.times import parse_time
from jupyterhub_gpuspawner.placement.topology import gpu_name
from jupyterhub_gpuspawner.slurm.gpu_model import device_model
from jupyterhub_gpuspawner.units import count_cpus
from jupyterhub_gpuspawner.wire.documents import PlacementDocument
from jupyterhub_gpuspawner.words import memory

GPUS_AT_MOST = 16
"""GPUs with a line."""
NONE_YET = "\N{EN DASH}"
STEPS = 24
"""Points of a line, over the hour."""
Models = Mapping[tuple[int, str, "str | None"], str]
"""The models of a server's GPUs, by index, UUID and MIG profile."""


@dataclass(frozen=True)
class GpuCard:
    """One GPU's use."""

    name: str
    model: str = ""
    now: str = ""
    """Such as ``83 %``."""
    memory: str = ""
    """Such as ``21 of 40 GB``."""
    memory_percent: int = 0
    processes: str = ""
    """Such as ``2 processes``."""
    description: str = ""
    """The last hour in words."""
    steps: tuple[float | None, ...] = (None,) * STEPS
    """Its mean use in each of :data:`STEPS` parts of the hour, in percent, the oldest first; None is unknown."""
    rows: tuple[tuple[float, str, str, str], ...] = ()
    """The same in words: when each summary ended, mean, maximum and memory."""


@dataclass(frozen=True)
class UsageCard:
    """A server's use."""

    at: float | None = None
    """When it was measured, in seconds since the epoch; None before the first summary."""
    gpus: tuple[GpuCard, ...] = ()
    host: tuple[tuple[str, str, int], ...] = ()
    """Cores and memory of the job: what is used of them in words, and in percent."""
    simulated: bool = False
    problems: tuple[str, ...] = ()
    measured: str = ""
    """How often that is done, as a sentence."""


def usage_card(usage: Sequence[Use], *, now: float, placement: PlacementDocument | None = None) -> UsageCard | None:
    """What the card shows of these summaries, oldest first; None where there is none, and no GPU is known.

    ``placement``: what the server has, of which it uses a part; None where that is not known.
    """
    has = placement or PlacementDocument()
    cpus, mib = count_cpus(has.cpus), has.memory_mib
    models: Models = {
        (gpu.index, gpu.uuid, gpu.mig): str(device_model(gpu.name, gpu.mig, gpu.memory_mib)) for gpu in has.gpus
    }
    if not usage:
        gpus = tuple(
            GpuCard(
                gpu_name(gpu.index, gpu.mig, gpu.mig_device), models[gpu.index, gpu.uuid, gpu.mig], NONE_YET, NONE_YET
            )
            for gpu in has.gpus[:GPUS_AT_MOST]
        )
        whole = {"CPUs": f"{cpus or ''}", "memory": memory(mib) if mib else ""}
        host = tuple((name, f"{NONE_YET} of {amount}", 0) for name, amount in whole.items() if amount)
        return UsageCard(gpus=gpus, host=host) if placement is not None else None
    last = usage[-1]
    summary = last.summary
    return UsageCard(
        last.at,
        tuple(_usage_gpu(gpu, usage, now, models) for gpu in summary.gpus[:GPUS_AT_MOST]),
        host_bars(summary.cores, cpus, summary.memory_mib, mib),
        simulated=summary.simulated,
        problems=summary.problems,
        measured=words.measured(summary.interval, SAMPLES),
    )


def in_a_line(usage: Sequence[Use]) -> str:
    """``GPU 83 %`` for the last summary, each GPU's in order; empty where there is none, or no GPU."""
    gpus = usage[-1].summary.gpus if usage else ()
    return f"GPU {', '.join(percent(gpu.utilization) for gpu in gpus)}" if gpus else ""


def _usage_gpu(gpu: GpuUse, usage: Sequence[Use], now: float, models: Models) -> GpuCard:
    history = [(use, gpu_use) for use in usage for gpu_use in use.summary.gpus if _same(gpu_use, gpu)]
    mean = mean_of(use for _, use in history)
    most = max((use.utilization_max or 0.0 for _, use in history if use.utilization_mean is not None), default=None)
    rows = tuple(
        (
            use.at,
            percent(gpu_summary.utilization_mean),
            percent(gpu_summary.utilization_max),
            gpu_memory_used((gpu_summary.memory_used_max_mib, gpu_summary.memory_mib)),
        )
        for use, gpu_summary in history
    )
    return GpuCard(
        gpu_name(gpu.index, gpu.mig, gpu.mig_device),
        models.get((gpu.index, gpu.uuid, gpu.mig), ""),
        percent(gpu.utilization),
        gpu_memory_used((gpu.memory_used_mib, gpu.memory_mib)),
        percent_of(gpu.memory_used_mib, gpu.memory_mib),
        processes(gpu.processes),
        words.chart_description(mean, most),
        tuple(_steps(history, now)),
        rows,
    )


def _steps(history: Sequence[tuple[Use, GpuUse]], now: float) -> Iterator[float | None]:
    """The mean use at the middle of each part of the hour until ``now``."""
    for step in range(STEPS):
        at = now - RETENTION_SECONDS * (STEPS - step - 0.5) / STEPS
        yield next((gpu.utilization_mean for use, gpu in history if use.since <= at <= use.at), None)


def _same(one: GpuUse, other: GpuUse) -> bool:
    return (one.index, one.uuid, one.mig) == (other.index, other.uuid, other.mig)


def parts_of(spawner: Any, server: Server) -> Iterator[ServerPart]:
    """The part of a running server of whose use something is known or will be, and of any other with summaries."""
    usage = usage_of(spawner)
    running = server.state is ServerState.RUNNING and server.placement is not None
    if not usage and not (running and kept_with(spawner, ServerUsage) is not None):
        return
    ran = 0.0
    if server.ready and server.placement is not None and server.placement.started_at is not None:
        ran = time.time() - parse_time(server.placement.started_at).timestamp()
    shown = partial(usage_card, usage, now=time.time(), placement=server.placement)
    version = usage[-1].at if usage else None
    yield ServerPart(
        "usage",
        Place.BESIDE,
        "usage_card.html" if running else "",
        shown,
        version=version,
        brief=in_a_line(usage),
        at_end=words.what_was_used(
            ran=ran,
            gpus=gpus_of(server),
            mean_use=mean_use(usage),
            memory_max_mib=max((use.summary.memory_max_mib or 0 for use in usage), default=0),
        ),
    )
    if running and in_a_line(usage):
        yield ServerPart("usage_hour", Place.BELOW, "usage_hour.html", shown, version=version)
