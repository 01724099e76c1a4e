"""As which account a prefix runs a command; batchspawner's command line as a prefix, a folder and options.

batchspawner joins ``exec_prefix`` and ``batch_submit_cmd`` and gives them to a shell. Here no shell is involved: what
only a shell understands is refused (:func:`submit_command`).
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.commands import plain_fields
from jupyterhub_gpuspawner.slurm.job import Job, JobIdentity
from jupyterhub_gpuspawner.slurm.login_node import destination
from jupyterhub_gpuspawner.slurm.sbatch_options import Option, options_of_words

ALLOW_ROOT = "dangerously_run_servers_as_root"
"""The setting that allows it."""


class _Program(NamedTuple):
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


_SUDO = _Program(
    "CDRTUghprtua",
    "user group host prompt chdir close-from role type chroot command-timeout other-user",
    "root",
    ("-u", "--user"),
)
_PROGRAMS: Mapping[str, _Program] = MappingProxyType(
    {
        "sudo": _SUDO,
        "dzdo": _SUDO,
        "doas": _Program("uCa", "", "root", ("-u",)),
        "runuser": _Program("ugGsTw", "user group supp-group shell whitelist-environment", "", ("-u", "--user")),
        "setpriv": _Program(long="regid groups inh-caps securebits", names=("--reuid",)),
        "env": _Program("uSC", "unset chdir"),
        "nice": _Program("n", "adjustment"),
        "ionice": _Program("cn", "class classdata"),
        "timeout": _Program("ks", "kill-after signal", words=1),
        "stdbuf": _Program("ioe", "input output error"),
        "nohup": _Program(),
        "setsid": _Program(),
    }
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)


def runs_as(prefix: Sequence[str]) -> str | None:
    """The account that these words run a command as: a name or uid; empty for the account that runs them.

    None where that is not known: behind ssh, and behind a program that is none of sudo, runuser, setpriv and the like.
    """
    words, account = [*prefix], ""
    while words:
        program = _PROGRAMS.get(PurePosixPath(words.pop(0)).name)
        if program is None:
            return None
        account = _named_account(program, words) or program.account or account
        while words and _ASSIGNMENT.fullmatch(words[0]):
            words.pop(0)
        del words[: program.words]
    return account


def _named_account(program: _Program, words: list[str]) -> str:
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


def as_root(where: str) -> ConfigError:
    """The error of a hub whose users' servers would be root's."""
    return ConfigError(
        "servers of all users would run as root.",
        where=where,
        for_user="The hub cannot start this server: it would not run under your account.",
        hint='Set it to what runs sbatch as the user: "runuser -u {username} --" for a hub that is root, "sudo -n -u '
        f'{{username}}" with wrapper_dir for one that is not. (Tests may set c.GPUSlurmSpawner.{ALLOW_ROOT}.)',
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


# batchspawner's command line.

SUBMIT = "sbatch --parsable"
"""batchspawner's ``batch_submit_cmd`` where nothing is set: with it, ``exec_prefix`` is all that runs sbatch."""
COMMAND_HINT = "Options of sbatch are lines of slurm.extra, and what runs it is exec_prefix, for all or in clusters."
"""What is right where ``batch_submit_cmd`` is not set for all servers."""
_USUAL = frozenset((("parsable", ""), ("quiet", ""), ("export", "ALL")))
"""Options of sbatch that change nothing here."""
_OF_THE_HUB = frozenset(
    {
        *("array", "chdir", "comment", "error", "export", "export-file", "gid", "help", "input", "job-name", "output"),
        *("test-only", "uid", "version", "wait", "wrap"),
    }
)
"""Options with which the job would not be the server's, or not the user's, or its log not where the hub looks."""
_SHELLS = frozenset(("ash", "bash", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh"))
_BUILTINS = frozenset((".", "cd", "command", "eval", "exec", "export", "source", "time", "umask"))
_SU_TAKES = _Program("cgGs", "command group shell supp-group", names=("-c", "--command"))
_FIELD = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class SubmitCommand:
    """What runs sbatch, and how."""

    prefix: str = ""
    """The words before it, as ``exec_prefix``."""
    bin_dir: str = ""
    """Its folder; empty where it is found through PATH."""
    options: tuple[Option, ...] = ()
    """Those that decide something of the job; they win over the ``#SBATCH`` lines of its script (sbatch(1))."""


def submit_command(exec_prefix: str, command: object, *, where: str) -> SubmitCommand:
    """Take apart the command line that batchspawner makes of ``exec_prefix`` and ``batch_submit_cmd``.

    Raises ConfigError, which names ``where``, for what cannot be run without a shell or is no option of a job.
    """
    try:
        if not isinstance(command, str):
            raise _NotUnderstood(f"{command!r} is no text")
        words = _words(f"{exec_prefix} {command}")
        if words and _ASSIGNMENT.fullmatch(words[0]):
            words.insert(0, "env")
        prefix, program, arguments = _parts(words)
        folder = PurePosixPath(program).parent
        if "/" in program and not folder.is_absolute():
            raise _NotUnderstood(f"{program!r} is not a full path")
        options = tuple(_options(arguments))
        for word in (*prefix, program):
            if field := next((field for field in _FIELD.findall(word) if field != "username"), None):
                raise _NotUnderstood(f"{{{field}}} is not {{username}}")
    except _NotUnderstood as fault:
        raise ConfigError(
            f"{str(command)!r} is not run by a shell here, and cannot be taken over: {fault}.",
            where=where,
            hint="Remove it. What runs sbatch as the user belongs to c.GPUSlurmSpawner.exec_prefix, such as "
            '"sudo -n -E -u {username}", its folder to slurm_bin_dir, and options of the job to req_options.',
        ) from None
    return SubmitCommand(" ".join(map(_quoted, prefix)), str(folder) if "/" in program else "", options)


class _NotUnderstood(Exception):
    """What of a command line cannot be taken over."""


def _words(text: str) -> list[str]:
    text = plain_fields(text)
    if match := re.search(r"[`$\n]|\{%", text):
        raise _NotUnderstood(f"{match[0]!r} is the shell's or a template's")
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = [*lexer]
    except ValueError as error:
        raise _NotUnderstood(str(error)) from None
    if operator := next((word for word in words if word and set(word) <= set("();<>|&")), None):
        raise _NotUnderstood(f"{operator!r} is the shell's")
    return words


def _parts(words: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """The words before sbatch, sbatch, and those after it; of su and ssh, as these words are run in the end."""
    for at, word in enumerate(words):
        name = PurePosixPath(word).name
        if at and words[at - 1] in ("-u", "--user", "-g", "--group"):
            continue
        if name == "sbatch":
            return [*words[:at]], word, [*words[at + 1 :]]
        if name in _SHELLS or (name in _BUILTINS and "/" not in word):
            raise _NotUnderstood(f"{word!r} is the shell's")
        if name == "su":
            account, command = _of_su([*words[at + 1 :]])
            before, program, arguments = _parts(_words(command))
            return [*words[:at], "runuser", "-u", account, "--", *before], program, arguments
        if name == "ssh":
            try:
                login = destination(words[at:])
            except ConfigError as error:
                raise _NotUnderstood(error.message.rstrip(".")) from None
            before, program, arguments = _parts(_words(" ".join(words[at + len(login) :])))
            return [*words[:at], *login, *before], program, arguments
    raise _NotUnderstood("it does not run sbatch")


def _of_su(words: list[str]) -> tuple[str, str]:
    """The account and the command line of su; su asks for no password only if root runs it, for whom runuser does."""
    command, accounts = "", []
    while words:
        if words[0] == "-":
            words.pop(0)
        elif words[0].startswith("-"):
            command = _named_account(_SU_TAKES, words) or command
        else:
            accounts.append(words.pop(0))
    if not command or len(accounts) != 1:
        raise _NotUnderstood("su needs one account, and -c with one command")
    return accounts[0], command


def _options(words: Sequence[str]) -> Iterator[Option]:
    """The options of a job among the words after sbatch."""
    try:
        options = [*options_of_words([*words], strict=True)]
    except ValueError as error:
        raise _NotUnderstood(str(error)) from None
    for option in options:
        field = _FIELD.fullmatch(option.value)
        if option.lacks_value:
            raise _NotUnderstood(f"{option} has no value")
        if field and field[1] in OWN_FIELDS.get(option.name, ()):
            continue  # what the job requests anyway
        if "{" in option.value:
            raise _NotUnderstood(f"{option} has a field")
        if option[:2] in _USUAL:
            continue
        if option.name in _OF_THE_HUB:
            raise _NotUnderstood(f"the hub decides --{option.name} itself")
        yield option


OWN_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "account": ("account",),
        "clusters": ("cluster",),
        "cpus-per-task": ("nprocs",),
        "export": ("keepvars",),
        "gpus": ("ngpus",),
        "gres": ("gres",),
        "mem": ("memory",),
        "partition": ("partition", "queue"),
        "qos": ("qos",),
        "reservation": ("reservation",),
        "time": ("runtime",),
    }
)
"""Options of sbatch, and batchspawner's fields with what the job requests of each."""


def _quoted(word: str) -> str:
    """A word as ``exec_prefix`` may have it, whose fields stay fields."""
    return word if word and not re.search(r"[\s'\"\\]", word) else shlex.quote(word)
