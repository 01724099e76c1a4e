"""What a hub's configuration says before it runs: its values, users that it names, and warnings."""

from __future__ import annotations

import copy
import os
import stat
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from traitlets.config import Config, Configurable
from traitlets.config.loader import LazyConfigValue

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.extensions import HubExtensions, chosen
from jupyterhub_gpuspawner.hub.site.database import full_url
from jupyterhub_gpuspawner.slurm.accounts import ROOT
from jupyterhub_gpuspawner.slurm.commands import checked_user_name

NAMING = ("allowed_users", "admin_users", "username_map")
"""Settings of an authenticator that name users; ``username_map`` does so in its values."""


def refused_names(config: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each user name in the configuration that this package refuses to start servers for.

    ``config`` is the hub's, by class; names in ``username_map`` count. Names from a sign-in service are not known yet.
    """
    refused = []
    for holder, settings in config.items():
        for trait in NAMING:
            names = names_in(settings.get(trait)) if isinstance(settings, dict) else ()
            refused += [f"c.{holder}.{trait}: {refusal}" for name in names if (refusal := _refusal(str(name)))]
    return refused


def names_in(value: Any) -> tuple[Any, ...]:
    """The users that a setting of :data:`NAMING` names; none if its type is one with which the hub does not start."""
    names = configured_value(value)
    names = names.values() if isinstance(names, dict) else names
    return () if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)


def configured_value(value: Any) -> Any:
    """Return a setting's value as it is in a configuration, in which the setting need not have a value of its own.

    ``c.JupyterHub.services.append(...)`` and ``c.Authenticator.admin_users.update(...)`` add to a default, which is
    taken to be empty: a list, or a dict or set like what is added.
    """
    if not isinstance(value, LazyConfigValue):
        return value
    added = value.to_dict().get("update")
    # a copy, since traitlets keeps the first answer, also for an object whose default is another
    return copy.deepcopy(value).get_value([] if added is None else type(added)())


def _refusal(username: str) -> str:
    try:
        checked_user_name(username)
    except ConfigError as error:
        return error.message
    return f"{username!r} {ROOT}" if username == "root" else ""


def foreign_encoding(encoding: str) -> str:
    """A sentence for a hub whose file names are not in UTF-8 (``sys.getfilesystemencoding()``), or an empty one.

    Python's is UTF-8 in every locale of that name, in C and POSIX, and where none is set.
    """
    if encoding.lower().replace("-", "") == "utf8":
        return ""
    return (
        f"the hub's locale has the encoding {encoding}, so accounts and homes with letters other than a to z are not "
        "found: start the hub with LANG=C.UTF-8."
    )


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


CLEANUP = "c.JupyterHub.cleanup_servers"
KEEP_SERVERS = f"Set {CLEANUP} = False, or True if that is what you want."


def ends_servers(config: Config) -> str:
    """A sentence if a hub that is stopped cancels all jobs and nobody has decided that; empty if somebody has."""
    if "cleanup_servers" in config.get("JupyterHub", {}):
        return ""
    return "it is not set, and True by default: a hub that is stopped or restarted cancels the jobs of all servers."


@cache
def settings_classes(names: tuple[str, ...] | None = None) -> tuple[type[Configurable], ...]:
    """The classes of settings that extensions with these names bring, or all of this installation."""
    return HubExtensions(chosen(names)).settings
