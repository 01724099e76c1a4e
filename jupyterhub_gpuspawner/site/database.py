"""The hub's database as commands open it, by its URL: whether it is there, can be read, and takes changes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.database import fault, full_url, is_in_memory
from jupyterhub_gpuspawner.site.configured import configured_value

DEFAULT = "sqlite:///jupyterhub.sqlite"
"""The default of ``c.JupyterHub.db_url``."""


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
