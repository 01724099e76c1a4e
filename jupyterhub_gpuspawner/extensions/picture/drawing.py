"""A picture of a node as SVG: packages in up to two facing rows, GPUs between them, links in the middle. Pure.

Thin lines are PCIe, as a tree from the NUMA node through switches to GPUs and NICs; thick lines are NVLink or XGMI,
thicker for more links. All lengths are pixels in the picture's own size.

The SVG stands in a page, or with its style by itself. Its colours are the page's tokens (``tokens.css``); elsewhere it
has the same ones, light or dark by the reader's setting (``prefers-color-scheme``). Colour is never the only sign: the
job's own GPUs are also marked with a tick and a thicker edge, its cores with a dot. All text is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

from jupyterhub_gpuspawner.extensions.picture import node as structure
from jupyterhub_gpuspawner.extensions.picture.node import NumaGroup, Switch, devices_of, numa_groups, switches
from jupyterhub_gpuspawner.extensions.picture.svg import element, text
from jupyterhub_gpuspawner.placement.topology import NodeTopology, distance, link_count
from jupyterhub_gpuspawner.slurm.gpu_model import device_model
from jupyterhub_gpuspawner.units import format_cpulist
from jupyterhub_gpuspawner.words import counted, memory

# The shapes of a picture, their colours, and the enclosing SVG element.

STYLE = (Path(__file__).parent / "static" / "drawing.css").read_text("utf-8").strip()


class Canvas:
    """The parts of an SVG in drawing order. Lengths are pixels; ``kind`` is one or more classes of :data:`STYLE`."""

    def __init__(self) -> None:
        self.parts = ['<rect class="back" width="100%" height="100%" rx="10"/>']

    def rect(self, kind: str, x: float, y: float, width: float, height: float, *, radius: float) -> None:
        """A rectangle with rounded corners."""
        size = f'width="{number(width)}" height="{number(height)}" rx="{number(radius)}"'
        self.parts.append(f'<rect class="{kind}" x="{number(x)}" y="{number(y)}" {size}/>')

    def path(self, kind: str, shape: str, *, width: float | None = None) -> None:
        """A path in SVG's path syntax."""
        thick = f' stroke-width="{number(width)}"' if width else ""
        self.parts.append(f'<path class="{kind}"{thick} d="{shape}"/>')

    def line(self, kind: str, x: float, y: float, to_x: float, to_y: float, *, width: float | None = None) -> None:
        """A straight line."""
        self.path(kind, f"M{number(x)} {number(y)}L{number(to_x)} {number(to_y)}", width=width)

    def text(self, kind: str, x: float, y: float, words: str) -> None:
        """Text at a baseline; escaped."""
        self.parts.append(f'<text class="{kind}" x="{number(x)}" y="{number(y)}">{text(words)}</text>')

    def dot(self, x: float, y: float) -> None:
        """The mark of a core that belongs to the job."""
        self.parts.append(f'<circle class="dot" cx="{number(x)}" cy="{number(y)}" r="2"/>')

    def pill(self, x: float, y: float, words: str) -> None:
        """Text in a rounded frame centred on ``x``, ``y``."""
        width = 6.2 * len(words) + 14
        self.rect("pill", x - width / 2, y - 9, width, 18, radius=9)
        self.text("soft mid", x, y + 4, words)


def short(words: str, limit: int) -> str:
    """The text, cut to ``limit`` characters."""
    return words if len(words) <= limit else words[: max(limit - 1, 1)] + "…"


def number(value: float) -> str:
    """The number with at most one decimal."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


# Draws NVLinks between GPUs: a curve for each pair, or one bar if all pairs have the same link.


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
        self.links = [(a, b, word) for a, b, word in links if link_count(word)]
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
        for a, b, word in sorted(self.links, key=lambda link: abs(boxes[link[0]].x - boxes[link[1]].x)):
            kind = "nv own" if a in own and b in own else "nv"
            self._curve(canvas, kind, word, (boxes[a], ends[a, b]), (boxes[b], ends[b, a]))

    def _ends(self, boxes: Mapping[int, Box]) -> dict[tuple[int, int], float]:
        """Where each link ends on its GPU's edge, spread so that links of one GPU do not cross immediately."""
        ends = {}
        for gpu, count in Counter(end for a, b, _ in self.links for end in (a, b)).items():
            others = [a if b == gpu else b for a, b, _ in self.links if gpu in (a, b)]
            gap = min(14.0, 0.75 * boxes[gpu].width / count)
            for n, other in enumerate(sorted(others, key=lambda neighbour: (boxes[neighbour].x, neighbour))):
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
            label = f"{word} between any two GPUs"
            canvas.text("soft mid", (stubs[0] + stubs[-1]) / 2, y + (18 if downs else -10), label)
            return
        gap, start = max((b - a, a) for a, b in pairwise(stubs))
        label = f"{word} between any two GPUs" if gap > 190 else f"{word}, all to all" if gap > 120 else word
        canvas.pill(start + gap / 2, y, label)


def thickness(word: str) -> float:
    """Line width in pixels for ``NV<n>`` and ``XGMI<n>``."""
    return 1.2 + 1.1 * min(link_count(word), 6)


GPU, MIG, NIC, GAP = 96, 84, 92, 12
"""Widths of a GPU, a MIG device and a NIC, and the gap between them."""
DEVICES, NIC_STEP = 60, 21
"""Height of a row of devices, and of a NIC, of which three fit into a row."""
CORE, STEP, EDGE, MARGIN, BETWEEN = 11, 14, 12, 18, 100
"""Size of a core, distance of cores, padding of a box, margin of the picture, gap between NUMA nodes of a row."""
SQUARES = 512
"""Maximum number of cores drawn for one NUMA node; for more, only the numbers are given."""


def _legend(canvas: Canvas, signs: Iterable[tuple[str, str]], y: float, right: float) -> float:
    """Draw each symbol (``core``, ``own``, a link word) with its explanation from ``y`` on; returns the lower end."""
    x = float(MARGIN)
    for kind, meaning in signs:
        width = 6.1 * len(meaning) + 40
        if x + width > right and x > MARGIN:
            x, y = float(MARGIN), y + 20
        _sample(canvas, kind, x, y)
        canvas.text("soft", x + 26, y, meaning)
        x += width
    return y + 14


def _sample(canvas: Canvas, kind: str, x: float, y: float) -> None:
    if link_count(kind):
        canvas.line("nv", x, y - 4, x + 20, y - 4, width=thickness(kind))
    elif kind == "core":
        canvas.rect("core", x + 8, y - 10, CORE, CORE, radius=2)
    elif kind == "own":
        canvas.rect("core own", x + 8, y - 10, CORE, CORE, radius=2)
        canvas.dot(x + 8 + CORE / 2, y - 10 + CORE / 2)
    else:
        canvas.line("pcie", x, y - 4, x + 20, y - 4)


@dataclass(frozen=True)
class _Site:
    """A NUMA node and its rectangle in the picture."""

    group: NumaGroup
    x: float
    y: float
    width: float
    height: float


class Drawing:
    """A picture under construction: the canvas, and the positions of NUMA nodes and GPUs on it."""

    def __init__(self, topology: NodeTopology, own_gpus: frozenset[int], own_cpus: frozenset[int]) -> None:
        self.topology, self.own_cpus = topology, own_cpus
        self.own_gpus = own_gpus.intersection(range(len(topology.gpus)))
        self.canvas = Canvas()
        self.nvlinks = NVLinks(topology)
        self.groups = numa_groups(topology)
        self.switches = {group: switches(topology, group) for group in self.groups}
        self.sites: list[_Site] = []
        self.boxes: dict[int, Box] = {}
        """Where each GPU has been drawn."""
        self.framed: list[int] = []
        """Packages of the current row that are drawn as frames."""
        self.words: set[str] = set()
        """PCIe link words to explain in the legend."""

    def svg(self, title: str) -> str:
        """The whole ``<svg>`` element."""
        rows = _rows(self.groups)
        across = self._path_words(*rows) if len(rows) == 2 else ""
        left = MARGIN + (6.2 * len(across) + 34 if across else 0)
        width = max([self._row_width(row) for row in rows] + [480 - left])
        y = 64.0
        for down, row in zip((1, -1), rows, strict=False):
            y = self._row(row, left, y, width, down=down)
            if down == 1:
                y += self.nvlinks.height(len(rows))
        if across:
            self._between_rows(self.sites[0], self.sites[len(rows[0])], across)
        self.nvlinks.draw(self.canvas, self.boxes, self.own_gpus)
        y = _legend(self.canvas, self._signs(), y + 34, left + width)
        return self._framed(title, left + width + MARGIN, y)

    # Rows

    def _row_width(self, row: Sequence[NumaGroup]) -> float:
        return sum(map(self._site_width, row)) + BETWEEN * (len(row) - 1)

    def _site_width(self, group: NumaGroup) -> float:
        parts = [self._switch_width(switch) for switch in self.switches[group]]
        devices = sum(parts) + 2 * GAP * (len(parts) - 1)
        cores = min(len(group.cores), 16) * STEP
        return max(devices, cores, 7 * len(group.name) + 70) + 2 * EDGE

    def _row(self, row: Sequence[NumaGroup], left: float, top: float, width: float, *, down: int) -> float:
        """Draw NUMA nodes side by side, devices below (1) or above (-1) them; returns the lower end."""
        extra = (width - self._row_width(row)) / len(row)
        widths = [self._site_width(group) + extra for group in row]
        height = max(self._site_height(group, site_width) for group, site_width in zip(row, widths, strict=True))
        tree = max(20 + 24 * self._depth(group) for group in row)
        devices = DEVICES + tree if any(group.gpus or group.nics for group in row) else 0
        frame = 22 if self._shared(row) else 0
        y = top + frame if down == 1 else top + devices
        x = left
        sites = []
        for group, site_width in zip(row, widths, strict=True):
            sites.append(_Site(group, x, y, site_width, height))
            x += site_width + BETWEEN
        self.framed = self._shared(row)
        self._packages(sites, down=down)
        for site in sites:
            self._site(site, down=down, tree=tree)
        for one, other in pairwise(sites):
            self._between(one, other)
        self.sites += sites
        return top + height + frame + devices

    def _shared(self, row: Sequence[NumaGroup]) -> list[int]:
        """Packages with more than one NUMA node, which are drawn as frames; others appear in the node's name."""
        counts = Counter(group.package for group in row if group.package is not None)
        return [package for package, count in counts.items() if count > 1]

    def _packages(self, sites: Sequence[_Site], *, down: int) -> None:
        for package in self.framed:
            inside = [site for site in sites if site.group.package == package]
            x, y = inside[0].x - 8, inside[0].y - (22 if down == 1 else 8)
            width, height = inside[-1].x + inside[-1].width + 8 - x, inside[0].height + 30
            self.canvas.rect("package", x, y, width, height, radius=10)
            self.canvas.text("soft", x + 12, y + 15 if down == 1 else y + height - 7, f"Package {package}")

    # NUMA nodes

    def _grid(self, group: NumaGroup, width: float) -> tuple[int, int]:
        """Columns and rows of the cores."""
        columns = max(1, min(len(group.cores), int((width - 2 * EDGE + STEP - CORE) // STEP)))
        return columns, -(-len(group.cores) // columns) if len(group.cores) <= SQUARES else 0

    def _site_height(self, group: NumaGroup, width: float) -> float:
        own = self.own_cpus.intersection(group.cpus)
        label = 8 if len(self.switches[group]) > 1 else 0  # height of the label on the edge
        return (44 + self._grid(group, width)[1] * STEP + (18 if own else 4) if group.cores else 30) + label

    def _site(self, site: _Site, *, down: int, tree: float) -> None:
        group = site.group
        self.canvas.rect("node", site.x, site.y, site.width, site.height, radius=8)
        package = f", package {group.package}" if group.package is not None and group.package not in self.framed else ""
        self.canvas.text("name", site.x + EDGE, site.y + 19, short(group.name + package, int((site.width - 80) / 6.8)))
        if group.memory_mib:
            self.canvas.text("soft end", site.x + site.width - EDGE, site.y + 19, memory(group.memory_mib))
        if group.cores:
            self._cores(site)
        parts = self.switches[group]
        widths = [self._switch_width(part) for part in parts]
        x = site.x + (site.width - sum(widths) - 2 * GAP * (len(parts) - 1)) / 2
        edge = site.y + site.height if down == 1 else site.y
        trunks = []
        for part, width in zip(parts, widths, strict=True):
            trunk = self._switch(part, x, edge, level=0, tree=tree, down=down)
            self.canvas.line("pcie", trunk, edge, trunk, edge + down * self._stop(part, 0, tree))
            trunks.append(trunk)
            x += width + 2 * GAP
        words = structure.between(self.topology, parts)
        if words and len(trunks) > 1:
            middle = len(trunks) // 2
            self._word((trunks[middle - 1] + trunks[middle]) / 2, edge, ", ".join(words))

    def _cores(self, site: _Site) -> None:
        group = site.group
        what = "core" if self.topology.siblings else "CPU"
        count = "" if what == "CPU" else f"{counted(len(group.cores), 'core')}: "
        limit = int((site.width - 2 * EDGE) / 6.2)
        if not group.name.startswith("CPUs"):
            words = short(f"{count}CPUs {format_cpulist(group.cpus)}", limit)
            self.canvas.text("soft", site.x + EDGE, site.y + 34, words)
        columns, rows = self._grid(group, site.width)
        for n, core in enumerate(group.cores if rows else ()):
            x, y = site.x + EDGE + n % columns * STEP, site.y + 42 + n // columns * STEP
            own = self.own_cpus.intersection(core)
            self.canvas.rect("core", x, y, CORE, CORE, radius=2)
            if own:  # a core is filled in part if only some of its threads are the job's
                part = CORE * len(own) / len(core)
                self.canvas.rect("core own", x, y + CORE - part, CORE, part, radius=2)
                self.canvas.dot(x + CORE / 2, y + CORE / 2)
        mine = self.own_cpus.intersection(group.cpus)
        if mine:
            words = short(f"✓ yours: CPUs {format_cpulist(mine)}", limit)
            self.canvas.text("mine", site.x + EDGE, site.y + 42 + rows * STEP + 13, words)

    # PCIe

    def _columns(self, switch: Switch) -> list[tuple[float, tuple[int, ...], tuple[int, ...]]]:
        """Width, GPUs, NICs of each column of devices: a GPU, all MIG devices of one, or up to three NICs."""
        columns: list[tuple[float, tuple[int, ...], tuple[int, ...]]] = []
        for gpu in switch.gpus:
            devices = devices_of(self.topology, gpu)
            mig = self.topology.gpus[gpu].mig is not None
            columns.append(((MIG + 6) * len(devices) + 10 if mig else GPU, devices, ()))
        columns += [(NIC, (), switch.nics[n : n + 3]) for n in range(0, len(switch.nics), 3)]
        return columns

    def _switch_width(self, switch: Switch) -> float:
        widths = [width for width, _, _ in self._columns(switch)] + [self._switch_width(s) for s in switch.switches]
        return sum(widths) + GAP * (len(widths) - 1)

    def _depth(self, group: NumaGroup) -> int:
        """Maximum number of switch levels."""
        return max([bool(inner.word) + bool(inner.switches) for inner in self.switches[group]], default=0)

    def _stop(self, switch: Switch, level: int, tree: float) -> float:
        """How far from the NUMA node a switch, or the device in its place, begins."""
        if not switch.word:
            return tree
        return 24 + 24 * level if switch.switches else tree - 20

    def _switch(self, switch: Switch, x: float, edge: float, *, level: int, tree: float, down: int) -> float:
        """Draw a switch with its devices from ``x`` on; returns the middle of its line."""
        ends: list[tuple[float, float]] = []
        for width, gpus, nics in self._columns(switch):
            middle = x + width / 2
            y = edge + down * tree - (DEVICES if down == -1 else 0)
            if gpus:
                self._gpus(gpus, x, y, width, down=down)
            else:
                self._nics(nics, x, y, down=down)
            ends.append((middle, tree))
            x += width + GAP
        for inner in switch.switches:
            ends.append((self._switch(inner, x, edge, level=level + 1, tree=tree, down=down), tree - 20))
            x += self._switch_width(inner) + GAP
        if not switch.word:
            return ends[0][0]
        start = self._stop(switch, level, tree)
        for middle, stop in ends:
            self.canvas.line("pcie", middle, edge + down * start, middle, edge + down * stop)
        self.canvas.line("pcie", ends[0][0], edge + down * start, ends[-1][0], edge + down * start)
        trunk = (ends[0][0] + ends[-1][0]) / 2
        self.canvas.text("soft", trunk + 5, edge + down * start + (-4 if down == 1 else 12), switch.word)
        self.words.add(switch.word)
        return trunk

    # Devices

    def _gpus(self, gpus: Sequence[int], x: float, y: float, width: float, *, down: int) -> None:
        """Draw a GPU, or all MIG devices of one, with its upper left corner at ``(x, y)``."""
        device = self.topology.gpus[gpus[0]]
        if device.mig is None:
            self._gpu(gpus[0], x, y, width, DEVICES, name=f"GPU {device.index}", down=down)
            return
        self.canvas.rect("card", x, y, width, DEVICES, radius=7)
        self.canvas.text("soft mid", x + width / 2, y + 13, f"GPU {device.index}, in slices (MIG)")
        for n, gpu in enumerate(gpus):
            self._gpu(gpu, x + 8 + n * (MIG + 6), y + 18, MIG, DEVICES - 24, name=f"slice {n}", down=down)

    def _gpu(self, gpu: int, x: float, y: float, width: float, height: float, *, name: str, down: int) -> None:
        device, own = self.topology.gpus[gpu], gpu in self.own_gpus
        self.canvas.rect("gpu own" if own else "gpu", x, y, width, height, radius=6)
        self.boxes[gpu] = Box(x + width / 2, y + height if down == 1 else y, width, down)
        small, size = device.mig is not None, device_model(device.name, device.mig, device.memory_mib).memory_gb
        lines = [f"✓ {name}" if own and small else name, f"{size} GB" if size else ""]
        lines = [*filter(None, lines), *(["✓ yours"] if own and not small else [])]
        step = 13.0 if small else 16.0
        first = y + height / 2 - step * (len(lines) - 1) / 2 + 4
        for n, line in enumerate(lines):
            kind = "mine" if own and line.startswith("✓") else "soft" if n else "name"
            self.canvas.text(f"{kind} mid", x + width / 2, first + n * step, short(line, int(width / 6)))

    def _nics(self, nics: Sequence[int], x: float, y: float, *, down: int) -> None:
        """Draw up to three NICs one above the other, the first at the row's edge."""
        for n, nic in enumerate(nics):
            top = y + n * NIC_STEP if down == 1 else y + DEVICES - NIC_STEP * (n + 1) + 3
            self.canvas.rect("nic", x, top, NIC, NIC_STEP - 3, radius=9)
            self.canvas.text("soft mid", x + NIC / 2, top + 13, short(self.topology.nics[nic], 14))

    # Between NUMA nodes

    def _path_words(self, one: Sequence[NumaGroup], other: Sequence[NumaGroup]) -> str:
        """The PCIe link words between the GPUs of two sets of NUMA nodes, else the NUMA distance."""
        gpus = [[gpu for group in side for gpu in group.gpus] for side in (one, other)]
        words = structure.paths(self.topology, *gpus)
        ids = (one[0].node, other[0].node)
        measured = {node.id for node in self.topology.numa_nodes if node.distances}
        if words or not measured.issuperset(ids):
            return ", ".join(words)
        return f"distance {distance(self.topology, *ids)}"

    def _word(self, x: float, y: float, words: str) -> None:
        self.words.update(words.split(", "))
        self.canvas.pill(x, y, words)

    def _between(self, one: _Site, other: _Site) -> None:
        words = self._path_words([one.group], [other.group])
        if words:
            y = one.y + one.height / 2
            self.canvas.line("pcie", one.x + one.width, y, other.x, y)
            self._word((one.x + one.width + other.x) / 2, y, words)

    def _between_rows(self, upper: _Site, lower: _Site, words: str) -> None:
        x, above, below = (upper.x + MARGIN) / 2, upper.y + upper.height / 2, lower.y + lower.height / 2
        self.canvas.path("pcie", f"M{number(upper.x)} {number(above)}H{number(x)}V{number(below)}H{number(lower.x)}")
        self._word(x, (above + below) / 2, words)

    # Around

    def _signs(self) -> Iterable[tuple[str, str]]:
        what = "core" if self.topology.siblings else "CPU"
        if any(site.group.cores for site in self.sites):
            yield "core", what
        if self.own_cpus:
            yield "own", f"{what} of yours"
        for word in self.nvlinks.words:
            yield word, f"{word}: {counted(link_count(word), 'NVLink' if word[0] == 'N' else 'XGMI link')}"
        for word, meaning in structure.PATHS.items():
            if word in self.words:
                yield word, f"{word}: {meaning}"

    def _framed(self, title: str, width: float, height: float) -> str:
        """The ``<svg>`` element with its headings."""
        words = structure.summary(self.topology, self.own_gpus, self.own_cpus)
        limit = int((width - 2 * MARGIN) / 6)
        self.canvas.text("head", MARGIN, 26, short(title, int((width - 2 * MARGIN - 80) / 8)))
        self.canvas.text("soft", MARGIN, 43, short(words.split(". ")[0], limit))
        if self.topology.simulated:
            self.canvas.text("mine end", width - MARGIN, 26, "simulated")
        return element(
            "gpuspawner-node",
            self.canvas.parts,
            title=title,
            description=words,
            size=(number(width), number(height)),
        )


def _rows(groups: Sequence[NumaGroup]) -> list[list[NumaGroup]]:
    """NUMA nodes in one or two rows; those of one package stay together."""
    units: dict[object, list[NumaGroup]] = {}
    for n, group in enumerate(groups):
        units.setdefault(n if group.package is None else ("package", group.package), []).append(group)
    half = -(-len(units) // 2)
    listed = list(units.values())
    return [[group for unit in some for group in unit] for some in (listed[:half], listed[half:]) if some]


def svg(
    topology: NodeTopology, *, own_gpus: Iterable[int] = (), own_cpus: Iterable[int] = (), title: str = "Node"
) -> str:
    """The node as one ``<svg>`` element. GPUs are positions in ``topology.gpus``, CPUs are kernel numbers.

    Its ``<title>`` is ``title`` and its ``<desc>`` the node's summary; ``node.table`` has the same as text.
    """
    return Drawing(topology, frozenset(own_gpus), frozenset(own_cpus)).svg(title)


def by_itself(drawn: str) -> str:
    """The same as a document, with its style."""
    start, _, rest = drawn.partition(">")
    return f"{start}><style>{STYLE}</style>{rest}"


MARK_WIDTH, MARK_HEIGHT = 72, 28


def mark(topology: NodeTopology, *, own_gpus: Iterable[int], own_cpus: Iterable[int]) -> str:
    """The node as a mark beside words: its NUMA nodes, as full as the job has of their CPUs, above its GPUs."""
    canvas, gpus, cpus = Canvas(), frozenset(own_gpus), frozenset(own_cpus)
    canvas.parts.clear()
    numa_nodes = topology.numa_nodes or (None,)
    width = MARK_WIDTH / len(numa_nodes)
    for n, numa_node in enumerate(numa_nodes):
        canvas.rect("", n * width + 0.5, 0.5, width - 3, 10, radius=2)
        if numa_node is not None and not cpus.isdisjoint(numa_node.cpus):
            part = len(cpus.intersection(numa_node.cpus)) / len(numa_node.cpus)
            canvas.rect("own", n * width + 0.5, 0.5, part * (width - 3), 10, radius=2)
    width = MARK_WIDTH / max(len(topology.gpus), 1)
    for n in range(len(topology.gpus)):
        canvas.rect("own" if n in gpus else "", n * width + 0.5, 15.5, width - 3, 11, radius=2)
    size = f'viewBox="0 0 {MARK_WIDTH} {MARK_HEIGHT}"'
    return f'<svg class="gpuspawner-mark" {size} aria-hidden="true">{"".join(canvas.parts)}</svg>'
