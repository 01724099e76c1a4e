"""The legend of a node's picture: samples of its symbols with explanations. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.picture.device_boxes import CORE, MARGIN
from jupyterhub_gpuspawner.picture.nvlink_lines import thickness

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyterhub_gpuspawner.picture.canvas import Canvas

PATHS = {
    "PIX": "through one PCIe switch",
    "PXB": "through several PCIe switches",
    "PHB": "through the host bridge",
    "NODE": "between host bridges of a NUMA node",
    "SYS": "across NUMA nodes",
    "SOC": "across sockets",
}


def draw(canvas: Canvas, signs: Iterable[tuple[str, str]], y: float, right: float) -> float:
    """Draw each symbol (``core``, ``own``, a link word) with its explanation from ``y`` on; returns the lower end."""
    x = float(MARGIN)
    for kind, says in signs:
        width = 6.1 * len(says) + 40
        if x + width > right and x > MARGIN:
            x, y = float(MARGIN), y + 20
        _sample(canvas, kind, x, y)
        canvas.text("soft", x + 26, y, says)
        x += width
    return y + 14


def _sample(canvas: Canvas, kind: str, x: float, y: float) -> None:
    if kind.startswith("NV"):
        canvas.line("nv", x, y - 4, x + 20, y - 4, width=thickness(kind))
    elif kind == "core":
        canvas.rect("core", x + 8, y - 10, CORE, CORE, radius=2)
    elif kind == "own":
        canvas.rect("core own", x + 8, y - 10, CORE, CORE, radius=2)
        canvas.dot(x + 8 + CORE / 2, y - 10 + CORE / 2)
    else:
        canvas.line("pcie", x, y - 4, x + 20, y - 4)
