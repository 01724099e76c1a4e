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


def command_prefix(text: str | Sequence[str], username: str, **values: str) -> tuple[str, ...]:
    """``exec_prefix`` as words, with ``{username}`` (and ``values``) put into each word; never through a shell.

    ``text`` is batchspawner's form (``sudo -u {username}``, split as a shell would) or a list of words. Raises
    ConfigError for a place that has no value, for quotes that do not close, and for a user name that is none.
    """
    if not username or username.startswith("-") or not username.isprintable() or " " in username:
        raise ConfigError(f"{username!r} is no user name.", where="exec_prefix")
    known = {"username": username, **values}
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
