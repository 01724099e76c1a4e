"""The programs of a prefix such as ``timeout 9 sudo -n -u ada``: which of its words are programs, and which are not.

A program that runs another has options, and the next program follows them and its operands. A word in any other place
is a value, whatever it is: ``sudo -u ssh`` runs commands as an account named ``ssh``. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Runner:
    """The command line of a program that runs another one, from its manual page."""

    short: str = ""
    """Letters of options that take a value."""
    long: frozenset[str] = field(default_factory=frozenset)
    """Long options that take a value, which may be the next word."""
    operands: int = 0
    """Words before the other program, such as the duration of ``timeout``."""


def _runner(short: str = "", long: str = "", operands: int = 0) -> Runner:
    return Runner(short, frozenset(f"--{name}" for name in long.split()), operands)


_SUDO = _runner(
    "acCDghpRrtTUu",
    "auth-type login-class close-from chdir group host prompt chroot role type command-timeout other-user user",
)
_AS_ACCOUNT = _runner(operands=1)
RUNNERS = {
    "chroot": _runner(long="groups userspec", operands=1),
    "chrt": _runner("DPT", "sched-deadline sched-period sched-runtime", operands=1),
    "doas": _runner("aCu"),
    "dzdo": _SUDO,
    "env": _runner("CSu", "chdir split-string unset"),
    "gosu": _AS_ACCOUNT,
    "ionice": _runner("cn", "class classdata"),
    "nice": _runner("n", "adjustment"),
    "nohup": _runner(),
    "runuser": _runner("Ggsuw", "group shell supp-group user whitelist-environment"),
    "s6-setuidgid": _AS_ACCOUNT,
    "setpriv": _runner(
        long="ambient-caps apparmor-profile bounding-set egid euid groups inh-caps pdeathsig regid reuid rgid ruid "
        "securebits selinux-label"
    ),
    "setsid": _runner(),
    "setuidgid": _AS_ACCOUNT,
    "sshpass": _runner("dfPp"),
    "stdbuf": _runner("eio", "error input output"),
    "su-exec": _AS_ACCOUNT,
    "sudo": _SUDO,
    "taskset": _runner(operands=1),
    "timeout": _runner("ks", "kill-after signal", operands=1),
}
"""By name."""


@dataclass(frozen=True)
class Program:
    """A word of a prefix that is a program."""

    name: str
    """Without its folder."""
    at: int
    """Which word it is, from 0."""
    options: tuple[str, ...] = ()
    """Its own options: letters one by one as ``-E``, without values; long ones as they are written.

    Empty for a program that is not known here."""


def programs(prefix: Sequence[str]) -> tuple[Program, ...]:
    """The programs of this machine that a prefix names, in the order in which they run each other.

    The last one is the first that is not in :data:`RUNNERS`, since which of its words is a program is not known.
    """
    found: list[Program] = []
    at = 0
    while at < len(prefix):
        name = PurePath(prefix[at]).name
        runner = RUNNERS.get(name)
        if runner is None:
            return (*found, Program(name, at))
        options, following = _options(prefix, at + 1, runner)
        found.append(Program(name, at, options))
        at = following + runner.operands
        while at < len(prefix) and _is_assignment(prefix[at]):  # of env and sudo
            at += 1
    return tuple(found)


def _options(prefix: Sequence[str], at: int, runner: Runner) -> tuple[tuple[str, ...], int]:
    """A program's options, and the first word that is none of them."""
    found: list[str] = []
    while at < len(prefix) and prefix[at].startswith("-"):
        word = prefix[at]
        at += 1
        if word == "--":
            break
        if word.startswith("--"):
            found.append(word)
            at += word in runner.long
            continue
        letters, takes = letters_of(word, runner.short)
        found += [f"-{letter}" for letter in letters]
        at += takes
    return tuple(found), at


def letters_of(word: str, with_value: str) -> tuple[str, bool]:
    """The options of a word (``-p``, ``-vp``, ``-p22``), and whether the next word is the value of the last one."""
    for at, letter in enumerate(word[1:], start=1):
        if letter in with_value:
            return word[1 : at + 1], at == len(word) - 1
    return word[1:], False


def _is_assignment(word: str) -> bool:
    return word.partition("=")[0].isidentifier() and "=" in word
