"""Draws NVLinks between GPUs: a curve for each pair, or one bar if all pairs have the same link. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.picture.canvas import number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.picture.canvas import Canvas
    from jupyterhub_gpuspawner.placement.topology import NodeTopology


@dataclass(frozen=True)
class Box:
    """A GPU in the picture: its centre and the edge where its NVLinks start."""

    x: float
    y: float
    width: float
    down: int
    """1: NVLinks start downwards; -1: upwards."""


class NVLinks:
    """The NVLinks of a node: the height they need, and their lines."""

    def __init__(self, topology: NodeTopology) -> None:
        gpus = range(len(topology.gpus))
        links = [(a, b, topology.link(a, b)) for a, b in combinations(gpus, 2)]
        self.links = [(a, b, word) for a, b, word in links if word.startswith("NV")]
        self.whole = [gpu for gpu in gpus if topology.gpus[gpu].mig is None]
        pairs = len(self.whole) * (len(self.whole) - 1) / 2
        self.all_alike = len(self.whole) > 3 and len(self.links) == pairs and len(self.words) == 1
        """Whether four or more GPUs all have the same link to each other, which is drawn as one bar."""

    @property
    def words(self) -> list[str]:
        """The link words that occur, such as ``NV1`` and ``NV2``."""
        return sorted({word for _, _, word in self.links}, key=lambda word: int(word[2:]))

    def height(self, rows: int) -> float:
        """The height they need between two rows of GPUs, or below one."""
        if not self.links:
            return 44 if rows > 1 else 0
        if self.all_alike:
            return 90 if rows > 1 else 56
        return 150 if rows > 1 else 96

    def draw(self, canvas: Canvas, boxes: Mapping[int, Box], own: frozenset[int]) -> None:
        """Draw the lines between ``boxes``; those between ``own`` GPUs are highlighted."""
        if self.all_alike:
            self._bar(canvas, {gpu: boxes[gpu] for gpu in self.whole}, own)
            return
        ends = self._ends(boxes)
        for a, b, word in sorted(self.links, key=lambda each: abs(boxes[each[0]].x - boxes[each[1]].x)):
            kind = "nv own" if a in own and b in own else "nv"
            self._curve(canvas, kind, word, (boxes[a], ends[a, b]), (boxes[b], ends[b, a]))

    def _ends(self, boxes: Mapping[int, Box]) -> dict[tuple[int, int], float]:
        """Where each link ends on its GPU's edge, spread so that links of one GPU do not cross immediately."""
        ends = {}
        for gpu, count in Counter(end for a, b, _ in self.links for end in (a, b)).items():
            others = [a if b == gpu else b for a, b, _ in self.links if gpu in (a, b)]
            gap = min(14.0, 0.75 * boxes[gpu].width / count)
            for n, other in enumerate(sorted(others, key=lambda each: (boxes[each].x, each))):
                ends[gpu, other] = boxes[gpu].x + (n - (count - 1) / 2) * gap
        return ends

    def _curve(self, canvas: Canvas, kind: str, word: str, one: tuple[Box, float], two: tuple[Box, float]) -> None:
        (box, start), (other, end) = one, two
        if box.down == other.down:
            depth = box.down * min(18 + 0.19 * abs(box.x - other.x), 84)
            first, second, low = box.y + depth, other.y + depth, box.y + 0.75 * depth
        else:
            first = second = low = (box.y + other.y) / 2
        bends = f"{number(start)} {number(first)} {number(end)} {number(second)}"
        shape = f"M{number(start)} {number(box.y)}C{bends} {number(end)} {number(other.y)}"
        canvas.path(kind, shape, width=thickness(word))
        if len(self.links) <= 6:
            canvas.text("soft mid halo", (start + end) / 2, low + 4, word)

    def _bar(self, canvas: Canvas, boxes: Mapping[int, Box], own: frozenset[int]) -> None:
        downs = [box.y for box in boxes.values() if box.down == 1]
        ups = [box.y for box in boxes.values() if box.down == -1]
        y = (downs[0] + ups[0]) / 2 if downs and ups else downs[0] + 30 if downs else ups[0] - 30
        for gpu, box in boxes.items():
            canvas.line("nv own" if gpu in own else "nv", box.x, box.y, box.x, y, width=5)
        stubs = sorted(box.x for box in boxes.values())
        canvas.line("nv", stubs[0] - 2.5, y, stubs[-1] + 2.5, y, width=7)
        word = self.words[0]
        if not (downs and ups):
            says = f"{word} between any two GPUs"
            canvas.text("soft mid", (stubs[0] + stubs[-1]) / 2, y + (18 if downs else -10), says)
            return
        gap, start = max((b - a, a) for a, b in pairwise(stubs))
        says = f"{word} between any two GPUs" if gap > 190 else f"{word}, all to all" if gap > 120 else word
        canvas.pill(start + gap / 2, y, says)


def thickness(word: str) -> float:
    """Line width in pixels for ``NV<n>``."""
    return 1.2 + 1.1 * min(int(word[2:]), 6)
