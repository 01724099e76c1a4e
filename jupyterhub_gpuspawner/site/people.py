"""The users and groups that a hub knows: its configuration, its database, and the accounts of this machine."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from jupyterhub import orm
from sqlalchemy import select
from sqlalchemy.orm import Session
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.database import NOT_CACHED
from jupyterhub_gpuspawner.hub.spawners.shared_folder import read_slugs
from jupyterhub_gpuspawner.site.configuration import is_unseen, sqlite_file
from jupyterhub_gpuspawner.site.configured import NAMING, configured_value, names_in
from jupyterhub_gpuspawner.site.database import DEFAULT, connected, is_readable


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
    at_sign_in = any(isinstance(section, dict) and section.get("manage_groups") is True for section in config.values())
    try:
        stored, unread = read_database(config, _people) or People(), ""
    except ConfigError as error:
        stored, unread = People(), error.fault.removesuffix(".")
    merged = {name: groups.get(name, frozenset()) | stored.groups.get(name, frozenset()) for name in groups}
    return People({**stored.groups, **merged}, frozenset(users) | stored.users, at_sign_in, unread)


def _configured(config: Config) -> dict[str, frozenset[str]]:
    """The groups of ``c.JupyterHub.load_groups``."""
    loaded = configured_value(config.JupyterHub.get("load_groups"))
    if not isinstance(loaded, dict):
        return {}
    of = {
        group: members.get("users", ()) if isinstance(members, dict) else members for group, members in loaded.items()
    }
    return {str(group): frozenset(map(str, members)) for group, members in of.items() if not isinstance(members, str)}


def _named(config: Config) -> set[Any]:
    """Users that an authenticator's settings name."""
    names: set[Any] = set()
    for settings in config.values():
        for trait in NAMING:
            names.update(names_in(settings.get(trait)) if isinstance(settings, dict) else ())
    return names


def stored_slugs(config: Config) -> dict[str, str]:
    """The file of each profile's slug, as a hub of this configuration has written it down."""
    try:
        return read_database(config, read_slugs) or {}
    except ConfigError:  # as of a hub that has not run since it has such a table
        return {}


def stored_clusters(config: Config) -> dict[str, frozenset[str]]:
    """Who has servers on each cluster, by its name, as the hub has written it down; empty where that is not known."""
    try:
        return read_database(config, _clusters) or {}
    except ConfigError:  # the check of groups says so
        return {}


def _clusters(session: Session) -> dict[str, frozenset[str]]:
    query = select(orm.User.name, orm.Spawner.state).where(orm.Spawner.user_id == orm.User.id)
    running = query.where(orm.Spawner.server_id.is_not(None))
    people: dict[str, set[str]] = {}
    for name, state in session.execute(running, execution_options=NOT_CACHED):
        cluster = state.get("cluster") if isinstance(state, dict) else None
        if isinstance(cluster, dict) and cluster.get("name"):
            people.setdefault(str(cluster["name"]), set()).add(name)
    return {name: frozenset(names) for name, names in people.items()}


def _people(session: Session) -> People:
    groups = {group.name: frozenset(user.name for user in group.users) for group in session.scalars(_GROUPS)}
    return People(groups, frozenset(session.scalars(select(orm.User.name))))


def read_database(config: Config, read: Callable[[Session], T]) -> T | None:
    """What ``read`` returns of the hub's database, to which it does not write; None if there is no such file yet.

    Raises ConfigError.
    """
    hub = config.JupyterHub
    db_url = str(hub.get("db_url", DEFAULT))
    file = sqlite_file(db_url)
    if is_unseen(db_url):
        raise ConfigError(f"the hub's working directory, in which {file} is, is not known here.")
    if file and not is_readable(Path(file)):
        return None
    with (
        connected(db_url, hub.get("db_kwargs", {}), "the database cannot be read") as connection,
        Session(connection) as session,
    ):
        return read(session)


_GROUPS = select(orm.Group)
T = TypeVar("T")


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
