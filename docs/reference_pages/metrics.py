"""The Prometheus metrics of the hub."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics import MetricWrapperBase

from jupyterhub_gpuspawner.extensions.records import metrics as promises
from jupyterhub_gpuspawner.extensions.usage.metric import GpuUseCollector
from jupyterhub_gpuspawner.hub.site import metrics

from .wording import code, markdown, table

SUFFIX = {"counter": "_total"}
"""Suffix of a name in Prometheus's text format, by kind of metric."""


def families() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Name, kind, labels and meaning of each metric, in the order of the modules."""
    for value in (*vars(metrics).values(), *vars(promises).values()):
        if isinstance(value, MetricWrapperBase):
            (family,) = value.describe()
            yield family.name + SUFFIX.get(family.type, ""), family.type, value._labelnames, family.documentation
    for gauge in (*metrics._GPUsInUse().describe(), *GpuUseCollector().describe()):
        yield gauge.name, gauge.type, tuple(gauge._labelnames), gauge.documentation


def page() -> str:
    """The page of Prometheus metrics."""
    rows = [
        (code(name), kind, ", ".join(code(label) for label in labels), meaning)
        for name, kind, labels, meaning in families()
    ]
    return "\n".join(
        [
            "# Metrics\n",
            f"{markdown(metrics.__doc__)}\n",
            "[Monitor the hub](../howto/watch-the-hub.md) has a scrape configuration and alerts.\n",
            table(("Name", "Kind", "Labels", "Meaning"), rows),
        ]
    )
