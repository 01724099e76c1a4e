"""How the hub runs Slurm's commands, as settings say: prefixes, the folder of the scripts, and accounts behind them."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from jupyterhub_gpuspawner.errors import ConfigError, SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.commands import Installation, command_prefix, fixed_prefix
from jupyterhub_gpuspawner.slurm.login_node import command_line, is_remote
from jupyterhub_gpuspawner.slurm.time_limit import operator_prefix


class CommandSettings(Protocol):
    """The settings of a spawner."""

    exec_prefix: str
    query_prefix: str
    extend_prefix: str
    wrapper_dir: str

    def configured_as(self, name: str) -> str:
        """A setting as the admin wrote it."""


def check_commands(settings: CommandSettings) -> None:
    """Raise ConfigError for a prefix or folder with which no command would run."""
    prefixes = {
        "exec_prefix": command_prefix(settings.exec_prefix, "somebody"),
        "query_prefix": fixed_prefix(settings.query_prefix, where="query_prefix"),
        "extend_prefix": operator_prefix(settings.extend_prefix),
    }
    for name, prefix in prefixes.items():
        try:
            command_line(prefix, ())
        except ConfigError as error:
            raise ConfigError(error.message, where=settings.configured_as(name), hint=error.hint) from error
    if settings.wrapper_dir and not PurePosixPath(settings.wrapper_dir).is_absolute():
        raise ConfigError(
            f"{settings.wrapper_dir!r} is not a full path.",
            where=settings.configured_as("wrapper_dir"),
            hint="Use the folder's path as written in the sudoers file.",
        )
    if prefixes["extend_prefix"] and not settings.wrapper_dir:
        raise ConfigError(
            "The script `extend` is in wrapper_dir, which is not set.", where=settings.configured_as("extend_prefix")
        )
    if not prefixes["query_prefix"]:
        return
    if not settings.wrapper_dir:
        raise ConfigError(
            "The script `query` is in wrapper_dir, which is not set.", where=settings.configured_as("query_prefix")
        )
    if is_remote(prefixes["query_prefix"]) and not is_remote(prefixes["exec_prefix"]):
        raise ConfigError(
            "The hub asks Slurm on another machine, but would submit jobs on its own.",
            where=settings.configured_as("exec_prefix"),
            hint="Begin it with the words of query_prefix: ssh LOGIN-NODE sudo -n -u {username}.",
        )


# Accounts of the cluster, as a login node knows them, for a hub whose machine does not.

_MAX_AGE = 60.0
"""Seconds that an answer is kept."""
_CACHE_SECONDS = 1024
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
        if len(self._known) >= _CACHE_SECONDS:
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
