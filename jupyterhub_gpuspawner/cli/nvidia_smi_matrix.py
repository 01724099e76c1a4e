"""Parse the output of ``nvidia-smi topo -m``. Pure.

A table of link words with a row and a column for each GPU and NIC, followed by up to three columns of affinity::

    <TAB>GPU0<TAB>GPU1<TAB>NIC0<TAB>CPU Affinity<TAB>NUMA Affinity<TAB>GPU NUMA ID
    GPU0<TAB> X <TAB>NV12<TAB>PXB<TAB>0-31,64-95<TAB>0<TAB><TAB>N/A
    NIC0<TAB>PXB<TAB>SYS<TAB> X

Copies made by people have tabs expanded or collapsed, are comments or Markdown tables, are truncated or wrapped. What
is unambiguous is read; the rest stays unknown, and ``problems`` says why. A value's position in the line is never used,
since values shift. The CPU Affinity column is clipped to the caller's cpuset, so inside a job it does not show a GPU's
socket.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, is_link
from jupyterhub_gpuspawner.units import parse_cpulist

if TYPE_CHECKING:
    from collections.abc import Sequence

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[[04]m")
_COMMENT = re.compile(r"^(?:[^\s|]+:)?\s*(?:#+|//+|\*)(?=\s)")
_DEVICE = re.compile(r"(?:GPU|NIC)\d+|[a-z][a-z0-9_]*\d")
_COLUMN = re.compile(r"GPU\s+NUMA\s+ID|CPU\s+Affinity|NUMA(?:\s+Affinity)?")
_ELIDED = re.compile(r"\.\.\.|…")
_WORDS = re.compile(r"NV\d+|NODE|PIX|PXB|PHB|SYS|SOC|X")
_NIC_LEGEND = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*$")
_PEER_STATUS = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
_OTHERS = {
    "rocm-smi, which describes GPUs of AMD": re.compile(
        r"ROCm System Management|ROCm SMI|(?:Weight|Hops|Link Type) between two GPUs|^GPU\[\d+\]\s*:"
    ),
    "amd-smi topology, which describes GPUs of AMD": re.compile(
        r"^(?:(?:LINK )?(?:ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW|COHERENT|DMA|BI-DIRECTIONAL) TABLE|NUMA BW)"
    ),
    "xpu-smi topology, which describes GPUs of Intel": re.compile(r"^\s*GPU \d+/\d+"),
    "nvidia-smi without topo -m": re.compile(r"NVIDIA-SMI \d"),
}
"""Signs of other programs' tables, which people paste as well."""
_CPU, _NUMA, _GPU_NUMA = "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"


class TopoTextError(ValueError):
    """The text contains no usable matrix; one sentence says why."""


def parse(text: str) -> NodeTopology:
    """Parse the output of ``nvidia-smi topo -m`` (or ``-mp``); raises :class:`TopoTextError` if it has no matrix.

    ``Gpu.index`` is the number in the GPU's name. ``numa_node`` is set if NUMA Affinity names exactly one.
    """
    lines = [_plain(line) for line in text.splitlines()]
    other = next((program for program, sign in _OTHERS.items() if any(map(sign.search, lines))), None)
    if other:
        raise TopoTextError(f"This is the output of {other}; only that of nvidia-smi topo -m is read.")
    header, after = _header(lines)
    table = _Table(header)
    for line in lines[after:]:
        if line.strip().startswith("Legend") or (table.rows and _devices(line)):
            break
        table.read(line)
    table.check()
    legend = {match[1]: match[2] for match in map(_NIC_LEGEND.match, lines[after:]) if match}
    return table.topology(legend)


def _plain(line: str) -> str:
    """The line without escape sequences, comment signs and the bars of a Markdown table."""
    line = _COMMENT.sub("", _ESCAPE.sub("", line.rstrip("\r\n")), count=1)
    if line.count("|") < 2:
        return line
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    if not "".join(cells).strip("-: "):
        return ""
    return "\t".join(cells[1:] if cells[0] == "GPU" else cells)


@dataclass(frozen=True)
class _Header:
    devices: tuple[str, ...]
    columns: tuple[str, ...]
    elided: int
    """Number of ``...``, which stand for omitted columns."""


def _devices(line: str) -> _Header | None:
    """Parse the line as a header: device names, then affinity columns; None if it contains anything else."""
    columns = tuple(
        _CPU if name.startswith("CPU") else _NUMA if name.startswith("NUMA") else _GPU_NUMA
        for name in _COLUMN.findall(line)
    )
    rest = _COLUMN.sub(" ", line)
    elided = len(_ELIDED.findall(rest))
    rest = _ELIDED.sub(" ", rest)
    devices = tuple(_DEVICE.findall(rest))
    if _DEVICE.sub("", rest).strip() or not any(name.startswith("GPU") for name in devices):
        return None
    return _Header(devices, columns, elided)


def _header(lines: Sequence[str]) -> tuple[_Header, int]:
    """The first header that has a row of its first device below it, and the number of the line after it."""
    for number, line in enumerate(lines):
        header = _devices(line)
        if header and any(
            line.split()[:1] == [header.devices[0]] and not _devices(line) for line in lines[number + 1 :]
        ):
            twice = [name for name in header.devices if header.devices.count(name) > 1]
            if twice:
                raise TopoTextError(f"The header names {twice[0]} twice.")
            return header, number + 1
    raise TopoTextError("There is no header line with GPU0, GPU1, … and rows below it, as nvidia-smi topo -m prints.")


@dataclass
class _Row:
    links: list[str] = field(default_factory=list)
    affinity: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """CPUs or NUMA nodes, by column."""
    fields: int = 0
    """Fields after the links."""


class _Table:
    """The rows below one header."""

    def __init__(self, header: _Header) -> None:
        self.header = header
        self.rows: dict[str, _Row] = {}
        self.problems: list[str] = []
        self.last_word = ""

    def read(self, line: str) -> None:
        """Read one line, if it is a row of the table."""
        tokens = line.split()
        if not tokens or tokens[0] not in self.header.devices or tokens[0] in self.rows:
            return
        name, row = tokens[0], _Row()
        self.rows[name] = row
        self.last_word = tokens[-1]
        cells = [cell.strip() for cell in line.lstrip().split("\t")]
        tabbed = len(cells) > 1 and not any(len(cell.split()) > 1 for cell in cells)
        cells = cells[1:] if tabbed else tokens[1:]
        if self.header.elided:
            cells = [cell for cell in cells if not _ELIDED.fullmatch(cell)]
        if _PEER_STATUS.intersection(cells):
            raise TopoTextError("This is a table of nvidia-smi topo -p2p, which tells peer access, not of topo -m.")
        used = self._links(name, row, cells)
        if name.startswith("GPU"):
            self._affinity(name, row, cells[used:], tabbed=tabbed)

    def _links(self, name: str, row: _Row, cells: Sequence[str]) -> int:
        """Read the link words at the start of ``cells``; returns the number of cells read."""
        size = len(self.header.devices)
        used = 0
        for cell in cells:
            words = _WORDS.findall(cell) if _WORDS.sub("", cell) == "" else []
            if len(row.links) >= size or not (words or (cell.isalnum() and cell.isupper() and cell[0].isalpha())):
                break
            if not words:
                self.problems.append(f"{name}: {cell:.20} is not a known link word.")
            row.links.extend(words or ["?"])
            used += 1
        at = self.header.devices.index(name)
        if len(row.links) > at and row.links[at] != "X":
            self.problems.append(f"{name}: its own column says {row.links[at]}, not X; the row is not used.")
            row.links = []
        elif len(row.links) != size:
            self.problems.append(
                f"{name}: the row has {len(row.links)} links where the header names {size} device{'s' * (size > 1)}."
            )
            row.links = row.links[:size]
        return used

    def _affinity(self, name: str, row: _Row, tail: Sequence[str], *, tabbed: bool) -> None:
        """Read the affinity values after the links; those of a row without tabs are clear only if none is missing."""
        columns = self.header.columns
        row.fields = len(tail)
        if not tabbed and (len(tail) == len(columns) or set(tail) <= {"N/A"}):
            cells: dict[str, str] | None = dict(zip(columns, tail, strict=False))
        else:
            cells = _by_tabs(tail, columns) if tabbed else None
        if cells is None and columns and any(tail):
            self.problems.append(f"{name}: it is not clear which affinity {' '.join(filter(None, tail)):.60} is.")
        for column, word in (cells or {}).items():
            try:
                row.affinity[column] = () if word == "N/A" else parse_cpulist(word)
            except ValueError as error:
                self.problems.append(f"{name}: {column}: {error}.")
        if len(row.affinity.get(_GPU_NUMA, ())) > 1:
            self.problems.append(f"{name}: {_GPU_NUMA}: {(cells or {})[_GPU_NUMA]} is not one node.")

    def check(self) -> None:
        """Report what is missing. The last value of a truncated text may itself be truncated, so it is not used."""
        if self.header.elided:
            self.problems.append("Columns of this text are left out (…).")
        missing = [name for name in self.header.devices if name not in self.rows]
        if missing:
            gpus = len([name for name in missing if name.startswith("GPU")])
            counts = [f"{n} {kind}{'s' * (n > 1)}" for n, kind in ((gpus, "GPU"), (len(missing) - gpus, "NIC")) if n]
            self.problems.append(
                f"The text is truncated: it has no rows of {' and '.join(counts)}, from {missing[0]} on."
            )
        if missing or self._short(list(self.rows)[-1]):
            self._distrust_end(list(self.rows)[-1])

    def _short(self, name: str) -> bool:
        """Whether the row ends before other rows of the same kind."""
        row = self.rows[name]
        like = [row.fields for other, row in self.rows.items() if other[:3] == name[:3] and other != name]
        cut = len(row.links) < len(self.header.devices) and not row.fields
        return cut or row.fields < min(like, default=0)

    def _distrust_end(self, name: str) -> None:
        row = self.rows[name]
        if self.last_word[:1].isdigit():
            self.rows[name] = _Row(row.links)
            self.problems.append(f"{name}: its affinity ends with the text, so it is not used.")
        elif row.links and row.links[-1] == self.last_word and self.last_word.startswith("NV"):
            row.links.pop()

    def topology(self, legend: dict[str, str]) -> NodeTopology:
        """The topology, as far as the rows show it."""
        devices = self.header.devices
        gpus = [name for name in devices if name.startswith("GPU")]
        nics = [name for name in devices if name not in gpus]
        links = tuple(tuple(self._link(a, b) for b in gpus) for a in gpus)
        nic_links = tuple(tuple(self._link(nic, gpu) for gpu in gpus) for nic in nics)
        if len(gpus) > 1 and all(word in ("X", "?") for line in links for word in line):
            raise TopoTextError(" ".join(["No link between two GPUs could be read.", *self.problems[:3]]))
        return NodeTopology(
            gpus=tuple(self._gpu(name) for name in gpus),
            links=links,
            nics=tuple(legend.get(nic, nic) for nic in nics),
            nic_links=nic_links,
            source="nvidia-smi",
            problems=tuple(dict.fromkeys(self.problems)),
        )

    def _gpu(self, name: str) -> Gpu:
        row = self.rows.get(name, _Row())
        cpus, numa, own = (row.affinity.get(column, ()) for column in (_CPU, _NUMA, _GPU_NUMA))
        return Gpu(int(name[3:]), numa_node=_only(numa), cpus=cpus, numa_affinity=numa, gpu_numa_id=_only(own))

    def _link(self, one: str, two: str) -> str:
        """The link word on which both rows agree, or that of the only row there is."""
        if one == two:
            return "X"
        words = {word for word in (self._word(one, two), self._word(two, one)) if word != "?"}
        if words == {"SYS", "SOC"}:
            return "SYS"
        if len(words) > 1:
            first, second = sorted((one, two))
            self.problems.append(f"{first} and {second}: one row says {min(words)}, the other {max(words)}.")
        return words.pop() if len(words) == 1 else "?"

    def _word(self, row: str, column: str) -> str:
        at = self.header.devices.index(column)
        links = self.rows[row].links if row in self.rows else []
        return links[at] if at < len(links) and is_link(links[at]) and links[at] != "X" else "?"


def _by_tabs(tail: Sequence[str], columns: Sequence[str]) -> dict[str, str] | None:
    """Values of a row with tabs: ``cpu TAB numa TAB TAB gpunuma``; before a numa of ``N/A`` there is one tab more."""
    words = [word for word in tail[1:] if word]
    if len(words) > max(0, len(columns) - 1):
        return None
    cells = dict(zip(columns, tail[:1], strict=False))
    if _GPU_NUMA in columns and words:
        last = max(n for n, word in enumerate(tail) if word)
        if last > 2 or len(tail) == len(columns):
            cells[_GPU_NUMA] = words.pop()
    if words:
        cells[_NUMA] = words[0]
    return cells


def _only(nodes: Sequence[int]) -> int | None:
    return nodes[0] if len(nodes) == 1 else None
