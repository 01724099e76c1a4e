"""A report on sessions: one HTML file with plots, without scripts and without anything from elsewhere. Pure.

It names no users. What it shows of a course with few people may still be about one person.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from html import escape
from typing import NamedTuple, TypeVar

from jupyterhub_gpuspawner.cluster.estimate import Kind
from jupyterhub_gpuspawner.extensions.records.promises import Outcome, accuracy
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.words import counted, duration

R = TypeVar("R")
T = TypeVar("T")

STYLE = """
.bars { width: 100%; border-collapse: collapse; margin: .75rem 0 }
.bars caption { text-align: start; color: var(--soft); padding-bottom: .4rem }
.bars th, .bars td { text-align: start; padding: .25rem .75rem .25rem 0; vertical-align: middle; font-weight: 400 }
.bars thead th, .bars thead td { color: var(--soft); font-size: .875rem; border-bottom: 1px solid var(--line) }
.bars tbody th { overflow-wrap: anywhere; min-width: 6rem }
.bars .number { text-align: end; font-variant-numeric: tabular-nums; white-space: nowrap }
.bars .bar { width: 45% }
.bars svg { display: block; width: 100%; height: 1rem }
.day { display: block; width: 100%; max-width: 46rem; height: auto; font: 12px system-ui, sans-serif }
.day text { fill: var(--soft) }
.day path { stroke: var(--line); fill: none }
.a { fill: var(--a) } .b { fill: var(--b) } .c { fill: var(--c) }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; margin: .5rem 0 }
.key svg { width: .8rem; height: .8rem; vertical-align: -.05rem; margin-inline-end: .4rem }
@media (max-width: 40rem) {
  .bars .bar { width: 28% }
  .bars th, .bars td { padding-inline-end: .5rem }
  .bars .extra { display: none }
}
""".strip()
_BOX = 1000
NO_PROFILE = "(no profile)"


Row = tuple[str, tuple[float, ...], tuple[str, ...]]
"""A label, the lengths of the bar's parts, which follow each other in the key's colours, and the numbers in words."""


def bars(caption: str, head: Sequence[str], rows: Sequence[Row], *, extra: Sequence[int] = ()) -> str:
    """A table with a bar in each row. ``head`` names the first column and those of the numbers.

    Columns in ``extra`` (of the numbers, from 0) are left out on small screens.
    """
    longest = max((sum(parts) for _, parts, _ in rows), default=0.0) or 1.0
    classes = ["number extra" if n in extra else "number" for n in range(len(head) - 1)]
    columns = list(zip(classes, head[1:], strict=True))
    heads = "".join(f'<th scope="col" class="{style}">{escape(name)}</th>' for style, name in columns)
    body = ""
    for label, parts, numbers in rows:
        body += f'<tr><th scope="row">{escape(label)}</th><td class="bar">{_bar(parts, longest)}</td>'
        cells = zip(classes, numbers, strict=True)
        body += "".join(f'<td class="{style}">{escape(text)}</td>' for style, text in cells) + "</tr>"
    return (
        f'<table class="bars"><caption>{escape(caption)}</caption><thead><tr><th scope="col">{escape(head[0])}</th>'
        f'<td class="bar"></td>{heads}</tr></thead><tbody>{body}</tbody></table>'
    )


def key(names: Sequence[str]) -> str:
    """The meaning of the colours, in their order."""
    items = (
        f'<li><svg viewBox="0 0 10 10" aria-hidden="true"><rect class="{colour}" width="10" height="10"/></svg>'
        f"{escape(name)}</li>"
        for colour, name in zip("abc", names, strict=False)
    )
    return f'<ul class="key">{"".join(items)}</ul>'


def _bar(parts: Sequence[float], longest: float) -> str:
    drawn, left = "", 0.0
    for colour, part in zip("abc", parts, strict=False):
        width = _BOX * part / longest
        if part:
            drawn += f'<rect class="{colour}" x="{left:.1f}" width="{max(width, 2.0):.1f}" height="10"/>'
        left += width
    return f'<svg viewBox="0 0 {_BOX} 10" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'


_TOPS = (*(10, 20, 60, 120, 240, 600, 1200, 1800, 3600), *(hours * 3600 for hours in (2, 4, 8, 12, 24, 48, 96)))
"""Tops of the axis of waits, in seconds; half of each is a round number, too."""


def day(hours: Mapping[int, Waits]) -> str:
    """A column for each hour of the day: the median is filled, what nine of ten waited at most is a mark above it.

    Its description has the same facts for screen readers.
    """
    width, height, left, bottom, top = 420, 170, 52, 145, 12
    step = (width - left) / 24
    most = max(waits.most for waits in hours.values())
    highest = next((value for value in _TOPS if most <= value), most)
    drawn = [f'<path d="M{left} {top}H{width}M{left} {(top + bottom) / 2}H{width}M{left} {bottom}H{width}"/>']
    for text, y in ((duration(highest), top), (duration(highest / 2), (top + bottom) / 2), ("0", bottom)):
        drawn.append(f'<text x="{left - 6}" y="{y + 3}" text-anchor="end">{text}</text>')
    for hour in range(24):
        x = left + hour * step
        if hour % 3 == 0:
            drawn.append(f'<text x="{x + step / 2:.1f}" y="{height - 10}" text-anchor="middle">{hour}</text>')
        if hour in hours:
            median, mark = ((bottom - top) * seconds / highest for seconds in hours[hour][:2])
            y, rest = bottom - median, f'width="{step - 4:.1f}" height="{median:.1f}"'
            drawn.append(f'<rect class="a" x="{x + 2:.1f}" y="{y:.1f}" {rest}/>')
            y, rest = bottom - mark - 1, f'width="{step - 2:.1f}" height="2"'
            drawn.append(f'<rect class="b" x="{x + 1:.1f}" y="{y:.1f}" {rest}/>')
    description = " ".join(
        f"{hour}:00, {counted(waits.number, 'start')}: median {duration(waits.median)}, 9 of 10 {duration(waits.most)}."
        for hour, waits in hours.items()
    )
    return (
        f'<svg class="day" viewBox="0 0 {width} {height}" role="img" aria-labelledby="day-title day-said">'
        '<title id="day-title">Waits by the hour of the day at which a server was asked for</title>'
        f'<desc id="day-said">{description}</desc>{"".join(drawn)}</svg>'
    )


_PAGE = """
:root {
  --ink: #1f2328; --soft: #57606a; --line: #c3cad3; --ground: #fff;
  --a: #0b57d0; --b: #1f2328; --c: #c3cad3; --rest: #8db4ef; --apart: #b35900;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6edf3; --soft: #a9b3be; --line: #46505c; --ground: #0d1117;
    --a: #8ab8ff; --b: #e6edf3; --c: #46505c; --rest: #3d6199; --apart: #e09b4f;
  }
}
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 0 auto;
  padding: 1.5rem 1rem 3rem; max-width: 60rem }
h1 { font-size: 1.6rem; margin: 0 }
h2 { font-size: 1.2rem; margin: 2.25rem 0 0 }
p { margin: .35rem 0; max-width: 46rem }
.soft { color: var(--soft) }
.use { --b: var(--rest) }
.placed { --b: var(--apart) }
""".strip()


def report(records: Sequence[SessionRecord], *, title: str, created: float, zone: tzinfo | None = None) -> str:
    """The file about sessions that are over; ``created`` is when, in seconds since the epoch.

    ``zone`` is that of the hours, by default this machine's.
    """
    body = "".join(_body(_with_clusters(records), zone))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>\n{_PAGE}\n{STYLE}\n</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n"
        f'<p class="soft">Made on {_day(created)} by gpuspawner from the hub\'s session records. '
        "It contains no names.</p>\n</main>\n</body>\n</html>\n"
    )


def _with_clusters(records: Sequence[SessionRecord]) -> Sequence[SessionRecord]:
    """The same, with profiles such as ``two-k80 on cedar`` where they are of several clusters."""
    if len({record.cluster for record in records}) < 2:
        return records
    return [
        replace(record, profile=f"{record.profile or NO_PROFILE} on {record.cluster}") if record.cluster else record
        for record in records
    ]


def _body(records: Sequence[SessionRecord], zone: tzinfo | None) -> Iterator[str]:
    if not records:
        yield "<p>There are no sessions that have ended.</p>"
        return
    begun = [record.begun_at for record in records]
    people = len({record.username for record in records})
    dates = f"{_day(min(begun))} to {_day(max(begun))}"
    yield f"<p>{len(records):,} sessions of {people:,} people, begun from {dates}.</p>"
    simulated = sum(record.simulated for record in records)
    if simulated:
        yield f"<p>The GPUs of {simulated:,} sessions were simulated.</p>"
    granted = [record for record in records if record.gpus]
    yield from _waits(records, zone)
    yield from _promises(records, zone)
    yield from _use(granted)
    yield from _alignment(granted)
    yield from _ends(records)


class Waits(NamedTuple):
    """How long people waited, from the click until the server answered, in seconds."""

    median: float
    most: float
    """Nine of ten did not wait longer."""
    number: int


def _waits_of(records: Iterable[SessionRecord]) -> Waits:
    waits = [record.wait_seconds for record in records if record.wait_seconds is not None]
    return Waits(quantile(waits, 0.5), quantile(waits, 0.9), len(waits))


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest of the values that at least this part of them does not exceed."""
    return sorted(values)[max(math.ceil(part * len(values)) - 1, 0)]


def _waits(records: Sequence[SessionRecord], zone: tzinfo | None) -> Iterator[str]:
    yield "<section><h2>Waits by profile</h2>"
    served = [record for record in records if record.wait_seconds is not None]
    if not served:
        yield "<p>No server became ready.</p></section>"
        return
    yield "<p>From the click until the server answered. “9 of 10”: nine of ten starts took no longer than that.</p>"
    rows: list[Row] = []
    for profile, group in _by_profile(served):
        waits = _waits_of(group)
        queued = [record.queue_seconds for record in group if record.queue_seconds is not None]
        queue = duration(quantile(queued, 0.5)) if queued else "not known"
        numbers = (duration(waits.median), queue, duration(waits.most), f"{waits.number:,}")
        rows.append((profile, (waits.median,), numbers))
    head = ("Profile", "Median", "In Slurm's queue", "9 of 10", "Starts")
    yield bars("The bars are medians.", head, _longest_first(rows), extra=(1, 3))
    yield "</section><section><h2>Waits by hour of the day</h2>"
    by_hour = _grouped(served, lambda record: datetime.fromtimestamp(record.begun_at, zone).hour)
    hours = {hour: _waits_of(group) for hour, group in sorted(by_hour.items())}
    yield key(("Median", "9 of 10 waited no longer"))
    yield day(hours)
    yield "</section>"


def _promises(records: Sequence[SessionRecord], zone: tzinfo | None) -> Iterator[str]:
    yield "<section><h2>Expected starts</h2>"
    pairs = [(record, outcome) for record in records for outcome in record.promise_outcomes]
    if not pairs:
        yield "<p>Nothing was said of the start of these sessions.</p></section>"
        return
    yield (
        "<p>What pages said of a start at the click, when the job began to wait, and at each half of the rest. "
        "“Within”: the job started in the range as it was said. The error is the time between the likely start and "
        "what came, in the median; beside it that of Slurm's own plan.</p>"
    )
    now = [outcome for _, outcome in pairs if outcome.promise.estimate.kind is Kind.NOW]
    if now:
        in_time = sum(outcome.result == "within" for outcome in now)
        yield f"<p>Of {len(now):,} that were to start now, {in_time:,} started within a minute.</p>"
    head = ("Within", "Median error", "Slurm's plan", "Said")
    by_profile = _grouped(pairs, lambda pair: pair[0].profile or NO_PROFILE)
    yield bars(
        "In percent.", ("Profile", *head), [_accuracy(*group) for group in sorted(by_profile.items())], extra=(2, 3)
    )
    by_hour = _grouped(pairs, lambda pair: datetime.fromtimestamp(pair[1].promise.at, zone).hour)
    rows = [_accuracy(f"{hour}:00", group) for hour, group in sorted(by_hour.items())]
    yield bars("In percent.", ("Hour", *head), rows, extra=(2, 3))
    yield "</section>"


def _accuracy(name: str, pairs: Sequence[tuple[SessionRecord, Outcome]]) -> Row:
    summary = accuracy([outcome for _, outcome in pairs])
    assert summary is not None
    errors = (duration(error) if error is not None else "-" for error in (summary.error, summary.slurm_error))
    numbers = (f"{100 * summary.within:.0f} %", *errors, f"{summary.number:,}")
    return name, (100 * summary.within,), numbers


def _use(granted: Sequence[SessionRecord]) -> Iterator[str]:
    yield '<section class="use"><h2>Use of GPUs</h2>'
    if not granted:
        yield "<p>No session had a GPU.</p></section>"
        return
    yield (
        "<p>GPU-hours that jobs held, and in which of them a kernel ran. The use is what a process beside each server "
        "measured; for the rest it is not known, which does not mean that the GPUs were idle.</p>"
    )
    yield key(("Busy", "No kernel ran", "Not known"))
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
        rows.append((profile, (busy, idle, unknown), numbers))
    head = ("Profile", "Held", "Busy", "Busy of known", "Not known")
    yield bars("In GPU-hours.", head, _longest_first(rows), extra=(1, 3))
    yield "</section>"


def _alignment(granted: Sequence[SessionRecord]) -> Iterator[str]:
    yield '<section class="placed"><h2>Alignment</h2>'
    if not granted:
        yield "<p>No session had a GPU.</p></section>"
        return
    yield "<p>Whether the GPUs, CPUs and memory of a session were on the same NUMA nodes.</p>"
    yield key(("Aligned", "Across NUMA nodes", "Not known"))
    rows: list[Row] = []
    for model, group in sorted(_grouped(granted, lambda record: record.gpu_model).items()):
        counts = Counter(record.aligned for record in group)
        parts = (counts[True], counts[False], counts[None])
        rows.append((model or "(not known)", parts, tuple(f"{number:,}" for number in (len(group), *parts))))
    yield bars("In sessions.", ("GPU", "Sessions", "Aligned", "Across", "Not known"), rows, extra=(1, 3))
    links = Counter(record.weakest_link for record in granted if record.weakest_link)
    if links:
        yield "<p>The slowest link among the GPUs of a session, as <code>nvidia-smi topo -m</code> names it.</p>"
        yield bars("In sessions.", ("Link", "Sessions"), [_count(name, number) for name, number in links.most_common()])
    yield "</section>"


def _ends(records: Sequence[SessionRecord]) -> Iterator[str]:
    yield "<section><h2>Ends by cause</h2>"
    causes = [record.cause for record in records if record.cause is not None]
    rows: list[Row] = []
    for kind, number in Counter(cause.kind.value for cause in causes).items():
        rows.append((kind.capitalize(), (number,), (f"{number:,}", _percent(number, len(records)))))
    yield bars("In sessions.", ("Cause", "Sessions", "Of all"), _longest_first(rows))
    faults = Counter(cause.fault for cause in causes if cause.fault)
    if faults:
        counts = _longest_first([_count(name, number) for name, number in faults.items()])
        yield bars("Starts that failed, by the class of the error.", ("Class", "Starts"), counts)
    yield "</section>"


def _by_profile(records: Iterable[SessionRecord]) -> Iterable[tuple[str, list[SessionRecord]]]:
    return _grouped(records, lambda record: record.profile or NO_PROFILE).items()


def _grouped(records: Iterable[R], key: Callable[[R], T]) -> dict[T, list[R]]:
    groups: dict[T, list[R]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    return groups


def _longest_first(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (-sum(row[1]), row[0]))


def _count(name: str, number: int) -> Row:
    return name, (number,), (f"{number:,}",)


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours < 100 else f"{hours:,.0f}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d")
