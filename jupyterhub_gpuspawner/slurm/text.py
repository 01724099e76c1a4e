"""Parsing shared by all of Slurm's answers: fields, absent values, times. Pure.

Written against the recorded answers of Slurm 22.05, 24.11 and 26.05 in ``tests/data/slurm-outputs``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.snapshot import Unread
from jupyterhub_gpuspawner.units import Gres, expand_nodelist, parse_gres, parse_memory

Notice = Callable[[Unread], None]


K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")


class Memo(dict[K, T]):
    """The values that ``reader`` has read, by their texts: of one answer, whose records share most of their texts.

    A lookup of a known text costs less than anything that would look at the text. Errors are not kept.
    """

    def __init__(self, reader: Callable[[K], T]) -> None:
        super().__init__()
        self._reader = reader

    def __missing__(self, text: K) -> T:
        value = self[text] = self._reader(text)
        return value


_ABSENT = frozenset({"", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", "UNKNOWN", "NO_VAL"})
_SECONDS = re.compile(r"[0-9]{1,15}")
_FIELD = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w/:]*)=", re.ASCII)
_ONE_HOST = re.compile(r"[\w.-]+", re.ASCII)
_BATCH = 500
"""Records that are read at once: some milliseconds of work, of which no step holds the interpreter for long."""
_LAYOUTS = 8


def present(text: str | None) -> str:
    """The value; empty for Slurm's notations of an absent value (``(null)``, ``N/A``, ``n/a``, ``None``, ...)."""
    value = (text or "").strip()
    return "" if value in _ABSENT else value


def fields(line: str) -> dict[str, str]:
    """The ``Key=value`` pairs of one record of ``scontrol show``; values may contain blanks. The first key counts."""
    values: dict[str, str] = {}
    for key, value in _key_values(line):
        values.setdefault(key, value)
    return values


def _key_values(line: str) -> Iterator[tuple[str, str]]:
    marks = list(_FIELD.finditer(line))
    ends = [mark.start() for mark in marks[1:]] + [len(line)]
    for mark, end in zip(marks, ends, strict=False):  # text without fields gives one end and no mark
        yield mark[1], line[mark.end() : end].strip()


class Layout:
    """Some fields of each line of an answer of ``scontrol show``, as texts.

    Most lines of an answer have the same keys in the same order. So a pattern is made of the first line, and of a few
    that do not match it. That takes a tenth of the time of :func:`fields`, which reads whatever does not match.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = keys
        self._patterns: list[re.Pattern[str]] = []

    def row(self, line: str) -> tuple[str, ...]:
        """The texts of the keys, as of :func:`fields`; empty for a field that is missing."""
        for pattern in self._patterns:
            if match := pattern.fullmatch(line):
                return match.group(*self.keys)
        if len(self._patterns) < _LAYOUTS:
            self._patterns.append(self._pattern(line))
        row = fields(line)
        return tuple(row.get(key, "") for key in self.keys)

    def _pattern(self, line: str) -> re.Pattern[str]:
        """Words at blanks: the first after a key may contain ``=``, and one that follows could be a key if it did."""
        parts, left = list[str](), set(self.keys)
        for key, value in _key_values(line):
            words = r"\S*(?: +[^\s=]+)*" if " " in value else r"\S*"
            parts.append(f"{re.escape(key)}={f'(?P<{key}>{words})' if key in left else words}")
            left.discard(key)
        missing = "".join(f"(?P<{key}>)" for key in left)
        return re.compile(f"{' +'.join(parts)}{missing}\\s*", re.ASCII)


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


def all_numbers(texts: Sequence[str], *, digits: int = 15) -> bool:
    """Whether each text of a column is a whole number with so many digits at most; far cheaper than a look at each."""
    together = "".join(texts)
    return together.isascii() and together.isdigit() and "" not in texts and len(max(texts, key=len)) <= digits


def epochs(texts: Sequence[str], key: str) -> list[float | None]:
    """:func:`epoch` of each text of a column."""
    return list(map(float, texts)) if all_numbers(texts) else [epoch(text, key) for text in texts]


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
) -> tuple[T, ...]:
    """The records that ``reader`` understands; the others are left out and reported to ``notice``.

    ``name`` returns the name of a record for the report. If there are records and none is understood, the answer itself
    is at fault, and the reader's SlurmOutputError is raised.
    """
    values: list[T] = []
    faults: list[tuple[R, SlurmOutputError]] = []
    for record in records:
        try:
            values.append(reader(record))
        except SlurmOutputError as error:
            faults.append((record, error))
    _report(faults, kind, name, notice, none_read=not values)
    return tuple(values)


def read_columns(
    records: Iterable[R],
    reader: Callable[[Sequence[R]], Iterable[Iterable[Any]]],
    kind: str,
    name: Callable[[R], str],
    notice: Notice,
) -> list[list[Any]]:
    """As :func:`readable`; the reader returns the columns of several records, or raises if one is at fault."""
    rows: list[list[Any]] = []
    faults: list[tuple[R, SlurmOutputError]] = []

    def add(batch: Sequence[R]) -> None:
        columns = [list(column) for column in reader(batch)]
        if not rows:
            rows.extend([] for _ in columns)
        for column, more in zip(rows, columns, strict=True):
            column.extend(more)

    left = iter(records)
    while batch := tuple(islice(left, _BATCH)):
        try:
            add(batch)
        except SlurmOutputError:
            for record in batch:
                try:
                    add((record,))
                except SlurmOutputError as error:
                    faults.append((record, error))
    _report(faults, kind, name, notice, none_read=not rows)
    return rows


def _report(
    faults: Sequence[tuple[R, SlurmOutputError]],
    kind: str,
    name: Callable[[R], str],
    notice: Notice,
    *,
    none_read: bool,
) -> None:
    if faults and none_read:
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


def words(text: str | None, *, everyone: str = "") -> tuple[str, ...]:
    """The items of a comma-separated list; empty if it is absent or equals ``everyone``."""
    value = present(text)
    return () if not value or value == everyone else tuple(item for item in value.split(",") if item)
