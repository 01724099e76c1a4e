"""The account that the demo's servers run as: that of whoever started it, but never root.

Whoever signs in to the demo gets a shell. Root starts servers as ``nobody`` instead; anybody else can start processes
as themselves alone.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from jupyterhub.spawner import SimpleLocalProcessSpawner, set_user_setuid
from traitlets import Unicode

from jupyterhub_gpuspawner.errors import ConfigError

UNPRIVILEGED = "nobody"
"""The account for servers of a demo that root has started: it is on every machine, and owns nothing."""


def servers_account() -> str:
    """The name of the account that servers run as; empty: that of the demo itself."""
    return UNPRIVILEGED if os.geteuid() == 0 else ""


def command_prefix(account: str) -> list[str]:
    """Words before a command that run it as this account (setpriv(1)); none for an empty one.

    runuser(1) would set HOME, too: each user of the demo has one, and the account has none.
    """
    if not account:
        return []
    entry = pwd.getpwnam(account)
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "--"]


def works(account: str, *command: str) -> bool:
    """Whether a command succeeds as this account."""
    done = subprocess.run(
        [*command_prefix(account), *command],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0


def give_to(path: Path, account: str) -> None:
    """Give ``path`` and all in it to the account; an empty one is the own."""
    if not account:
        return
    entry = pwd.getpwnam(account)
    for inner in [*path.rglob("*"), path]:
        os.chown(inner, entry.pw_uid, entry.pw_gid, follow_symlinks=False)


def private_folder(folder: Path | None, account: str) -> Path:
    """Make the demo's folder, or a new temporary one, for the own account alone; the servers' may pass through it.

    A folder that exists is left as it is. Raises ConfigError if another account could put its own files in the place of
    the demo's.
    """
    is_new = folder is None or not folder.exists()
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="gpuspawner-demo-"))
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    folder = folder.resolve()
    if is_new and account:
        os.chown(folder, -1, pwd.getpwnam(account).pw_gid)
        folder.chmod(0o710)
    own_groups = (0, os.geteuid())  # a group of one's own has the number of the account, by convention (useradd(8))
    for path in [folder, *folder.parents]:
        status = path.stat()
        writers = status.st_mode & (stat.S_IWOTH if status.st_gid in own_groups else stat.S_IWGRP | stat.S_IWOTH)
        is_sticky = path != folder and status.st_mode & stat.S_ISVTX
        if (writers and not is_sticky) or status.st_uid not in (0, os.geteuid()):
            raise ConfigError(
                f"Other accounts can change what is in {path}.", hint="Use a folder that is yours alone, or none."
            )
    return folder


class LocalServer(SimpleLocalProcessSpawner):
    """A server on the hub's machine for a user without an account."""

    account = Unicode(config=True, help="The account that it runs as; empty: that of the hub.")

    def make_preexec_fn(self, name: str) -> Callable[[], None]:
        """Become the account, then enter the home."""
        enter: Callable[[], None] = super().make_preexec_fn(name)
        if not self.account:
            return enter
        become = set_user_setuid(self.account, chdir=False)

        def preexec() -> None:
            become()
            enter()

        return preexec
