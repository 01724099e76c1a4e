"""One connection to a login node: an ssh in the background, the master, which holds the forwards.

The hub only tells it what to forward, through its socket, so a hub that is restarted finds it as it was. A master that
has ended, for whatever reason, is started again, and gets all forwards in one command.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from jupyterhub_gpuspawner.extensions.tunnel.ports import TunnelError
from jupyterhub_gpuspawner.extensions.tunnel.ssh import (
    Forward,
    Reverse,
    control_command,
    control_path,
    master_pid,
    start_command,
)
from jupyterhub_gpuspawner.slurm.login_node import configuration_query
from jupyterhub_gpuspawner.slurm.messages import TimedOut, last_line, ssh_reason
from jupyterhub_gpuspawner.slurm.process import Answer, run
from jupyterhub_gpuspawner.tasks import timeout

CONNECT_SECONDS = 10.0
"""For a new connection to the login node."""
COMMAND_SECONDS = 5.0
"""For what the master is asked; it answers in a few milliseconds."""
PATH_BYTES = 90
"""Of the socket's path: ssh adds 17, and Linux takes 107 (unix(7))."""
AT_A_TIME = 8
"""Commands at once, where one that makes all forwards could not make some."""

NO_FILE = 0, 0
Wanted = Forward | Reverse


class Master:
    """What is to be forwarded by one connection, and what is."""

    def __init__(self, words: Sequence[str], number: int) -> None:
        """``words`` are the setting's; ``number`` is which of its connections this is, from 1."""
        self.words, self.number = tuple(words), number
        self.wanted: set[Wanted] = set()
        self.made: set[Wanted] = set()
        """Those that the master has been told, and that were not refused."""
        self.gone: set[Forward] = set()
        """Those that ended with their master; no other may have their ports, to which routes lead."""
        self._pids: dict[Forward, int] = {}
        """Which master made each that is wanted."""
        self.fault: TunnelError | None = None
        """Why there is no connection now; None if there was one when it was last looked at."""
        self.started = False
        """Whether this object has started the master that runs, instead of finding it."""
        self._unwanted: set[Wanted] = set()
        """Those that the master may forward still."""
        self.pid = 0
        """Of the master that has :attr:`made`."""
        self._path = ""
        self._file = NO_FILE
        """Of the socket of the master with :attr:`pid`: another one has another."""
        self._turn = asyncio.Lock()

    async def keep_up(self) -> None:
        """Have a master that forwards all that is wanted, as far as it can; raises TunnelError without one."""
        async with self._turn:
            try:
                await self._keep_up()
            except TunnelError as fault:
                self.fault = fault
                self.made.clear()
                raise
            self.fault = None

    def expect(self, forward: Forward, pid: int) -> None:
        """Go on with a forward that the master with this process id has made."""
        self.wanted.add(forward)
        self._pids[forward] = pid

    def made_by(self, forward: Forward) -> int:
        """The process id of the master that forwards this; 0 if none does."""
        return self._pids.get(forward, 0)

    async def holder(self) -> str:
        """The path of the socket of what holds the ports, beside the master's; raises TunnelError."""
        return str(Path(await self._socket()).with_name("tunnel-ports"))

    async def end(self, forward: Forward) -> None:
        """Forward this no longer; connections that are open go on. Raises TunnelError."""
        self.wanted.discard(forward)
        self.gone.discard(forward)
        if self._pids.pop(forward, self.pid) != self.pid:
            return
        self._unwanted.add(forward)
        async with self._turn:
            if self.fault is None:
                await self._cancel()

    async def close(self) -> None:
        """End the master, and with it all that it forwards."""
        async with self._turn:
            self.made.clear()
            await self._ask("exit")

    async def _keep_up(self) -> None:
        if not await self._is_there():
            pid = await self._running()
            if not pid:
                await _end_orphans(await self._socket(), {self.pid, *self._pids.values()})
                pid = await self._started()
            if pid != self.pid:
                self.pid = pid
                self.made.clear()
                self._unwanted.clear()
            self._file = _file_of(self._path)
        await self._cancel()
        for forward, pid in list(self._pids.items()):
            if pid == self.pid:
                self.made.add(forward)
            else:
                del self._pids[forward]
                self.wanted.discard(forward)
                self.gone.add(forward)
        if missing := self.wanted - self.made:
            await self._make(missing)
            self._pids |= {each: self.pid for each in missing & self.made if isinstance(each, Forward)}

    async def _cancel(self) -> None:
        """Have the master close what is not wanted any more; raises TunnelError, and the next call tries again."""
        self._unwanted -= self.wanted
        if unwanted := set(self._unwanted):
            await self._ask("cancel", *unwanted)
            self.made -= unwanted
            self._unwanted -= unwanted

    async def _is_there(self) -> bool:
        """Whether the master that was there last accepts connections: without a process for each look."""
        if not self.pid or _file_of(self._path) != self._file:
            return False
        try:
            async with timeout(COMMAND_SECONDS):
                _, writer = await asyncio.open_unix_connection(self._path)
        except (OSError, asyncio.TimeoutError):
            return False
        writer.close()
        return True

    async def _running(self) -> int:
        return master_pid((await self._ask("check")).stderr)

    async def _started(self) -> int:
        """The process id of a new master; raises TunnelError."""
        try:
            answer = await self._run(start_command(self.words, await self._socket()), CONNECT_SECONDS)
        except TimedOut as error:  # an old ssh keeps the output open, and is there nevertheless
            answer = Answer("ssh", -1, "", error.stderr)
        pid = await self._running()
        if not pid:
            reason = ssh_reason(answer.stderr)
            detail = f" ({last_line(answer.stderr)})" if answer.stderr.strip() else ""
            raise TunnelError(f"the login node of the tunnel: {reason.message}{detail}.", hint=reason.hint)
        self.started = True
        return pid

    async def _make(self, missing: Collection[Wanted]) -> None:
        """Tell the master all at once; where that fails, one by one, to know which it refuses."""
        answer = await self._ask("forward", *missing)
        if answer.code == 0:
            self.made |= set(missing)
            return
        turns = asyncio.Semaphore(AT_A_TIME)

        async def make(forward: Wanted) -> None:
            async with turns:
                if (await self._ask("forward", forward)).code == 0:
                    self.made.add(forward)

        await asyncio.gather(*map(make, missing))

    async def _ask(self, request: str, *forwards: Wanted) -> Answer:
        try:
            command = control_command(self.words, await self._socket(), request, *forwards)
            return await self._run(command, COMMAND_SECONDS)
        except TimedOut as error:
            raise TunnelError(f"the ssh of the tunnel does not answer: {error.message}") from error

    async def _socket(self) -> str:
        """The path of the master's socket; raises TunnelError where ssh's configuration names none."""
        if not self._path:
            query = configuration_query(self.words)
            answer = await self._run(query, COMMAND_SECONDS)
            path = control_path(answer.stdout)
            if not path:
                detail = f": {last_line(answer.stderr).removesuffix('.')}." if answer.code else "."
                raise TunnelError(
                    f"ssh's configuration for {self.words[-1]} has no ControlPath{detail}",
                    hint="Use the file ssh/tunnel_ssh_config that `gpuspawner files --ssh` writes.",
                )
            path = f"{path}-{self.number}"
            if len(path.encode()) > PATH_BYTES:
                raise TunnelError(
                    f"the socket {path} of the tunnel's ssh has a path of more than {PATH_BYTES} bytes.",
                    hint="Use a shorter ControlPath.",
                )
            self._path = path
        return self._path

    async def _run(self, command: Sequence[str], seconds: float) -> Answer:
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
        try:
            return await run(command, name="ssh", environment=environment, timeout=seconds)
        except OSError as error:
            raise TunnelError(f"{command[0]} cannot be run: {error.strerror}.") from error


def _file_of(path: str) -> tuple[int, int]:
    """Inode number and time of change of a file: a file system may give the number to the next one."""
    try:
        status = os.stat(path)  # noqa: PTH116 - of a file in memory
    except OSError:
        return NO_FILE
    return status.st_ino, status.st_ctime_ns


async def _end_orphans(path: str, known: Collection[int]) -> None:
    """End masters whose socket at ``path`` was removed: they have their ports still, and nobody can tell them anything.

    ``known`` are those that were there; another one, of before a restart, is older than any that connects now.
    """
    for pid in await asyncio.to_thread(_masters_at, path):
        with suppress(OSError):
            process = Path(f"/proc/{pid}")
            if pid not in known and _age(process) < CONNECT_SECONDS:
                continue
            os.kill(
                pid, signal.SIGKILL
            )  # with another it would remove the socket of the next one, whose path is the same
            for _ in range(50):  # the next one needs its ports
                process.joinpath("exe").readlink()
                await asyncio.sleep(0.02)


def _masters_at(path: str) -> list[int]:
    """The processes of this account that are an ssh with this socket."""
    option, own, found = f"ControlPath={path}".encode(), os.geteuid(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if process.stat().st_uid == own and option in process.joinpath("cmdline").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def _age(process: Path) -> float:
    """Seconds since this process of ``/proc`` began (proc_pid_stat(5), field 22); raises OSError."""
    began = int(process.joinpath("stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")
