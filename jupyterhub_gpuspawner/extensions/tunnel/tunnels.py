"""The tunnels of a hub: which connection carries which server, and that each of them is kept up.

A port is closed, and used again, when no route of the proxy leads there. A connection that ends takes its forwards
with it: each of their servers gets another port, and meanwhile nobody else can listen at the old one (:mod:`.ports`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

from traitlets.log import get_logger

from jupyterhub_gpuspawner.extensions.tunnel.master import Master
from jupyterhub_gpuspawner.extensions.tunnel.ports import Ports, TunnelError
from jupyterhub_gpuspawner.extensions.tunnel.ssh import LOOPBACK, Forward, Reverse
from jupyterhub_gpuspawner.tasks import in_background
from jupyterhub_gpuspawner.words import counted

KEEP_SECONDS = 2.0
"""Seconds between two looks at a connection."""
TRIES = 20
"""Ports that are tried for one server: other programs may have some."""
SAY_SECONDS = 3600.0
"""Seconds until a fault that lasts, or comes again, is said again."""
ROUTE_SECONDS = 5.0
"""Seconds until it is looked again whether a route leads to a port that is to be closed."""

Routes = Callable[[], Awaitable[Mapping[str, Any]]]
"""Asks the proxy for its routes: JupyterHub's ``get_all_routes``."""
Lost = Callable[[], object]
"""Is told that what led to a server from its port is gone."""


class Tunnels:
    """Of one hub."""

    def __init__(self) -> None:
        self._masters: dict[tuple[tuple[str, ...], int], Master] = {}
        self._lost: dict[Forward, Lost] = {}
        self._refused: set[Reverse] = set()
        """Those of which was said that the login node refuses them."""
        self._said: dict[tuple[tuple[str, ...], str], float] = {}
        """When each fault of a login node was said, by its ssh and its sentence."""
        self._keeping: asyncio.Task[None] | None = None
        self._unheld = False
        """It was said that nothing holds ports while the hub is restarted."""
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
            with self.ports.opened(forward.local):
                made = await self._open(master, forward)
            if made:
                self._lost[forward] = lost
                await self._keep(master, forward.local)
                return forward
            in_background(self._give_back_later(forward.local))
        raise TunnelError(
            f"the hub's end of a forward to {host} could not be opened: {TRIES} ports of tunnel_ports belong to other "
            "programs.",
            hint="See `ss -ltnp` on the hub's machine.",
        )

    async def _open(self, master: Master, forward: Forward) -> bool:
        master.wanted.add(forward)
        try:
            await master.keep_up()
        except BaseException:
            master.wanted.discard(forward)
            in_background(self._end(master, forward))
            raise
        if forward not in master.made:
            master.wanted.discard(forward)
            return False
        return True

    async def _keep(self, master: Master, port: int) -> None:
        """Have the port held while the hub is restarted, too."""
        try:
            await self.ports.keep(port, await master.holder())
        except OSError as error:
            if not self._unheld:
                get_logger().warning("Ports of the tunnel are not held while the hub is restarted: %s", error)
            self._unheld = True

    def adopt(self, master: Master, forward: Forward, pid: int, lost: Lost) -> bool:
        """Go on with a forward of before a restart of the hub, by the master with this process id.

        False if its port leads to another server.
        """
        if not self.ports.take_again(forward.local):
            return False
        master.expect(forward, pid)
        self._lost[forward] = lost
        return True

    async def leads(self, master: Master, forward: Forward) -> bool:
        """Whether a forward of before a restart is there, and its port is held; raises TunnelError."""
        await master.keep_up()
        return forward in master.made and await self.ports.held_again(forward.local, await master.holder())

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
        await self._give_back(master, forward.local)

    async def _give_back(self, master: Master, port: int) -> None:
        with suppress(TunnelError):
            await self.ports.drop(port, await master.holder())
        self.ports.give_back(port)

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
        self.ports.close()

    async def _give_back_later(self, port: int) -> None:
        await asyncio.sleep(60)
        self.ports.give_back(port)

    async def _keep_up(self) -> None:
        while True:
            await asyncio.gather(*map(self._check, list(self._masters.values())))
            await asyncio.sleep(KEEP_SECONDS)

    async def _check(self, master: Master) -> None:
        if not (master.wanted or master.gone):
            return
        before = master.fault
        try:
            await master.keep_up()
        except TunnelError as error:
            self._say_fault(master, error)
            return
        gone, master.gone = master.gone, set()
        if before is not None or gone:
            at = f"; {counted(len(gone), 'server')} will have another port" if gone else ""
            get_logger().info("The connection to %s is there again%s", master.words[-1], at)
        for forward in gone:
            if lost := self._lost.pop(forward, None):
                lost()
        self._refused -= master.made
        for back in master.wanted - master.made:
            if isinstance(back, Reverse):
                self._say_refused(back)

    def _say_fault(self, master: Master, fault: TunnelError) -> None:
        """Say each fault of a login node once an hour: two may alternate with every try (MaxStartups of sshd)."""
        key, now = (master.words, fault.message), time.monotonic()
        if now - self._said.get(key, -SAY_SECONDS) >= SAY_SECONDS:
            self._said[key] = now
            get_logger().warning("Servers behind %s are not reached now: %s", master.words[-1], fault)

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
