"""A report on sessions: one HTML file with plots, without scripts and without anything from elsewhere. Pure.

It names no users. What it shows of a course with few people may still be about one person.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from html import escape
from typing import TypeVar

from jupyterhub_gpuspawner.records.record import Kind, SessionRecord
from jupyterhub_gpuspawner.words import duration

T = TypeVar("T")
Name = TypeVar("Name", bound=str)


@dataclass(frozen=True)
class Waits:
    """How long people waited, from the click until the server answered, in seconds."""

    label: str
    number: int
    """Starts that became ready."""
    median: float
    most: float
    """Nine of ten did not wait longer."""
    queue: float | None
    """The median time in Slurm's queue; None: not known of any of them."""


@dataclass(frozen=True)
class GpuHours:
    """GPU-hours of the sessions of one profile."""

    label: str
    held: float
    busy: float
    """Of these, in which a kernel ran, as far as that is known."""
    unknown: float
    """Of these, for which the use is not known."""

    @property
    def idle(self) -> float:
        """Of these, in which no kernel ran."""
        return max(self.held - self.busy - self.unknown, 0.0)


@dataclass(frozen=True)
class Alignment:
    """Sessions of one GPU model by whether GPUs, CPUs and memory were on the same NUMA nodes."""

    label: str
    aligned: int
    across: int
    unknown: int

    @property
    def number(self) -> int:
        """All of them."""
        return self.aligned + self.across + self.unknown


@dataclass(frozen=True)
class Summary:
    """Everything that a report shows."""

    sessions: int
    people: int
    first: float | None
    """When the first session began, in seconds since the epoch; None: there is none."""
    last: float | None
    simulated: int
    waits: tuple[Waits, ...]
    """By profile, the longest wait first."""
    hours: tuple[Waits | None, ...]
    """By the hour of the day at which a server was asked for, from 0 to 23; None: no server was."""
    use: tuple[GpuHours, ...]
    """By profile, the most GPU-hours first."""
    alignment: tuple[Alignment, ...]
    """By GPU model."""
    links: tuple[tuple[str, int], ...]
    """The slowest link of sessions with several GPUs, and their number."""
    causes: tuple[tuple[Kind, int], ...]
    faults: tuple[tuple[str, int], ...]
    """Classes of errors of starts that failed."""


def summarize(records: Iterable[SessionRecord], zone: tzinfo | None = None) -> Summary:
    """The summary of sessions that are over; ``zone`` is that of the hours, by default this machine's."""
    over = [record for record in records if record.ended_at is not None]
    served = [record for record in over if record.wait_seconds is not None]
    placements = [record for record in over if record.gpus]
    begun = [record.begun_at for record in over]
    causes = [record.cause for record in over if record.cause is not None]
    by_hour = _grouped(served, lambda record: datetime.fromtimestamp(record.begun_at, zone).hour)
    waits = [_waits_of(name, group) for name, group in _grouped(served, _profile).items()]
    use = [_gpu_hours(name, group) for name, group in _grouped(placements, _profile).items()]
    models = sorted(_grouped(placements, lambda record: record.gpu_model).items())
    return Summary(
        sessions=len(over),
        people=len({record.username for record in over}),
        first=min(begun, default=None),
        last=max(begun, default=None),
        simulated=sum(record.simulated for record in over),
        waits=tuple(sorted(waits, key=lambda waits: (-waits.median, waits.label))),
        hours=tuple(_waits_of(str(hour), by_hour[hour]) if hour in by_hour else None for hour in range(24)),
        use=tuple(sorted(use, key=lambda hours: (-hours.held, hours.label))),
        alignment=tuple(_alignment(model or "(not known)", group) for model, group in models),
        links=tuple(Counter(record.weakest_link for record in placements if record.weakest_link).most_common()),
        causes=_most_first(Counter(cause.kind for cause in causes)),
        faults=_most_first(Counter(cause.fault for cause in causes if cause.fault)),
    )


def _profile(record: SessionRecord) -> str:
    return record.profile or "(no profile)"


def _most_first(counts: Counter[Name]) -> tuple[tuple[Name, int], ...]:
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _grouped(records: Iterable[SessionRecord], key: Callable[[SessionRecord], T]) -> dict[T, list[SessionRecord]]:
    groups: dict[T, list[SessionRecord]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    return groups


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest of the values that at least this part of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(part * len(ordered)) - 1, 0)]


def _waits_of(label: str, records: Sequence[SessionRecord]) -> Waits:
    waits = [record.wait_seconds for record in records if record.wait_seconds is not None]
    queue = [record.queue_seconds for record in records if record.queue_seconds is not None]
    return Waits(label, len(waits), quantile(waits, 0.5), quantile(waits, 0.9), quantile(queue, 0.5) if queue else None)


def _gpu_hours(label: str, records: Sequence[SessionRecord]) -> GpuHours:
    held = busy = unknown = 0.0
    for record in records:
        whole = record.gpu_seconds_held or 0.0
        measured = min(record.gpu_seconds_measured, whole)
        held += whole
        busy += min(record.gpu_seconds_busy, measured)
        unknown += whole - measured
    return GpuHours(label, held / 3600, busy / 3600, unknown / 3600)


def _alignment(label: str, records: Sequence[SessionRecord]) -> Alignment:
    numbers: Mapping[bool | None, int] = Counter(record.aligned for record in records)
    return Alignment(label, numbers.get(True, 0), numbers.get(False, 0), numbers.get(None, 0))


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


def day(
    values: Sequence[tuple[float, float] | None],
    *,
    highest: float,
    title: str,
    description: str,
    labels: tuple[str, str],
) -> str:
    """A column for each hour of the day: the first of its values is filled, the second a mark above it.

    ``highest`` is the top of the axis, and ``labels`` are those at half its height and at the top. ``description``
    has the same facts for screen readers.
    """
    width, height, left, bottom, top = 420, 170, 52, 145, 12
    step = (width - left) / 24
    drawn = [f'<path d="M{left} {top}H{width}M{left} {(top + bottom) / 2}H{width}M{left} {bottom}H{width}"/>']
    for text, y in ((labels[1], top), (labels[0], (top + bottom) / 2), ("0", bottom)):
        drawn.append(f'<text x="{left - 6}" y="{y + 3}" text-anchor="end">{escape(text)}</text>')
    for hour, value in enumerate(values):
        x = left + hour * step
        if hour % 3 == 0:
            drawn.append(f'<text x="{x + step / 2:.1f}" y="{height - 10}" text-anchor="middle">{hour}</text>')
        if value is None:
            continue
        median, most = ((bottom - top) * seconds / highest for seconds in value)
        drawn.append(
            f'<rect class="a" x="{x + 2:.1f}" y="{bottom - median:.1f}" width="{step - 4:.1f}" height="{median:.1f}"/>'
            f'<rect class="b" x="{x + 1:.1f}" y="{bottom - most - 1:.1f}" width="{step - 2:.1f}" height="2"/>'
        )
    return (
        f'<svg class="day" viewBox="0 0 {width} {height}" role="img" aria-labelledby="day-title day-said">'
        f'<title id="day-title">{escape(title)}</title><desc id="day-said">{escape(description)}</desc>'
        f"{''.join(drawn)}</svg>"
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

_TOPS = (*(10, 20, 60, 120, 240, 600, 1200, 1800, 3600), *(hours * 3600 for hours in (2, 4, 8, 12, 24, 48, 96)))
"""Tops of the axis of waits, in seconds."""


def report(summary: Summary, *, title: str, created: float) -> str:
    """The file; ``created`` is when, in seconds since the epoch."""
    body = "".join(_body(summary))
    at = _day(created)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>\n{_PAGE}\n{STYLE}\n</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n"
        f'<p class="soft">Made on {at} by gpuspawner from the hub\'s session records. It contains no names.</p>\n'
        "</main>\n</body>\n</html>\n"
    )


def _body(summary: Summary) -> Iterator[str]:
    if summary.first is None or summary.last is None:
        yield "<p>There are no sessions that have ended.</p>"
        return
    yield (
        f"<p>{summary.sessions:,} sessions of {summary.people:,} people, begun from {_day(summary.first)} to "
        f"{_day(summary.last)}.</p>"
    )
    if summary.simulated:
        yield f"<p>The GPUs of {summary.simulated:,} sessions were simulated.</p>"
    yield from _waits(summary)
    yield from _use(summary)
    yield from _placement(summary)
    yield from _ends(summary)


def _waits(summary: Summary) -> Iterator[str]:
    yield "<section><h2>Waits by profile</h2>"
    if not summary.waits:
        yield "<p>No server became ready.</p></section>"
        return
    yield "<p>From the click until the server answered. “9 of 10”: nine of ten starts took no longer than that.</p>"
    rows: list[Row] = []
    for waits in summary.waits:
        queue = "not known" if waits.queue is None else duration(waits.queue)
        numbers = (duration(waits.median), queue, duration(waits.most), f"{waits.number:,}")
        rows.append((waits.label, (waits.median,), numbers))
    head = ("Profile", "Median", "In Slurm's queue", "9 of 10", "Starts")
    yield bars("The bars are medians.", head, rows, extra=(1, 3))
    yield "</section><section><h2>Waits by hour of the day</h2>"
    hours = [waits for waits in summary.hours if waits is not None]
    highest = _axis(max(waits.most for waits in hours))
    yield key(("Median", "9 of 10 waited no longer"))
    yield day(
        [None if waits is None else (waits.median, waits.most) for waits in summary.hours],
        highest=highest,
        title="Waits by the hour of the day at which a server was asked for",
        description=" ".join(map(_hour_in_words, hours)),
        labels=(duration(highest / 2), duration(highest)),
    )
    yield "</section>"


def _axis(most: float) -> float:
    """The top of an axis of seconds, of which half is a round number, too."""
    return next((top for top in _TOPS if most <= top), most)


def _hour_in_words(waits: Waits) -> str:
    starts = "1 start" if waits.number == 1 else f"{waits.number:,} starts"
    return f"{waits.label}:00, {starts}: median {duration(waits.median)}, 9 of 10 {duration(waits.most)}."


def _use(summary: Summary) -> Iterator[str]:
    yield '<section class="use"><h2>Use of GPUs</h2>'
    if not summary.use:
        yield "<p>No session had a GPU.</p></section>"
        return
    yield (
        "<p>GPU-hours that jobs held, and in which of them a kernel ran. The use is what a process beside hours server "
        "measured; for the rest it is not known, which does not mean that the GPUs were idle.</p>"
    )
    yield key(("Busy", "No kernel ran", "Not known"))
    rows: list[Row] = []
    for use in summary.use:
        numbers = (_hours(use.held), _hours(use.busy), _percent(use.busy, use.busy + use.idle), _hours(use.unknown))
        rows.append((use.label, (use.busy, use.idle, use.unknown), numbers))
    head = ("Profile", "Held", "Busy", "Busy of known", "Not known")
    yield bars("In GPU-hours.", head, rows, extra=(1, 3))
    yield "</section>"


def _placement(summary: Summary) -> Iterator[str]:
    yield '<section class="placed"><h2>Alignment</h2>'
    if not summary.alignment:
        yield "<p>No session had a GPU.</p></section>"
        return
    yield "<p>Whether the GPUs, CPUs and memory of a session were on the same NUMA nodes.</p>"
    yield key(("Aligned", "Across NUMA nodes", "Not known"))
    rows: list[Row] = []
    for alignment in summary.alignment:
        parts = (alignment.aligned, alignment.across, alignment.unknown)
        rows.append((alignment.label, parts, tuple(f"{number:,}" for number in (alignment.number, *parts))))
    yield bars("In sessions.", ("GPU", "Sessions", "Aligned", "Across", "Not known"), rows, extra=(1, 3))
    if summary.links:
        yield "<p>The slowest link among the GPUs of a session, as <code>nvidia-smi topo -m</code> names it.</p>"
        yield bars("In sessions.", ("Link", "Sessions"), _counts(summary.links))
    yield "</section>"


def _ends(summary: Summary) -> Iterator[str]:
    yield "<section><h2>Ends by cause</h2>"
    rows: list[Row] = [
        (kind.value.capitalize(), (number,), (f"{number:,}", _percent(number, summary.sessions)))
        for kind, number in summary.causes
    ]
    yield bars("In sessions.", ("Cause", "Sessions", "Of all"), rows)
    if summary.faults:
        yield bars("Starts that failed, by the class of the error.", ("Class", "Starts"), _counts(summary.faults))
    yield "</section>"


def _counts(counts: Sequence[tuple[str, int]]) -> list[Row]:
    return [(name, (number,), (f"{number:,}",)) for name, number in counts]


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours < 100 else f"{hours:,.0f}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d")
