"""A report on sessions: one HTML file with plots, without scripts and without anything from elsewhere.

Its texts and plots are in ``report.html``. It names no users. What it shows of a course with few people may still be
about one person.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jinja2 import Environment

from jupyterhub_gpuspawner.extensions.records.promises import Outcome, accuracy
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.slurm.estimate import Kind
from jupyterhub_gpuspawner.words import counted, duration

R = TypeVar("R")
T = TypeVar("T")

NO_PROFILE = "(no profile)"
_TOPS = (*(10, 20, 60, 120, 240, 600, 1200, 1800, 3600), *(hours * 3600 for hours in (2, 4, 8, 12, 24, 48, 96)))
"""Tops of the axis of waits, in seconds; half of each is a round number, too."""


class Row(NamedTuple):
    """A row of a table with bars."""

    label: str
    parts: tuple[float, ...]
    """The lengths of the bar's parts, which follow each other in the key's colours."""
    numbers: tuple[str, ...]


class Waits(NamedTuple):
    """How long people waited, from the click until the server answered, in seconds."""

    median: float
    most: float
    """Nine of ten did not wait longer."""
    number: int


def report(records: Sequence[SessionRecord], *, title: str, created: float, zone: tzinfo | None = None) -> str:
    """The file about sessions that are over; ``created`` is when, in seconds since the epoch.

    ``zone`` is that of the hours, by default this machine's.
    """
    source = Path(__file__).with_name("report.html").read_text("utf-8")
    style = source.partition("<style>")[2].partition("</style>")[0]
    page = Environment(autoescape=True).from_string(source)
    facts = _facts(_with_clusters(records), zone) if records else {}
    style_hash = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    facts |= {"title": title, "created": _day(created), "style_hash": style_hash}
    return page.render(counted=counted, duration=duration, **facts)


def _with_clusters(records: Sequence[SessionRecord]) -> Sequence[SessionRecord]:
    """The same, with profiles such as ``two-k80 on cedar`` where they are of several clusters."""
    if len({record.cluster for record in records}) < 2:
        return records
    return [
        replace(record, profile=f"{record.profile or NO_PROFILE} on {record.cluster}") if record.cluster else record
        for record in records
    ]


def _facts(records: Sequence[SessionRecord], zone: tzinfo | None) -> dict[str, Any]:
    begun = [record.begun_at for record in records]
    granted = [record for record in records if record.gpus]
    links = Counter(record.weakest_link for record in granted if record.weakest_link)
    return {
        "sessions": len(records),
        "people": len({record.username for record in records}),
        "first": _day(min(begun)),
        "last": _day(max(begun)),
        "simulated": sum(record.simulated for record in records),
        **_waits([record for record in records if record.wait_seconds is not None], zone),
        **_promises([(record, outcome) for record in records for outcome in record.promise_outcomes], zone),
        "use": _use(granted),
        "alignment": _alignment(granted),
        "links": [_count(name, number) for name, number in links.most_common()],
        **_ends(records),
    }


def _waits_of(records: Iterable[SessionRecord]) -> Waits:
    waits = [record.wait_seconds for record in records if record.wait_seconds is not None]
    return Waits(quantile(waits, 0.5), quantile(waits, 0.9), len(waits))


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest of the values that at least this part of them does not exceed."""
    return sorted(values)[max(math.ceil(part * len(values)) - 1, 0)]


def _waits(served: Sequence[SessionRecord], zone: tzinfo | None) -> dict[str, Any]:
    """Waits of servers that became ready, by profile and by hour of the day."""
    rows: list[Row] = []
    for profile, group in _by_profile(served):
        waits = _waits_of(group)
        queued = [record.queue_seconds for record in group if record.queue_seconds is not None]
        queue = duration(quantile(queued, 0.5)) if queued else "not known"
        numbers = (duration(waits.median), queue, duration(waits.most), f"{waits.number:,}")
        rows.append(Row(profile, (waits.median,), numbers))
    by_hour = _grouped(served, lambda record: datetime.fromtimestamp(record.begun_at, zone).hour)
    hours = {hour: _waits_of(group) for hour, group in sorted(by_hour.items())}
    most = max((waits.most for waits in hours.values()), default=0.0)
    highest = next((top for top in _TOPS if most <= top), most)
    return {"waits": _longest_first(rows), "hours": hours, "highest": highest}


def _promises(pairs: Sequence[tuple[SessionRecord, Outcome]], zone: tzinfo | None) -> dict[str, Any]:
    """How well what was said of starts was kept, by profile and by the hour at which it was said."""
    now = [outcome for _, outcome in pairs if outcome.promise.estimate.kind is Kind.NOW]
    by_profile = _grouped(pairs, lambda pair: pair[0].profile or NO_PROFILE)
    by_hour = _grouped(pairs, lambda pair: datetime.fromtimestamp(pair[1].promise.at, zone).hour)
    return {
        "now": len(now),
        "in_time": sum(outcome.result == "within" for outcome in now),
        "promises": [_accuracy(*group) for group in sorted(by_profile.items())],
        "promises_by_hour": [_accuracy(f"{hour}:00", group) for hour, group in sorted(by_hour.items())],
    }


def _accuracy(name: str, pairs: Sequence[tuple[SessionRecord, Outcome]]) -> Row:
    summary = accuracy([outcome for _, outcome in pairs])
    assert summary is not None
    errors = (duration(error) if error is not None else "-" for error in (summary.error, summary.slurm_error))
    numbers = (f"{100 * summary.within:.0f} %", *errors, f"{summary.number:,}")
    return Row(name, (100 * summary.within,), numbers)


def _use(granted: Sequence[SessionRecord]) -> list[Row]:
    rows: list[Row] = []
    for profile, group in _by_profile(granted):
        held = busy = unknown = 0.0
        for record in group:
            whole = (record.gpu_seconds_held or 0.0) / 3600
            measured = min(record.gpu_seconds_measured / 3600, whole)
            held += whole
            busy += min(record.gpu_seconds_busy / 3600, measured)
            unknown += whole - measured
        idle = max(held - busy - unknown, 0.0)
        numbers = (_hours(held), _hours(busy), _percent(busy, busy + idle), _hours(unknown))
        rows.append(Row(profile, (busy, idle, unknown), numbers))
    return _longest_first(rows)


def _alignment(granted: Sequence[SessionRecord]) -> list[Row]:
    rows: list[Row] = []
    for model, group in sorted(_grouped(granted, lambda record: record.gpu_model).items()):
        counts = Counter(record.aligned for record in group)
        parts = (counts[True], counts[False], counts[None])
        rows.append(Row(model or "(not known)", parts, tuple(f"{number:,}" for number in (len(group), *parts))))
    return rows


def _ends(records: Sequence[SessionRecord]) -> dict[str, Any]:
    causes = [record.cause for record in records if record.cause is not None]
    faults = Counter(cause.fault for cause in causes if cause.fault)
    rows = [
        Row(kind.capitalize(), (number,), (f"{number:,}", _percent(number, len(records))))
        for kind, number in Counter(cause.kind.value for cause in causes).items()
    ]
    return {
        "causes": _longest_first(rows),
        "faults": _longest_first(_count(name, number) for name, number in faults.items()),
    }


def _by_profile(records: Iterable[SessionRecord]) -> Iterable[tuple[str, list[SessionRecord]]]:
    return _grouped(records, lambda record: record.profile or NO_PROFILE).items()


def _grouped(records: Iterable[R], key: Callable[[R], T]) -> dict[T, list[R]]:
    groups: dict[T, list[R]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    return groups


def _longest_first(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (-sum(row.parts), row.label))


def _count(name: str, number: int) -> Row:
    return Row(name, (number,), (f"{number:,}",))


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours < 100 else f"{hours:,.0f}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d")
