"""Charts of a report: bars in the rows of a table, and columns for the hours of a day, as SVG for any width. Pure.

A chart that is a table has its numbers beside the bars, as text that keeps its size on a small screen. The bars are for
the eye alone, so screen readers leave them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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


@dataclass(frozen=True)
class Row:
    """One row of a table with bars."""

    label: str
    parts: Sequence[float]
    """Lengths of the bar's parts, which follow each other; their colours are those of the key."""
    numbers: Sequence[str]


def bars(caption: str, head: Sequence[str], rows: Sequence[Row], *, extra: Sequence[int] = ()) -> str:
    """A table with a bar in each row. ``head`` names the first column and those of the numbers.

    Columns in ``extra`` (of the numbers, from 0) are left out on small screens.
    """
    longest = max((sum(row.parts) for row in rows), default=0.0) or 1.0
    classes = ["number extra" if n in extra else "number" for n in range(len(head) - 1)]
    heads = "".join(
        f'<th scope="col" class="{each}">{escape(name)}</th>' for each, name in zip(classes, head[1:], strict=True)
    )
    body = "".join(
        f'<tr><th scope="row">{escape(row.label)}</th><td class="bar">{_bar(row.parts, longest)}</td>'
        + "".join(f'<td class="{each}">{escape(text)}</td>' for each, text in zip(classes, row.numbers, strict=True))
        + "</tr>"
        for row in rows
    )
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
    values: Sequence[tuple[float, float] | None], *, highest: float, title: str, said: str, labels: tuple[str, str]
) -> str:
    """A column for each hour of the day: the first of its values is filled, the second a mark above it.

    ``highest`` is the top of the axis, and ``labels`` are those at half its height and at the top. ``said`` has the
    same facts for screen readers.
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
        median, most = ((bottom - top) * each / highest for each in value)
        drawn.append(
            f'<rect class="a" x="{x + 2:.1f}" y="{bottom - median:.1f}" width="{step - 4:.1f}" height="{median:.1f}"/>'
            f'<rect class="b" x="{x + 1:.1f}" y="{bottom - most - 1:.1f}" width="{step - 2:.1f}" height="2"/>'
        )
    return (
        f'<svg class="day" viewBox="0 0 {width} {height}" role="img" aria-labelledby="day-title day-said">'
        f'<title id="day-title">{escape(title)}</title><desc id="day-said">{escape(said)}</desc>{"".join(drawn)}</svg>'
    )
