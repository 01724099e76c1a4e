"""The records of sessions, the columns of an export, and the metrics of what was said of starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from prometheus_client.metrics import MetricWrapperBase

from docs.reference_pages.wording import attribute_docs, code, markdown, table, type_in_words
from jupyterhub_gpuspawner.extensions.records import metrics
from jupyterhub_gpuspawner.extensions.records.export import COLUMNS
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.extensions.records.store import STEPS

METRICS = tuple(metric for metric in vars(metrics).values() if isinstance(metric, MetricWrapperBase))


def records() -> str:
    """What is kept of a session, and what an export has."""
    parts = [
        f"## Record, version {len(STEPS) + 1}\n",
        "The columns of the table `sessions` in the SQLite file. `reasons` is a text with commas, `promises` is JSON, "
        "and `fault` belongs to `cause`. Asked for and granted amounts without a description are those of the "
        "events.\n",
        table(("Column", "Type", "Meaning"), list(_columns())),
        "## Export\n",
        "The columns of an exported table.\n",
        table(("Column", "Type", "Meaning"), [(code(c.name), c.type, c.description) for c in COLUMNS]),
    ]
    return "\n".join(parts)


def _columns() -> Iterator[tuple[str, str, str]]:
    docs = attribute_docs(SessionRecord)
    for field in fields(SessionRecord):
        kind = "text" if field.name == "cause" else type_in_words(_HINTS[str(field.type)])
        yield code(field.name), kind, markdown(docs.get(field.name))


_HINTS: dict[str, Any] = {
    "str": str,
    "str | None": str | None,
    "float": float,
    "float | None": float | None,
    "int | None": int | None,
    "bool": bool,
    "bool | None": bool | None,
    "tuple[str, ...]": str,
    "tuple[Promise, ...]": str,
}


PARTS = {"sessions.md": records}
