"""A server's use on its card: each GPU now and in the last hour, in words and as a chart. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from jupyterhub_gpuspawner.hub.text import usage as text
from jupyterhub_gpuspawner.picture import usage_chart
from jupyterhub_gpuspawner.placement.topology import gpu_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.hub.report.usage import Use
    from jupyterhub_gpuspawner.wire.documents import GpuUse

GPUS_AT_MOST = 16
"""GPUs with a chart."""


@dataclass(frozen=True)
class GpuCard:
    """One GPU's use."""

    name: str
    now: str
    """Such as ``83 %, 21 of 40 GB, 2 processes``."""
    said: str
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


def usage_card(usage: Sequence[Use], *, now: float) -> UsageCard | None:
    """What the card shows of these summaries, oldest first; None where there is none."""
    if not usage:
        return None
    last = usage[-1]
    told = last.summary
    host = (
        text.cores(told.cores) if told.cores is not None else "",
        text.job_memory(told.memory_mib) if told.memory_mib is not None else "",
    )
    return UsageCard(
        last.at,
        tuple(_gpu(gpu, usage, now) for gpu in told.gpus[:GPUS_AT_MOST]),
        ", ".join(filter(None, host)),
        simulated=told.simulated,
        problems=told.problems,
    )


def in_a_line(usage: Sequence[Use]) -> str:
    """``GPU 83 %`` for the last summary, each GPU's in order; empty where there is none, or no GPU."""
    gpus = usage[-1].summary.gpus if usage else ()
    return f"GPU {', '.join(text.percent(gpu.utilization) for gpu in gpus)}" if gpus else ""


def _gpu(gpu: GpuUse, usage: Sequence[Use], now: float) -> GpuCard:
    history = [(use, each) for use in usage for each in use.summary.gpus if _same(each, gpu)]
    name = gpu_name(gpu.index, gpu.mig, gpu.mig_device)
    known = [each for _, each in history if each.utilization_mean is not None]
    number = sum(each.utilization_samples for each in known)
    mean = sum((each.utilization_mean or 0.0) * each.utilization_samples for each in known) / number if number else None
    most = max((each.utilization_max or 0.0 for each in known), default=None)
    spans = [
        usage_chart.Span(now - use.since, now - use.at, each.utilization_mean, each.utilization_max)
        for use, each in history
    ]
    said = text.chart_said(mean, most)
    drawn = usage_chart.svg(spans, title=text.chart_title(name), said=said)
    parts = (
        text.percent(gpu.utilization),
        text.memory(gpu.memory_used_mib, gpu.memory_mib),
        text.processes(gpu.processes),
    )
    rows = tuple(
        (
            use.at,
            text.percent(each.utilization_mean),
            text.percent(each.utilization_max),
            text.memory(each.memory_used_max_mib, each.memory_mib),
        )
        for use, each in history
    )
    # the chart escapes every text in it
    return GpuCard(name, ", ".join(filter(None, parts)), said, Markup(drawn), rows)  # noqa: S704


def _same(one: GpuUse, other: GpuUse) -> bool:
    return (one.index, one.uuid, one.mig) == (other.index, other.uuid, other.mig)
