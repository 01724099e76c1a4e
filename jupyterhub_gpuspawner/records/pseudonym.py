"""Pseudonyms of users in exported records: HMAC-SHA256 of course and name with a key that stays at the site.

A user has another pseudonym in each course, since who is in which courses is known from class lists. With the same key
it is the same in every export. Without the key, names cannot be tried out. Whoever has the key can: it is as
confidential as the names.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_KEY_BYTES = 32
_LENGTH = 16
"""Hexadecimal digits of a pseudonym."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Pseudonyms:
    """The pseudonyms that belong to one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, name: str, course: str) -> str:
        """The pseudonym of a user in a course; ``course`` is empty for sessions that are of none."""
        return hmac.new(self._key, f"{course}\0{name}".encode(), "sha256").hexdigest()[:_LENGTH]


def read_key(path: Path) -> tuple[bytes, bool]:
    """The key in this file, and whether it was made just now because there was no file.

    Raises ConfigError where the file cannot be used, or others may read it.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _existing(path), False
    except OSError as error:
        raise ConfigError(f"the key file cannot be made: {error}.", where=str(path)) from error
    key = secrets.token_bytes(_KEY_BYTES)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key.hex() + "\n")
    return key, True


def _existing(path: Path) -> bytes:
    try:
        mode, text = path.stat().st_mode, path.read_text("ascii")
        key = bytes.fromhex(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the key file cannot be read: {error}.", where=str(path)) from error
    if mode & _OTHERS:
        raise ConfigError(
            f"others can read the key (mode {stat.S_IMODE(mode):04o}).", where=str(path), hint=f"Use chmod 600 {path}."
        )
    if len(key) < _KEY_BYTES:
        raise ConfigError(
            f"the key has {len(key)} bytes; it must have {_KEY_BYTES} or more, as hexadecimal digits.", where=str(path)
        )
    return key
