"""The accounts of users: which may own a job, and what is read of them."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.site.configured import configured_value, foreign_encoding, refused_names
from jupyterhub_gpuspawner.slurm.accounts import account_of, refuse_root
from jupyterhub_gpuspawner.slurm.job import Account
from jupyterhub_gpuspawner.tasks import connected, resolved
from tests.name_service import holds_nothing_else


async def test_root_is_refused() -> None:
    """The account with uid 0 is refused, whatever its name is."""
    for name in {entry.pw_name for entry in pwd.getpwall() if entry.pw_uid == 0}:
        with pytest.raises(ConfigError, match="is an account of uid 0"):
            await refuse_root(name)


async def test_another_account_with_uid_0_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accounts such as toor have uid 0, too."""
    entry = pwd.struct_passwd(("toor", "x", 0, 0, "", "/root", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", {"toor": entry}.__getitem__)

    with pytest.raises(ConfigError) as caught:
        await refuse_root("toor")

    assert str(caught.value) == (
        "'toor' is an account of uid 0 (root); servers are never started as root. "
        "Keep it from signing in: c.Authenticator.blocked_users."
    )


@pytest.mark.parametrize("name", ["#0", "0", "-x", ""])
async def test_an_invalid_name_is_not_looked_up(name: str) -> None:
    """Also with a home, for which no account is needed."""
    with pytest.raises(ConfigError, match="is not a valid user name"):
        await account_of(name, home="/home/x")


async def test_with_a_home_no_account_is_needed() -> None:
    """Jobs may run as another account, or commands on another machine."""
    assert await account_of("nobody-has-this", home="/home/x") == Account("nobody-has-this", "/home/x")
    await refuse_root("nobody-has-this")


async def test_an_account_is_found() -> None:
    """Home and shell are those of the account database."""
    entry = next(entry for entry in pwd.getpwall() if entry.pw_uid != 0)

    assert await account_of(entry.pw_name) == Account(entry.pw_name, entry.pw_dir, entry.pw_shell, entry.pw_uid)


def test_names_that_would_be_refused_are_reported_beforehand() -> None:
    """In the settings of every authenticator; of ``username_map`` the resulting names count."""
    config = {
        "Authenticator": {"allowed_users": {"ada", "#0"}, "admin_users": ["root"]},
        "GitHubOAuthenticator": {"username_map": {"#1": "bob", "carol": "1000"}},
        "JupyterHub": {"port": 8000},
    }

    assert refused_names(config) == [
        "c.Authenticator.allowed_users: '#0' is not a valid user name.",
        "c.Authenticator.admin_users: 'root' is an account of uid 0 (root); servers are never started as root.",
        "c.GitHubOAuthenticator.username_map: '1000' is not a valid user name.",
    ]


def test_what_a_configuration_adds_is_a_value_of_its_own() -> None:
    """As with ``c.JupyterHub.services.append(...)``; JupyterHub's own reading of it later is not changed by that."""
    config = Config()
    config.Authenticator.admin_users.update({"ada"})
    config.JupyterHub.services.append({"name": "idle"})
    config.JupyterHub.load_groups.update({"staff": ["ada"]})
    config.JupyterHub.port = 8000
    names = config.Authenticator.admin_users

    assert [configured_value(value) for value in (names, *config.JupyterHub.values(), None)] == [
        {"ada"},
        [{"name": "idle"}],
        {"staff": ["ada"]},
        8000,
        None,
    ]
    assert names.get_value({"root"}) == {"ada", "root"}


def test_a_name_that_a_configuration_only_adds_is_read_too() -> None:
    """``c.Authenticator.admin_users.update(...)`` keeps a value that is not there yet."""
    config = Config()
    config.Authenticator.admin_users.update({"root"})

    assert refused_names(config) == [
        "c.Authenticator.admin_users: 'root' is an account of uid 0 (root); servers are never started as root.",
    ]


HANGS = {
    "accounts": ("pwd.getpwnam", lambda: account_of("ada")),
    "addresses": ("socket.getaddrinfo", lambda: resolved("node1")),
    "connections": ("socket.getaddrinfo", lambda: connected("node1", 80)),
}


@pytest.mark.parametrize(("call", "ask"), HANGS.values(), ids=HANGS.keys())
async def test_a_name_service_that_hangs_holds_nothing_else(
    call: str, ask: Callable[[], Coroutine[Any, Any, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class presses Start while SSSD hangs: asyncio's threads still read Slurm's answers and find the proxy."""
    await holds_nothing_else(call, ask, monkeypatch)


@pytest.mark.parametrize(
    ("encoding", "warns"), [("utf-8", False), ("UTF8", False), ("iso8859-15", True), ("ascii", True)]
)
def test_a_hub_whose_locale_is_not_utf_8_is_warned_of(encoding: str, warns: bool) -> None:
    """It finds no account with an umlaut."""
    assert (f"has the encoding {encoding}, so accounts" in foreign_encoding(encoding)) is warns
