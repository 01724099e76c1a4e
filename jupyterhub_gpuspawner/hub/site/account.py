"""A user's account in the operating system: home, shell, uid and groups, and the owner of the user's jobs."""

from __future__ import annotations

import copy
import grp
import os
import pwd
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from traitlets.config.loader import LazyConfigValue

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.accounts import LoginNodeAccounts, SystemAccount
from jupyterhub_gpuspawner.slurm.commands import checked_user_name
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.tasks import in_name_thread

NAMING = ("allowed_users", "admin_users", "username_map")
"""Settings of an authenticator that name users; ``username_map`` does so in its values."""
_ROOT = "is an account of uid 0 (root); servers are never started as root."

_GROUPS_AGE = 60.0
"""Seconds for which memberships in groups are cached."""


@dataclass(frozen=True)
class Account:
    """A user's account, as a job's environment needs it."""

    name: str
    home: str
    shell: str = "/bin/bash"
    uid: int | None = None
    """None if the hub's machine does not know the account."""


def job_owner(exec_prefix: str, username: str) -> str:
    """Return the account that owns a user's jobs; empty if ``exec_prefix`` does not tell."""
    if not exec_prefix.strip():
        return _own_name()
    return username if "username" in exec_prefix else ""


@lru_cache(maxsize=1)
def _own_name() -> str:
    """The name of the account that runs this process; asked once, since the hub waits for it."""
    with suppress(KeyError):  # in a container the uid may have no name
        return pwd.getpwuid(os.getuid()).pw_name
    return ""


async def allowed_groups(snapshot: ClusterSnapshot | None, owner: str) -> Mapping[str, bool]:
    """Return whether the account is in each of the groups that partitions allow (AllowGroups).

    An account or group that the hub's machine does not know, such as one that exists only on the cluster, is left out.
    Slurm lets root use every partition. The account database is read in a thread, and answers are cached for a minute.
    """
    names = (
        tuple(sorted({name for partition in snapshot.partitions for name in partition.allow_groups}))
        if snapshot
        else ()
    )
    if not names or not owner:
        return {}
    return await in_name_thread(_memberships, owner, names, int(time.monotonic() // _GROUPS_AGE))


@lru_cache(maxsize=1024)
def _memberships(owner: str, names: tuple[str, ...], _minute: int) -> Mapping[str, bool]:
    try:
        account = pwd.getpwnam(owner)
        numbers = set(os.getgrouplist(owner, account.pw_gid))
    except (KeyError, OSError):
        return {}
    if account.pw_uid == 0:
        return dict.fromkeys(names, True)
    memberships: dict[str, bool] = {}
    for name in names:
        with suppress(KeyError):
            memberships[name] = grp.getgrnam(name).gr_gid in numbers
    return memberships


def owner_number(exec_prefix: str, account: Account) -> int | None:
    """Return the uid of the account that owns a user's jobs; None if that is unknown."""
    if not exec_prefix.strip():
        return os.getuid()
    return account.uid if "username" in exec_prefix else None


async def account_of(username: str, *, home: str = "", cluster: LoginNodeAccounts | None = None) -> Account:
    """Return the account of ``username``; with ``home``, the account need not exist on the hub's machine.

    ``cluster`` is asked instead of the hub's machine. Raises ConfigError if there is no account, for a name that no
    account can have, and for an account of the cluster with uid 0; SlurmUnavailable if the cluster does not answer.
    """
    checked_user_name(username)
    account = await (cluster.of(username) if cluster is not None else _entry(username))
    if cluster is not None and account is not None and account.uid == 0:
        raise _root_refused(username)
    if home:
        return Account(username, home, uid=account.uid if account is not None else None)
    if account is None:
        machine = "the login node" if cluster is not None else "the hub's machine"
        raise ConfigError(
            f"There is no account {username!r} on {machine}.",
            for_user="You have no account on this cluster.",
            hint="Create it, or set c.GPUSlurmSpawner.req_homedir if jobs run as another account.",
        )
    return Account(username, account.home, account.shell or "/bin/bash", account.uid)


async def refuse_root(username: str) -> None:
    """Raise ConfigError for a user name whose account has uid 0, and for a name that no account can have.

    Call it before anything is run. An account that the hub's machine does not know is accepted: if commands run on
    another machine, that one decides.
    """
    checked_user_name(username)
    entry = await _entry(username)
    if entry is not None and entry.uid == 0:
        raise _root_refused(username)


def _root_refused(username: str) -> ConfigError:
    return ConfigError(
        f"{username!r} {_ROOT}",
        for_user="Servers are not started for this account.",
        hint="Keep it from signing in: c.Authenticator.blocked_users.",
    )


async def _entry(username: str) -> SystemAccount | None:
    """Read the account database, in a thread, since a name service (LDAP, SSSD) may be slow."""
    try:
        entry = await in_name_thread(pwd.getpwnam, username)
    except KeyError:
        return None
    return SystemAccount(username, entry.pw_uid, entry.pw_dir, entry.pw_shell)


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
    return f"{username!r} {_ROOT}" if username == "root" else ""
