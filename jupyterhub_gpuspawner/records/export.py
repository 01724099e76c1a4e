"""Writes records as a data package: one table, and a description of it for Frictionless."""

from __future__ import annotations

import csv
import hashlib
import json
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.records.columns import COLUMNS, Published, Value
from jupyterhub_gpuspawner.records.disclosure import coarsened, is_coarser

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from jupyterhub_gpuspawner.records.pseudonym import Pseudonyms
    from jupyterhub_gpuspawner.records.record import SessionRecord

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
    records: Sequence[SessionRecord], folder: Path, *, kind: str, pseudonyms: Pseudonyms, group: int, made: str
) -> Exported:
    """Write the table and ``datapackage.json`` into a folder, which is made if need be.

    Of each combination of traits in the table there are at least ``group`` people. Sessions under way are not
    exported. ``made`` is the time of the export, ISO 8601. Raises ConfigError.
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
    rows = sorted(([column.value(each) for column in COLUMNS] for each in published), key=_order)
    table = folder / f"sessions.{kind}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (_write_csv if kind == CSV else _write_parquet)(table, rows)
        text = table.read_bytes()
        about = {"name": table.name, "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
        package = data_package(about, kind=kind, group=group, made=made)
        (folder / "datapackage.json").write_text(json.dumps(package, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise ConfigError(f"the export cannot be written: {error}.", where=str(folder)) from error
    coarser = sum(is_coarser(each.record, each.traits) for each in published)
    return Exported(len(rows), len(over) - len(rows), coarser)


def _order(row: Sequence[Value]) -> tuple[str, ...]:
    user, begun, *rest = ("" if each is None else str(each) for each in row)
    return (begun, user, *rest)


def _about(group: int) -> str:
    return (
        "One row for each session of a server: how long it waited, what it asked for and got, how it was placed, what "
        "it used, and why it ended. Users are pseudonyms, one for each course; what was measured has two significant "
        "digits. Each published combination of time, profile, course, hardware, node and cause is that of at least "
        f"{group} people; rarer ones are coarser, or left out. This is personal data: a list of who was there when, or "
        "Slurm's accounting, may tell whose the rows of a pseudonym are."
    )


def data_package(about: dict[str, Any], *, kind: str, group: int, made: str) -> dict[str, Any]:
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
            "fields": [{"name": each.name, "type": each.kind, "description": each.meaning} for each in COLUMNS],
            "missingValues": [""],
        },
    }
    return {
        "name": "gpuspawner-sessions",
        "title": TITLE,
        "description": _about(group),
        "created": made,
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
        [pa.field(each.name, types[each.kind], metadata={"description": each.meaning}) for each in COLUMNS]
    )
    columns = list(zip(*rows, strict=True)) or [() for _ in COLUMNS]
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
    parquet.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
