"""As which account a prefix runs a command, and whether a job is that account's."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.job import Job, JobIdentity

ALLOW_ROOT = "dangerously_run_servers_as_root"
"""The setting that allows it."""


class Program(NamedTuple):
    """A program that runs another one."""

    takes: str = ""
    """Its short options that take a value."""
    long: str = ""
    """Its long ones, whose value is the next word or follows ``=``."""
    account: str = ""
    """The account that it runs commands as where no option names one; empty: the one that runs it."""
    names: tuple[str, ...] = ()
    """The options that name an account."""
    words: int = 0
    """Words of its own before the command."""


_SUDO = Program(
    "CDRTUghprtua",
    "user group host prompt chdir close-from role type chroot command-timeout other-user",
    "root",
    ("-u", "--user"),
)
_PROGRAMS: Mapping[str, Program] = MappingProxyType(
    {
        "sudo": _SUDO,
        "dzdo": _SUDO,
        "doas": Program("uCa", "", "root", ("-u",)),
        "runuser": Program("ugGsTw", "user group supp-group shell whitelist-environment", "", ("-u", "--user")),
        "setpriv": Program(long="regid groups inh-caps securebits", names=("--reuid",)),
        "env": Program("uSC", "unset chdir"),
        "nice": Program("n", "adjustment"),
        "ionice": Program("cn", "class classdata"),
        "timeout": Program("ks", "kill-after signal", words=1),
        "stdbuf": Program("ioe", "input output error"),
        "nohup": Program(),
        "setsid": Program(),
    }
)
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)
"""A word that sets a variable of the command's environment."""


def needs_shell(prefix: str) -> bool:
    """Whether the last word of a prefix is su's option whose value is the command line of a shell."""
    return re.search(r"\b(su|runuser)\s(.*\s)?(-\w*c|--command)\s*$", prefix) is not None


def runs_as(prefix: Sequence[str]) -> str | None:
    """The account that these words run a command as: a name or uid; empty for the account that runs them.

    None where that is not known: behind ssh, and behind a program that is none of sudo, runuser, setpriv and the like.
    """
    account = ""
    for name in accounts(prefix):
        if name is None:
            return None
        account = name or account
    return account


def accounts(prefix: Sequence[str]) -> Iterator[str | None]:
    """The account that each program of a prefix runs the next one as, a name or uid; empty: that which runs it.

    None is the last, where a word is no such program.
    """
    words = [*prefix]
    while words:
        program = _PROGRAMS.get(PurePosixPath(words.pop(0)).name)
        if program is None:
            yield None
            return
        yield named_account(program, words) or program.account
        while words and ASSIGNMENT.fullmatch(words[0]):
            words.pop(0)
        del words[: program.words]


def named_account(program: Program, words: list[str]) -> str:
    """Remove a program's options from the words that follow it; the account that they name, or an empty text."""
    account, long = "", program.long.split()
    while words and len(words[0]) > 1 and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        name, assigned, value = word.partition("=")
        if word.startswith("--"):
            takes = name in program.names or name[2:] in long
        else:
            first = next((at for at, letter in enumerate(word) if at and letter in program.takes), 0)
            name, value, takes = f"-{word[first]}", word[first + 1 :], first > 0
            assigned = value
        if takes and not assigned:
            value = words.pop(0) if words else ""
        if name in program.names:
            account = value.removeprefix("#")
    return account


def runs_as_root(prefix: Sequence[str]) -> bool:
    """Whether these words surely run a command as an account of uid 0; reads the account database, so it may block."""
    account = runs_as(prefix)
    if not account:
        return account is not None and os.geteuid() == 0
    if account.isdecimal():
        return int(account) == 0
    try:
        return pwd.getpwnam(account).pw_uid == 0
    except KeyError:
        return False


_PREFIX = (
    'Set it to what runs sbatch as the user: "runuser -u {username} --" for a hub that is root, "sudo -n -u {username}"'
    " with wrapper_dir for one that is not."
)


def as_root(where: str, right: str = _PREFIX) -> ConfigError:
    """The error of a hub whose users' servers would be root's; ``right`` is what to do."""
    return ConfigError(
        "servers of all users would run as root.",
        where=where,
        for_user="The hub cannot start this server: it would not run under your account.",
        hint=f"{right} (Tests may set c.GPUSlurmSpawner.{ALLOW_ROOT}.)",
    )


def foreign_owner(job: Job, identity: JobIdentity, prefix: Sequence[str], username: str) -> str:
    """The account that owns a person's new job, where that is not the one that should; empty where it may be right.

    A job of root is nobody's. Other accounts are compared only where the prefix surely runs sbatch as ``username``,
    whose uid is known: a site's own program may run it as an account with another name.
    """
    if job.uid == 0 or (job.uid is None and job.user == "root"):
        return job.user or "root"
    if runs_as(prefix) != username or identity.uid is None or identity.owns(job) is not False or job.user == username:
        return ""
    return job.user or str(job.uid)
