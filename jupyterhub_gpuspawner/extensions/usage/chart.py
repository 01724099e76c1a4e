"""A small chart of a GPU's use over the last hour: a bar for each summary, with a mark at its maximum.

Time for which the use is unknown is hatched, so that it does not look idle; time without summaries is empty. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jupyterhub_gpuspawner.hub.web.svg import element

WIDTH, HEIGHT = 240, 60
HOUR = 3600.0
_TOP, _LEFT = 4, 38


@dataclass(frozen=True)
class Span:
    """A part of the hour, in which a GPU's use was the same summary."""

    begins: float
    """Seconds before now."""
    ends: float
    mean: float | None
    """Percent; None is unknown."""
    most: float | None


def svg(spans: Sequence[Span], *, title: str, description: str) -> str:
    """The ``<svg>`` element; ``description`` is for screen readers, with the same facts."""
    parts = [_axis()]
    for span in spans:
        left, right = _x(min(span.begins, HOUR)), _x(max(span.ends, 0.0))
        if right <= left:
            continue
        if span.mean is None or span.most is None:
            parts.append(_unknown(left, right))
            continue
        top = _y(span.mean)
        width = max(right - left - 1, 0.5)
        parts.append(
            f'<rect class="bar" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_y(0) - top:.1f}"/>'
            f'<path class="most" d="M{left:.1f} {_y(span.most):.1f}h{width:.1f}"/>'
        )
    size = (str(WIDTH), str(HEIGHT))
    return element("gpuspawner-usage", parts, title=title, description=description, size=size)


def _axis() -> str:
    lines = f'<path class="line" d="M{_LEFT} {_y(100)}H{WIDTH}M{_LEFT} {_y(50)}H{WIDTH}M{_LEFT} {_y(0)}H{WIDTH}"/>'
    texts = (
        (2, _y(100) + 4, "100 %"),
        (2, _y(0) + 1, "0"),
        (_LEFT, HEIGHT - 2, "1 h ago"),
        (WIDTH - 22, HEIGHT - 2, "now"),
    )
    return lines + "".join(f'<text x="{x:.0f}" y="{y:.0f}">{words}</text>' for x, y, words in texts)


def _unknown(left: float, right: float) -> str:
    """Slanted lines, six pixels apart."""
    high = 12.0
    shape = "".join(
        f"M{x:.1f} {_y(0):.1f}l{min(6.0, right - x):.1f} {-high * min(6.0, right - x) / 6:.1f}"
        for x in (left + 6 * n for n in range(int((right - left) / 6) + 1))
        if right - x > 0.5
    )
    return f'<path class="unknown" d="{shape}"/>'


def _x(ago: float) -> float:
    return _LEFT + (WIDTH - _LEFT) * (1 - ago / HOUR)


def _y(percent: float) -> float:
    bottom = HEIGHT - 14
    return bottom - (bottom - _TOP) * percent / 100
