"""Durations, memory and counts in words, as pages and messages show them. Pure, standard library only."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``1 h 30 min``, ``36 h``, ``2 days 12 h``: rounded to the smaller unit shown.

    A negative duration counts as zero; seconds must be finite.
    """
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(round(whole / 60), 60)
    if hours < 48:
        return _joined((hours, "h"), (minutes, "min"))
    days, left = divmod(round(whole / 3600), 24)
    return _joined((days, "days"), (left, "h"))


def memory(mib: int | None) -> str:
    """``512 MiB``, ``9.5 GiB``, ``64 GiB``; empty where the amount is not known."""
    if mib is None:
        return ""
    if mib < 1024:
        return f"{mib} MiB"
    gib = mib / 1024
    return f"{gib:.1f}".removesuffix(".0") + " GiB" if mib < 10240 else f"{gib:.0f} GiB"


def counted(number: int, what: str) -> str:
    """``1 core``, ``2 cores``, ``1,200 jobs``."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def _joined(*parts: tuple[int, str]) -> str:
    return " ".join(f"{count} {unit}" for count, unit in parts if count)
