"""Failures of the hub's database: roll the session back, and wait until the database takes changes again.

JupyterHub uses one SQLAlchemy session for all of its life. After a failed transaction the session must be rolled back
before it can be used again. JupyterHub does so if a request fails, but not if a start, a poll or a task of ours fails.
And if JupyterHub cannot write to the database when a server ends, the server stays half ended: pending for ever, or
ready without a process. So our spawners report that a server has started or ended only when the hub can write it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from alembic.migration import MigrationContext
from alembic.operations import Operations
from jupyterhub import orm
from jupyterhub.app import JupyterHub
from jupyterhub.spawner import Spawner
from jupyterhub.utils import utcnow
from sqlalchemy import (
    Column,
    Connection,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    insert,
    inspect,
    literal,
    select,
    update,
)
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    PendingRollbackError,
    SQLAlchemyError,
)
from sqlalchemy.orm import Session
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.jupyterhub_compat import session_of
from jupyterhub_gpuspawner.hub.site.configured import configured_value
from jupyterhub_gpuspawner.slurm.reason import Words
from jupyterhub_gpuspawner.tasks import in_background

PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between tries; the last one is repeated."""
TO_START, TO_POLL, TO_STOP = 60.0, 20.0, math.inf
"""Seconds to wait for the database when a server has started, has ended, or is stopped.

A stop waits as long as it takes: JupyterHub has no way back from one that it could not write down.
"""
UNAVAILABLE = Words(
    "The hub's database did not respond, or takes no changes, so nothing was done.",
    "Try again in a few minutes; if it lasts, tell an administrator. Servers that run go on.",
)
AWAY_MESSAGE = f"{UNAVAILABLE.sentence} {UNAVAILABLE.advice}"
SECONDS = Float(53)
"""The type of a column with seconds since the epoch, or a number of seconds.

MySQL and MariaDB give a ``FLOAT`` without precision four bytes, which is two minutes off for a time of today.
"""
_BATCH_SIZE = 200
Name = TypeVar("Name", str, int)
NOT_CACHED: Mapping[str, Any] = {"compiled_cache": None}
"""For a query of a column with JupyterHub's type for JSON, which does not say whether its statements may be cached."""
AWAY = (DBAPIError, PendingRollbackError)
"""Exceptions while the database is unreachable, full or locked: a later try may succeed."""


def fault(error: SQLAlchemyError) -> str:
    """Return the database's message for a log, without the statement and its values, which may be confidential."""
    return str(error).partition("\n")[0]


def roll_back(session: Session) -> None:
    """Make the session usable again after an error; uncommitted changes are lost."""
    with suppress(SQLAlchemyError):  # the connection may be gone with the transaction
        session.rollback()


@contextmanager
def transaction(session: Session) -> Iterator[None]:
    """Commit what the block does, or roll it back if the block raises or the commit fails."""
    try:
        yield
        session.commit()
    except BaseException:
        roll_back(session)
        raise


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


async def written(session: Session, write: Callable[[], None], patience: float) -> bool:
    """Call ``write``, which commits, until it succeeds or ``patience`` seconds have passed; return whether it did.

    The session is rolled back after each failure. Raises SQLAlchemyError for an error that a later try cannot mend.
    """
    ends_at = time.monotonic() + patience
    tries = 0
    while True:
        try:
            write()
        except SQLAlchemyError as error:
            roll_back(session)
            if not isinstance(error, AWAY):
                raise
            if tries == 0:
                get_logger().warning(
                    "The hub's database does not accept changes at the moment; trying again: %s", fault(error)
                )
        else:
            return True
        pause = PAUSES[min(tries, len(PAUSES) - 1)]
        if time.monotonic() + pause > ends_at:
            return False
        await asyncio.sleep(pause)
        tries += 1


async def takes_changes(orm_spawner: Any, patience: float) -> bool:
    """Wait until the database takes a change of this spawner's row; return False after ``patience`` seconds.

    A commit without a change does not reach the database, and a query does not notice a full disk, so the row is
    written unchanged. True for a spawner without a row.
    """
    session = session_of(orm_spawner)

    def write() -> None:
        assert session is not None
        row = update(orm.Spawner).where(orm.Spawner.id == orm_spawner.id).values(user_id=orm.Spawner.user_id)
        session.execute(row, execution_options={"synchronize_session": False})
        session.commit()

    return session is None or await written(session, write, patience)


def write_fix(db_url: str) -> str:
    """What an admin can do about a database that takes no changes."""
    url = make_url(full_url(db_url))
    if url.get_backend_name() != "sqlite":
        return "Look at the database server of c.JupyterHub.db_url."
    path = Path(os.path.abspath(url.database or ""))  # noqa: PTH100 - as the hub names it
    return f"Look at {path} and its folder: owner and mode, `df {path.parent}`, and a mount that is read-only."


def write_fault(db_url: str, db_kwargs: Mapping[str, Any]) -> str:
    """The error with which the database refuses changes; empty if it takes them. It stays as it is.

    It is not tried with the file of another account, which only root may change. Raises ConfigError for a database that
    is not there.
    """
    engine = open_database(db_url, db_kwargs)
    if engine.url.get_backend_name() == "sqlite" and os.geteuid() not in (
        0,
        Path(engine.url.database or "").stat().st_uid,
    ):
        return ""
    # a table that is not kept has SQLite write to the disk, which may be full; other databases may keep it
    sqlite = engine.dialect.name == "sqlite"
    statement = "CREATE TABLE gpuspawner_check (x INTEGER)" if sqlite else "UPDATE spawners SET name = name WHERE 1 = 0"
    try:
        with engine.connect() as connection:
            if sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")  # Python's driver begins none for a table
            connection.exec_driver_sql(statement)
            connection.rollback()
    except SQLAlchemyError as error:
        return fault(error)
    finally:
        engine.dispose()
    return ""


# The hub's database by its URL: opened by commands, and whether other accounts can read its file.

DEFAULT = "sqlite:///jupyterhub.sqlite"
"""The default of ``c.JupyterHub.db_url``."""


def full_url(db_url: str) -> str:
    """Return the URL for ``c.JupyterHub.db_url``, which may be the name of an SQLite file."""
    return db_url if "://" in db_url else f"sqlite:///{db_url}"


def is_in_memory(url: URL) -> bool:
    """Whether the database ends with its one connection, which the hub's process has."""
    return url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")


def is_readable(path: Path) -> bool:
    """Whether there is this file; raises ConfigError if this account may not read it, or may not enter its folder."""
    try:
        is_file, may_read = stat.S_ISREG(path.stat().st_mode), os.access(path, os.R_OK)
    except PermissionError:  # for which Path.is_file returns False since Python 3.14, and raises an error before
        is_file, may_read = True, False
    except OSError:
        return False
    if is_file and not may_read:
        raise ConfigError(
            f"{path.absolute()} cannot be read by this account.", hint="Run the command as the hub's account."
        )
    return is_file


def open_database(db_url: str, db_kwargs: Mapping[str, Any]) -> Engine:
    """Return an engine for the database of a hub with these settings of ``c.JupyterHub``.

    It makes no file. Raises ConfigError for a database that is not there, that only the hub's process has, or that
    this account may not read.
    """
    where = "c.JupyterHub.db_url"
    try:
        url = make_url(full_url(db_url))
        engine = create_engine(url, **(configured_value(db_kwargs) or {}))
    except (ArgumentError, ImportError, TypeError) as error:  # TypeError: an unknown name in db_kwargs
        raise ConfigError(str(error), where=where) from error
    if is_in_memory(url):
        raise ConfigError("the database is in the hub's memory, where no command can read it.", where=where)
    database = url.database or ""
    if url.get_backend_name() == "sqlite" and not database.startswith("file:") and not is_readable(Path(database)):
        raise ConfigError(
            f"there is no database {Path(database).absolute()}.",
            where=where,
            hint="Run the command in the hub's working directory, once the hub has been started.",
        )
    return engine


@contextmanager
def connected(db_url: str, db_kwargs: Mapping[str, Any], failure: str) -> Iterator[Connection]:
    """A connection to the database of a hub, for a command; see :func:`open_database`.

    Raises ConfigError, which begins with ``failure`` where the database is there and fails.
    """
    engine = open_database(db_url, db_kwargs)
    try:
        with engine.connect() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise ConfigError(f"{failure}: {fault(error)}", where="c.JupyterHub.db_url") from error
    finally:
        engine.dispose()


def exposed_mode(path: Path, readers: int = stat.S_IRGRP | stat.S_IROTH) -> int:
    """The mode of a file that others can read: of these, the file's group and all other accounts; 0 if none can.

    A parent folder that they may not enter protects it, too. Raises OSError.
    """
    mode = path.stat().st_mode
    enters = readers >> 2  # of a folder's mode: the same accounts
    closed = any(not folder.stat().st_mode & enters for folder in path.resolve().parents)
    return 0 if closed or not mode & readers else stat.S_IMODE(mode)


def exposed_database(db_url: str) -> str:
    """Return a sentence if others can read the database file of ``db_url``; empty if not, or if it is not a file.

    The database holds who uses what, the users' cookie ids, the hashes of all tokens, and for each server how its last
    job ended, with lines of its log.
    """
    try:
        url = make_url(full_url(db_url))
    except ArgumentError:
        return ""
    if url.get_backend_name() != "sqlite" or not url.database or url.database.startswith((":", "file:")):
        return ""
    path = Path(os.path.abspath(url.database))  # noqa: PTH100 - links are not resolved: their folders protect, too
    try:
        mode = exposed_mode(path)
    except OSError:
        return ""
    if not mode:
        return ""
    return f"the hub's database can be read by others (mode {mode:04o}): restrict it to its owner with chmod 600 {path}"


# The tables of this package in the hub's database, and the steps from each version of them to the next.
#
# A store declares its table in :data:`TABLES`, as this version of the package uses it. When a table changes, a step is
# added to :data:`STEPS`: a hub that is started takes those that its database lacks, all of them or none, and makes the
# tables that are not there, before it uses one. Steps that were released are never changed. MySQL cannot take back what
# was done to a table, so a step there may be repeated after a failure.

TABLES = MetaData()
"""The tables as this version of the package uses them."""

SCHEMA = Table("gpuspawner_schema", MetaData(), Column("version", Integer, primary_key=True, autoincrement=False))
"""One row; a database of before this table has no row, and the tables of version 1, as far as they were used."""


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


# A server's state in the hub's database, written when something happens to it.
#
# JupyterHub writes a spawner's state after ``start()`` and when the server ends. What is learned in between, such as
# the id of a job, would be lost with a hub that is killed.


class StoredState:
    """Writes the state of one spawner to its row and commits."""

    def __init__(self, spawner: Spawner, *, server: str, log: logging.Logger) -> None:
        """``server`` is the name for the log."""
        self._spawner = spawner
        self._server = server
        self._log = log

    def count_age_from_now(self) -> None:
        """Have the server's age and its idle time count from now on; the caller commits.

        JupyterHub notes when the server was asked for. A culler with a ``max_age`` would count the time in the queue.
        """
        row = self._spawner.orm_spawner
        if row is not None:
            row.started = row.last_activity = utcnow(with_tz=False)

    def store(self) -> None:
        """Write the state now, and the port of the server's address. Raises SQLAlchemyError."""
        spawner = self._spawner
        session = self.session
        if session is not None:
            server = spawner.server
            # JupyterHub writes a port to the row when it is set: a rollback since then has undone that
            if server is not None and server.orm_server is not None and server.orm_server.port != server.port:
                server.orm_server.port = server.port
            spawner.orm_spawner.state = spawner.get_state()
            session.commit()

    def store_soon(self) -> None:
        """Write the state now or, while the database takes no changes, in the background as soon as it does."""
        try:
            self.store()
        except AWAY as error:
            session = self.session
            assert session is not None
            roll_back(session)
            self._log.warning("The state of %s is not in the hub's database yet: %s", self._server, fault(error))
            in_background(self._store_later(session))

    async def _store_later(self, session: Session) -> None:
        await written(session, self.store, TO_STOP)

    @property
    def is_deleted(self) -> bool:
        """Whether the spawner's row is gone: its server or user was deleted. Raises SQLAlchemyError."""
        row = self._spawner.orm_spawner
        identity = inspect(row).identity if row is not None else None
        if identity is None:
            return False
        session = self.session
        query = select(orm.Spawner.id).where(orm.Spawner.id == identity[0])
        return session is None or session.execute(query).first() is None

    @property
    def session(self) -> Session | None:
        """The session of the hub's database; None for a spawner without a row."""
        return session_of(self._spawner.orm_spawner)
