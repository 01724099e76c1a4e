"""Slurm's small text formats, parsed and formatted. Standard library only: the launcher uses it on the node.

Walltime (sbatch(1) ``--time``), memory (sbatch(1) ``--mem``), generic resources (gres.conf(5), and the output of
``sinfo`` and ``scontrol``), host lists (scontrol(1) ``show hostnames``), and lists of CPUs, GPU indices and sockets,
which Slurm writes as the kernel does (cpuset(7), "List Format"). Every parser raises ValueError with a text that says
what would be valid.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT = 65536
"""CPUs, indices or nodes in one list at most; a longer list is a fault or an attack."""
_WALLTIME = re.compile(
    r"(?:(?P<days>\d{1,6})-(?P<after>\d{1,9}(?::\d{1,9}){0,2})|(?P<clock>\d{1,9}(?::\d{1,9}){0,2}))", re.ASCII
)
_WALLTIME_FORMS = (
    "use minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, "
    "days-hours:minutes:seconds, or UNLIMITED"
)
_MEMORY = re.compile(
    r"(?P<number>\d{1,12})(?:\.(?P<part>\d{1,9}))?\s*(?P<unit>[KMGTPE]?)(?P<bytes>I?B)?", re.ASCII | re.IGNORECASE
)
_KIB = {unit: 1 << 10 * power for power, unit in enumerate("KMGTPE")}
_SPAN = re.compile(r"(?P<low>\d{1,9})(?:-(?P<high>\d{1,9}))?", re.ASCII)
_GRES = re.compile(
    r"(?:gres[/:])?(?P<name>[A-Za-z_][\w-]*)(?::\(null\))?(?P<rest>(?:[:=][\w.+-]+)*)(?P<notes>(?:\([^()]*\))*)",
    re.ASCII,
)
_COUNT = re.compile(r"(?P<number>\d{1,12})(?P<unit>[KMGTP]?)", re.ASCII | re.IGNORECASE)
_SHARES = re.compile(r"(?:\d{1,9}|-)/\d{1,9}(?:,(?:\d{1,9}|-)/\d{1,9})*", re.ASCII)
_HOST = re.compile(r"(?:[\w.-]|\[[^\[\]]*\])+", re.ASCII)


def parse_walltime(text: str | int) -> int | None:
    """Seconds of a Slurm time limit; None for UNLIMITED and INFINITE. A bare number counts minutes.

    As in sbatch(1), minutes and seconds may exceed 59: ``90:00`` is an hour and a half. Zero is returned as zero,
    although sbatch takes ``--time=0`` as no limit.
    """
    word = "" if isinstance(text, bool) else str(text).strip()
    if word.upper() in ("UNLIMITED", "INFINITE"):
        return None
    match = _WALLTIME.fullmatch(word)
    if match is None:
        raise ValueError(f"{text!r} is not a valid time: {_WALLTIME_FORMS}")
    if match["days"] is not None:
        hours, minutes, seconds = ([int(part) for part in match["after"].split(":")] + [0, 0])[:3]
        return ((int(match["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    parts = [int(part) for part in match["clock"].split(":")]
    if len(parts) == 1:
        return parts[0] * 60
    hours, minutes, seconds = [0] * (3 - len(parts)) + parts
    return (hours * 60 + minutes) * 60 + seconds


def parse_wait(text: str | int) -> int | None:
    """Seconds of a time to wait, written like a walltime; None for UNLIMITED.

    A bare number is refused: JupyterHub's time-outs are seconds, and Slurm's times are minutes.
    """
    if not isinstance(text, bool) and str(text).strip().isdigit():
        raise ValueError(f"{text!r} could be seconds or minutes: write a time such as 4:00:00, or UNLIMITED")
    seconds = parse_walltime(text)
    if seconds == 0:
        raise ValueError(f"{text!r} is no time at all: write a time such as 4:00:00, or UNLIMITED")
    return seconds


def format_walltime(seconds: int | None) -> str:
    """``8:00:00``, ``1-02:00:00``, or ``UNLIMITED`` for None, as sbatch accepts and squeue prints it."""
    if seconds is None:
        return "UNLIMITED"
    if seconds < 0:
        raise ValueError(f"{seconds} seconds: a time limit cannot be negative")
    days, rest = divmod(seconds, 86400)
    hours, minutes, left = rest // 3600, rest // 60 % 60, rest % 60
    return f"{days}-{hours:02}:{minutes:02}:{left:02}" if days else f"{hours}:{minutes:02}:{left:02}"


def parse_memory(text: str | int) -> int:
    """MiB of ``32G``, ``32 GiB``, ``32GB``, ``1.5T``, ``32000M``, ``1P`` or ``32000``; a bare number counts MiB.

    The letters are powers of 1024, as everywhere in Slurm. Fractions of a MiB are rounded up.
    """
    match = None if isinstance(text, bool) else _MEMORY.fullmatch(str(text).strip())
    if match is None or (match["bytes"] and not match["unit"]):
        raise ValueError(
            f"{text!r} is not a valid amount of memory: use a number of MiB, or a number with K, M, G or T, such as 32G"
        )
    part = match["part"] or ""
    kib = _KIB[match["unit"].upper() or "M"] * int(match["number"] + part)
    divisor: int = 1024 * 10 ** len(part)
    return -(-kib // divisor)


def format_memory(mib: int) -> str:
    """``32000M``, as sbatch accepts it; ``0`` requests all the memory of the node."""
    if mib < 0:
        raise ValueError(f"{mib} MiB: memory cannot be negative")
    return f"{mib}M" if mib else "0"


def parse_cpulist(text: str) -> tuple[int, ...]:
    """The numbers of a list such as ``0-3,8``, sorted and without duplicates; an empty text is an empty list.

    Raises ValueError for anything else: a stride (``0-31:2``), ``0-1-2``, ``3-1``, or more than :data:`LIMIT` numbers.
    """
    numbers: list[int] = []
    for item in text.strip().split(",") if text.strip() else ():
        match = _SPAN.fullmatch(item)
        low = int(match["low"]) if match else 0
        high = int(match["high"] or low) if match else -1
        if high < low:
            raise ValueError(f"{item!r} in {text!r:.60} is not a CPU or a range of CPUs: write a list such as 0-3,8")
        if len(numbers) + high - low >= LIMIT:
            raise ValueError(f"{text!r:.60} names more than {LIMIT} CPUs")
        numbers.extend(range(low, high + 1))
    return tuple(sorted(set(numbers)))


def count_cpus(text: str) -> int:
    """How many numbers a list has; 0 where it is none."""
    try:
        return len(parse_cpulist(text))
    except ValueError:
        return 0


def format_cpulist(cpus: Iterable[int]) -> str:
    """The shortest list of these numbers, such as ``0-3,8``; empty for none. Raises ValueError for a negative one."""
    spans: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if cpu < 0:
            raise ValueError(f"{cpu}: a CPU number cannot be negative")
        if spans and spans[-1][1] == cpu - 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


GPU_GRES = ("gpu", "shard", "mps")
"""Generic resources that are GPUs or parts of one (gres.conf(5))."""


@dataclass(frozen=True)
class Gres:
    """One generic resource: requested by a job, present on a node, or in use there."""

    name: str
    """``gpu``, ``shard``, ``mps``, …"""
    type: str | None = None
    """``a100``, ``1g.10gb``, …; None if it has no type."""
    count: int = 1
    indices: tuple[int, ...] = ()
    """Slurm's indices of those in use (``IDX:``); for shards printed as ``3/4,0/4``, the GPUs with shards in use."""
    sockets: tuple[int, ...] = ()
    """Sockets it is attached to (``S:``); empty where Slurm lists none."""
    shares: tuple[tuple[int, int], ...] = ()
    """Of each GPU how many shards are in use and how many it has (``3/4,0/4``); 22.05 reports :attr:`indices` alone.

    All of a GPU that Slurm 26.05 reports to be in use as a whole (``-/4``).
    """

    def __str__(self) -> str:
        """``gpu:a100:2``, as ``--gres`` accepts it."""
        return ":".join((self.name, self.type, str(self.count)) if self.type else (self.name, str(self.count)))


def parse_gres(text: str) -> tuple[Gres, ...]:
    """Every generic resource in a text of ``--gres``, ``Gres=``, ``GresUsed``, ``TresPerNode`` or ``TRES``.

    ``gpu:a100:4(S:0-1)``, ``gres/gpu:k80:2``, ``gres/gpu:k80=2``, ``shard:3(3/4,0/4)``, ``gpu:0(IDX:N/A)``,
    ``shard:(null):1(-/4,1/4)``, ``nic(CNT:2)``; several are separated by commas. Empty for an empty text, ``(null)``,
    ``N/A`` and ``none``. A missing count is one. Of a TRES list (``cpu=4,mem=8G,gres/gpu=2``) only items that begin
    with ``gres/`` count.
    """
    if text.strip().lower() in ("", "(null)", "n/a", "none"):
        return ()
    items = [item.strip() for item in _split(text)]
    return tuple(_gres(item) for item in items if "=" not in item or item.startswith("gres/"))


def _gres(item: str) -> Gres:
    match = _GRES.fullmatch(item)
    if match is None:
        raise ValueError(f"{_short(item)} is not a generic resource: use name[:type][:count], such as gpu:a100:2")
    parts = [part for part in re.split("[:=]", match["rest"])[1:] if part != "no_consume"]
    count = _COUNT.fullmatch(parts[-1]) if parts else None
    if count is not None:
        parts.pop()
    if len(parts) > 1:
        raise ValueError(f"{_short(item)} is not a generic resource: use name[:type][:count], such as gpu:a100:2")
    number = int(count["number"]) * 1024 ** " KMGTP".index(count["unit"].upper() or " ") if count else 1
    indices: tuple[int, ...] = ()
    sockets: tuple[int, ...] = ()
    shares: tuple[tuple[int, int], ...] = ()
    for note in re.findall(r"\(([^()]*)\)", match["notes"]):
        word, _, value = note.partition(":")
        if word == "IDX":
            indices = () if value == "N/A" else parse_cpulist(value)
        elif word == "S":
            sockets = parse_cpulist(value)
        elif _SHARES.fullmatch(note):
            of_gpus = [share.split("/") for share in note.split(",")]
            shares = tuple((int(total if used == "-" else used), int(total)) for used, total in of_gpus)
            indices = tuple(number for number, (used, _) in enumerate(of_gpus) if used != "-" and int(used))
        elif word == "CNT" and value.isdecimal():  # of a job's devices without files, with no other count
            number = int(value)
        else:
            raise ValueError(
                f"({_short(note)}) in {_short(item)} is unknown: expected IDX:, S:, CNT: or shares such as 3/4,0/4"
            )
    return Gres(
        name=match["name"],
        type=parts[0] if parts else None,
        count=number,
        indices=indices,
        sockets=sockets,
        shares=shares,
    )


class TooManyNames(ValueError):
    """A host list has more names than the limit; none of them was made."""


def expand_nodelist(text: str, *, limit: int = LIMIT) -> tuple[str, ...]:
    """Host names of a Slurm host list such as ``g[1-2],rack[1-2]n[01-03]``, in its order; leading zeros are kept.

    Empty for an empty text, ``(null)`` and ``None assigned``. Raises TooManyNames, a ValueError, beyond ``limit``.
    """
    if text.strip() in ("", "(null)", "None assigned"):
        return ()
    names: list[str] = []
    for item in _split(text):
        if _HOST.fullmatch(item) is None:
            raise ValueError(f"{_short(item)} is not a host list: use names such as g1 or g[1-4,07-12]")
        expanded = [""]
        for piece in re.findall(r"\[([^\[\]]*)\]|([\w.-]+)", item):
            ends = _bracket(piece[0], item, limit) if piece[1] == "" else [piece[1]]
            if len(names) + len(expanded) * len(ends) > limit:
                raise TooManyNames(f"{_short(text)} names more than {limit} nodes")
            expanded = [start + end for start in expanded for end in ends]
        names.extend(expanded)
    return tuple(names)


def fold_nodelist(names: Iterable[str]) -> list[str]:
    """The items of the shortest host list of these names, such as ``g[1-2,4]`` and ``login``; for people to read."""
    numbers: dict[tuple[str, int], set[int]] = {}
    for name in names:
        stem = name.rstrip("0123456789")
        width = len(name) - len(stem)
        numbers.setdefault((stem, width), set()).add(int(name[len(stem) :] or 0))
    items = []
    for (stem, width), of in numbers.items():
        spans = "".join(
            part.zfill(width) if part.isdigit() else part for part in re.split(r"(\d+)", format_cpulist(of))
        )
        items.append(f"{stem}[{spans}]" if len(of) > 1 else f"{stem}{spans if width else ''}")
    return items


def _bracket(text: str, item: str, limit: int) -> list[str]:
    ends: list[str] = []
    for span in text.split(","):
        match = _SPAN.fullmatch(span)
        low = int(match["low"]) if match else 0
        high = int(match["high"] or low) if match else -1
        if match is None or high < low:
            raise ValueError(f"[{_short(text)}] in {_short(item)} is not a list of numbers: use [1-4,07-12]")
        if len(ends) + high - low >= limit:
            raise TooManyNames(f"{_short(item)} names more than {limit} nodes")
        ends.extend(str(number).zfill(len(match["low"])) for number in range(low, high + 1))
    return ends


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth = [""], 0
    for character in text.strip():
        depth += (character in "([") - (character in ")]")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


_ALLOCATION = re.compile(r"Nodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(\S*)", re.ASCII)


@dataclass(frozen=True)
class NodeAllocation:
    """What a job is allocated on one node (``scontrol show job -d``)."""

    node: str
    cpu_ids: tuple[int, ...] = ()
    """Slurm's abstract CPU numbers (cores in block order), not the kernel's."""
    memory_mib: int = 0
    gres: tuple[Gres, ...] = ()
    """With Slurm's indices (``IDX:``): positions in gres.conf, not NVML indices."""

    @property
    def gpu_indices(self) -> tuple[int, ...]:
        """Slurm's indices of its GPUs, and of those of which it has shares."""
        return tuple(sorted({index for gres in self.gres if gres.name in ("gpu", "shard") for index in gres.indices}))


def parse_allocations(text: str) -> tuple[NodeAllocation, ...]:
    """What a job holds on each node, from ``scontrol show job -d``; raises ValueError.

    Each match is such as ``Nodes=g[1-2] CPU_IDs=0-3 Mem=4000 GRES=gpu:k80:2(IDX:0-1)``. The job's name, paths and
    comment, which its owner chooses, may contain such words: the caller passes the part of the answer without them.
    """
    return tuple(
        NodeAllocation(node, parse_cpulist(cpus), int(memory_mib), parse_gres(gres))
        for nodes, cpus, memory_mib, gres in _ALLOCATION.findall(text)
        for node in expand_nodelist(nodes)
    )
