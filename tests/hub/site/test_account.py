"""The accounts of users: which may own a job, and what is read of them."""

from __future__ import annotations

import pwd

import pytest
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.account import Account, account_of, refuse_root, refused_names


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
    entry = next(each for each in pwd.getpwall() if each.pw_uid != 0)

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


def test_a_name_that_a_configuration_only_adds_is_read_too() -> None:
    """``c.Authenticator.admin_users.update(...)`` keeps a value that is not there yet."""
    config = Config()
    config.Authenticator.admin_users.update({"root"})

    assert refused_names(config) == [
        "c.Authenticator.admin_users: 'root' is an account of uid 0 (root); servers are never started as root.",
    ]
