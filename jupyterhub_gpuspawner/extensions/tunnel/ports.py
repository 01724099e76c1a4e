"""The ports of this machine at which forwards begin: who has which, and that nobody else listens there.

A port to which the proxy has a route is a danger when whatever listened there is gone: the next program that listens
gets the cookies of that server's user. So each port is *held*: a socket of the hub's is bound to it, which does not
listen. Without SO_REUSEADDR it lets no other program listen there, whoever runs it; connections are refused. Only for
as long as ssh takes to begin to listen it has that option. No route leads to the port then, and ssh fails if somebody
is quicker. A port at which ssh no longer listens is therefore never used again for its server: that gets another one.

The holder, a process of its own, has the sockets as well while the hub is restarted.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.extensions.tunnel.ssh import LOOPBACK
from jupyterhub_gpuspawner.slurm.messages import TimedOut, last_line
from jupyterhub_gpuspawner.slurm.process import run

START_SECONDS = 10.0
"""For the holder to begin."""
ANSWER_SECONDS = 2.0
"""For one answer of it, which takes less than a millisecond."""
HOLDER = Path(__file__).with_name("holder.py")


class TunnelError(GPUSpawnerError):
    """There is no connection to the login node, or no port for it; a later try may have one."""

    status_code = 503
    reason = "no_way"
    usual_for_user = "The hub has no connection to the nodes at the moment."


class NoPort(TunnelError):
    """All ports are taken; some of them may be given back soon."""


class Ports:
    """The ports of a range: one belongs to one server at most, and one that was given back is used again last."""

    def __init__(self, ports: Iterable[int]) -> None:
        self._free = deque(ports)
        self._all = frozenset(self._free)
        self._taken: dict[int, socket.socket | None] = {}
        """With the socket that holds it; None for one of before a restart that nothing holds."""

    @property
    def known(self) -> bool:
        """Whether it has any port."""
        return bool(self._all)

    def take(self) -> int:
        """A port that leads nowhere, held from now on; raises NoPort where all are taken."""
        for _ in range(len(self._free)):
            port = self._free.popleft()
            if port in self._taken:
                continue
            try:
                self._taken[port] = _hold(port)
            except OSError:  # another program listens there
                self._free.append(port)
            else:
                return port
        raise NoPort(
            f"all {len(self._all)} ports of tunnel_ports are taken, or other programs have them.",
            hint="Widen c.GPUSlurmSpawner.tunnel_ports, and see `ss -ltnp` on the hub's machine.",
        )

    def take_again(self, port: int) -> bool:
        """Take this one, which led to a server before a restart of the hub; False if it leads to another."""
        if port in self._taken:
            return False
        self._taken[port] = None
        return True

    def give_back(self, port: int) -> None:
        """It leads nowhere any more, and no route leads to it; one of another range is not used again."""
        if port in self._taken:
            held = self._taken.pop(port)
            if held is not None:
                held.close()
            if port in self._all and port not in self._free:
                self._free.append(port)

    def close(self) -> None:
        """The program ends; what the holder has stays held."""
        for held in self._taken.values():
            if held is not None:
                held.close()
        self._taken.clear()

    @contextmanager
    def opened(self, port: int) -> Iterator[None]:
        """ssh may begin to listen at a port that was taken; afterwards nobody else, nor ssh again."""
        held = self._taken[port]
        assert held is not None
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            yield
        finally:
            with suppress(OSError):  # closed meanwhile, as the program ends
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)

    async def keep(self, port: int, path: str) -> None:
        """Have the holder with the socket ``path`` hold this port as well, and all others of which it does not know.

        Starts it if there is none; raises OSError where that fails.
        """
        held = self._taken.get(port)
        if held is None:
            return
        try:
            await asyncio.to_thread(_ask, path, f"keep {port}", held)
        except (ConnectionRefusedError, FileNotFoundError):
            await _start_holder(path)
            for each, other in list(self._taken.items()):
                if other is not None:
                    await asyncio.to_thread(_ask, path, f"keep {each}", other)

    async def held_again(self, port: int, path: str) -> bool:
        """Whether this port, which was taken again, is held: by the holder, from which the hub gets its socket."""
        if port not in self._taken or self._taken[port] is not None:
            return port in self._taken
        try:
            held = await asyncio.to_thread(_ask, path, f"get {port}")
        except OSError:
            return False
        if held is not None and port not in self._taken:  # given back meanwhile
            held.close()
            return False
        self._taken[port] = held
        return held is not None

    async def drop(self, port: int, path: str) -> None:
        """Have the holder hold it no longer; for a port that is given back."""
        with suppress(OSError):  # there is none
            await asyncio.to_thread(_ask, path, f"drop {port}")


def _hold(port: int) -> socket.socket:
    """A socket that is bound to this port, and lets nobody listen there; raises OSError where somebody does."""
    held = socket.socket()
    try:
        # as for ssh: old connections of this port may be closing still
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((LOOPBACK, port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError:
        held.close()
        raise
    return held


def _ask(path: str, request: str, held: socket.socket | None = None) -> socket.socket | None:
    """What the holder with this socket answers: a socket, or none; raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as to_holder:
        to_holder.settimeout(ANSWER_SECONDS)
        to_holder.connect(path)
        socket.send_fds(to_holder, [request.encode()], [held.fileno()] if held is not None else [])
        answer, descriptors, *_ = socket.recv_fds(to_holder, 64, 1)
    if not answer:
        raise ConnectionRefusedError(f"{path} does not answer")
    return socket.socket(fileno=descriptors[0]) if descriptors else None


async def _start_holder(path: str) -> None:
    """Start a holder, which lives on when the hub ends; raises OSError."""
    command = (sys.executable, "-I", "-S", str(HOLDER), path)
    try:
        answer = await run(command, name="python", environment={"PATH": os.defpath}, timeout=START_SECONDS)
    except TimedOut as error:
        raise TimeoutError(f"{HOLDER} does not begin") from error
    if answer.code:
        raise OSError(f"nothing can listen at {path} ({last_line(answer.stderr)})")
