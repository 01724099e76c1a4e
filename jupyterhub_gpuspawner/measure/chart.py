"""Measured bandwidths as a chart: an SVG with a bar for each GPU, binding and direction. Pure."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.measure.copies import DIRECTIONS
from jupyterhub_gpuspawner.measure.table import WORDS, bound_label, change, rows, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyterhub_gpuspawner.measure.copies import Bandwidth, MeasuredGpu

_BAR, _GAP, _LABEL, _WIDTH, _SPACE = 14, 4, 130, 420, 90
_STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #1b1f24 }
.head { font-weight: 600 }
.line { stroke: #8c959f; stroke-width: 1 }
.h2d { fill: #0969da }
.d2h { fill: #8250df }
.far { opacity: .55 }
.ground { fill: #fff }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .line { stroke: #6e7681 }
  .h2d { fill: #58a6ff }
  .d2h { fill: #bc8cff }
  .ground { fill: #0d1117 }
}"""


def chart(measured: Bandwidth) -> str:
    """Bars by GPU, binding and direction as an SVG for light and dark themes, with the numbers beside the bars."""
    top = max((copies.median_gbps for copies in measured.copies), default=1.0) or 1.0
    body: list[str] = []
    y = 24
    for direction, x in zip(DIRECTIONS, (12, 170), strict=True):
        body.append(f'<rect class="{direction}" x="{x}" y="{y - 10}" width="12" height="12"/>')
        body.append(f'<text x="{x + 18}" y="{y}">{WORDS[direction]}</text>')
    body.append(f'<text x="328" y="{y}">GB/s, median of copies of {measured.size_mib} MiB</text>')
    y += 20
    for gpu in measured.gpus:
        y += 14
        body.append(f'<text class="head" x="12" y="{y}">{escape(_title(gpu))}</text>')
        y += 8
        start = y
        for bound_to in rows(measured, gpu):
            body.append(f'<text x="12" y="{y + _BAR + _GAP // 2 + 4}">{bound_label(bound_to)}</text>')
            for bar in _bars(measured, gpu, bound_to, top):
                body.append(bar.replace("@Y@", str(y)).replace("@MIDDLE@", str(y + _BAR - 3)))
                y += _BAR + 1
            y += _GAP
        body.append(f'<line class="line" x1="{_LABEL}" y1="{start - 2}" x2="{_LABEL}" y2="{y - _GAP + 2}"/>')
        y += 10
    width, height = _LABEL + _WIDTH + _SPACE, y + 6
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title desc" '
            f'viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
            f'<title id="title">Bandwidth of pinned copies of {measured.size_mib} MiB, GB/s</title>',
            f'<desc id="desc">{escape(table(measured))}</desc>',
            f"<style>{_STYLE}</style>",
            f'<rect class="ground" width="{width}" height="{height}"/>',
            *body,
            "</svg>\n",
        ]
    )


def _bars(measured: Bandwidth, gpu: MeasuredGpu, bound_to: int | None, top: float) -> Iterator[str]:
    far = " far" if gpu.numa_node is not None and bound_to != gpu.numa_node else ""
    for direction in DIRECTIONS:
        copies = measured.find(gpu.index, bound_to, direction)
        if copies is None:
            continue
        length = max(1, round(_WIDTH * copies.median_gbps / top))
        less = change(measured, gpu, copies)
        value = f"{copies.median_gbps:.1f}" + (f" ({less})" if less else "")
        yield (
            f'<rect class="{direction}{far}" x="{_LABEL}" y="@Y@" width="{length}" height="{_BAR}"/>'
            f'<text x="{_LABEL + length + 6}" y="@MIDDLE@">{value}</text>'
        )


def _title(gpu: MeasuredGpu) -> str:
    words = [f"GPU {gpu.index}", gpu.name, "" if gpu.numa_node is None else f"beside NUMA node {gpu.numa_node}"]
    return ", ".join(filter(None, words))
