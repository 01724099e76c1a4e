"""The tunnels of a hub: which connection carries which server, and that each of them is kept up.

A port of the hub's machine that once led to a server is a danger as long as the proxy has a route to it: whoever
listens there next gets the cookies of that server's user. So a port is closed, and used again, when no route leads
there; a port that turns out to be another program's loses its route first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

from traitlets.log import get_logger

from jupyterhub_gpuspawner.extensions.tunnel.master import Master, TunnelError
from jupyterhub_gpuspawner.extensions.tunnel.ssh import LOOPBACK, Forward, Reverse
from jupyterhub_gpuspawner.tasks import in_background
from jupyterhub_gpuspawner.words import counted

KEEP_SECONDS = 2.0
"""Seconds between two looks at a connection."""
TRIES = 20
"""Ports that are tried for one server: other programs may have some."""
ROUTE_SECONDS = 5.0
"""Seconds until it is looked again whether a route leads to a port that is to be closed."""

Routes = Callable[[], Awaitable[Mapping[str, Any]]]
"""Asks the proxy for its routes: JupyterHub's ``get_all_routes``."""
Lost = Callable[[], object]
"""Is told that the port of a server is another program's."""


class Ports:
    """The ports of a range: one belongs to one server at most, and one that was given back is used again last."""

    def __init__(self, ports: Iterable[int]) -> None:
        self._free = deque(ports)
        self._all = frozenset(self._free)
        self._taken: set[int] = set()

    @property
    def known(self) -> bool:
        """Whether it has any port."""
        return bool(self._all)

    def take(self) -> int:
        """A port that leads nowhere; raises TunnelError where all are taken."""
        while self._free:
            port = self._free.popleft()
            if port not in self._taken:
                self._taken.add(port)
                return port
        raise TunnelError(
            f"all {len(self._all)} ports of tunnel_ports are taken, or other programs have them.",
            hint="Widen c.GPUSlurmSpawner.tunnel_ports, and see `ss -ltnp` on the hub's machine.",
        )

    def take_again(self, port: int) -> bool:
        """Take this one, which led to a server before a restart of the hub; False if it leads to another."""
        if port in self._taken:
            return False
        self._taken.add(port)
        return True

    def give_back(self, port: int) -> None:
        """It leads nowhere any more, and no route leads to it; one of another range is not used again."""
        if port in self._taken:
            self._taken.discard(port)
            if port in self._all and port not in self._free:
                self._free.append(port)


class Tunnels:
    """Of one hub."""

    def __init__(self) -> None:
        self._masters: dict[tuple[tuple[str, ...], int], Master] = {}
        self._lost: dict[Forward, Lost] = {}
        self._refused: set[Reverse] = set()
        """Those of which was said that the login node refuses them."""
        self._keeping: asyncio.Task[None] | None = None
        self.ports = Ports(())

    def use_ports(self, first: int, last: int) -> None:
        """Forward these ports from now on, unless some are known already."""
        if not self.ports.known:
            self.ports = Ports(range(first, last + 1))

    def master(self, words: Sequence[str], number: int) -> Master:
        """One of the connections that these words make, which is kept up from now on."""
        key = tuple(words), number
        if key not in self._masters:
            self._masters[key] = Master(*key)
        if self._keeping is None or self._keeping.done():
            with suppress(RuntimeError):  # a command that reads the state of servers has no event loop
                asyncio.get_running_loop()
                self._keeping = in_background(self._keep_up())
        return self._masters[key]

    def master_of(self, words: Sequence[str], user: str, connections: int) -> Master:
        """The connection that carries the servers of this user."""
        return self.master(words, 1 + crc32(user.encode()) % connections)

    async def open(self, master: Master, host: str, port: int, lost: Lost) -> Forward:
        """Have a port of this machine lead there, and return it; raises TunnelError."""
        for _ in range(TRIES):
            forward = Forward(self.ports.take(), host, port)
            if await self.open_again(master, forward, lost):
                return forward
            in_background(self._give_back_later(forward.local))
        raise TunnelError(
            f"the hub's end of a forward to {host} could not be opened: {TRIES} ports of tunnel_ports belong to other "
            "programs.",
            hint="See `ss -ltnp` on the hub's machine.",
        )

    async def open_again(self, master: Master, forward: Forward, lost: Lost) -> bool:
        """Have a port that was taken lead there; False if it belongs to another program. Raises TunnelError."""
        master.wanted.add(forward)
        self._lost[forward] = lost
        try:
            await master.keep_up()
        except BaseException:
            self._drop(master, forward)
            in_background(self._end(master, forward))
            raise
        if forward in master.made:
            return True
        self._drop(master, forward)
        return False

    def adopt(self, master: Master, forward: Forward, lost: Lost) -> bool:
        """Go on with a forward of before a restart of the hub; False if its port leads to another server."""
        if not self.ports.take_again(forward.local):
            return False
        master.wanted.add(forward)
        self._lost[forward] = lost
        return True

    async def close(self, master: Master, forward: Forward, routes: Routes) -> None:
        """End a forward once no route leads there; its port can then be another server's."""
        self._lost.pop(forward, None)
        while await _leads_to(forward.local, routes):  # noqa: ASYNC110 - the proxy has no event for it
            await asyncio.sleep(ROUTE_SECONDS)
        await self._end(master, forward)

    async def _end(self, master: Master, forward: Forward) -> None:
        try:
            await master.end(forward)
        except TunnelError as error:  # a master that does not answer is not one for long
            get_logger().warning("A forward to %s:%d was not closed: %s", forward.host, forward.port, error)
        self.ports.give_back(forward.local)

    def forsake(self, master: Master, forward: Forward) -> None:
        """The port is another program's: nothing of ours leads there, and it is not used for a while."""
        self._drop(master, forward)
        in_background(self._give_back_later(forward.local))

    def _drop(self, master: Master, forward: Forward) -> None:
        master.wanted.discard(forward)
        self._lost.pop(forward, None)

    async def end(self) -> None:
        """End the connections that were made here, and look after the others no longer."""
        await self.stop()
        for master in self._masters.values():
            if master.started:
                with suppress(TunnelError):
                    await master.close()

    async def stop(self) -> None:
        """Look after them no longer; what is forwarded stays."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})

    async def _give_back_later(self, port: int) -> None:
        await asyncio.sleep(60)
        self.ports.give_back(port)

    async def _keep_up(self) -> None:
        while True:
            await asyncio.gather(*map(self._check, list(self._masters.values())))
            await asyncio.sleep(KEEP_SECONDS)

    async def _check(self, master: Master) -> None:
        if not master.wanted:
            return
        before, pid = master.fault, master.pid
        try:
            await master.keep_up()
        except TunnelError as error:
            if before is None or before.message != error.message:
                get_logger().warning("Servers behind %s are not reached now: %s", master.words[-1], error)
            return
        if before is not None or pid not in (0, master.pid):
            get_logger().info("Made %s through %s again", counted(len(master.made), "forward"), master.words[-1])
        self._refused -= master.made
        for forward in master.wanted - master.made:
            if isinstance(forward, Reverse):
                self._say_refused(forward)
            elif forward in self._lost:
                self._lost[forward]()

    def _say_refused(self, back: Reverse) -> None:
        """Say once that nodes do not reach the hub."""
        if back not in self._refused:
            self._refused.add(back)
            get_logger().error(
                "The login node does not forward %s, port %d, to the hub, so no server can report: its sshd needs "
                "PermitListen and GatewayPorts clientspecified, and no other program may have that port.",
                *(back.listen, back.port),
            )


async def _leads_to(port: int, routes: Routes) -> bool:
    """Whether a route of the proxy leads to this port of the machine; True while the proxy does not answer."""
    try:
        targets = [str(route["target"]) for route in (await routes()).values()]
    except Exception:  # noqa: BLE001 - a proxy that is away may have routes when it is back
        return True
    return any((url := urlsplit(target)).port == port and url.hostname in (LOOPBACK, "localhost") for target in targets)


def reverse_of(url: str, hub_host: str, hub_port: int) -> Reverse:
    """The forward with which nodes reach the hub at this URL; a hub that listens on all addresses is at 127.0.0.1."""
    at = urlsplit(url)
    return Reverse(
        at.hostname or "", at.port or 0, hub_host if hub_host not in ("", "0.0.0.0", "::") else LOOPBACK, hub_port
    )
