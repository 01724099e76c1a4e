"""The tables of this package in the hub's database, and the steps from each version of them to the next.

A store declares its table in :data:`TABLES`, as this version of the package uses it. When a table changes, a step is
added to :data:`STEPS`: a hub that is started takes those that its database lacks, all of them or none, and makes the
tables that are not there, before it uses one. Steps that were released are never changed. MySQL cannot take back what
was done to a table, so a step there may be repeated after a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

from alembic.migration import MigrationContext
from alembic.operations import Operations
from jupyterhub.app import JupyterHub
from sqlalchemy import (
    Column,
    Connection,
    Float,
    MetaData,
    String,
    Table,
    delete,
    insert,
    inspect,
    literal,
    select,
)
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


def _by_cluster(name: str) -> Callable[[Operations], None]:
    """A step: a column for the cluster in the table's primary key, empty for the rows that are there.

    The table is made anew: not every database can change a primary key.
    """

    def step(op: Operations) -> None:
        connection = op.get_bind()
        old = Table(name, MetaData(), autoload_with=connection)
        if "cluster" in old.c:  # the step is repeated
            return
        columns = [
            Column(column.name, column.type, primary_key=column.primary_key, nullable=column.nullable)
            for column in old.c
        ]
        new = Table(f"{name}_new", MetaData(), Column("cluster", String(255), primary_key=True), *columns)
        new.drop(connection, checkfirst=True)
        new.create(connection)
        connection.execute(insert(new).from_select(new.c.keys(), select(literal(""), *old.c)))
        old.drop(connection)  # with its indexes, whose names are free then
        for index in old.indexes:
            op.create_index(index.name, new.name, [column.name for column in index.columns])
        op.rename_table(new.name, name)

    return step


STEPS: tuple[tuple[str, Callable[[Operations], None]], ...] = (
    ("gpuspawner_fleet_nodes", _by_cluster("gpuspawner_fleet_nodes")),
    ("gpuspawner_fleet_grants", _by_cluster("gpuspawner_fleet_grants")),
)
"""For each version after the first the table that it changes, and how, with Alembic's ``op``."""


def upgrade(
    session: Session, steps: Sequence[tuple[str, Callable[[Operations], None]]] = STEPS, tables: Sequence[Table] = ()
) -> None:
    """Take the steps that the database lacks, in one transaction; ``tables`` are those of extensions.

    Raises ConfigError for a database that a later version of the package has changed, and SQLAlchemyError.
    """
    with transaction(session):
        connection = session.connection()
        version, newest = _version(connection), 1 + len(steps)
        if version > newest:
            raise ConfigError(
                f"the tables of gpuspawner in the hub's database have version {version}, and this version of "
                f"jupyterhub-gpuspawner knows them up to {newest}.",
                where="c.JupyterHub.db_url",
                hint="Install the version that the hub ran with before, or restore the backup of before that upgrade.",
            )
        if connection.dialect.name == "sqlite" and not connection.connection.dbapi_connection.in_transaction:  # type: ignore[union-attr]
            # Python's driver begins a transaction for changes of rows, not of tables
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        op = Operations(MigrationContext.configure(connection))
        for table, step in steps[version - 1 :]:
            if inspect(connection).has_table(table):  # others are made as they are now
                step(op)
        TABLES.create_all(connection)
        for of_extension in tables:
            of_extension.create(connection, checkfirst=True)
        SCHEMA.create(connection, checkfirst=True)
        connection.execute(delete(SCHEMA))
        connection.execute(insert(SCHEMA).values(version=newest))


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(SCHEMA.name):
        return 1
    return connection.execute(select(SCHEMA.c.version)).scalar() or 1


def bring_up_to_date(app: JupyterHub, tables: Sequence[Table] = ()) -> None:
    """Bring the tables of this hub and its extensions up to date, or have it exit if that cannot be done."""
    try:
        upgrade(app.db, tables=tables)
    except ConfigError as error:
        app.log.critical("%s", error)
        app.exit(1)
    except SQLAlchemyError as error:
        app.log.critical(
            "The tables of gpuspawner in the hub's database cannot be brought up to date: %s", fault(error)
        )
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
