"""The private folder from which the launcher runs: locked while the server runs; folders of killed jobs are removed.

The batch script creates the folder and removes it at its end. A job that is killed outright does not get that far. So
every launch removes this user's folders on this node that no process has locked. The lock (flock(2)) belongs to an open
file that the server inherits, and ends with the server.
"""

from __future__ import annotations

import fcntl
import os
import re
import time

_NAME = re.compile(r"gpuspawner\.[A-Za-z0-9]{10}", re.ASCII)
_FILES = (
    *("launch.pyz", "plan.json", "port"),
    *("jupyterhub_ssl_keyfile.pem", "jupyterhub_ssl_certfile.pem", "jupyterhub_ssl_client_ca.pem"),
)
_YOUNG = 60.0
"""Seconds for which a new folder may be unlocked, since its job is just starting."""
_FIRST = 100
"""Lowest file descriptor for locks: scripts use the small numbers for their own files."""
_SAFE = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def hold(folder: str) -> None:
    """Lock ``folder`` for this process and the server it becomes, and remove unlocked folders; raises OSError."""
    parent, own = os.path.split(folder)
    if not _NAME.fullmatch(own):
        return
    descriptor = os.open(folder, _SAFE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        fcntl.fcntl(descriptor, fcntl.F_DUPFD, _FIRST)
    finally:
        os.close(descriptor)
    for name in os.listdir(parent):
        if name != own and _NAME.fullmatch(name):
            _remove_if_left(os.path.join(parent, name))


def _remove_if_left(folder: str) -> None:
    """Remove a folder if it belongs to this user and no process has locked it; leave anything unexpected alone."""
    try:
        descriptor = os.open(folder, _SAFE)
    except OSError:
        return
    try:
        found = os.fstat(descriptor)
        if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _YOUNG:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for file in _FILES:
                if file in os.listdir(descriptor):
                    os.unlink(file, dir_fd=descriptor)
            os.rmdir(folder)
    except OSError:
        pass
    finally:
        os.close(descriptor)
