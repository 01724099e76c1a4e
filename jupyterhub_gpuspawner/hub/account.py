"""The operating system's account of a user: its home and shell."""

from __future__ import annotations

import asyncio
import os
import pwd
from contextlib import suppress
from dataclasses import dataclass

from jupyterhub_gpuspawner.errors import ConfigError


@dataclass(frozen=True)
class Account:
    """What a job's environment needs to know of its owner."""

    name: str
    home: str
    shell: str = "/bin/bash"


def job_owner(exec_prefix: str, username: str) -> str:
    """The account that owns a user's jobs; empty where that cannot be told from ``exec_prefix``."""
    if not exec_prefix.strip():
        with suppress(KeyError):  # in a container the number may have no name
            return pwd.getpwuid(os.getuid()).pw_name
        return ""
    return username if "username" in exec_prefix else ""


async def account_of(username: str, *, home: str = "") -> Account:
    """The account of ``username``; ``home``, if given, needs none. Raises ConfigError where there is no account.

    Asked in a thread: a name service (LDAP, sss) may take its time.
    """
    if home:
        return Account(username, home)
    try:
        entry = await asyncio.to_thread(pwd.getpwnam, username)
    except KeyError as error:
        raise ConfigError(
            f"There is no account {username!r} on the hub's machine.",
            hint="Create it, or set c.GPUSlurmSpawner.req_homedir if jobs run as another account.",
        ) from error
    return Account(username, entry.pw_dir, entry.pw_shell or "/bin/bash")
