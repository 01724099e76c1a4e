"""Running commands as the user: ``exec_prefix`` as words, and the standard input of the wrapper scripts. Pure.

The scripts of ``config/wrappers`` take everything on standard input and no argument.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_JINJA = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_FIELD = re.compile(r"\{([^{}]*)\}")
_FORBIDDEN = frozenset(" /:%")
"""Characters that no account name contains: separators of fields and paths, and Slurm's ``%`` in log paths."""


def checked_user_name(username: str) -> str:
    """``username``, if it can be nothing but an account name; raises ConfigError.

    ``sudo -u '#0'`` is root (sudo(8): ``#`` precedes a numeric user id), ``-`` begins an option, and Slurm and chown
    read digits as a numeric user id. A name that begins with a letter or digit of any script, or with ``_``, is none of
    these, and no NIS entry (``+``, ``-``, ``@``), home directory (``~``) or group (``%``) either.
    """
    begins = username[:1].isalnum() or username[:1] == "_"
    if not begins or username.isdigit() or not username.isprintable() or _FORBIDDEN.intersection(username):
        raise ConfigError(
            f"{username[:80]!r} is not a valid user name.",
            told="Servers cannot be started under your user name.",
            hint="An account name begins with a letter, a digit or _, is not a number, and contains no blank, "
            "no control character and none of / : %. Set c.Authenticator.username_pattern, or username_map.",
        )
    return username


def command_prefix(text: str | Sequence[str], username: str, **values: str) -> tuple[str, ...]:
    """``exec_prefix`` as words, with ``{username}`` and ``values`` filled into each word; no shell is involved.

    ``text`` is a command line as in batchspawner (``sudo -u {username}``, split as a shell would) or a list of words.
    Raises ConfigError for an unknown field, for unbalanced quotes, and for an invalid user name.
    """
    known = {"username": checked_user_name(username), **values}
    try:
        words = shlex.split(_JINJA.sub(r"{\1}", text)) if isinstance(text, str) else list(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a valid command: {error}.", where="exec_prefix") from error

    def filled(field: re.Match[str]) -> str:
        if field[1] not in known:
            fields = ", ".join(f"{{{name}}}" for name in sorted(known))
            raise ConfigError(f"{field[0]} is not a known field.", where="exec_prefix", hint=f"Fields are {fields}.")
        return known[field[1]]

    return tuple(_FIELD.sub(filled, word) for word in words)


def fixed_prefix(text: str, *, where: str, hint: str = "") -> tuple[str, ...]:
    """A prefix without fields, for one account, as words; raises ConfigError that names the setting ``where``."""
    if "{" in text:
        raise ConfigError(
            f"{text!r} has a field, but the account is the same for all servers.",
            where=where,
            hint=hint,
        )
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a valid command: {error}.", where=where) from error


SUBMIT, TRIAL, CANCEL, LOG = "submit", "trial", "cancel", "log"
"""Names of the scripts of ``config/wrappers``, which ``wrapper_dir`` holds."""


def submission(script: str, environment: Mapping[str, str]) -> str:
    """Standard input of the ``submit`` script: length in bytes of the job's environment, that environment, the script.

    Raises ConfigError for a name or value that no environment variable can have.
    """
    for name, value in environment.items():
        if not name.isidentifier() or not name.isascii() or "\0" in value:
            raise ConfigError(f"{name[:40]!r} is not a valid environment variable for a job.", where="environment")
    block = "".join(f"{name}={value}\0" for name, value in environment.items())
    return f"environment {len(block.encode(errors='surrogateescape'))}\n{block}{script}"
