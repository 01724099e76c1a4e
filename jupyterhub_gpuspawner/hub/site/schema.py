"""The tables of this package in the hub's database, and the steps from each version of them to the next.

A store declares its table in :data:`TABLES`, as this version of the package uses it. When a table changes, a step is
added to :data:`STEPS`: a hub that is started takes those that its database lacks, all of them or none, before it uses
a table. Steps that were released are never changed. MySQL cannot take back what was done to a table, so a step there
may be repeated after a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alembic.migration import MigrationContext
from alembic.operations import Operations
from jupyterhub.app import JupyterHub
from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    Unicode,
    UnicodeText,
    delete,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.database import SECONDS, fault, transaction

TABLES = MetaData()
"""The tables as this version of the package uses them."""

_SCHEMA = Table("gpuspawner_schema", MetaData(), Column("version", Integer, primary_key=True, autoincrement=False))
"""One row; there is none in a database of before this table, version 0."""


def _create_tables(op: Operations) -> None:
    """Version 0 to 1: create all tables. Until then each was created when it was first used."""
    tables = MetaData()
    Table(
        "gpuspawner_starts",
        tables,
        Column("start_id", String(64), primary_key=True),
        Column("user_name", Unicode(255), nullable=False),
        Column("server_name", Unicode(255), nullable=False),
        Column("made_at", SECONDS, nullable=False),
    )
    Table(
        "gpuspawner_slugs",
        tables,
        Column("slug", String(63), primary_key=True),
        Column("file", Unicode(255), nullable=False),
    )
    Table(
        "gpuspawner_messages",
        tables,
        Column("kind", String(16), primary_key=True),
        Column("name", Unicode(255), primary_key=True),
        Column("user", Unicode(255), primary_key=True),
        Column("sender", Unicode(255), nullable=False),
        Column("text", Unicode(500), nullable=False),
        Column("at", SECONDS, nullable=False),
        Column("until", SECONDS, nullable=False),
    )
    Table(
        "gpuspawner_course_starts",
        tables,
        Column("course", String(64), primary_key=True),
        Column("session", String(32), primary_key=True),
        Column("user", Unicode(255), primary_key=True),
        Column("stage", String(16), nullable=False),
        Column("tries", Integer, nullable=False),
        Column("asked_at", SECONDS, nullable=False),
        Column("ready_at", SECONDS, nullable=False),
        Column("fault", Unicode(1000), nullable=False),
    )
    Table(
        "gpuspawner_course_actions",
        tables,
        Column("id", Integer, primary_key=True),
        Column("course", String(64), nullable=False, index=True),
        Column("at", SECONDS, nullable=False),
        Column("text", UnicodeText, nullable=False),
    )
    Table(
        "gpuspawner_idle",
        tables,
        Column("id", Integer, primary_key=True),
        Column("user", Unicode(255), nullable=False),
        Column("server", Unicode(255), nullable=False),
        Column("profile", Unicode(255), nullable=False),
        Column("job_id", String(64), nullable=False),
        Column("gpus", Integer, nullable=False),
        Column("since", SECONDS, nullable=False),
        Column("seen", SECONDS, nullable=False),
        Column("most", SECONDS, nullable=False),
        Column("held_mib", Integer, nullable=False),
        Column("due_at", SECONDS),
        Column("action", String(16), nullable=False),
        Column("told_at", SECONDS),
        Column("keeps", Integer, nullable=False),
        Column("kept", SECONDS, nullable=False),
        Column("stopped", Boolean, nullable=False),
        Column("over", Boolean, nullable=False),
    )
    Table(
        "gpuspawner_fleet_nodes",
        tables,
        Column("node", String(255), primary_key=True),
        Column("seen_at", SECONDS, nullable=False),
        Column("record", Text, nullable=False),
    )
    Table(
        "gpuspawner_fleet_grants",
        tables,
        Column("job_id", String(64), primary_key=True),
        Column("node", String(255), nullable=False),
        Column("at", SECONDS, nullable=False, index=True),
        Column("facts", Text, nullable=False),
    )
    tables.create_all(op.get_bind())  # those that are there stay


STEPS: tuple[Callable[[Operations], None], ...] = (_create_tables,)
"""The step from each version to the next; ``op`` is Alembic's, such as ``op.add_column``."""


def upgrade(session: Session, steps: Sequence[Callable[[Operations], None]] = STEPS) -> None:
    """Take the steps that the database lacks, in one transaction.

    Raises ConfigError for a database that a later version of the package has changed, and SQLAlchemyError.
    """
    with transaction(session):
        connection = session.connection()
        version = _version(connection)
        if version > len(steps):
            raise ConfigError(
                f"the tables of gpuspawner in the hub's database have version {version}, and this version of "
                f"jupyterhub-gpuspawner knows them up to {len(steps)}.",
                where="c.JupyterHub.db_url",
                hint="Install the version that the hub ran with before, or restore the backup of before that upgrade.",
            )
        if version == len(steps):
            return
        if connection.dialect.name == "sqlite" and not connection.connection.dbapi_connection.in_transaction:  # type: ignore[union-attr]
            # Python's driver begins a transaction for changes of rows, not of tables
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        op = Operations(MigrationContext.configure(connection))
        for step in steps[version:]:
            step(op)
        _SCHEMA.create(connection, checkfirst=True)
        connection.execute(delete(_SCHEMA))
        connection.execute(insert(_SCHEMA).values(version=len(steps)))


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(_SCHEMA.name):
        return 0
    return connection.execute(select(_SCHEMA.c.version)).scalar() or 0


def bring_up_to_date(app: JupyterHub) -> None:
    """Bring the tables of this hub up to date, or have it exit if that cannot be done."""
    try:
        upgrade(app.db)
    except ConfigError as error:
        app.log.critical("%s", error)
        app.exit(1)
    except SQLAlchemyError as error:
        app.log.critical(
            "The tables of gpuspawner in the hub's database cannot be brought up to date: %s", fault(error)
        )
        app.exit(1)
