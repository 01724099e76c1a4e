"""Parsing shared by all of Slurm's answers: fields, absent values, times. Pure.

Written against the recorded answers of Slurm 22.05, 24.11 and 26.05.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import TypeVar

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.snapshot import Unread
from jupyterhub_gpuspawner.units import Gres, expand_nodelist, parse_gres, parse_memory

Notice = Callable[[Unread], None]


T = TypeVar("T")
R = TypeVar("R")

_ABSENT = frozenset({"", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", "UNKNOWN", "NO_VAL"})
_SECONDS = re.compile(r"[0-9]{1,15}")
_FIELD = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w/:]*)=", re.ASCII)
_ONE_HOST = re.compile(r"[\w.-]+", re.ASCII)


@lru_cache(maxsize=8192)
def present(text: str | None) -> str:
    """The value; empty for Slurm's notations of an absent value (``(null)``, ``N/A``, ``n/a``, ``None``, ...)."""
    value = (text or "").strip()
    return "" if value in _ABSENT else value


def fields(line: str) -> dict[str, str]:
    """The ``Key=value`` pairs of one record of ``scontrol show``; values may contain blanks. The first key counts."""
    _, *parts = _FIELD.split(line)
    parts.reverse()
    return dict(zip(parts[1::2], map(str.strip, parts[::2]), strict=True))


def epoch(text: str | None, key: str = "") -> float | None:
    """Seconds since the epoch of a time that Slurm prints for ``key``; None where it prints none.

    The client sets ``SLURM_TIME_FORMAT=%s``, which squeue and scontrol of 22.05 to 26.05 honour. The standard form
    (``2026-11-21T10:14:49``) is in local time and therefore ambiguous for one hour of the year.
    """
    if text and len(text) < 16 and text.isascii() and text.isdigit():
        return float(text)
    value = present(text)
    if not value:
        return None
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError) as error:
        raise SlurmOutputError(f"Slurm gave {value[:80]!r} for a time.", raw=value, field=key) from error


def default_per_gpu(text: str | None, name: str) -> int | None:
    """A value of JobDefaults, such as ``DefCpuPerGPU=4,DefMemPerGPU=16000`` (in MiB); None where it is not set."""
    for word in present(text).split(","):
        key, _, value = word.partition("=")
        if key == name:
            return read(int, "JobDefaults", value)
    return None


def read(reader: Callable[[str], T], key: str, text: str) -> T:
    """``reader(text)``; its ValueError becomes a SlurmOutputError for ``key``."""
    try:
        return reader(text)
    except ValueError as error:
        raise SlurmOutputError(
            f"Slurm gave {text[:80]!r} for {key}: {error}", raw=f"{key}={text}", field=key
        ) from error


def ignored(_unread: object) -> None:
    """The default: nothing is reported."""


def readable(
    records: Iterable[R], reader: Callable[[R], T], kind: str, name: Callable[[R], str], notice: Notice
) -> Iterator[T]:
    """What ``reader`` makes of the records that it understands; the others are left out and reported to ``notice``.

    ``name`` returns the name of a record for the report. If there are records and none is understood, the answer itself
    is at fault, and the reader's SlurmOutputError is raised.
    """
    any_read, faults = False, list[tuple[R, SlurmOutputError]]()
    for record in records:
        try:
            value = reader(record)
        except SlurmOutputError as error:
            faults.append((record, error))
        else:
            any_read = True
            yield value
    if faults and not any_read:
        raise faults[0][1]
    for record, fault in faults:
        notice(Unread(kind, name(record), fault.field))


@lru_cache(maxsize=8192)
def gres(key: str, text: str) -> tuple[Gres, ...]:
    """:func:`parse_gres`, cached, since thousands of nodes and jobs share a few values."""
    return read(parse_gres, key, text)


@lru_cache(maxsize=8192)
def nodes(key: str, text: str) -> tuple[str, ...]:
    """:func:`expand_nodelist`, cached likewise; empty for an absent value."""
    value = present(text)
    return (value,) if _ONE_HOST.fullmatch(value) else read(expand_nodelist, key, value)


def memory(key: str, text: str | None) -> int | None:
    """MiB of a limit or default of slurm.conf; None if absent, UNLIMITED, or 0, which means the same."""
    value = present(text)
    return None if value in ("", "UNLIMITED") else read(parse_memory, key, value) or None


@lru_cache(maxsize=8192)
def words(text: str | None, *, everyone: str = "") -> tuple[str, ...]:
    """The items of a comma-separated list; empty if it is absent or equals ``everyone``."""
    value = present(text)
    return () if not value or value == everyone else tuple(item for item in value.split(",") if item)
