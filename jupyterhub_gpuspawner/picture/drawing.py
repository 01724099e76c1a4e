"""Draws a node: packages in up to two facing rows, GPUs between them, NVLinks in the middle. Pure.

Thin lines are PCIe, as a tree from the NUMA node through switches to GPUs and NICs; thick lines are NVLink, thicker for
more links. All lengths are pixels in the picture's own size.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.picture import legend
from jupyterhub_gpuspawner.picture.canvas import Canvas, number, short
from jupyterhub_gpuspawner.picture.device_boxes import (
    BETWEEN,
    CORE,
    DEVICES,
    EDGE,
    GAP,
    GPU,
    MARGIN,
    MIG,
    NIC,
    STEP,
    Devices,
)
from jupyterhub_gpuspawner.picture.locality import (
    NumaGroup,
    Switch,
    between,
    devices_of,
    numa_groups,
    paths,
    switches,
)
from jupyterhub_gpuspawner.picture.node_words import summary
from jupyterhub_gpuspawner.picture.nvlink_lines import NVLinks
from jupyterhub_gpuspawner.placement.affinity import distance
from jupyterhub_gpuspawner.words import counted, memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyterhub_gpuspawner.placement.topology import NodeTopology

SQUARES = 512
"""Maximum number of cores drawn for one NUMA node; for more, only the numbers are given."""


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
        self.devices = Devices(self.canvas, topology, self.own_gpus)
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
        self.nvlinks.draw(self.canvas, self.devices.boxes, self.own_gpus)
        y = legend.draw(self.canvas, self._signs(), y + 34, left + width)
        return self._framed(title, left + width + MARGIN, y)

    # Rows

    def _row_width(self, row: Sequence[NumaGroup]) -> float:
        return sum(map(self._site_width, row)) + BETWEEN * (len(row) - 1)

    def _site_width(self, group: NumaGroup) -> float:
        parts = [self._switch_width(each) for each in self.switches[group]]
        devices = sum(parts) + 2 * GAP * (len(parts) - 1)
        cores = min(len(group.cores), 16) * STEP
        return max(devices, cores, 7 * len(group.name) + 70) + 2 * EDGE

    def _row(self, row: Sequence[NumaGroup], left: float, top: float, width: float, *, down: int) -> float:
        """Draw NUMA nodes side by side, devices below (1) or above (-1) them; returns the lower end."""
        extra = (width - self._row_width(row)) / len(row)
        widths = [self._site_width(group) + extra for group in row]
        height = max(self._site_height(group, each) for group, each in zip(row, widths, strict=True))
        tree = max(20 + 24 * self._depth(group) for group in row)
        devices = DEVICES + tree if any(group.gpus or group.nics for group in row) else 0
        frame = 22 if self._shared(row) else 0
        y = top + frame if down == 1 else top + devices
        x = left
        sites = []
        for group, each in zip(row, widths, strict=True):
            sites.append(_Site(group, x, y, each, height))
            x += each + BETWEEN
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
        widths = [self._switch_width(each) for each in parts]
        x = site.x + (site.width - sum(widths) - 2 * GAP * (len(parts) - 1)) / 2
        edge = site.y + site.height if down == 1 else site.y
        trunks = []
        for part, width in zip(parts, widths, strict=True):
            trunk = self._switch(part, x, edge, level=0, tree=tree, down=down)
            self.canvas.line("pcie", trunk, edge, trunk, edge + down * self._stop(part, 0, tree))
            trunks.append(trunk)
            x += width + 2 * GAP
        words = between(self.topology, parts)
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
        return max([bool(each.word) + bool(each.switches) for each in self.switches[group]], default=0)

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
                self.devices.gpus(gpus, x, y, width, down=down)
            else:
                self.devices.nics(nics, x, y, down=down)
            ends.append((middle, tree))
            x += width + GAP
        for each in switch.switches:
            ends.append((self._switch(each, x, edge, level=level + 1, tree=tree, down=down), tree - 20))
            x += self._switch_width(each) + GAP
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

    # Between NUMA nodes

    def _path_words(self, one: Sequence[NumaGroup], other: Sequence[NumaGroup]) -> str:
        """The PCIe link words between the GPUs of two sets of NUMA nodes, else the NUMA distance."""
        gpus = [[gpu for group in side for gpu in group.gpus] for side in (one, other)]
        words = paths(self.topology, *gpus)
        ids = (one[0].node, other[0].node)
        known = {node.id for node in self.topology.numa_nodes if node.distances}
        if words or not known.issuperset(ids):
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
            yield word, f"{word}: {counted(int(word[2:]), 'NVLink')}"
        for word, says in legend.PATHS.items():
            if word in self.words:
                yield word, f"{word}: {says}"

    def _framed(self, title: str, width: float, height: float) -> str:
        """The ``<svg>`` element with its headings."""
        said = summary(self.topology, self.own_gpus, self.own_cpus)
        limit = int((width - 2 * MARGIN) / 6)
        self.canvas.text("head", MARGIN, 26, short(title, int((width - 2 * MARGIN - 80) / 8)))
        self.canvas.text("soft", MARGIN, 43, short(said.split(". ")[0], limit))
        if self.topology.simulated:
            self.canvas.text("mine end", width - MARGIN, 26, "simulated")
        return self.canvas.svg(title, said, width, height)


def _rows(groups: Sequence[NumaGroup]) -> list[list[NumaGroup]]:
    """NUMA nodes in one or two rows; those of one package stay together."""
    units: dict[object, list[NumaGroup]] = {}
    for n, group in enumerate(groups):
        units.setdefault(n if group.package is None else ("package", group.package), []).append(group)
    half = -(-len(units) // 2)
    listed = list(units.values())
    return [[group for unit in some for group in unit] for some in (listed[:half], listed[half:]) if some]
