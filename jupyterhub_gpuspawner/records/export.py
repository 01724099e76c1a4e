"""Writes records as a data package: one table, and a description of it for Frictionless.

Somebody who knows when a person started which server could find that person's row by those columns. So each
combination of them in the export is that of at least ``group`` different people. What is rarer is made coarser step by
step (:data:`STEPS`): first without the node, then with the hour, the day and the month in place of the minute, then
without course and cause, at last without all of it. Rows that are still rare are left out.

Users are pseudonyms: HMAC-SHA256 of course and name with a key that stays at the site. A user has another pseudonym in
each course, since who is in which courses is known from class lists. With the same key it is the same in every export.
Without the key, names cannot be tried out. Whoever has the key can: it is as confidential as the names.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import json
import os
import secrets
import stat
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from jupyterhub_gpuspawner.records.record import SessionRecord

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Published:
    """A session as it is exported."""

    record: SessionRecord
    traits: Traits
    user: str
    """The pseudonym."""


@dataclass(frozen=True)
class Column:
    """One column."""

    name: str
    kind: str
    """Its type by the Table Schema: ``string``, ``integer``, ``number`` or ``boolean``."""
    meaning: str
    value: Callable[[Published], Value]


def _text(name: str, meaning: str) -> Column:
    return Column(name, "string", meaning, lambda session: getattr(session.traits, name) or None)


def _number(name: str, meaning: str, *, beside: str = "") -> Column:
    """A column of whole numbers, published only where ``beside`` is, of which it would tell."""

    def value(session: Published) -> Value:
        number: float | None = getattr(session.record, name)
        return None if number is None or (beside and beside not in session.traits.published) else round(number)

    return Column(name, "integer", meaning, value)


def _measured(name: str, meaning: str, *, beside: str = "") -> Column:
    """As :func:`_number`, with two significant digits: to the second, Slurm's accounting tells whose session it was."""
    exact = _number(name, meaning, beside=beside)

    def value(session: Published) -> Value:
        number = exact.value(session)
        return int(float(f"{number:.1e}")) if isinstance(number, int) else number

    return Column(name, "integer", f"{meaning[:-1]}, with two significant digits.", value)


def _beside(trait: str, value: Callable[[SessionRecord], Value]) -> Callable[[Published], Value]:
    """The value where this trait is published, of which it would tell."""
    return lambda session: value(session.record) if trait in session.traits.published else None


COLUMNS: tuple[Column, ...] = (
    Column(
        "user",
        "string",
        "Pseudonym of the user in this course: the same in every export with the same key.",
        lambda session: session.user,
    ),
    _text("begun", "When the server was asked for, UTC: to the minute, hour, day or month."),
    _text("profile", "The profile's short name."),
    _text("course", "The course's short name, where the profile is one."),
    _text("partition", "Slurm's partition in which the job ran."),
    _text("node", "Slurm's name of the server's node."),
    _text("gpu_model", "The model of the GPUs as the driver calls it."),
    Column(
        "gpus",
        "integer",
        "Number of GPUs or MIG devices that were granted.",
        lambda session: int(session.traits.gpus) if session.traits.gpus else None,
    ),
    _text("cause", "Why the session ended."),
    Column(
        "fault",
        "string",
        "Class of the error of a start that failed.",
        _beside("cause", lambda record: (record.cause.fault or None) if record.cause is not None else None),
    ),
    _measured("wait_seconds", "Seconds from the request until the server answered."),
    _measured("queue_seconds", "Seconds of it in Slurm's queue."),
    _measured("start_seconds", "Seconds from the job's start to the launcher's report."),
    _measured("ready_seconds", "Seconds from the report until the server answered."),
    _measured("run_seconds", "Seconds for which the server ran."),
    Column(
        "reasons",
        "string",
        "Slurm's reasons why the job was pending, separated by semicolons.",
        _beside("profile", lambda record: ";".join(record.reasons) or None),
    ),
    _number("asked_gpus", "GPUs requested for each node.", beside="profile"),
    _number("asked_cpus", "CPUs requested for each node.", beside="profile"),
    _number("asked_memory_mib", "Memory requested for each node, in MiB.", beside="profile"),
    _number("asked_seconds", "Time limit requested, in seconds.", beside="profile"),
    _number("cpus", "CPUs granted on the server's node.", beside="profile"),
    _number("memory_mib", "Memory granted on the server's node, in MiB.", beside="profile"),
    Column(
        "aligned",
        "boolean",
        "Whether GPUs, CPUs and memory were on the same NUMA nodes.",
        _beside("gpu_model", lambda record: record.aligned),
    ),
    Column(
        "weakest_link",
        "string",
        "The slowest link among the GPUs, as nvidia-smi topo -m calls it.",
        _beside("gpu_model", lambda record: record.weakest_link),
    ),
    _measured("gpu_seconds_held", "Number of GPUs times the seconds for which the job had them.", beside="gpus"),
    _measured("gpu_seconds_measured", "GPU-seconds of which the utilisation is known.", beside="gpus"),
    _measured("gpu_seconds_busy", "Utilisation times seconds, summed over the GPUs.", beside="gpus"),
    _measured("gpu_memory_max_mib", "Largest memory used of one GPU, in MiB.", beside="gpu_model"),
    _measured("memory_max_mib", "Largest memory used by the job on the server's node, in MiB."),
    _measured("joules", "Energy of the GPUs, in joules.", beside="gpu_model"),
    Column("simulated", "boolean", "Whether the GPUs were simulated.", lambda session: session.record.simulated),
)


FORMATS = {"minute": "%Y-%m-%dT%H:%MZ", "hour": "%Y-%m-%dT%HZ", "day": "%Y-%m-%d", "month": "%Y-%m", "": ""}
"""How the time of a row is written, by its precision; without any it is left out."""


@dataclass(frozen=True)
class Traits:
    """The columns of a row by which somebody could recognise a session; empty ones are not published."""

    begun: str = ""
    """When the server was asked for, UTC, in a precision of :data:`FORMATS`."""
    profile: str = ""
    course: str = ""
    cause: str = ""
    partition: str = ""
    gpu_model: str = ""
    gpus: str = ""
    node: str = ""
    published: tuple[str, ...] = ()
    """The columns of these that are published. Others that follow from one of them are published with it."""


_HARDWARE = ("partition", "gpu_model", "gpus")
_CHOICE = ("profile", "course", "cause", *_HARDWARE)
STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("minute", (*_CHOICE, "node")),
    ("minute", _CHOICE),
    ("hour", _CHOICE),
    ("day", _CHOICE),
    ("month", _CHOICE),
    ("month", ("profile", *_HARDWARE)),
    ("month", _HARDWARE),
    ("month", ()),
    ("", ()),
)
"""Precision of the time and columns that are published, from all to nothing."""


def traits_of(record: SessionRecord, precision: str, columns: Sequence[str]) -> Traits:
    """The traits of a record with this precision and these columns."""
    begun = datetime.fromtimestamp(record.begun_at, timezone.utc)
    values = {
        "profile": record.profile,
        "course": record.course,
        "cause": record.cause.kind.value if record.cause is not None else "",
        "partition": record.partition or "",
        "gpu_model": record.gpu_model,
        "gpus": "" if record.gpus is None else str(record.gpus),
        "node": record.node,
    }
    shown = {name: values[name] for name in columns}
    return Traits(begun.strftime(FORMATS[precision]), published=tuple(columns), **shown)


def is_coarser(record: SessionRecord, traits: Traits) -> bool:
    """Whether these traits tell less of a record than is known of it."""
    finest, *_ = STEPS
    return replace(traits_of(record, *finest), published=()) != replace(traits, published=())


def coarsened(records: Sequence[SessionRecord], group: int) -> list[tuple[SessionRecord, Traits]]:
    """The records that may be published, in their order, each with its traits as they may be published.

    Of each combination of traits there are at least ``group`` different users.
    """
    publishable: dict[int, Traits] = {}
    left = dict(enumerate(records))
    for precision, columns in STEPS:
        groups: dict[Traits, list[int]] = {}
        for number, record in left.items():
            groups.setdefault(traits_of(record, precision, columns), []).append(number)
        for traits, numbers in groups.items():
            if len({records[number].username for number in numbers}) >= group:
                publishable.update(dict.fromkeys(numbers, traits))
        left = {number: record for number, record in left.items() if number not in publishable}
    return [(records[number], traits) for number, traits in sorted(publishable.items())]


_KEY_BYTES = 32
_LENGTH = 16
"""Hexadecimal digits of a pseudonym."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Pseudonyms:
    """The pseudonyms that belong to one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, name: str, course: str) -> str:
        """The pseudonym of a user in a course; ``course`` is empty for sessions that are of none."""
        return hmac.new(self._key, f"{course}\0{name}".encode(), "sha256").hexdigest()[:_LENGTH]


def read_key(path: Path) -> tuple[bytes, bool]:
    """The key in this file, and whether it was made just now because there was no file.

    Raises ConfigError where the file cannot be used, or others may read it.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _existing(path), False
    except OSError as error:
        raise ConfigError(f"the key file cannot be made: {error}.", where=str(path)) from error
    key = secrets.token_bytes(_KEY_BYTES)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key.hex() + "\n")
    return key, True


def _existing(path: Path) -> bytes:
    try:
        mode, text = path.stat().st_mode, path.read_text("ascii")
        key = bytes.fromhex(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the key file cannot be read: {error}.", where=str(path)) from error
    if mode & _OTHERS:
        raise ConfigError(
            f"others can read the key (mode {stat.S_IMODE(mode):04o}).", where=str(path), hint=f"Use chmod 600 {path}."
        )
    if len(key) < _KEY_BYTES:
        raise ConfigError(
            f"the key has {len(key)} bytes; it must have {_KEY_BYTES} or more, as hexadecimal digits.", where=str(path)
        )
    return key


CSV, PARQUET = "csv", "parquet"
MEDIA_TYPES = {CSV: "text/csv", PARQUET: "application/x-parquet"}
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""What a text begins with that spreadsheets run; after an apostrophe they show it."""
TITLE = "Sessions of a JupyterHub on a Slurm cluster"


@dataclass(frozen=True)
class Exported:
    """What an export has written."""

    rows: int
    left_out: int
    """Sessions left out because too few people had ones like them."""
    coarser: int
    """Sessions of which the time is coarser than the minute, or something else is left out."""


def export(
    records: Sequence[SessionRecord], folder: Path, *, kind: str, pseudonyms: Pseudonyms, group: int, created: str
) -> Exported:
    """Write the table and ``datapackage.json`` into a folder, which is made if need be.

    Of each combination of traits in the table there are at least ``group`` people. Sessions under way are not
    exported. ``created`` is the time of the export, ISO 8601. Raises ConfigError.
    """
    if kind == PARQUET and find_spec("pyarrow") is None:
        raise ConfigError(
            "parquet needs pyarrow.", hint="pip install 'jupyterhub-gpuspawner[records]', or use --format csv."
        )
    over = [record for record in records if record.ended_at is not None]
    published = [
        Published(record, traits, pseudonyms.of(record.username, traits.course))
        for record, traits in coarsened(over, group)
    ]
    # by user a file would be in the order of first sessions: sorted by what is published
    rows = sorted(([column.value(session) for column in COLUMNS] for session in published), key=_order)
    table = folder / f"sessions.{kind}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (_write_csv if kind == CSV else _write_parquet)(table, rows)
        text = table.read_bytes()
        about = {"name": table.name, "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
        package = data_package(about, kind=kind, group=group, created=created)
        (folder / "datapackage.json").write_text(json.dumps(package, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise ConfigError(f"the export cannot be written: {error}.", where=str(folder)) from error
    coarser = sum(is_coarser(session.record, session.traits) for session in published)
    return Exported(len(rows), len(over) - len(rows), coarser)


def _order(row: Sequence[Value]) -> tuple[str, ...]:
    user, begun, *rest = ("" if value is None else str(value) for value in row)
    return (begun, user, *rest)


def _about(group: int) -> str:
    return (
        "One row for each session of a server: how long it waited, what it asked for and got, how it was placed, what "
        "it used, and why it ended. Users are pseudonyms, one for each course; what was measured has two significant "
        "digits. Each published combination of time, profile, course, hardware, node and cause is that of at least "
        f"{group} people; rarer ones are coarser, or left out. This is personal data: a list of who was there when, or "
        "Slurm's accounting, may tell whose the rows of a pseudonym are."
    )


def data_package(about: dict[str, Any], *, kind: str, group: int, created: str) -> dict[str, Any]:
    """The Frictionless data package of a table (specs.frictionlessdata.io, version 1)."""
    resource: dict[str, Any] = {
        "name": "sessions",
        "path": about["name"],
        "title": TITLE,
        "profile": "tabular-data-resource",
        "format": kind,
        "mediatype": MEDIA_TYPES[kind],
        "encoding": "utf-8",
        "bytes": about["bytes"],
        "hash": f"sha256:{about['sha256']}",
        "schema": {
            "fields": [{"name": column.name, "type": column.kind, "description": column.meaning} for column in COLUMNS],
            "missingValues": [""],
        },
    }
    return {
        "name": "gpuspawner-sessions",
        "title": TITLE,
        "description": _about(group),
        "created": created,
        "profile": "tabular-data-package",
        "resources": [resource],
    }


def _write_csv(path: Path, rows: Sequence[Sequence[Value]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        # RFC 4180: lines end in CRLF, which is also what makes Python 3.11 and older quote a cell with a CR in it
        writer = csv.writer(file)
        writer.writerow([column.name for column in COLUMNS])
        writer.writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(_FORMULAS):
        return f"'{value}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _write_parquet(path: Path, rows: Sequence[Sequence[Value]]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    types = {
        "string": pa.string(),
        "integer": pa.int64(),
        "number": pa.float64(),
        "boolean": pa.bool_(),
    }
    schema = pa.schema(
        [pa.field(column.name, types[column.kind], metadata={"description": column.meaning}) for column in COLUMNS]
    )
    columns = list(zip(*rows, strict=True)) or [() for _ in COLUMNS]
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
    parquet.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
