"""Measured bandwidths as a table for people. Pure."""

from __future__ import annotations

from html import escape

from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.measure.bandwidth import DIRECTIONS, Bandwidth, Copies, Direction, MeasuredGpu

WORDS: dict[Direction, str] = {"h2d": "host to device", "d2h": "device to host"}


def rows(measured: Bandwidth, gpu: MeasuredGpu) -> tuple[int | None, ...]:
    """The host's bindings that were measured: the GPU's own NUMA node first, then the others, then unbound."""
    bindings = {copies.bound_to for copies in measured.copies if copies.gpu == gpu.index}
    nodes = sorted((node for node in bindings if node is not None), key=lambda node: (node != gpu.numa_node, node))
    return (*nodes, None) if None in bindings else tuple(nodes)


def change(measured: Bandwidth, gpu: MeasuredGpu, copies: Copies) -> str:
    """Difference to the GPU's own NUMA node, such as ``-84 %``; empty if that node is unknown or is this one."""
    if gpu.numa_node is None or copies.bound_to == gpu.numa_node:
        return ""
    best = measured.find(gpu.index, gpu.numa_node, copies.direction)
    return "" if best is None else f"{round(100 * copies.median_gbps / best.median_gbps) - 100:+d} %"


def table(measured: Bandwidth) -> str:
    """A block for each GPU with a line for each binding of the host."""
    runs = max((len(copies.gbps) for copies in measured.copies), default=0)
    blocks = [f"Pinned copies of {measured.size_mib} MiB, GB/s (10^9 bytes a second), the median of {runs}"]
    for gpu in measured.gpus:
        beside = "NUMA node not known" if gpu.numa_node is None else f"beside NUMA node {gpu.numa_node}"
        lines = [
            f"{'GPU ' + str(gpu.index) + ', ' + beside:<28}"
            + "".join(f"{WORDS[direction]:<22}" for direction in DIRECTIONS)
        ]
        lines += [_line(measured, gpu, bound_to) for bound_to in rows(measured, gpu)]
        blocks.append("\n".join(line.rstrip() for line in lines))
    if measured.problems:
        blocks.append("\n".join(measured.problems))
    return "\n\n".join(blocks) + "\n"


def _line(measured: Bandwidth, gpu: MeasuredGpu, bound_to: int | None) -> str:
    line = f"{'  ' + bound_label(bound_to):<28}"
    memory: tuple[int, ...] = ()
    for direction in DIRECTIONS:
        copies = measured.find(gpu.index, bound_to, direction)
        cell = ""
        if copies is not None:
            memory = copies.memory_on
            cell = f"{copies.median_gbps:6.1f}  {change(measured, gpu, copies)}"
        line += f"{cell:<22}"
    return line + (f"memory on {format_cpulist(memory)}" if memory and memory != (bound_to,) else "")


def bound_label(bound_to: int | None) -> str:
    """The host's binding in words."""
    return "not bound" if bound_to is None else f"bound to node {bound_to}"


# Measured bandwidths as a chart: an SVG with a bar for each GPU, binding and direction.

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


def _text(x: float, y: float, words: str, *, kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x}" y="{y}">{escape(words)}</text>'


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}"/>'


def chart(measured: Bandwidth) -> str:
    """Bars by GPU, binding and direction as an SVG for light and dark themes, with the numbers beside the bars."""
    top = max((copies.median_gbps for copies in measured.copies), default=1.0) or 1.0
    body: list[str] = []
    for direction, x in zip(DIRECTIONS, (12, 170), strict=True):
        body += [_rect(direction, x, 14, 12, 12), _text(x + 18, 24, WORDS[direction])]
    body.append(_text(328, 24, f"GB/s, median of copies of {measured.size_mib} MiB"))
    y = 44
    for gpu in measured.gpus:
        body.append(_text(12, y + 14, _title(gpu), kind="head"))
        start = y = y + 22
        for bound_to in rows(measured, gpu):
            body.append(_text(12, y + _BAR + _GAP // 2 + 4, bound_label(bound_to)))
            far = " far" if gpu.numa_node is not None and bound_to != gpu.numa_node else ""
            for copies in filter(None, (measured.find(gpu.index, bound_to, direction) for direction in DIRECTIONS)):
                length = max(1, round(_WIDTH * copies.median_gbps / top))
                less = change(measured, gpu, copies)
                value = f"{copies.median_gbps:.1f}" + (f" ({less})" if less else "")
                body.append(_rect(f"{copies.direction}{far}", _LABEL, y, length, _BAR))
                body[-1] += _text(_LABEL + length + 6, y + _BAR - 3, value)
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


def _title(gpu: MeasuredGpu) -> str:
    words = [f"GPU {gpu.index}", gpu.name, "" if gpu.numa_node is None else f"beside NUMA node {gpu.numa_node}"]
    return ", ".join(filter(None, words))
