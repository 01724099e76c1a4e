"""The Prometheus metrics of the hub."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from prometheus_client.metrics import MetricWrapperBase

from jupyterhub_gpuspawner.hub.site import metrics

from .of_extensions import all_of
from .wording import code, markdown, table

SUFFIX = {"counter": "_total"}
"""Suffix of a name in Prometheus's text format, by kind of metric."""


def families() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Name, kind, labels and meaning of each metric, in the order of the modules."""
    core = [metric for metric in vars(metrics).values() if isinstance(metric, MetricWrapperBase)]
    for collector in (*core, metrics._GPUsInUse(), *chain(*all_of("METRICS"))):
        for family in collector.describe():
            labels = collector._labelnames if isinstance(collector, MetricWrapperBase) else family._labelnames
            yield family.name + SUFFIX.get(family.type, ""), family.type, tuple(labels), family.documentation


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
