"""Whether the hub's sqlite database can be read by other accounts of its machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

DEFAULT = "sqlite:///jupyterhub.sqlite"
"""``c.JupyterHub.db_url`` where it is not set."""
_READERS = stat.S_IRGRP | stat.S_IROTH
_PASSERS = stat.S_IXGRP | stat.S_IXOTH


def exposed_database(db_url: str) -> str:
    """One sentence where others can read the database that ``db_url`` names; empty where not, or where it is no file.

    In it stand who uses what, the users' cookie ids, the hashes of all tokens, and with each server how its last job
    ended, with lines of its log. A folder on the way that is closed to others protects it as well.
    """
    try:
        url = make_url(db_url)
    except ArgumentError:
        return ""
    if url.get_backend_name() != "sqlite" or not url.database or url.database.startswith((":", "file:")):
        return ""
    path = Path(os.path.abspath(url.database))  # noqa: PTH100 - a link is a way to it of its own
    try:
        mode = path.stat().st_mode
        closed = any(not folder.stat().st_mode & _PASSERS for folder in path.resolve().parents)
    except OSError:
        return ""
    if closed or not mode & _READERS:
        return ""
    return (
        f"the hub's database can be read by others (mode {stat.S_IMODE(mode):04o}): "
        f"make it its owner's alone with chmod 600 {path}"
    )
