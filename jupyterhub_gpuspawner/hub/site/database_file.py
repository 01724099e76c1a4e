"""The hub's database by its URL: opened by commands, and whether other accounts can read its file."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import ArgumentError

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.account import configured_value

DEFAULT = "sqlite:///jupyterhub.sqlite"
"""The default of ``c.JupyterHub.db_url``."""
_READERS = stat.S_IRGRP | stat.S_IROTH
_PASSERS = stat.S_IXGRP | stat.S_IXOTH


def full_url(db_url: str) -> str:
    """Return the URL for ``c.JupyterHub.db_url``, which may be the name of an SQLite file."""
    return db_url if "://" in db_url else f"sqlite:///{db_url}"


def open_database(db_url: str, db_kwargs: Mapping[str, Any]) -> Engine:
    """Return an engine for the database of a hub with these settings of ``c.JupyterHub``.

    It makes no file. Raises ConfigError for a database that is not there, or that only the hub's process has.
    """
    where = "c.JupyterHub.db_url"
    try:
        url = make_url(full_url(db_url))
        engine = create_engine(url, **(configured_value(db_kwargs) or {}))
    except (ArgumentError, ImportError, TypeError) as error:  # TypeError: an unknown name in db_kwargs
        raise ConfigError(str(error), where=where) from error
    if url.get_backend_name() == "sqlite" and not (url.database or "").startswith("file:"):
        if url.database in (None, "", ":memory:"):
            raise ConfigError("the database is in the hub's memory, where no command can read it.", where=where)
        if not Path(url.database).is_file():
            raise ConfigError(
                f"there is no database {Path(url.database).absolute()}.",
                where=where,
                hint="Run the command in the hub's working directory, once the hub has been started.",
            )
    return engine


def exposed_database(db_url: str) -> str:
    """Return a sentence if others can read the database file of ``db_url``; empty if not, or if it is not a file.

    The database holds who uses what, the users' cookie ids, the hashes of all tokens, and for each server how its last
    job ended, with lines of its log. A parent folder that others may not enter protects it, too.
    """
    try:
        url = make_url(full_url(db_url))
    except ArgumentError:
        return ""
    if url.get_backend_name() != "sqlite" or not url.database or url.database.startswith((":", "file:")):
        return ""
    path = Path(os.path.abspath(url.database))  # noqa: PTH100 - links are not resolved: their folders protect, too
    try:
        mode = path.stat().st_mode
        closed = any(not folder.stat().st_mode & _PASSERS for folder in path.resolve().parents)
    except OSError:
        return ""
    if closed or not mode & _READERS:
        return ""
    return (
        f"the hub's database can be read by others (mode {stat.S_IMODE(mode):04o}): "
        f"restrict it to its owner with chmod 600 {path}"
    )
