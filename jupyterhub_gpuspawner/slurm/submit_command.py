"""batchspawner's command line as a prefix, a folder and options.

batchspawner joins ``exec_prefix`` and ``batch_submit_cmd`` and gives them to a shell. Here no shell is involved: what
only a shell understands is refused (:func:`submit_command`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.commands import plain_fields
from jupyterhub_gpuspawner.slurm.login_node import destination
from jupyterhub_gpuspawner.slurm.run_as import ASSIGNMENT, Program, named_account
from jupyterhub_gpuspawner.slurm.sbatch_options import Option, options_of_words

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
_SU_TAKES = Program("cgGs", "command group shell supp-group", names=("-c", "--command"))
_OWN_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
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
    arguments: tuple[Option, ...] = field(default=(), compare=False)
    """All of them as they are written, whose values may have fields."""


def submit_command(exec_prefix: str, command: object, *, where: str) -> SubmitCommand:
    """Take apart the command line that batchspawner makes of ``exec_prefix`` and ``batch_submit_cmd``.

    Raises ConfigError, which names ``where``, for what cannot be run without a shell or is no option of a job.
    """
    try:
        if not isinstance(command, str):
            raise _NotUnderstood(f"{command!r} is no text")
        words = _words(f"{exec_prefix} {command}")
        if words and ASSIGNMENT.fullmatch(words[0]):
            words.insert(0, "env")
        prefix, program, arguments = _parts(words)
        folder = PurePosixPath(program).parent
        if "/" in program and not folder.is_absolute():
            raise _NotUnderstood(f"{program!r} is not a full path")
        written = tuple(options_of_words([*arguments], strict=True))
        options = tuple(_options(written))
        for word in (*prefix, program):
            if name := next((name for name in _FIELD.findall(word) if name != "username"), None):
                raise _NotUnderstood(f"{{{name}}} is not {{username}}")
    except ValueError as fault:
        raise ConfigError(
            f"{str(command)!r} is not run by a shell here, and cannot be taken over: {fault}.",
            where=where,
            hint="Remove it. What runs sbatch as the user belongs to c.GPUSlurmSpawner.exec_prefix, such as "
            '"sudo -n -E -u {username}", its folder to slurm_bin_dir, and options of the job to req_options.',
        ) from None
    return SubmitCommand(" ".join(map(_quoted, prefix)), str(folder) if "/" in program else "", options, written)


class _NotUnderstood(ValueError):
    """What of a command line cannot be taken over."""


def _words(text: str) -> list[str]:
    text = plain_fields(text)
    if match := re.search(r"[`$\n]|\{%", text):
        raise _NotUnderstood(f"{match[0]!r} is the shell's or a template's")
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split, lexer.commenters = True, ""
    words = [*lexer]
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
        if name == "su" or (name == "runuser" and not {"-u", "--user"}.intersection(words[at + 1 :])):
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
            command = named_account(_SU_TAKES, words) or command
        else:
            accounts.append(words.pop(0))
    if not command or len(accounts) != 1:
        raise _NotUnderstood("su needs one account, and -c with one command")
    return accounts[0], command


def _options(options: Sequence[Option]) -> Iterator[Option]:
    """Those that decide something of the job among the options of sbatch."""
    for option in options:
        field = _FIELD.fullmatch(option.value)
        if option.lacks_value:
            raise _NotUnderstood(f"{option} has no value")
        if field and field[1] in _OWN_FIELDS.get(option.name, ()):
            continue  # what the job requests anyway
        if "{" in option.value:
            raise _NotUnderstood(f"{option} has a field")
        if option[:2] in _USUAL:
            continue
        if option.name in _OF_THE_HUB:
            raise _NotUnderstood(f"the hub decides --{option.name} itself")
        yield option


def _quoted(word: str) -> str:
    """A word as ``exec_prefix`` may have it, whose fields stay fields."""
    return word if word and not re.search(r"[\s'\"\\]", word) else shlex.quote(word)
