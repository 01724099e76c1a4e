"""The file of session records: SQLite, one row for each session.

The hub writes it from a thread of its own, and the command line reads it meanwhile, so it is in WAL mode; it must be on
a local disk. Its format has a version: an older file is brought up to date when it is opened, and one of a later
version is refused. It contains user names, and is readable by its owner alone. What is deleted is overwritten.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.extensions.records.promises import PROMISES
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord, applied, lost
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind
from jupyterhub_gpuspawner.hub.job.session import Event

PATIENCE = 20.0
"""Seconds to wait for another process that writes."""

_TYPES = {
    "str": "TEXT NOT NULL",
    "float": "REAL NOT NULL",
    "bool": "INTEGER NOT NULL",
    "tuple[str, ...]": "TEXT NOT NULL",
    "tuple[Promise, ...]": "TEXT NOT NULL",
    "str | None": "TEXT",
    "Cause | None": "TEXT",
    "int | None": "INTEGER",
    "bool | None": "INTEGER",
    "float | None": "REAL",
}
"""SQLite's types of a record's fields. Words are written with commas, promises as JSON, the cause as two columns."""
_COLUMNS = {**{field.name: _TYPES[str(field.type)] for field in fields(SessionRecord)}, "fault": "TEXT NOT NULL"}
_CREATE = (
    f"CREATE TABLE sessions ({', '.join(f'{name} {kind}' for name, kind in _COLUMNS.items())}, PRIMARY KEY (session))",
    "CREATE INDEX sessions_begun ON sessions (begun_at)",
    "CREATE INDEX sessions_user ON sessions (username)",
)
STEPS: tuple[str, ...] = (
    "ALTER TABLE sessions ADD COLUMN promises TEXT NOT NULL DEFAULT '[]'",
    "ALTER TABLE sessions ADD COLUMN subject TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN cluster TEXT NOT NULL DEFAULT ''",
)
"""The statements that lead from version 1 of the format to the next, and so on; the file's is in ``user_version``."""
_WRITE = (
    f"INSERT OR REPLACE INTO sessions ({', '.join(_COLUMNS)}) "  # noqa: S608 - names of this module
    f"VALUES ({', '.join('?' for _ in _COLUMNS)})"
)
_READ = f"SELECT {', '.join(_COLUMNS)} FROM sessions"  # noqa: S608


class StoreError(GPUSpawnerError):
    """The file of session records could not be read or written."""

    reason = "session_records"


class SessionStore:
    """The records in one file. Every method blocks; an object is used by one thread."""

    def __init__(self, path: Path, *, create: bool = True, patience: float = PATIENCE) -> None:
        """Open the file, and make it unless ``create`` is false. Raises ConfigError, StoreError.

        ``patience``: seconds that each call waits for another process that writes.
        """
        if not create and not path.is_file():
            raise ConfigError(
                f"there is no file {path}.",
                hint="The hub makes it beside its database at its first start. Run the command in the hub's working "
                "directory, or name the file with --database.",
            )
        self.path = path
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            self._db = sqlite3.connect(path, timeout=patience, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"the file of session records cannot be opened: {error}.") from error
        try:
            self._open()
        except sqlite3.Error as error:
            self._db.close()
            raise StoreError(f"{path} is not a file of session records: {error}.") from error
        except GPUSpawnerError:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def _open(self) -> None:
        """Bring the file up to date; raises StoreError for the database of another program, which stays as it is."""
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "sessions" not in tables:
            raise StoreError(
                f"{self.path} is another database, not a file of session records.",
                hint="Move it away, or name the file of the records with --database.",
            )
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA secure_delete = ON")
        latest = len(STEPS) + 1
        version = self._version()
        if version > latest:
            raise StoreError(
                f"{self.path} has version {version} of the format; this version of the package knows up to {latest}.",
                hint="Use the version of the package that the hub runs with.",
            )
        if version < latest:
            with self._transaction():
                version = self._version()  # another process may have been faster
                for statement in STEPS[version - 1 :] if version else _CREATE:
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {latest}")

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # --- writing --------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Apply an event to the record of its session; raises StoreError."""
        with _faults(f"A session could not be recorded in {self.path}"), self._transaction():
            before = [*self._records("WHERE session = ?", event.session), None]
            record = applied(before[0], event)
            if record is not None:
                self._db.execute(_WRITE, _row(record))

    def close_lost(self, sessions: Collection[str]) -> int:
        """Complete the records of sessions whose end nobody saw, and return how many were open; raises StoreError."""
        open_records = [record for record in self.open_sessions() if record.session in sessions]
        with _faults(f"Sessions could not be completed in {self.path}"):
            for record in open_records:
                self._db.execute(_WRITE, _row(lost(record)))
        return len(open_records)

    def expire(self, before: float) -> int:
        """Delete the records of sessions that ended before this time, and return how many; raises StoreError."""
        with _faults(f"Old sessions could not be deleted from {self.path}"):
            return self._db.execute("DELETE FROM sessions WHERE ended_at < ?", (before,)).rowcount

    def forget(self, username: str) -> int:
        """Delete all records of a user so that nothing of them is left in the file, and return how many.

        Raises StoreError, also where another process has kept the file from being rewritten.
        """
        with _faults(f"{self.path} could not be rewritten", hint="Try again."):
            number = self._db.execute("DELETE FROM sessions WHERE username = ?", (username,)).rowcount
            self._db.execute("VACUUM")
            busy, *_ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreError(
                f"The records are deleted, but another process reads {self.path}, and its log could not be emptied.",
                hint="Run the command again.",
            )
        return number

    # --- reading --------------------------------------------------------------------------------

    def sessions(
        self, *, since: float | None = None, course: str = "", profile: str = "", username: str = ""
    ) -> Iterator[SessionRecord]:
        """The records that match, oldest first; raises StoreError."""
        conditions: dict[str, Any] = {} if since is None else {"begun_at >= ?": since}
        equal = {"course": course, "profile": profile, "username": username}
        conditions |= {f"{column} = ?": value for column, value in equal.items() if value}
        where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
        return self._records(f"{where}ORDER BY begun_at, session", *conditions.values())

    def failed_starts(self, since: float) -> int:
        """How many starts have failed since this time; raises StoreError."""
        query = "SELECT COUNT(*) FROM sessions WHERE cause = ? AND ended_at >= ?"
        with _faults(f"{self.path} cannot be read"):
            return int(self._db.execute(query, (Kind.START_FAILED.value, since)).fetchone()[0])

    def promised(self, at_most: int) -> list[SessionRecord]:
        """The latest records with promises of which something has come, oldest first; raises StoreError."""
        which = "WHERE promises != '[]' AND (allocated_at IS NOT NULL OR ended_at IS NOT NULL)"
        return list(self._records(f"{which} ORDER BY begun_at DESC LIMIT ?", at_most))[::-1]

    def open_sessions(self) -> list[SessionRecord]:
        """The records without an end; raises StoreError."""
        return list(self._records("WHERE ended_at IS NULL"))

    def _records(self, which: str, *values: Any) -> Iterator[SessionRecord]:
        """The records that the rest of a query names."""
        with _faults(f"{self.path} cannot be read"), closing(self._db.execute(f"{_READ} {which}", values)) as rows:
            yield from map(_record, rows)


@contextmanager
def _faults(what: str, *, hint: str = "") -> Iterator[None]:
    """Raise StoreError with this sentence for an error of SQLite's."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{what}: {error}.", hint=hint) from error


def _row(record: SessionRecord) -> list[Any]:
    cause = record.cause
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    values["reasons"] = ",".join(record.reasons)
    values["promises"] = PROMISES.dump_json(record.promises).decode()
    values["cause"] = cause.kind.value if cause is not None else None
    return [*values.values(), cause.fault if cause is not None else ""]


def _record(row: tuple[Any, ...]) -> SessionRecord:
    values = dict(zip(_COLUMNS, row, strict=True))
    fault = values.pop("fault")
    values["reasons"] = tuple(filter(None, values["reasons"].split(",")))
    values["promises"] = PROMISES.validate_json(values["promises"])
    values["cause"] = Cause(Kind(values["cause"]), fault) if values["cause"] else None
    values["aligned"] = None if values["aligned"] is None else bool(values["aligned"])
    values["simulated"] = bool(values["simulated"])
    return SessionRecord(**values)
