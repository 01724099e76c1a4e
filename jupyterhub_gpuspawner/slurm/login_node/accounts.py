"""Accounts of the cluster, as a login node knows them, for a hub whose machine does not."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import SlurmOutputError, SlurmUnavailable

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.slurm.commands import Installation

_MAX_AGE = 60.0
"""Seconds that an answer is kept."""
_KEPT = 1024
_NOT_FOUND = 2
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
        known = self._known.get(name)
        if known is not None and time.monotonic() - known[0] < _MAX_AGE:
            return known[1]
        answer = await self._slurm.run("getent", "passwd", name)
        if answer.code not in (0, _NOT_FOUND):
            raise SlurmUnavailable(f"getent failed on the login node: {answer.stderr.strip()[:200]}")
        account = parse_entry(answer.stdout, name) if answer.code == 0 else None
        if len(self._known) >= _KEPT:
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
    found = _IDENTITY.search(text)
    if found is None:
        raise SlurmOutputError("id printed no uid.", raw=text)
    return SystemAccount(found[2] or "", int(found[1]))
