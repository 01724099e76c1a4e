"""A report on sessions: one HTML file with plots, without scripts and without anything from elsewhere. Pure.

It names no users. What it shows of a course with few people may still be about one person.
"""

from __future__ import annotations

from datetime import datetime
from html import escape
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.records.charts import STYLE, Row, bars, day, key
from jupyterhub_gpuspawner.words import duration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

    from jupyterhub_gpuspawner.records.summary import Summary, Waits

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


def report(found: Summary, *, title: str, made: float, zone: tzinfo | None = None) -> str:
    """The file; ``made`` is when, in seconds since the epoch, and ``zone`` that of the times, by default local."""
    body = "".join(_body(found, zone))
    at = _day(made, zone)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>\n{_PAGE}\n{STYLE}\n</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n"
        f'<p class="soft">Made on {at} by gpuspawner from the hub\'s session records. It contains no names.</p>\n'
        "</main>\n</body>\n</html>\n"
    )


def _body(found: Summary, zone: tzinfo | None) -> Iterator[str]:
    if found.first is None or found.last is None:
        yield "<p>There are no sessions that have ended.</p>"
        return
    yield (
        f"<p>{found.sessions:,} sessions of {found.people:,} people, begun from {_day(found.first, zone)} to "
        f"{_day(found.last, zone)}.</p>"
    )
    if found.simulated:
        yield f"<p>The GPUs of {found.simulated:,} sessions were simulated.</p>"
    yield from _waits(found)
    yield from _use(found)
    yield from _placement(found)
    yield from _ends(found)


def _waits(found: Summary) -> Iterator[str]:
    yield "<section><h2>Waits by profile</h2>"
    if not found.waits:
        yield "<p>No server became ready.</p></section>"
        return
    yield "<p>From the click until the server answered. “9 of 10”: nine of ten starts took no longer than that.</p>"
    rows = [
        Row(
            each.label,
            (each.median,),
            (
                duration(each.median),
                "not known" if each.queue is None else duration(each.queue),
                duration(each.most),
                f"{each.number:,}",
            ),
        )
        for each in found.waits
    ]
    head = ("Profile", "Median", "In Slurm's queue", "9 of 10", "Starts")
    yield bars("The bars are medians.", head, rows, extra=(1, 3))
    yield "</section><section><h2>Waits by hour of the day</h2>"
    known = [each for each in found.hours if each is not None]
    highest = _axis(max(each.most for each in known))
    yield key(("Median", "9 of 10 waited no longer"))
    yield day(
        [None if each is None else (each.median, each.most) for each in found.hours],
        highest=highest,
        title="Waits by the hour of the day at which a server was asked for",
        said=" ".join(map(_hour_said, known)),
        labels=(duration(highest / 2), duration(highest)),
    )
    yield "</section>"


def _axis(most: float) -> float:
    """The top of an axis of seconds, of which half is a round number, too."""
    return next((top for top in _TOPS if most <= top), most)


def _hour_said(each: Waits) -> str:
    starts = "1 start" if each.number == 1 else f"{each.number:,} starts"
    return f"{each.label}:00, {starts}: median {duration(each.median)}, 9 of 10 {duration(each.most)}."


def _use(found: Summary) -> Iterator[str]:
    yield '<section class="use"><h2>Use of GPUs</h2>'
    if not found.use:
        yield "<p>No session had a GPU.</p></section>"
        return
    yield (
        "<p>GPU-hours that jobs held, and in which of them a kernel ran. The use is what a process beside each server "
        "measured; for the rest it is not known, which does not mean that the GPUs were idle.</p>"
    )
    yield key(("Busy", "No kernel ran", "Not known"))
    rows = [
        Row(
            each.label,
            (each.busy, each.idle, each.unknown),
            (_hours(each.held), _hours(each.busy), _percent(each.busy, each.busy + each.idle), _hours(each.unknown)),
        )
        for each in found.use
    ]
    head = ("Profile", "Held", "Busy", "Busy of known", "Not known")
    yield bars("In GPU-hours.", head, rows, extra=(1, 3))
    yield "</section>"


def _placement(found: Summary) -> Iterator[str]:
    yield '<section class="placed"><h2>Alignment</h2>'
    if not found.alignment:
        yield "<p>No session had a GPU.</p></section>"
        return
    yield "<p>Whether the GPUs, CPUs and memory of a session were on the same NUMA nodes.</p>"
    yield key(("Aligned", "Across NUMA nodes", "Not known"))
    rows = [
        Row(
            each.label,
            (each.aligned, each.across, each.unknown),
            (f"{each.number:,}", f"{each.aligned:,}", f"{each.across:,}", f"{each.unknown:,}"),
        )
        for each in found.alignment
    ]
    yield bars("In sessions.", ("GPU", "Sessions", "Aligned", "Across", "Not known"), rows, extra=(1, 3))
    if found.links:
        yield "<p>The slowest link among the GPUs of a session, as <code>nvidia-smi topo -m</code> names it.</p>"
        yield bars("In sessions.", ("Link", "Sessions"), [Row(n, (c,), (f"{c:,}",)) for n, c in found.links])
    yield "</section>"


def _ends(found: Summary) -> Iterator[str]:
    yield "<section><h2>Ends by cause</h2>"
    rows = [
        Row(kind.value.capitalize(), (number,), (f"{number:,}", _percent(number, found.sessions)))
        for kind, number in found.causes
    ]
    yield bars("In sessions.", ("Cause", "Sessions", "Of all"), rows)
    if found.faults:
        faults = [Row(fault, (number,), (f"{number:,}",)) for fault, number in found.faults]
        yield bars("Starts that failed, by the class of the error.", ("Class", "Starts"), faults)
    yield "</section>"


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours < 100 else f"{hours:,.0f}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _day(at: float, zone: tzinfo | None) -> str:
    return datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d")
