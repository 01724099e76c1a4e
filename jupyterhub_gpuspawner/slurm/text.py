"""Parsing shared by all of Slurm's answers: fields, absent values, times. Pure.

Written against the recorded answers of Slurm 22.05, 24.11 and 26.05.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field
from dataclasses import fields as fields_of
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.units import Gres, expand_nodelist, parse_gres, parse_memory, parse_walltime


@dataclass(frozen=True)
class UnparsedField:
    """A field or record in Slurm's answer that was not understood. Contains no text that a user chose."""

    kind: str
    """``job``, ``node``, ``partition``, ``reservation`` or ``configuration``."""
    name: str
    """Name of the node, partition or reservation, or the job's id; empty if that was not understood either."""
    field: str
    """Slurm's name of the field; empty for the whole record."""
    partial: bool = False
    """The record is in the snapshot all the same, without this field."""


Notice = Callable[[UnparsedField], None]
Reader = Callable[[str, str], Any]
"""Makes a value of the name of a parameter and its text; raises SlurmOutputError."""
T = TypeVar("T")
R = TypeVar("R")

_ABSENT = frozenset({"", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", "UNKNOWN", "NO_VAL"})
_SECONDS = re.compile(r"[0-9]{1,15}")
_FIELD = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w/:]*)=", re.ASCII)
NEVER = r"(?!)"
"""A pattern that matches nothing."""
_ONE_HOST = re.compile(r"[\w.-]+", re.ASCII)


@lru_cache(maxsize=8192)
def value_or_empty(text: str | None) -> str:
    """The value; empty for Slurm's notations of an absent value (``(null)``, ``N/A``, ``n/a``, ``None``, ...)."""
    value = (text or "").strip()
    return "" if value in _ABSENT else value


SIGNATURE = r"\[([^\[\]]+)@(\d{9,11}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\](?=\s|\Z)"
"""Who set the reason of a node, and when: behind the first line of the reason (scontrol(1), ``Reason``)."""


def free_text(*followers: str, signed: bool = False) -> re.Pattern[str]:
    """The value of a parameter that people write, which may hold ``word=``; for :func:`fields`.

    It ends at the first of the parameters that Slurm may print behind it, or with the record. If it may be ``signed``,
    it ends behind the signature and the lines after that, whatever follows.
    """
    end = rf".*?(?=\s+(?:{'|'.join(followers) or NEVER})=|\s*\Z)"
    before_known = rf".*?\s{SIGNATURE}(?:\s{{5}}{end}|{end.removeprefix('.*?')})"
    before_any = rf".*?\s{SIGNATURE}(?=\s[A-Za-z][\w/:]*=)"
    return re.compile(rf"{before_known}|{before_any}|{end}" if signed else end, re.ASCII | re.DOTALL)


def fields(record: str, free: Mapping[str, re.Pattern[str]] = MappingProxyType({})) -> dict[str, str]:
    """The parameters of one record of ``scontrol show``: values may contain blanks, and the first of a name counts.

    An unknown name begins a parameter, too, unless it stands in a text of one that is ``free``.
    """
    texts, rest, begin, record = dict[str, str](), "", 0, f" {record}"
    while found := [(at, key) for key in free if (at := record.find(f" {key}=", begin)) >= 0]:
        at, key = min(found)
        value = free[key].match(record, at + len(key) + 2)
        rest += record[begin:at]
        begin = value.end() if value else len(record)
        texts.setdefault(key, value[0].strip() if value else "")
    _, *parts = _FIELD.split(rest + record[begin:])
    parts.reverse()
    return texts | dict(zip(parts[1::2], map(str.strip, parts[::2]), strict=True))


def epoch(text: str | None, key: str = "") -> float | None:
    """Seconds since the epoch of a time that Slurm prints for ``key``; None where it prints none.

    The client sets ``SLURM_TIME_FORMAT=%s``, which squeue and scontrol of 22.05 to 26.05 honour. The standard form
    (``2026-11-21T10:14:49``) is in local time and therefore ambiguous for one hour of the year.
    """
    if text and len(text) < 16 and text.isascii() and text.isdigit():
        return float(text)
    value = value_or_empty(text)
    if not value:
        return None
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError) as error:
        raise SlurmOutputError(f"Slurm gave {value[:80]!r} for a time.", raw=value, field=key) from error


def read(reader: Callable[[str], T], key: str, text: str) -> T:
    """``reader(text)``; its ValueError becomes a SlurmOutputError for ``key``."""
    try:
        return reader(text)
    except ValueError as error:
        raise SlurmOutputError(
            f"Slurm gave {text[:80]!r} for {key}: {error}", raw=f"{key}={text}", field=key
        ) from error


def no_report(_unread: object) -> None:
    """The default: nothing is reported."""


def parse_records(
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
        notice(UnparsedField(kind, name(record), fault.field))


@lru_cache(maxsize=8192)
def gres(key: str, text: str) -> tuple[Gres, ...]:
    """:func:`parse_gres`, cached, since thousands of nodes and jobs share a few values."""
    return read(parse_gres, key, text)


@lru_cache(maxsize=8192)
def nodes(key: str, text: str) -> tuple[str, ...]:
    """:func:`expand_nodelist`, cached likewise; empty for an absent value."""
    value = value_or_empty(text)
    return (value,) if _ONE_HOST.fullmatch(value) else read(expand_nodelist, key, value)


def memory(key: str, text: str | None) -> int | None:
    """MiB of a limit or default of slurm.conf; None if absent, UNLIMITED, or 0, which means the same."""
    value = value_or_empty(text)
    return None if value in ("", "UNLIMITED") else read(parse_memory, key, value) or None


def parse_tres(text: str) -> dict[str, float]:
    """``cpu=2,mem=1000M,gres/gpu=1``: memory in MiB; what is no number is left out."""
    amounts = dict[str, float]()
    for name, equals, value in (item.rpartition("=") for item in text.split(",")):
        with suppress(ValueError):
            if equals:
                amounts[name] = float(parse_memory(value)) if name == "mem" else float(value)
    return amounts


@lru_cache(maxsize=8192)
def words(text: str | None, *, everyone: str = "") -> tuple[str, ...]:
    """The items of a comma-separated list; empty if it is absent or equals ``everyone``."""
    value = value_or_empty(text)
    return () if not value or value == everyone else tuple(item for item in value.split(",") if item)


# What ``scontrol show`` prints of a partition, a reservation or slurm.conf: each field of its dataclass names the
# parameter that it is read from, and how.


def parameter(name: str, reader: Reader, default: Any = MISSING) -> Any:
    """A field that is read from Slurm's parameter of this name; by default, it is as if Slurm printed none."""
    metadata = {"parameter": name, "reader": reader}
    return field(default=reader(name, "") if default is MISSING else default, metadata=metadata)


@lru_cache(maxsize=8)
def parameters(kind: type) -> tuple[tuple[str, str, Reader], ...]:
    """The fields of a dataclass that are parameters, each with Slurm's name of it and its reader."""
    declared = [(of.name, of.metadata) for of in fields_of(kind) if of.metadata]
    return tuple((name, metadata["parameter"], metadata["reader"]) for name, metadata in declared)


def values(kind: type, record: Mapping[str, str]) -> dict[str, Any]:
    """The values of these fields in a record; raises SlurmOutputError."""
    return {name: reader(key, record.get(key, "")) for name, key, reader in parameters(kind)}


def plain(_key: str, text: str) -> str:
    """The text itself; see :func:`value_or_empty`."""
    return value_or_empty(text)


def listed(_key: str, text: str) -> tuple[str, ...]:
    """The items of a comma-separated list."""
    return words(text)


def allowed(_key: str, text: str) -> tuple[str, ...]:
    """The same; empty also for ALL."""
    return words(text, everyone="ALL")


def flags(_key: str, text: str) -> frozenset[str]:
    """The same as a set."""
    return frozenset(words(text))


def yes(_key: str, text: str) -> bool:
    """Whether it is YES."""
    return text == "YES"


def count(key: str, text: str) -> int | None:
    """A number; None for none, or UNLIMITED."""
    value = value_or_empty(text)
    return None if not value or value == "UNLIMITED" else read(int, key, value)


def number(key: str, text: str) -> int:
    """A number; 0 for none, or UNLIMITED."""
    return int(text) if text.isdecimal() else count(key, text) or 0  # the first in most of thousands of records


def walltime(key: str, text: str) -> int | None:
    """Seconds; None for none, or UNLIMITED."""
    value = value_or_empty(text)
    return read(parse_walltime, key, value) if value else None


@lru_cache(maxsize=8192)
def time_limit(text: str, key: str = "TimeLimit") -> int | None:
    """Seconds of a job's limit; None for none, and for what is printed where Slurm does not know it yet."""
    return None if text in ("NOT_SET", "INVALID", "Partition_Limit") else walltime(key, text)


def moment(key: str, text: str) -> float | None:
    """Seconds since the epoch; see :func:`epoch`."""
    return epoch(text, key)


def per_gpu(name: str) -> Reader:
    """The reader of JobDefaults, such as ``DefCpuPerGPU=4,DefMemPerGPU=16000`` (in MiB), for one of them."""

    def read_it(key: str, text: str) -> int | None:
        number = dict(word.partition("=")[::2] for word in value_or_empty(text).split(",")).get(name)
        return None if number is None else read(int, key, number)

    return read_it
