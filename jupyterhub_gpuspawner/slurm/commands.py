"""An installation of Slurm's commands: paths, environment, and limits on how many run at once.

It is on this machine, or behind a prefix such as ``ssh login`` on another one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.login_node import (
    FAILED,
    QUERY,
    SETTING,
    command_line,
    is_remote,
    request,
)
from jupyterhub_gpuspawner.slurm.messages import LoginNodeUnreachable, TimedOut, failure, last_line

Observer = Callable[[str, float, int | None], None]

COMMAND = "{}"
"""A command of Slurm's as it is typed on the hub's machine, with its name to be filled in; for another cluster than
this machine's such as ``ssh cedar {}``, ``{} -M cedar`` or ``SLURM_CONF=/etc/slurm-cedar/slurm.conf {}``."""


# Run one command without a shell, with its own environment and a time-out, leaving no process behind.
#
# After a time-out or a cancellation of the caller the command's process group gets SIGTERM (which sudo passes on) and
# SIGCONT (it may be stopped), then SIGKILL together with all descendants, and is reaped.
#
# A hub that is not root may not signal what sudo runs, and the user it runs as may stop it (SIGSTOP). Such a process
# stays until that user continues it: its pipes are closed, its id is recorded for the caller, and the log says so.
#
# Not asyncio.create_subprocess_exec: before Python 3.12.4 it waits for ever if its tasks are cancelled while the pipes
# are connected. JupyterHub cancels all tasks when it shuts down, and such a hub ended only when it was killed.

_GRACE = 0.3
"""Seconds between SIGTERM and SIGKILL."""
_PATIENCE = 2.0
"""Seconds that a caller waits for a killed process, since a hub that is not root may not signal sudo's."""
_STUCK = 1.5
"""Seconds after SIGKILL until a process counts as one that cannot be ended; shorter than the caller waits."""
_TICK = 0.01
_SLOW_TICK = 1.0
_CHUNK = 65536
_UMASK = 0o022
"""Of all commands: sbatch passes its own on to the job, where a hub's (UMask=0077) would make all files private."""
DEFAULT_TIMEOUT = 12.0
"""Seconds: a command tries for up to 10 to reach a slurmctld that is down, and then says so (Slurm 26.05; others 9)."""
_OF_A_CLUSTER = frozenset({"sbatch", "scancel", "scontrol", "sinfo", "squeue"})
"""Commands with ``--clusters``; sacctmgr asks slurmdbd, and names the cluster in its conditions."""
_DESCENDANTS = 1000
"""Maximum number of descendants that are searched for."""

_log = logging.getLogger(__name__)

_reaping: set[asyncio.Task[None]] = set()


@dataclass(frozen=True)
class Answer:
    """The output of a command."""

    command: str
    code: int
    """Exit status; negative for a signal."""
    stdout: str
    stderr: str

    def output(self) -> str:
        """Its standard output; raises :meth:`error` if it failed."""
        if self.code != 0:
            raise self.error()
        return self.stdout

    def error(self) -> GPUSpawnerError:
        """The error for a failed command, from its messages."""
        return failure(self.command, self.stderr) or SlurmUnavailable(
            f"{self.command} failed with exit code {self.code}: {last_line(self.stderr or self.stdout)}"
        )


async def run(
    argv: Sequence[str],
    *,
    name: str,
    environment: Mapping[str, str],
    timeout: float,
    stdin: str = "",
    limit: int = 1 << 24,
    leftovers: set[int] | None = None,
) -> Answer:
    """Run ``argv`` in ``/`` with ``environment`` and nothing else, and return its answer, whatever its exit status.

    It does not have the hub's umask, either, but the usual one.

    ``name`` is the command's name in errors, ``timeout`` in seconds, ``limit`` in bytes for stdout and stderr each.
    ``leftovers`` contains the ids of processes that should have ended, for as long as they exist. Raises
    TimedOut, SlurmOutputError beyond the limit, OSError if ``argv[0]`` cannot be run.
    """
    process = _process(argv, environment, stdin)
    stderr: list[str] = []
    exchange = asyncio.ensure_future(_exchange(process, name, limit, stderr))
    try:
        # not wait_for: before Python 3.12 it may swallow a cancellation that comes with the result
        done, _ = await asyncio.wait({exchange}, timeout=timeout)
        if not done:
            raise TimedOut(name, timeout, "".join(stderr))
        return exchange.result()
    finally:
        if not exchange.done() or process.poll() is None:
            await _end(process, exchange, name, leftovers if leftovers is not None else set())


def _process(argv: Sequence[str], environment: Mapping[str, str], stdin: str) -> subprocess.Popen[bytes]:
    """Start it; its input is a file, which it may read or not, and as slowly as it likes."""
    with _memory() if stdin else open(os.devnull, "r+b", buffering=0) as file:  # noqa: PTH123
        if stdin:
            file.write(stdin.encode(errors="surrogateescape"))
            file.seek(0)
        return subprocess.Popen(
            argv,
            bufsize=0,
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd="/",
            umask=_UMASK,
            start_new_session=True,
        )


def _memory() -> IO[bytes]:
    """A file in memory; a temporary one where Python was built for a libc without these, as those of conda are."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("stdin"), "r+b", buffering=0)  # noqa: PTH123
    return tempfile.TemporaryFile(buffering=0)


async def _exchange(process: subprocess.Popen[bytes], name: str, limit: int, stderr: list[str]) -> Answer:
    """Read its output until it ends; ``stderr`` gets its messages as they come, for one that does not end."""
    stdout: list[str] = []
    streams = ((process.stdout, stdout), (process.stderr, stderr))
    reading = [asyncio.ensure_future(_read(pipe, limit, name, parts)) for pipe, parts in streams]
    try:
        await asyncio.gather(*reading)
    finally:
        for task in reading:
            task.cancel()
    await _until(lambda: process.poll() is not None)
    return Answer(name, process.returncode, "".join(stdout), "".join(stderr))


async def _read(pipe: IO[bytes] | None, limit: int, name: str, parts: list[str]) -> None:
    """Append the text, decoded as it comes: one character beyond Latin-1 in 16 MiB would take 50 ms at the end."""
    stream, loop = asyncio.StreamReader(), asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
    decoder, size = getincrementaldecoder("utf-8")("replace"), 0
    try:
        while chunk := await stream.read(_CHUNK):
            parts.append(decoder.decode(chunk))
            size += len(chunk)
            if size > limit:
                raise SlurmOutputError(f"{name} printed more than {limit} bytes.", raw=parts[0][:200])
        parts.append(decoder.decode(b"", final=True))
    finally:
        transport.close()  # a process that was lost may hold the pipe's other end open for ever


async def _end(
    process: subprocess.Popen[bytes], exchange: asyncio.Future[Answer], name: str, leftovers: set[int]
) -> None:
    reaping = asyncio.ensure_future(_reap(process, exchange, name, leftovers))
    _reaping.add(reaping)
    reaping.add_done_callback(_reaping.discard)
    await asyncio.wait({reaping}, timeout=_PATIENCE)  # a second cancellation leaves it running


async def _reap(
    process: subprocess.Popen[bytes], exchange: asyncio.Future[Answer], name: str, leftovers: set[int]
) -> None:
    _signal_group(process, signal.SIGTERM)
    _signal_group(process, signal.SIGCONT)
    await _until(lambda: process.poll() is not None, patience=_GRACE)
    everyone = _with_descendants(process.pid) if process.poll() is None else {}
    _signal_group(process, signal.SIGKILL)
    for pid in everyone:  # sudo may have given its command a session, and so a group, of its own
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)

    def ended() -> bool:
        return process.poll() is not None and not _left(everyone)

    await _until(ended, patience=_STUCK)
    if not ended():
        stuck = _left(everyone)
        leftovers |= stuck
        _log.warning(
            "%s cannot be killed: process %s belongs to another user, who may have stopped it, or is waiting for a "
            "file system. It remains until it continues.",
            name,
            ", ".join(map(str, sorted(stuck))),
        )
    exchange.cancel()  # not before: a command that prints while it ends would get SIGPIPE
    await asyncio.wait({exchange})
    if not exchange.cancelled():
        exchange.exception()  # retrieved; the caller raises its own
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()  # nobody has read it, if the exchange was cancelled before it began
    await _until(ended, tick=_SLOW_TICK)
    leftovers -= set(everyone)


async def _until(true: Callable[[], bool], *, patience: float = math.inf, tick: float = _TICK) -> None:
    """Wait until ``true()``, for ``patience`` seconds at most."""
    deadline = time.monotonic() + patience
    while not true() and time.monotonic() < deadline:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(tick)


def _with_descendants(pid: int) -> dict[int, str]:
    """This process and its descendants visible to this account, each with its start time.

    Others remain unknown: ``/proc`` may hide them (hidepid), or the kernel may lack ``CONFIG_PROC_CHILDREN``.
    """
    pids = [pid]
    for process in pids:
        with suppress(OSError), open(f"/proc/{process}/task/{process}/children", encoding="ascii") as children:  # noqa: PTH123
            pids += map(int, children.read().split())
        if len(pids) > _DESCENDANTS:
            break
    return {process: _started(process) for process in pids}


def _left(processes: Mapping[int, str]) -> set[int]:
    """Ids of those that still exist and are the same process."""
    return {pid for pid, started in processes.items() if started and _started(pid) == started}


def _started(pid: int) -> str:
    """Start time of a process in kernel ticks; empty if it does not exist or is a zombie (proc(5))."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # start_new_session made the process the leader of a group with its own number
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


# Running commands as the user: ``exec_prefix`` as words, and the standard input of the wrapper scripts.
#
# The scripts of ``gpuspawner files --wrappers`` take everything on standard input and no argument.

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
        words = command_line(before, (program, *arguments))
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
        return answer

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
