"""Accounts of the cluster, and what Slurm allows the one that the hub's questions come from."""

from __future__ import annotations

import os
import pwd
import re
import time
from contextlib import suppress
from dataclasses import dataclass

from jupyterhub_gpuspawner.errors import SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.snapshot import SlurmConfig

# Accounts of the cluster, as a login node knows them, for a hub whose machine does not.

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


def parse_identity(text: str) -> SystemAccount:
    """The account that ran id(1); its name is empty for a uid without one. Raises SlurmOutputError."""
    match = _IDENTITY.search(text)
    if match is None:
        raise SlurmOutputError("id printed no uid.", raw=text)
    return SystemAccount(match[2] or "", int(match[1]))


# What Slurm allows the account that the hub's questions come from: its own, or that of ``query_prefix``.


def own_account() -> str:
    """The name of this process's account; empty for a uid without a name."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return ""


async def asking_account(slurm: Installation) -> SystemAccount:
    """The account that Slurm sees in the hub's questions; its name is empty for a uid without one.

    Raises SlurmUnavailable and SlurmOutputError where another machine has to be asked and does not answer.
    """
    if not slurm.query_prefix:
        return SystemAccount(own_account(), os.geteuid())
    answer = await slurm.run("id")
    if answer.code != 0:
        raise SlurmUnavailable(f"id failed on the login node: {answer.stderr.strip()[:200]}")
    return parse_identity(answer.stdout)


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
