"""Writes records as a data package: one table, and a description of it for Frictionless, ``datapackage.json``.

Somebody who knows when a person started which server could find that person's row by those columns. So each
combination of them in the export is that of at least ``group`` different people. What is rarer is made coarser step by
step (:data:`STEPS`): first without the node, then with the hour, the day and the month in place of the minute, then
without course and cause, at last without all of it. Rows that are still rare are left out.

Users are pseudonyms: HMAC-SHA256 of course and name with a key that stays at the site. A user has another pseudonym in
each course, since who is in which courses is known from class lists. With the same key it is the same in every export.
Without the key, names cannot be tried out. Whoever has the key can: it is as confidential as the names.

None of this hides anybody from those who may read Slurm's accounting: what was measured of a session, in two digits
each, is together that of one job, and sacct names its user. An export says so.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Column:
    """One column, as ``datapackage.json`` declares it: derived in :func:`_row`, or the record's field of this name."""

    name: str
    type: str
    """By the Table Schema: ``string``, ``integer`` or ``boolean``."""
    description: str
    beside: str = ""
    """A trait that the column would tell of: it is published only where that is."""
    measured: bool = False
    """It is written with two significant digits."""


_PACKAGE: dict[str, Any] = json.loads(Path(__file__).with_name("datapackage.json").read_text("utf-8"))
COLUMNS = tuple(Column(**field) for field in _PACKAGE["resources"][0]["schema"]["fields"])


def _row(record: SessionRecord, step: Step, key: bytes) -> list[Value]:
    """The values of :data:`COLUMNS` for a session of which this may be published; ``key``: of the pseudonyms."""
    traits = traits_of(record, step)
    derived: dict[str, Value] = {
        **traits,
        "user": pseudonym(key, record.username, traits["course"]),
        "gpus": int(traits["gpus"]) if traits["gpus"] else None,
        "fault": record.cause.fault if record.cause is not None else None,
        "reasons": ";".join(record.reasons),
    }
    values: list[Value] = []
    for column in COLUMNS:
        if column.beside and column.beside not in step[1]:
            values.append(None)
            continue
        value = derived[column.name] if column.name in derived else getattr(record, column.name)
        values.append(None if value == "" else _rounded(value, column))
    return values


def _rounded(value: Value, column: Column) -> Value:
    if column.type != "integer" or not isinstance(value, (int, float)):
        return value
    return int(float(f"{round(value):.1e}")) if column.measured else round(value)


FORMATS = {"minute": "%Y-%m-%dT%H:%MZ", "hour": "%Y-%m-%dT%HZ", "day": "%Y-%m-%d", "month": "%Y-%m", "": ""}
"""How the time of a row is written, by its precision; without any it is left out."""


_HARDWARE = ("cluster", "partition", "gpu_model", "gpus")
_CHOICE = ("profile", "course", "cause", *_HARDWARE)
Step = tuple[str, tuple[str, ...]]
"""Precision of the time and columns that are published; others that follow from one of them are published with it."""
STEPS: tuple[Step, ...] = (
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
"""From all to nothing."""


def traits_of(record: SessionRecord, step: Step = STEPS[0]) -> dict[str, str]:
    """The columns of a row by which somebody could recognise a session; empty ones are not published."""
    precision, columns = step
    traits = {
        "profile": record.profile,
        "course": record.course,
        "cause": record.cause.kind.value if record.cause is not None else "",
        "cluster": record.cluster,
        "partition": record.partition or "",
        "gpu_model": record.gpu_model,
        "gpus": "" if record.gpus is None else str(record.gpus),
        "node": record.node,
    }
    begun = datetime.fromtimestamp(record.begun_at, timezone.utc).strftime(FORMATS[precision])
    return {"begun": begun, **{name: value if name in columns else "" for name, value in traits.items()}}


def coarsened(records: Sequence[SessionRecord], group: int) -> list[tuple[SessionRecord, Step]]:
    """The records that may be published, in their order, each with what may be published of it.

    Of each combination of traits there are at least ``group`` different users.
    """
    publishable: dict[int, Step] = {}
    for step in STEPS:
        groups: dict[tuple[str, ...], list[int]] = {}
        for number, record in enumerate(records):
            if number not in publishable:
                groups.setdefault(tuple(traits_of(record, step).values()), []).append(number)
        for numbers in groups.values():
            if len({records[number].username for number in numbers}) >= group:
                publishable |= dict.fromkeys(numbers, step)
    return [(records[number], step) for number, step in sorted(publishable.items())]


_KEY_BYTES = 32
_LENGTH = 16
"""Hexadecimal digits of a pseudonym."""


def pseudonym(key: bytes, name: str, course: str) -> str:
    """The pseudonym of a user in a course; ``course`` is empty for sessions that are of none."""
    return hmac.new(key, f"{course}\0{name}".encode(), "sha256").hexdigest()[:_LENGTH]


def read_key(path: Path) -> tuple[bytes, bool]:
    """The key in this file, and whether it was made just now because there was no file.

    Raises ConfigError where the file cannot be used, or others may read it.
    """
    new = not path.exists()
    try:
        if new:
            key = secrets.token_bytes(_KEY_BYTES)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(key.hex() + "\n")
            return key, True
        mode = stat.S_IMODE(path.stat().st_mode)
        key = bytes.fromhex(path.read_text("ascii"))
    except (OSError, ValueError) as error:
        verb = "made" if new else "read"
        raise ConfigError(f"the key file cannot be {verb}: {error}.", where=str(path)) from error
    if mode & 0o077:
        raise ConfigError(f"others can read the key (mode {mode:04o}).", where=str(path), hint=f"Use chmod 600 {path}.")
    if len(key) < _KEY_BYTES:
        raise ConfigError(
            f"the key has {len(key)} bytes; it must have {_KEY_BYTES} or more, as hexadecimal digits.", where=str(path)
        )
    return key, False


CSV, PARQUET = "csv", "parquet"
MEDIA_TYPES = {CSV: "text/csv", PARQUET: "application/x-parquet"}
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""What a text begins with that spreadsheets run; after an apostrophe they show it."""


@dataclass(frozen=True)
class Exported:
    """What an export has written."""

    rows: int
    left_out: int
    """Sessions left out because too few people had ones like them."""
    coarser: int
    """Sessions of which the time is coarser than the minute, or something else is left out."""


def export(
    records: Sequence[SessionRecord], folder: Path, *, kind: str, key: bytes, group: int, created: str
) -> Exported:
    """Write the table and ``datapackage.json`` into a folder, which is made if need be.

    Of each combination of traits in the table there are at least ``group`` people. Sessions under way are not
    exported. ``key`` is that of the pseudonyms, and ``created`` the time of the export, ISO 8601. Raises ConfigError.
    """
    if kind == PARQUET and find_spec("pyarrow") is None:
        raise ConfigError(
            "parquet needs pyarrow.", hint="pip install 'jupyterhub-gpuspawner[records]', or use --format csv."
        )
    over = [record for record in records if record.ended_at is not None]
    published = coarsened(over, group)
    rows = [_row(record, step, key) for record, step in published]
    rows.sort(key=_order)  # by user a file would be in the order of first sessions: sorted by what is published
    table = folder / f"sessions.{kind}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (_write_csv if kind == CSV else _write_parquet)(table, rows)
        package = _data_package(table, kind=kind, group=group, created=created)
        (folder / "datapackage.json").write_text(json.dumps(package, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise ConfigError(f"the export cannot be written: {error}.", where=str(folder)) from error
    coarser = sum(traits_of(record, step) != traits_of(record) for record, step in published)
    return Exported(len(rows), len(over) - len(rows), coarser)


def _order(row: Sequence[Value]) -> tuple[str, ...]:
    user, begun, *rest = ("" if value is None else str(value) for value in row)
    return (begun, user, *rest)


def _data_package(table: Path, *, kind: str, group: int, created: str) -> dict[str, Any]:
    """The Frictionless data package of a table (specs.frictionlessdata.io, version 1)."""
    content, fields = table.read_bytes(), ("name", "type", "description")
    declared = _PACKAGE["resources"][0]
    resource = {
        **declared,
        "path": table.name,
        "format": kind,
        "mediatype": MEDIA_TYPES[kind],
        "bytes": len(content),
        "hash": f"sha256:{hashlib.sha256(content).hexdigest()}",
        "schema": {
            **declared["schema"],
            "fields": [{name: getattr(column, name) for name in fields} for column in COLUMNS],
        },
    }
    description = _PACKAGE["description"].format(group=group)
    return {**_PACKAGE, "description": description, "created": created, "resources": [resource]}


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

    types = {"string": pa.string(), "integer": pa.int64(), "boolean": pa.bool_()}
    schema = pa.schema(
        [pa.field(column.name, types[column.type], metadata={"description": column.description}) for column in COLUMNS]
    )
    columns = list(zip(*rows, strict=True)) or [() for _ in COLUMNS]
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
    parquet.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
