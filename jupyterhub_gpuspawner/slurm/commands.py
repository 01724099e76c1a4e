"""An installation of Slurm's commands: paths, environment, and limits on how many run at once.

It is on this machine, or behind a prefix such as ``ssh login`` on another one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.login_node.query import QUERY, SETTING, request
from jupyterhub_gpuspawner.slurm.login_node.ssh import FAILED, LoginNodeUnreachable, command_line, is_remote
from jupyterhub_gpuspawner.slurm.messages import failure, last_line
from jupyterhub_gpuspawner.slurm.process import Answer, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    Observer = Callable[[str, float, int | None], None]


_SHELLS_REFUSAL = (126, 127)
"""Exit status of a shell for a command that it cannot execute or does not find."""


@dataclass
class _Share:
    """Bookkeeping for the commands of one prefix, which usually means one user."""

    turns: asyncio.Semaphore
    leftovers: set[int] = field(default_factory=set)
    """Ids of processes that could not be ended."""
    callers: int = 0


class Installation:
    """Runs Slurm's commands by name."""

    def __init__(
        self,
        *,
        bin_dir: str = "",
        wrapper_dir: str = "",
        query_prefix: Sequence[str] = (),
        timeout: float = 10.0,
        limit: int = 8,
        environment: Mapping[str, str] | None = None,
        observe: Observer | None = None,
    ) -> None:
        """``wrapper_dir`` holds the scripts that replace sbatch and scancel when these run as another account.

        ``query_prefix`` runs the script ``query`` of ``wrapper_dir`` in place of the commands that only read, so that
        this machine needs none. ``timeout`` in seconds. At most ``limit`` commands run at
        once, and at most half of them with one user's prefix. Once that many commands of a user cannot be ended, no
        more are run for this user, who can stop (SIGSTOP) whatever runs under their account.

        ``environment`` is added to the commands' own (PATH, LANG, TZ, SLURM_CONF); they inherit nothing else of the
        hub's. ``observe`` is called after each command with its name, seconds, and exit status (None: no answer).
        """
        self.bin_dir = bin_dir
        self.wrapper_dir = wrapper_dir
        self.query_prefix = tuple(query_prefix)
        self.timeout = timeout
        self._observe = observe or _unobserved
        self._turns = asyncio.Semaphore(limit)
        self._share = max(1, limit // 2)
        self._shares: dict[tuple[str, ...], _Share] = {}
        self._own_leftovers: set[int] = set()
        self._environment = {**_base_environment(bin_dir), **(environment or {})}

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
        async with self._share_of(before if prefix else ()) as leftovers, nullcontext() if ahead else self._turns:
            began = time.monotonic()
            try:
                answer = await run(
                    (path, *words[1:]),
                    name=command,
                    environment=env,
                    timeout=self.timeout,
                    stdin=stdin,
                    limit=limit,
                    leftovers=leftovers,
                )
            except OSError as error:
                raise _missing(before, path, where) from error
            except SlurmUnavailable:
                self._observe(command, time.monotonic() - began, None)
                raise
            self._observe(command, time.monotonic() - began, answer.code)
        if answer.code == FAILED and is_remote(before):
            raise LoginNodeUnreachable(command, answer.stderr)
        if answer.code in _SHELLS_REFUSAL and is_remote(before):
            raise CommandMissing(
                f"{command} did not run on the login node: {last_line(answer.stderr)}.",
                hint="wrapper_dir is the folder of the scripts on the login node.",
            )
        return answer

    @asynccontextmanager
    async def _share_of(self, prefix: tuple[str, ...]) -> AsyncIterator[set[int]]:
        """Wait for a turn among the commands of this prefix; raises SlurmUnavailable if too many of them hang.

        Yields the set of processes that could not be ended. Commands of the hub's own account have no separate limit.
        """
        if not prefix:
            self._refuse_after(self._own_leftovers)
            yield self._own_leftovers
            return
        share = self._shares.setdefault(prefix, _Share(asyncio.Semaphore(self._share)))
        share.callers += 1
        try:
            async with share.turns:
                self._refuse_after(share.leftovers)
                yield share.leftovers
        finally:
            share.callers -= 1
            if not share.callers and not share.leftovers:
                self._shares.pop(prefix, None)

    def _refuse_after(self, leftovers: set[int]) -> None:
        if len(leftovers) >= self._share:
            raise SlurmUnavailable(
                f"{len(leftovers)} commands are hanging and cannot be killed; no others are run until one "
                "of them ends.",
                hint=f"Check these processes on the hub's machine: {', '.join(map(str, sorted(leftovers)))}.",
            )


def _unobserved(_command: str, _seconds: float, _status: int | None) -> None:
    """The default: commands are not observed."""


class CommandMissing(SlurmUnavailable):
    """A Slurm command is not installed on this machine."""

    usually_told = "The hub cannot reach Slurm: it is not set up correctly."


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


def good(command: str, answer: Answer) -> str:
    """The command's output; raises :func:`unanswered`'s error if it failed."""
    if answer.code != 0:
        raise unanswered(command, answer)
    return answer.stdout


def unanswered(command: str, answer: Answer) -> GPUSpawnerError:
    """The error for a failed command, from its messages."""
    return failure(command, answer.stderr) or SlurmUnavailable(
        f"{command} failed with exit code {answer.code}: {last_line(answer.stderr or answer.stdout)}"
    )


def _base_environment(bin_dir: str) -> dict[str, str]:
    path = os.environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin"
    found = {"PATH": f"{bin_dir}:{path}" if bin_dir else path, "LANG": "C.UTF-8"}
    found.update({name: os.environ[name] for name in ("SLURM_CONF", "TZ") if os.environ.get(name)})
    return found
