"""The operating system's account of a user: its home and shell."""

from __future__ import annotations

import asyncio
import pwd
from dataclasses import dataclass

from jupyterhub_gpuspawner.errors import ConfigError


@dataclass(frozen=True)
class Account:
    """What a job's environment needs to know of its owner."""

    name: str
    home: str
    shell: str = "/bin/bash"


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
