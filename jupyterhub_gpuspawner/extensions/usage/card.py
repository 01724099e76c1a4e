"""A server's use on its card: each GPU now and in the last hour, in words and as a chart; and in a few words."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup

from jupyterhub_gpuspawner.extensions.usage import chart, words
from jupyterhub_gpuspawner.extensions.usage.node.summary import SAMPLES, GpuUse, cpus_used, gpu_memory_used, memory_used
from jupyterhub_gpuspawner.extensions.usage.use import Use, mean_of, mean_use, usage_of
from jupyterhub_gpuspawner.hub.extension import Place, ServerPart
from jupyterhub_gpuspawner.hub.spawners.server import Server, ServerState, gpus_of
from jupyterhub_gpuspawner.hub.times import parse_time
from jupyterhub_gpuspawner.placement.topology import gpu_name
from jupyterhub_gpuspawner.units import count_cpus
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

GPUS_AT_MOST = 16
"""GPUs with a chart."""


@dataclass(frozen=True)
class GpuCard:
    """One GPU's use."""

    name: str
    now: str
    """Such as ``83 %, 21 of 40 GB, 2 processes``."""
    description: str
    """The last hour in words."""
    chart: Markup
    rows: tuple[tuple[float, str, str, str], ...]
    """The chart in words: when each summary ended, mean, maximum and memory."""


@dataclass(frozen=True)
class UsageCard:
    """A server's use."""

    at: float
    """When it was measured, in seconds since the epoch."""
    gpus: tuple[GpuCard, ...] = ()
    host: str = ""
    """CPU and memory of the job."""
    simulated: bool = False
    problems: tuple[str, ...] = ()
    measured: str = ""
    """How often that is done, as a sentence."""


def usage_card(usage: Sequence[Use], *, now: float, placement: PlacementDocument | None = None) -> UsageCard | None:
    """What the card shows of these summaries, oldest first; None where there is none.

    ``placement``: what the server has, of which it uses a part; None where that is not known.
    """
    if not usage:
        return None
    last = usage[-1]
    summary = last.summary
    cpus = count_cpus(placement.cpus) if placement is not None else 0
    mib = placement.memory_mib if placement is not None else None
    host = (
        words.CPUS_IN_USE.format(amount=cpus_used(summary.cores, cpus)) if summary.cores is not None else "",
        words.MEMORY_IN_USE.format(amount=memory_used(summary.memory_mib, mib))
        if summary.memory_mib is not None
        else "",
    )
    return UsageCard(
        last.at,
        tuple(_usage_gpu(gpu, usage, now) for gpu in summary.gpus[:GPUS_AT_MOST]),
        ", ".join(filter(None, host)),
        simulated=summary.simulated,
        problems=summary.problems,
        measured=words.measured(summary.interval, SAMPLES),
    )


def in_a_line(usage: Sequence[Use]) -> str:
    """``GPU 83 %`` for the last summary, each GPU's in order; empty where there is none, or no GPU."""
    gpus = usage[-1].summary.gpus if usage else ()
    return f"GPU {', '.join(words.percent(gpu.utilization) for gpu in gpus)}" if gpus else ""


def _usage_gpu(gpu: GpuUse, usage: Sequence[Use], now: float) -> GpuCard:
    history = [(use, gpu_use) for use in usage for gpu_use in use.summary.gpus if _same(gpu_use, gpu)]
    name = gpu_name(gpu.index, gpu.mig, gpu.mig_device)
    mean = mean_of(use for _, use in history)
    most = max((use.utilization_max or 0.0 for _, use in history if use.utilization_mean is not None), default=None)
    spans = [
        chart.Span(now - use.since, now - use.at, gpu_summary.utilization_mean, gpu_summary.utilization_max)
        for use, gpu_summary in history
    ]
    description = words.chart_description(mean, most)
    drawn = chart.svg(spans, title=words.CHART.format(gpu=name), description=description)
    parts = (
        words.percent(gpu.utilization),
        gpu_memory_used((gpu.memory_used_mib, gpu.memory_mib)),
        words.processes(gpu.processes),
    )
    rows = tuple(
        (
            use.at,
            words.percent(gpu_summary.utilization_mean),
            words.percent(gpu_summary.utilization_max),
            gpu_memory_used((gpu_summary.memory_used_max_mib, gpu_summary.memory_mib)),
        )
        for use, gpu_summary in history
    )
    # the chart escapes every text in it
    return GpuCard(name, ", ".join(filter(None, parts)), description, Markup(drawn), rows)  # noqa: S704


def _same(one: GpuUse, other: GpuUse) -> bool:
    return (one.index, one.uuid, one.mig) == (other.index, other.uuid, other.mig)


def parts_of(spawner: Any, server: Server) -> Iterator[ServerPart]:
    """The part of a server of whose use something is known; its charts are drawn when the card is shown."""
    usage = usage_of(spawner)
    if not usage:
        return
    ran = 0.0
    if server.ready and server.placement is not None and server.placement.started_at is not None:
        ran = time.time() - parse_time(server.placement.started_at).timestamp()
    yield ServerPart(
        "usage",
        Place.BESIDE,
        "usage_card.html" if server.state is ServerState.RUNNING else "",
        partial(usage_card, usage, now=time.time(), placement=server.placement),
        version=usage[-1].at,
        brief=in_a_line(usage),
        at_end=words.what_was_used(
            ran=ran,
            gpus=gpus_of(server),
            mean_use=mean_use(usage),
            memory_max_mib=max(use.summary.memory_max_mib or 0 for use in usage),
        ),
    )
