"""CPU lists as the kernel writes them (cpuset(7), "List Format"). Standard library only: every launch loads this.

Slurm writes CPUs, GPU indices and sockets in the same form.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT = 65536
"""CPUs, indices or nodes in one list at most; a longer list is a fault or an attack."""
_SPAN = re.compile(r"(?P<low>\d{1,9})(?:-(?P<high>\d{1,9}))?", re.ASCII)


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
