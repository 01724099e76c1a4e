"""Durations, memory, counts and clauses in words, as pages and messages show them. Pure, standard library only.

What is promised is rounded down: time and memory are never less than the words say. A range is rounded outwards by its
owner (:meth:`~jupyterhub_gpuspawner.slurm.estimate.Estimate.words`). What was measured is rounded to the nearest.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``1 h 30 min``, ``36 h``, ``2 days 12 h``: rounded down to the smaller unit shown.

    A negative duration counts as zero; seconds must be finite. The scripts of pages and JupyterLab's say the same, by
    ``words.js``.
    """
    whole = max(0, floor(seconds + INEXACT))
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    if hours < 48:
        return _joined((hours, "h"), (minutes, "min"))
    return _joined((hours // 24, "days"), (hours % 24, "h"))


INEXACT = 0.001
"""Seconds that differences of times in floating point may lack."""


def in_unit(seconds: int, unit: str) -> str:
    """``70 h``, ``3 days``: the duration in the unit in which somebody gave it, where that makes a whole number."""
    length, short = _UNITS.get(unit, (0, ""))
    if not length or seconds % length:
        return duration(seconds)
    number = seconds // length
    return f"{number:,} day" if short == "days" and number == 1 else f"{number:,} {short}"


_UNITS = {"seconds": (1, "s"), "minutes": (60, "min"), "hours": (3600, "h"), "days": (86400, "days")}

GPU_SIZES = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 14, 16, 18, 20, 24, 32, 40, 48, 64, 80, 94, 96, 120, 128, 141, 144, 180, 186),
    *(192, 256, 288),
)
"""Gigabytes in the names of GPUs and MIG devices."""


def gpu_gigabytes(mib: int | None) -> int | None:
    """A GPU's memory as its maker calls it: 80 for the 81,559 MiB that an H100 reports; None where it is not known.

    What the driver reports is up to a tenth less, in GiB, than what the name says.
    """
    if mib is None:
        return None
    gib = mib / 1024
    size = next((size for size in GPU_SIZES if gib <= size), None)
    return size if size is not None and gib >= 0.89 * size else nearest(gib)


def gpu_memory(mib: int | None) -> str:
    """The gigabytes in a GPU's name with their unit, ``80 GB``; empty where they are not known."""
    return "" if mib is None else f"{gpu_gigabytes(mib)} GB"


def memory(mib: int | None) -> str:
    """``512 MiB``, ``9.5 GiB``, ``15.5 GiB``, ``64 GiB``; empty where the amount is not known.

    Rounded down to a tenth of a GiB, from ten GiB to a half.
    """
    if mib is None:
        return ""
    if mib < 1024:
        return f"{mib} MiB"
    parts = 10 if mib < 10240 else 2
    return f"{mib * parts // 1024 / parts:.1f}".removesuffix(".0") + " GiB"


def nearest(value: float) -> int:
    """The nearest whole number; of two the larger one, as ``Math.round`` has it."""
    return floor(value + 0.5)


def day(when: date) -> str:
    """``1 Jul 2026``."""
    return f"{when.day} {when:%b %Y}"


def moment(when: datetime) -> str:
    """``1 Jul 2026, 11:38 CEST``, in the time zone of ``when``."""
    return f"{day(when)}, {when:%H:%M %Z}"


def counted(number: int, what: str) -> str:
    """``1 core``, ``2 cores``, ``1,200 jobs``."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def cpus(low: int, high: int = 0, *, per_core: int) -> str:
    """``8 cores``, ``8 to 16 cores``; where CPUs are hardware threads, ``8 CPUs (4 cores)``.

    ``high`` is the upper end of a range. ``per_core`` is how many of Slurm's CPUs a core has; 0: not known, or not the
    same everywhere, as in ``8 CPUs``.
    """
    high = max(low, high)
    numbers = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    if per_core > 1:
        return f"{numbers} CPU{'s' * (high != 1)} ({cpus(-(-low // per_core), -(-high // per_core), per_core=1)})"
    return f"{numbers} {'core' if per_core else 'CPU'}{'s' * (high != 1)}"


def people(number: int) -> str:
    """``1 person``, ``2 people``."""
    return f"{number:,} {'person' if number == 1 else 'people'}"


def some(names: Sequence[str], *, at_most: int = 5) -> str:
    """``t1, t2``, or ``t1, t2, t3, t4, t5 and 45 more``."""
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return f"{', '.join(names[:at_most])}{more}"


def sentence(clause: str) -> str:
    """The clause with a capital letter and a full stop."""
    return f"{clause[:1].upper()}{clause[1:]}{'' if clause.endswith('.') else '.'}"


def _joined(*parts: tuple[int, str]) -> str:
    return " ".join(f"{count} {unit}" for count, unit in parts if count)
