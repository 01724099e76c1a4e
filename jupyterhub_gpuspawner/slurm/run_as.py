"""``exec_prefix``: the words before a command that make it the user's, such as sudo's. Pure."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

_JINJA = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_PLACE = re.compile(r"\{(\w*)\}")
_NO_NAME = frozenset(" /:%")
"""What no name of an account holds: a field's or a path's end, and what Slurm replaces in the path of a log."""


def checked_user_name(username: str) -> str:
    """``username``, if it can be the name of an account and nothing else; raises ConfigError.

    ``sudo -u '#0'`` is root (sudo(8): a number of a user is prefixed with ``#``), ``-`` begins an option, and Slurm and
    chown take digits for a number of a user. A first letter or digit of any script, or ``_``, is none of these, nor
    an entry of NIS (``+``, ``-``, ``@``), a home (``~``) or a group (``%``).
    """
    begins = username[:1].isalnum() or username[:1] == "_"
    if not begins or username.isdigit() or not username.isprintable() or _NO_NAME.intersection(username):
        raise ConfigError(
            f"{username[:80]!r} is no user name.",
            hint="The name of an account begins with a letter, a digit or _, is not a number, and holds no blank, "
            "no control character and none of / : %. Set c.Authenticator.username_pattern, or username_map.",
        )
    return username


def command_prefix(text: str | Sequence[str], username: str, **values: str) -> tuple[str, ...]:
    """``exec_prefix`` as words, with ``{username}`` (and ``values``) put into each word; never through a shell.

    ``text`` is batchspawner's form (``sudo -u {username}``, split as a shell would) or a list of words. Raises
    ConfigError for a place that has no value, for quotes that do not close, and for a user name that is none.
    """
    known = {"username": checked_user_name(username), **values}
    try:
        words = shlex.split(_JINJA.sub(r"{\1}", text)) if isinstance(text, str) else list(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is no command: {error}.", where="exec_prefix") from error

    def filled(place: re.Match[str]) -> str:
        if place[1] not in known:
            places = ", ".join(f"{{{name}}}" for name in sorted(known))
            raise ConfigError(f"{place[0]} has no value.", where="exec_prefix", hint=f"It may hold {places}.")
        return known[place[1]]

    return tuple(_PLACE.sub(filled, word) for word in words)
