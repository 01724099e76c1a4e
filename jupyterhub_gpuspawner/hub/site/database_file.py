"""Check whether other accounts of the hub's machine can read its SQLite database."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

DEFAULT = "sqlite:///jupyterhub.sqlite"
"""The default of ``c.JupyterHub.db_url``."""
_READERS = stat.S_IRGRP | stat.S_IROTH
_PASSERS = stat.S_IXGRP | stat.S_IXOTH


def missing_database(db_url: str) -> str:
    """Return the path of an SQLite database that is not there; empty if it is, or if it is no file."""
    try:
        url = make_url(db_url)
    except ArgumentError:
        return ""
    if url.get_backend_name() != "sqlite" or not url.database or url.database.startswith((":", "file:")):
        return ""
    return "" if Path(url.database).is_file() else str(Path(url.database).absolute())


def exposed_database(db_url: str) -> str:
    """Return a sentence if others can read the database file of ``db_url``; empty if not, or if it is not a file.

    The database holds who uses what, the users' cookie ids, the hashes of all tokens, and for each server how its last
    job ended, with lines of its log. A parent folder that others may not enter protects it, too.
    """
    try:
        url = make_url(db_url)
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
