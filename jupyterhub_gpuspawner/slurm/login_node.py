"""What a login node by ssh needs: command lines that ssh runs, and the input of the script ``query``.

ssh joins the words of a remote command with blanks, and the account's shell on the other machine splits them again
(ssh(1)). So that each word arrives as it was, :func:`command_line` quotes it for that shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from jupyterhub_gpuspawner.errors import ConfigError, SlurmOutputError

QUERY = "query"
"""The script of ``wrapper_dir`` that runs what only reads."""
SETTING = "query_prefix"
"""The setting with the prefix that runs it."""
FAILED = 255
"""Exit status of ssh for its own errors; otherwise it is that of the remote command."""
_WITH_VALUE = "BbcDEeFIiJLlmOoPpQRSWw"
"""ssh's options that take a value."""
_ACCOUNT = re.compile(r"-[A-Za-z]*[gu]|--(group|other-user|regid|reuid|user)")
"""Options of sudo and its like whose value is the next word, an account or a group, which may have a program's name."""


def request(command: str, arguments: Sequence[str]) -> str:
    """The input of ``query``: the command and its arguments, each ended by a NUL."""
    words = (command, *arguments)
    if any("\0" in word for word in words):
        raise SlurmOutputError(f"An argument of {command} contains a NUL.", raw=" ".join(words))
    return "".join(f"{word}\0" for word in words)


def command_line(prefix: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command that ``prefix`` runs: each one after ssh's destination is quoted for the remote shell.

    Raises ConfigError if ``prefix`` has an ssh without a destination.
    """
    command = (*prefix, *words)
    at = _program(prefix)
    if at is None:
        return command
    begin = _remote_command(prefix, at)
    return (*command[:begin], *map(shlex.quote, command_line(prefix[begin:], words)))


def is_remote(prefix: Sequence[str]) -> bool:
    """Whether ssh runs the command."""
    return _program(prefix) is not None


def destination(prefix: Sequence[str]) -> tuple[str, ...]:
    """The ssh of a prefix with its options and destination, without what it runs there; empty without ssh.

    Raises ConfigError if it has no destination.
    """
    at = _program(prefix)
    return tuple(prefix[: _remote_command(prefix, at)]) if at is not None else ()


def configuration_query(prefix: Sequence[str]) -> tuple[str, ...]:
    """The command that prints ssh's configuration for the destination of ``prefix`` (``ssh -G``), without connecting.

    Empty without ssh. Raises ConfigError if it has no destination.
    """
    at = _program(prefix)
    return (prefix[at], "-G", *prefix[at + 1 : _remote_command(prefix, at)]) if at is not None else ()


def local_words(prefix: Sequence[str]) -> tuple[str, ...]:
    """The words of a prefix that name programs of this machine and their options: those before ssh."""
    return tuple(prefix[: _program(prefix)])


def occurrences(program: str, prefix: Sequence[str]) -> Iterator[int]:
    """Which words of a prefix name this program, and no account or group."""
    for at, word in enumerate(prefix):
        if PurePath(word).name == program and not (at and _ACCOUNT.fullmatch(prefix[at - 1])):
            yield at


def _program(prefix: Sequence[str]) -> int | None:
    """Which word is the program ssh: the first one of this name that has a destination, or is the prefix's first.

    None without one.
    """
    return next((at for at in occurrences("ssh", prefix) if at == 0 or _fault(prefix, at) is None), None)


def _remote_command(prefix: Sequence[str], at: int) -> int:
    """Where the remote command begins: after the destination, which options may follow."""
    fault = _fault(prefix, at)
    if fault is not None:
        raise ConfigError(f"{fault}: {' '.join(prefix)}.", hint="Name the login node: ssh [OPTION]... LOGIN-NODE.")
    return _end(prefix, at)[0]


def _fault(prefix: Sequence[str], at: int) -> str | None:
    """What keeps the ssh at ``at`` from having a destination; None if it has one."""
    _, has_destination, expects_value = _end(prefix, at)
    if expects_value:
        return f"ssh's option {prefix[-1]} has no value"
    return None if has_destination else "ssh has no destination"


def _end(prefix: Sequence[str], at: int) -> tuple[int, bool, bool]:
    """Where ssh's own words end, whether a destination is among them, and whether an option still expects a value."""
    destination = expects_value = False
    for index in range(at + 1, len(prefix)):
        word = prefix[index]
        if expects_value:
            expects_value = False
        elif word == "--":
            if destination:
                return index + 1, destination, False
        elif len(word) > 1 and word.startswith("-"):
            expects_value = _expects_value(word)
        elif destination:
            return index, destination, False
        else:
            destination = True
    return len(prefix), destination, expects_value


def _expects_value(word: str) -> bool:
    """Whether the next word is the value of the last of the options in a word (``-p``, ``-vp``, but not ``-p22``)."""
    first = next((at for at, letter in enumerate(word) if at and letter in _WITH_VALUE), 0)
    return first == len(word) - 1
