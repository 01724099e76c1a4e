"""The accounts of users, on this machine or as a login node knows them, and what Slurm allows the one that asks it.

The hub's questions to Slurm come from its own account, or from that of ``query_prefix``.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from dataclasses import dataclass

from jupyterhub_gpuspawner.errors import ConfigError, SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.commands import Installation, checked_user_name
from jupyterhub_gpuspawner.slurm.job import Account, own_account
from jupyterhub_gpuspawner.slurm.snapshot import SlurmConfig
from jupyterhub_gpuspawner.tasks import in_name_thread

ROOT = "is an account of uid 0 (root); servers are never started as root."
_MAX_AGE = 60.0
"""Seconds that an answer is kept."""
_ANSWERS_AT_MOST = 1024
_MISSING = 2
"""Exit status of getent(1) for a name that is not there."""
_IDENTITY = re.compile(r"uid=(\d+)(?:\(([^)\n]*)\))?")


@dataclass(frozen=True)
class SystemAccount:
    """An entry of the account database (passwd(5))."""

    name: str
    uid: int
    home: str = ""
    shell: str = ""


class LoginNodeAccounts:
    """Looks up accounts with getent(1), through ``query_prefix``."""

    def __init__(self, installation: Installation) -> None:
        self._slurm = installation
        self._known: dict[str, tuple[float, SystemAccount | None]] = {}

    async def of(self, name: str) -> SystemAccount | None:
        """The account of this name; None if there is none. Raises SlurmUnavailable and SlurmOutputError."""
        cached = self._known.get(name)
        if cached is not None and time.monotonic() - cached[0] < _MAX_AGE:
            return cached[1]
        answer = await self._slurm.run("getent", "passwd", name)
        if answer.code not in (0, _MISSING):
            raise SlurmUnavailable(f"getent failed on the login node: {answer.stderr.strip()[:200]}")
        account = parse_entry(answer.stdout, name) if answer.code == 0 else None
        if len(self._known) >= _ANSWERS_AT_MOST:
            self._known.clear()
        self._known[name] = time.monotonic(), account
        return account


def parse_entry(text: str, name: str) -> SystemAccount:
    """The entry of ``name`` in an answer of getent; raises SlurmOutputError."""
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) == 7 and fields[0] == name and fields[2].isdecimal():
            return SystemAccount(name, int(fields[2]), fields[5], fields[6])
    raise SlurmOutputError(f"getent printed no account {name!r}.", raw=text)


def parse_id_output(text: str) -> SystemAccount:
    """The account that ran id(1); its name is empty for a uid without one. Raises SlurmOutputError."""
    match = _IDENTITY.search(text)
    if match is None:
        raise SlurmOutputError("id printed no uid.", raw=text)
    return SystemAccount(match[2] or "", int(match[1]))


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
        f"{username!r} {ROOT}",
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


async def asking_account(slurm: Installation) -> SystemAccount:
    """The account that Slurm sees in the hub's questions; its name is empty for a uid without one.

    Raises SlurmUnavailable and SlurmOutputError where another machine has to be asked and does not answer.
    """
    if not slurm.query_prefix:
        return SystemAccount(own_account(), os.geteuid())
    answer = await slurm.run("id")
    if answer.code != 0:
        raise SlurmUnavailable(f"id failed on the login node: {answer.stderr.strip()[:200]}")
    return parse_id_output(answer.stdout)


async def has_all_rights(slurm: Installation, config: SlurmConfig) -> bool:
    """Whether the account is root, SlurmUser, an operator or an administrator; False where that cannot be determined.

    Slurm shows these accounts everything, whatever PrivateData says, and lets them raise time limits.
    """
    try:
        me = await asking_account(slurm)
        if me.uid in (0, config.slurm_uid):
            return True
        if not config.accounting or not me.name:
            return False
        answer = await slurm.run(
            "sacctmgr", "-n", "-P", "show", "user", "where", f"name={me.name}", "format=AdminLevel"
        )
    except SlurmUnavailable:
        return False
    return answer.code == 0 and answer.stdout.strip() in ("Operator", "Administrator")
