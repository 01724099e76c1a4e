"""An installation of Slurm's commands: paths, environment, and limits on how many run at once.

It is on this machine, or behind a prefix such as ``ssh login`` on another one. The scripts of ``gpuspawner files
--wrappers``, which run commands as the user, take everything on standard input and no argument.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.login_node import FAILED, QUERY, SETTING, command_line, is_remote, request
from jupyterhub_gpuspawner.slurm.messages import LoginNodeUnreachable, TimedOut, last_line
from jupyterhub_gpuspawner.slurm.process import Answer, run
from jupyterhub_gpuspawner.slurm.run_as import needs_shell

Observer = Callable[[str, float, int | None], None]

COMMAND = "{}"
"""A command of Slurm's as it is typed on the hub's machine, with its name to be filled in; for another cluster than
this machine's such as ``ssh cedar {}``, ``{} -M cedar`` or ``SLURM_CONF=/etc/slurm-cedar/slurm.conf {}``."""
OUTPUT_LIMIT = 1 << 26
"""Bytes that a command about the whole cluster may print."""
DEFAULT_TIMEOUT = 12.0
"""Seconds: a command tries for up to 10 to reach a slurmctld that is down, and then says so (Slurm 26.05; others 9)."""
_OF_A_CLUSTER = frozenset({"sbatch", "scancel", "scontrol", "sinfo", "squeue"})
"""Commands with ``--clusters``; sacctmgr asks slurmdbd, and names the cluster in its conditions."""

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
            for_user="Servers cannot be started under your user name.",
            hint="An account name begins with a letter, a digit or _, is not a number, and contains no blank, "
            "no control character and none of / : %. Set c.Authenticator.username_pattern, or username_map.",
        )
    return username


def plain_fields(text: str) -> str:
    """A text of batchspawner's with its fields as ``{name}``, which may be written for jinja2, too."""
    return _JINJA.sub(r"{\1}", text)


def command_prefix(text: str | Sequence[str], username: str, **values: str) -> tuple[str, ...]:
    """``exec_prefix`` as words, with ``{username}`` and ``values`` filled into each word; no shell is involved.

    ``text`` is a command line as in batchspawner (``sudo -u {username}``, split as a shell would) or a list of words.
    Raises ConfigError for an unknown field, for unbalanced quotes, and for an invalid user name.
    """
    replacements = {"username": checked_user_name(username), **values}
    try:
        words = shlex.split(plain_fields(text)) if isinstance(text, str) else list(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a valid command: {error}.", where="exec_prefix") from error

    def filled(field: re.Match[str]) -> str:
        if field[1] not in replacements:
            fields = ", ".join(f"{{{name}}}" for name in sorted(replacements))
            raise ConfigError(f"{field[0]} is not a known field.", where="exec_prefix", hint=f"Fields are {fields}.")
        return replacements[field[1]]

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


class CommandSettings(Protocol):
    """The settings of a spawner."""

    exec_prefix: str
    query_prefix: str
    wrapper_dir: str

    def configured_as(self, name: str) -> str:
        """A setting as the admin wrote it."""


def check_commands(settings: CommandSettings) -> None:
    """Raise ConfigError for a prefix or folder with which no command would run."""
    prefixes = {
        "exec_prefix": command_prefix(settings.exec_prefix, "somebody"),
        "query_prefix": fixed_prefix(settings.query_prefix, where="query_prefix"),
    }
    for name, prefix in prefixes.items():
        try:
            command_line(prefix, ())
        except ConfigError as error:
            raise ConfigError(error.message, where=settings.configured_as(name), hint=error.hint) from error
    if needs_shell(settings.exec_prefix):
        raise ConfigError(
            f"{settings.exec_prefix!r} hands a command line to a shell, and none runs sbatch here.",
            where=settings.configured_as("exec_prefix"),
            hint='Write "runuser -u {username} --" in its place.',
        )
    if settings.wrapper_dir and not PurePosixPath(settings.wrapper_dir).is_absolute():
        raise ConfigError(
            f"{settings.wrapper_dir!r} is not a full path.",
            where=settings.configured_as("wrapper_dir"),
            hint="Use the folder's path as written in the sudoers file.",
        )
    if not prefixes["query_prefix"]:
        return
    if not settings.wrapper_dir:
        raise ConfigError(
            "The script `query` is in wrapper_dir, which is not set.", where=settings.configured_as("query_prefix")
        )
    if is_remote(prefixes["query_prefix"]) and not is_remote(prefixes["exec_prefix"]):
        raise ConfigError(
            "The hub asks Slurm on another machine, but would submit jobs on its own.",
            where=settings.configured_as("exec_prefix"),
            hint="Begin it with the words of query_prefix: ssh LOGIN-NODE sudo -n -u {username}.",
        )


SUBMIT, TRIAL, CANCEL, LOG = "submit", "trial", "cancel", "log"
"""Names of scripts, which ``wrapper_dir`` holds."""


def submission(script: str, environment: Mapping[str, str]) -> str:
    """Standard input of the ``submit`` script: length in bytes of the job's environment, that environment, the script.

    Raises ConfigError for a name or value that no environment variable can have.
    """
    for name, value in environment.items():
        if not name.isidentifier() or not name.isascii() or "\0" in value:
            raise ConfigError(f"{name[:40]!r} is not a valid environment variable for a job.", where="environment")
    block = "".join(f"{name}={value}\0" for name, value in environment.items())
    return f"environment {len(block.encode(errors='surrogateescape'))}\n{block}{script}"


_SHELLS_REFUSAL = (126, 127)
"""Exit status of a shell for a command that it cannot execute or does not find."""


@dataclass
class _Share:
    """Bookkeeping for the commands of one prefix, which usually means one user."""

    turns: AbstractAsyncContextManager[None]
    leftovers: set[int] = field(default_factory=set)
    """Ids of processes that could not be ended."""


class Installation:
    """Runs Slurm's commands by name."""

    def __init__(
        self,
        *,
        bin_dir: str = "",
        slurm_conf: str = "",
        cluster: str = "",
        wrapper_dir: str = "",
        query_prefix: Sequence[str] = (),
        timeout: float = DEFAULT_TIMEOUT,
        limit: int = 8,
        environment: Mapping[str, str] | None = None,
        observe: Observer | None = None,
    ) -> None:
        """``wrapper_dir`` holds the scripts that replace sbatch and scancel when these run as another account.

        ``slurm_conf`` is the path of slurm.conf, by default that of the hub's environment. ``cluster`` is the name of
        another cluster of the same slurmdbd, to which the commands are sent (``-M``).

        ``query_prefix`` runs the script ``query`` of ``wrapper_dir`` in place of the commands that only read, so that
        this machine needs none. ``timeout`` in seconds. At most ``limit`` commands run at
        once, and at most half of them with one user's prefix. Once that many commands of a user cannot be ended, no
        more are run for this user, who can stop (SIGSTOP) whatever runs under their account.

        ``environment`` is added to the commands' own (PATH, LANG, TZ, SLURM_CONF); they inherit nothing else of the
        hub's. ``observe`` is called after each command with its name, seconds, and exit status (None: no answer).
        """
        self.bin_dir = bin_dir
        self.cluster = cluster
        self.wrapper_dir = wrapper_dir
        self.query_prefix = tuple(query_prefix)
        self.timeout = timeout
        self._observe: Observer = observe or (lambda _command, _seconds, _status: None)
        self._turns = asyncio.Semaphore(limit)
        self._share = max(1, limit // 2)
        # kept for good, one for each user: a process may be found stuck when its caller is long gone
        self._shares: dict[tuple[str, ...], _Share] = {}
        self._environment = {**_base_environment(bin_dir, slurm_conf), **(environment or {})}

    def wraps(self, prefix: Sequence[str]) -> bool:
        """Whether wrapper scripts replace the commands that run with this prefix."""
        return bool(self.wrapper_dir and prefix)

    async def run(
        self,
        command: str,
        *arguments: str,
        wrapper: str = "",
        prefix: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: str = "",
        limit: int = 1 << 24,
        ahead: bool = False,
        where: str = "exec_prefix",
    ) -> Answer:
        """The answer of one command, whatever its exit status; ``prefix``, even an empty one, runs it for a user.

        ``wrapper`` is the script of ``wrapper_dir`` that replaces it; ``limit`` in bytes of its answer. ``ahead`` is
        for the one question on which all servers depend: it does not wait for a turn among all commands.

        Raises SlurmUnavailable, ConfigError naming ``where`` if the prefix's command is missing, and SlurmOutputError
        beyond the limit.
        """
        env = {**self._environment, **(environment or {})}
        arguments = (*self._cluster_option(command, wrapper), *arguments)
        if prefix is None and self.query_prefix:
            before, where = self.query_prefix, SETTING
            wrapper, stdin, arguments = QUERY, request(command, arguments), ()
        else:
            before = tuple(prefix or ())
        if prefix is None:
            env["SLURM_TIME_FORMAT"] = "%s"  # not for a user's commands, since a job would inherit it
        folder = self.wrapper_dir if wrapper else self.bin_dir
        program = str(Path(folder, wrapper or command)) if folder else command
        words = command_line(before, (program, *arguments)) if before else (program, *arguments)
        # searched in the hub's PATH, which may differ from the job's
        path = shutil.which(words[0], path=self._environment["PATH"])
        if path is None:
            raise _missing(before, words[0], where)
        share = self._share_of(before if prefix else ())
        try:
            async with share.turns:
                self._refuse_after(share.leftovers)
                async with nullcontext() if ahead else self._turns:
                    answer = await self._observed(
                        (path, *words[1:]),
                        name=command,
                        environment=env,
                        timeout=self.timeout,
                        stdin=stdin,
                        limit=limit,
                        leftovers=share.leftovers,
                    )
        except OSError as error:
            raise _missing(before, path, where) from error
        if answer.code == FAILED and is_remote(before):
            raise LoginNodeUnreachable(command, answer.stderr)
        if answer.code in _SHELLS_REFUSAL and is_remote(before):
            raise CommandMissing(
                f"{command} did not run on the login node: {last_line(answer.stderr)}.",
                hint="wrapper_dir is the folder of the scripts on the login node.",
            )
        return replace(answer, where=where)

    async def _observed(self, argv: Sequence[str], *, name: str, **options: Any) -> Answer:
        """As :func:`run`; whoever observes is told of an answer, and of none in time."""
        began = time.monotonic()
        try:
            answer = await run(argv, name=name, **options)
        except TimedOut:
            self._observe(name, time.monotonic() - began, None)
            raise
        self._observe(name, time.monotonic() - began, answer.code)
        return answer

    def _cluster_option(self, command: str, wrapper: str) -> tuple[str, ...]:
        # a script takes no argument: those of another cluster have SLURM_CLUSTERS in their environment
        has_option = bool(self.cluster) and not wrapper and command in _OF_A_CLUSTER
        return (f"--clusters={self.cluster}",) if has_option else ()

    def _share_of(self, prefix: tuple[str, ...]) -> _Share:
        """Commands of the hub's own account, without a prefix, have no separate limit."""
        if prefix not in self._shares:
            self._shares[prefix] = _Share(asyncio.Semaphore(self._share) if prefix else nullcontext())
        return self._shares[prefix]

    def _refuse_after(self, leftovers: set[int]) -> None:
        """Raise SlurmUnavailable if too many commands hang."""
        if len(leftovers) >= self._share:
            raise SlurmUnavailable(
                f"{len(leftovers)} commands are hanging and cannot be killed; no others are run until one "
                "of them ends.",
                hint=f"Check these processes on the hub's machine: {', '.join(map(str, sorted(leftovers)))}.",
            )


class CommandMissing(SlurmUnavailable):
    """A Slurm command is not installed on this machine."""

    usual_for_user = "The hub cannot reach Slurm: it is not set up correctly."


def _missing(before: Sequence[str], path: str, where: str) -> GPUSpawnerError:
    if before:
        return ConfigError(
            f"The command {path!r} does not exist or cannot be executed.",
            where=where,
            hint="Give its full path.",
        )
    return CommandMissing(
        f"Slurm's command {path!r} does not exist or cannot be executed.",
        hint="Set slurm_bin_dir to the folder with Slurm's commands.",
    )


def _base_environment(bin_dir: str, slurm_conf: str) -> dict[str, str]:
    path = os.environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": f"{bin_dir}:{path}" if bin_dir else path, "LANG": "C.UTF-8"}
    environment.update({name: os.environ[name] for name in ("SLURM_CONF", "TZ") if os.environ.get(name)})
    return {**environment, "SLURM_CONF": slurm_conf} if slurm_conf else environment
