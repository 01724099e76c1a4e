"""The users and groups that a hub knows, from its configuration and its database."""

from __future__ import annotations

from pathlib import Path

import pytest
from jupyterhub import orm
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.site.people import People, people_of
from tests.fixtures.databases import hub_session

LINES = """
c.JupyterHub.load_groups = {"course": {"users": ["ada"]}, "empty": []}
c.Authenticator.admin_users.update({"grace"})
"""


def config_with(folder: Path, lines: str) -> Config:
    """A hub's configuration, with its database in the same folder."""
    file = folder / "jupyterhub_config.py"
    file.write_text(f"c.JupyterHub.db_url = 'sqlite:///{folder}/hub.sqlite'\n{lines}")
    return load_site(file).config


def test_those_of_the_configuration_and_of_the_database(tmp_path: Path) -> None:
    """Groups that were made on the admin page are in the database alone; the database is not created."""
    config = config_with(tmp_path, LINES)
    configured = People({"course": frozenset({"ada"}), "empty": frozenset()}, frozenset({"ada", "grace"}))
    assert (people_of(config), (tmp_path / "hub.sqlite").exists()) == (configured, False)

    with hub_session(f"sqlite:///{tmp_path}/hub.sqlite") as session:
        bob = orm.User(name="bob")
        session.add_all([bob, orm.Group(name="made", users=[bob]), orm.Group(name="course", users=[bob])])
        session.commit()

    expected = People(
        {"course": frozenset({"ada", "bob"}), "empty": frozenset(), "made": frozenset({"bob"})},
        frozenset({"ada", "bob", "grace"}),
    )
    assert people_of(config) == expected


def test_the_database_is_opened_as_the_hub_does(tmp_path: Path) -> None:
    """With the admin's ``db_kwargs``, which may say where it is."""
    with hub_session(f"sqlite:///{tmp_path}/real.sqlite") as session:
        session.add(orm.User(name="bob"))
        session.commit()
    (tmp_path / "hub.sqlite").touch()
    creator = f"lambda: sqlite3.connect('{tmp_path}/real.sqlite')"
    config = config_with(tmp_path, f"import sqlite3\nc.JupyterHub.db_kwargs = {{'creator': {creator}}}\n")

    assert people_of(config) == People(users=frozenset({"bob"}))


def test_a_database_that_only_the_hubs_process_has_leaves_groups_unknown(tmp_path: Path) -> None:
    """A group that is not in the configuration may be in it."""
    config = config_with(tmp_path, "c.JupyterHub.db_url = 'sqlite://'\n")

    assert people_of(config) == People(unread="the database is in the hub's memory, where no command can read it")


def test_a_database_that_is_none(tmp_path: Path) -> None:
    """It is said that it could not be read."""
    config = config_with(tmp_path, "")
    (tmp_path / "hub.sqlite").write_text("not a database")

    assert people_of(config) == People(
        unread="the database cannot be read: (sqlite3.DatabaseError) file is not a database"
    )


def test_groups_that_come_with_a_sign_in_are_not_known_beforehand(tmp_path: Path) -> None:
    """An authenticator that manages groups."""
    assert people_of(config_with(tmp_path, "c.GitHubOAuthenticator.manage_groups = True\n")).at_sign_in


def test_a_setting_of_another_type_is_told_without_a_traceback(tmp_path: Path) -> None:
    """As the ConfigError of a configuration with which the hub would not start."""
    file = tmp_path / "jupyterhub_config.py"
    file.write_text("c.GPUProfilesSpawner.profiles_dir_allows = ['everything']")

    with pytest.raises(ConfigError, match="profiles_dir_allows"):
        load_site(file).spawner("ada")
