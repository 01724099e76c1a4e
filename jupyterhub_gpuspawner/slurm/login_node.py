"""What a login node by ssh needs: prefixes as programs, command lines that ssh runs, and the script ``query``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple

from jupyterhub_gpuspawner.errors import ConfigError, SlurmOutputError, SlurmUnavailable

# Standard input of the script ``query``, which runs the hub's questions to Slurm on a login node.

QUERY = "query"
"""The script of ``wrapper_dir`` that runs what only reads."""
SETTING = "query_prefix"
"""The setting with the prefix that runs it."""


def request(command: str, arguments: Sequence[str]) -> str:
    """The command and its arguments, each ended by a NUL."""
    words = (command, *arguments)
    if any("\0" in word for word in words):
        raise SlurmOutputError(f"An argument of {command} contains a NUL.", raw=" ".join(words))
    return "".join(f"{word}\0" for word in words)


# The programs of a prefix such as ``timeout 9 sudo -n -u ada``: which of its words are programs, and which are not.
#
# A program that runs another has options, and the next program follows them and its operands. A word in any other
# place is a value, whatever it is: ``sudo -u ssh`` runs commands as an account named ``ssh``.


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
    programs_: list[Program] = []
    at = 0
    while at < len(prefix):
        name = PurePath(prefix[at]).name
        runner = RUNNERS.get(name)
        if runner is None:
            return (*programs_, Program(name, at))
        options, following = _options(prefix, at + 1, runner)
        programs_.append(Program(name, at, options))
        at = following + runner.operands
        while at < len(prefix) and _is_assignment(prefix[at]):  # of env and sudo
            at += 1
    return tuple(programs_)


def _options(prefix: Sequence[str], at: int, runner: Runner) -> tuple[tuple[str, ...], int]:
    """A program's options, and the first word that is none of them."""
    options: list[str] = []
    while at < len(prefix) and prefix[at].startswith("-"):
        word = prefix[at]
        at += 1
        if word == "--":
            break
        if word.startswith("--"):
            options.append(word)
            at += word in runner.long
            continue
        letters, takes = letters_of(word, runner.short)
        options += [f"-{letter}" for letter in letters]
        at += takes
    return tuple(options), at


def letters_of(word: str, with_value: str) -> tuple[str, bool]:
    """The options of a word (``-p``, ``-vp``, ``-p22``), and whether the next word is the value of the last one."""
    for at, letter in enumerate(word[1:], start=1):
        if letter in with_value:
            return word[1 : at + 1], at == len(word) - 1
    return word[1:], False


def _is_assignment(word: str) -> bool:
    return word.partition("=")[0].isidentifier() and "=" in word


# Command lines that ssh runs on another machine, and what ssh says when it does not reach it.
#
# ssh joins the words of a remote command with blanks, and the account's shell on the other machine splits them again
# (ssh(1)). So that each word arrives as it was, :func:`command_line` quotes it for that shell.

FAILED = 255
"""Exit status of ssh for its own errors; otherwise it is that of the remote command."""
_WITH_VALUE = "BbcDEeFIiJLlmOoPpQRSWw"
"""ssh's options that take a value."""


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


def _program(prefix: Sequence[str]) -> int | None:
    """Which word is the program ssh; None without one.

    Behind a program whose options are not known here, the first word ``ssh`` that has a destination.
    """
    last = next(reversed(programs(prefix)), None)
    if last is None or last.name in RUNNERS:
        return None
    if last.name == "ssh":
        return last.at
    for at in range(last.at + 1, len(prefix)):
        if PurePath(prefix[at]).name == "ssh" and _fault(prefix, at) is None:
            return at
    return None


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
            expects_value = letters_of(word, _WITH_VALUE)[1]
        elif destination:
            return index, destination, False
        else:
            destination = True
    return len(prefix), destination, expects_value


class Reason(NamedTuple):
    """Why ssh did not run a command."""

    name: str
    """A stable name of the kind."""
    pattern: str
    """A pattern of ssh's messages."""
    ours: str
    hint: str
    lasting: bool
    """Whether it stays so until an admin changes something."""


REASONS = (
    Reason(
        "host-key",
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED|No .* host key is known",
        "the login node's host key is unknown, or not the one that was recorded",
        "Check the key (ssh-keygen -lf on the login node), and put it into UserKnownHostsFile.",
        lasting=True,
    ),
    Reason(
        "refused-key",
        r"Permission denied|Too many authentication failures|No supported authentication methods"
        r"|Could not open .* identity|bad permissions|invalid format",
        "the login node does not accept the hub's key",
        "Check IdentityFile, its owner and mode, and authorized_keys on the login node.",
        lasting=True,
    ),
    Reason(
        "no-account",
        r"No user exists for uid",
        "the hub's process runs under a uid without an account, and ssh refuses to run for it",
        "Add one line for this uid to /etc/passwd in the hub's container.",
        lasting=True,
    ),
    Reason(
        "unknown-host",
        r"Could not resolve hostname",
        "the login node's name cannot be resolved",
        "Check HostName in ssh_config, and the resolver of the hub's machine or container.",
        lasting=False,
    ),
    Reason(
        "configuration",
        r"Bad configuration option|[Cc]an't open user config file|terminating, \d+ bad configuration"
        r"|Bad owner or permissions on|unknown option|illegal option|command-line: line",
        "ssh does not accept its configuration",
        "Run the command by hand as the hub's account.",
        lasting=True,
    ),
    Reason(
        "too-many",
        r"kex_exchange_identification: (?:Connection closed|read: Connection reset)|Exceeded MaxStartups"
        r"|Not allowed at this time|Session open refused",
        "the login node does not take so many connections at once",
        "Use one connection for all commands (ControlPath), or raise MaxStartups and MaxSessions in sshd_config.",
        lasting=False,
    ),
)
_UNREACHABLE = Reason(
    "unreachable",
    "",
    "the login node cannot be reached by ssh",
    "Run ssh by hand as the hub's account.",
    lasting=False,
)


def reason_of(stderr: str) -> Reason:
    """The reason for ssh's exit status :data:`FAILED`, from its messages."""
    return next((reason for reason in REASONS if re.search(reason.pattern, stderr)), _UNREACHABLE)


class LoginNodeUnreachable(SlurmUnavailable):
    """ssh did not run the command, or lost the connection; ``ssh_reason`` says why."""

    def __init__(self, command: str, stderr: str) -> None:
        self.ssh_reason = reason_of(stderr)
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        last = next((line for line in reversed(lines) if re.search(self.ssh_reason.pattern, line)), "no message")
        message = "The hub cannot reach Slurm: it is not set up correctly." if self.ssh_reason.lasting else ""
        super().__init__(
            f"{command} has no answer: {self.ssh_reason.ours} ({last[:200]}).",
            hint=self.ssh_reason.hint,
            for_user=message,
        )
