"""The tables of this package in the hub's database, and the steps from each version of them to the next.

A store declares its table in :data:`TABLES`, as this version of the package uses it. When a table changes, a step is
added to :data:`STEPS`: a hub that is started takes those that its database lacks, all of them or none, and makes the
tables that are not there, before it uses one. The tables of each extension have a version and steps of their own. Steps
that were released are never changed. MySQL cannot take back what was done to a table, so a step there may be repeated
after a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar

from alembic.migration import MigrationContext
from alembic.operations import Operations
from jupyterhub.app import JupyterHub
from sqlalchemy import Column, Connection, Float, Integer, MetaData, String, Table, delete, insert, inspect, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.database import SCHEMA, fault, transaction

SECONDS = Float(53)
"""The type of a column with seconds since the epoch, or a number of seconds.

MySQL and MariaDB give a ``FLOAT`` without precision four bytes, which is two minutes off for a time of today.
"""

_BATCH_SIZE = 200
Name = TypeVar("Name", str, int)

TABLES = MetaData()
"""The tables as this version of the package uses them."""


Step = tuple[str, Callable[[Operations], None]]
"""The table that a step changes, and how, with Alembic's ``op``."""
STEPS: tuple[Step, ...] = ()
"""One for each version of the core's tables after :data:`FIRST`."""
FIRST = 3
"""The version of the core's tables without a step; versions 1 and 2 differ in what is an extension's alone."""
VERSIONS = Table(
    "gpuspawner_extension_versions",
    MetaData(),
    Column("extension", String(255), primary_key=True),
    Column("version", Integer, nullable=False),
)
"""A row for each extension that has tables; the first version of those of one without a row is 1."""


@dataclass(frozen=True)
class ExtensionTables:
    """The tables of one extension, with the steps from each version of them to the next."""

    extension: str
    tables: Sequence[Table]
    steps: Sequence[Step] = ()


def upgrade(session: Session, extensions: Sequence[ExtensionTables] = (), steps: Sequence[Step] = STEPS) -> None:
    """Take the steps that the database lacks, the core's and those of extensions, in one transaction.

    Raises ConfigError for a database that a later version of the package has changed, and SQLAlchemyError.
    """
    with transaction(session):
        connection = session.connection()
        version, newest = max(_version(connection), FIRST), FIRST + len(steps)
        _refuse_later("gpuspawner", version, newest)
        missing = list(steps[version - FIRST :])
        versions = _versions(connection)
        for extension in extensions:
            of_extension = versions.get(extension.extension, 1)
            _refuse_later(f"the extension {extension.extension}", of_extension, 1 + len(extension.steps))
            missing += extension.steps[of_extension - 1 :]
        if connection.dialect.name == "sqlite" and not connection.connection.dbapi_connection.in_transaction:  # type: ignore[union-attr]
            # Python's driver begins a transaction for changes of rows, not of tables
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        op = Operations(MigrationContext.configure(connection))
        for name, step in missing:
            if inspect(connection).has_table(name):  # others are made as they are now
                step(op)
        TABLES.create_all(connection)
        for table in (SCHEMA, VERSIONS, *(own for extension in extensions for own in extension.tables)):
            table.create(connection, checkfirst=True)
        connection.execute(delete(SCHEMA))
        connection.execute(insert(SCHEMA).values(version=newest))
        for extension in extensions:
            connection.execute(delete(VERSIONS).where(VERSIONS.c.extension == extension.extension))
            connection.execute(insert(VERSIONS).values(extension=extension.extension, version=1 + len(extension.steps)))


def _refuse_later(whose: str, version: int, newest: int) -> None:
    if version > newest:
        raise ConfigError(
            f"the tables of {whose} in the hub's database have version {version}, and the version that "
            f"is installed knows them up to {newest}.",
            where="c.JupyterHub.db_url",
            hint="Install the version that the hub ran with before, or restore the backup of before that upgrade.",
        )


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(SCHEMA.name):
        return 1
    return connection.execute(select(SCHEMA.c.version)).scalar() or 1


def _versions(connection: Connection) -> dict[str, int]:
    if not inspect(connection).has_table(VERSIONS.name):
        return {}
    return {row.extension: row.version for row in connection.execute(select(VERSIONS))}


def bring_up_to_date(app: JupyterHub, extensions: Sequence[ExtensionTables] = ()) -> None:
    """Bring the tables of this hub and its extensions up to date, or have it exit if that cannot be done."""
    try:
        upgrade(app.db, extensions)
    except ConfigError as error:
        app.log.critical("%s", error)
        app.exit(1)
    except SQLAlchemyError as error:
        app.log.critical(
            "The tables of gpuspawner in the hub's database cannot be brought up to date: %s", fault(error)
        )
        app.exit(1)
    except Exception as error:  # what a step of an extension may raise, which the traceback names
        text = "The tables of extensions in the hub's database cannot be brought up to date: %s: %s"
        app.log.critical(text, type(error).__name__, error, exc_info=True)
        app.exit(1)


def delete_older(session: Session, column: Column[Any], seconds: float) -> None:
    """Delete the rows of which this column has a time more than so many seconds ago; raises SQLAlchemyError."""
    with transaction(session):
        session.execute(delete(column.table).where(column < time.time() - seconds))


def delete_rows_of(user: str, column: Column[Any], connection: Connection) -> int:
    """Delete the rows of which this column names a user, and return how many; 0 where the table was never made.

    Raises SQLAlchemyError.
    """
    if not inspect(connection).has_table(column.table.name):
        return 0
    number = connection.execute(delete(column.table).where(column == user)).rowcount
    connection.commit()
    return number


def in_batches(names: Iterable[Name]) -> Iterator[list[Name]]:
    """Names or numbers in order, for queries: databases limit the number of parameters."""
    ordered = sorted(names)
    for at in range(0, len(ordered), _BATCH_SIZE):
        yield ordered[at : at + _BATCH_SIZE]


def timestamp(moment: datetime) -> float:
    """Seconds since the epoch; JupyterHub's times are in UTC, and do not say so."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
