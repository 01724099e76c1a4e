"""The users and groups that a hub knows: its configuration, its database, and the accounts of this machine."""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyterhub import orm
from sqlalchemy import create_engine, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.hub.site.account import NAMING, written
from jupyterhub_gpuspawner.hub.site.database_file import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from traitlets.config import Config


@dataclass(frozen=True)
class People:
    """Users and groups of JupyterHub."""

    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Members by group."""
    users: frozenset[str] = frozenset()
    at_sign_in: bool = False
    """The authenticator manages groups: which there are is known only when users sign in."""
    unread: str = ""
    """Why the hub's database could not be read; empty if it was, or if there is none yet."""

    def members(self, groups: tuple[str, ...]) -> frozenset[str]:
        """Everybody in one of these groups."""
        return frozenset().union(*(self.groups.get(name, ()) for name in groups))


def people_of(config: Config) -> People:
    """What the configuration and the hub's database say. Reads the database, and never writes to it."""
    groups = _configured(config)
    users = {str(name) for name in _named(config)} | {name for members in groups.values() for name in members}
    at_sign_in = any(isinstance(each, dict) and each.get("manage_groups") is True for each in config.values())
    stored, unread = _stored(str(config.JupyterHub.get("db_url", DEFAULT)))
    merged = {name: groups.get(name, frozenset()) | stored.groups.get(name, frozenset()) for name in groups}
    return People({**stored.groups, **merged}, frozenset(users) | stored.users, at_sign_in, unread)


def _configured(config: Config) -> dict[str, frozenset[str]]:
    """The groups of ``c.JupyterHub.load_groups``."""
    loaded = written(config.JupyterHub.get("load_groups"), {})
    if not isinstance(loaded, dict):
        return {}
    of = {
        group: members.get("users", ()) if isinstance(members, dict) else members for group, members in loaded.items()
    }
    return {str(group): frozenset(map(str, members)) for group, members in of.items() if not isinstance(members, str)}


def _named(config: Config) -> set[Any]:
    """Users that an authenticator's settings name."""
    found: set[Any] = set()
    for settings in config.values():
        for trait in NAMING:
            names = written(settings.get(trait), set()) if isinstance(settings, dict) else ()
            found.update(names.values() if isinstance(names, dict) else names)
    return found


def _stored(db_url: str) -> tuple[People, str]:
    """What the database holds; a sentence if it could not be read."""
    try:
        url = make_url(db_url)
        if url.get_backend_name() == "sqlite":
            path = Path(url.database or ":memory:").absolute()
            if not path.exists():  # the hub has not been started yet
                return People(), ""
            if not os.access(path, os.R_OK):
                return People(), f"{path} cannot be read by this account"
            url = make_url(f"sqlite:///file:{path}?mode=ro&uri=true")
        engine = create_engine(url)
        try:
            with Session(engine) as session:
                users = frozenset(session.scalars(select(orm.User.name)))
                groups = {
                    group.name: frozenset(user.name for user in group.users) for group in session.scalars(_GROUPS)
                }
        finally:
            engine.dispose()
    except (SQLAlchemyError, ImportError) as error:
        return People(), f"the database cannot be read ({type(error).__name__})"
    return People(groups, users), ""


_GROUPS = select(orm.Group)


def has_account(name: str) -> bool:
    """Whether this machine has an account of this name."""
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        return False
    return True


def is_unix_group(name: str) -> bool:
    """Whether this machine has a group of this name."""
    try:
        grp.getgrnam(name)
    except (KeyError, ValueError):
        return False
    return True
