"""The way to one server: a port of the hub's machine, kept in the spawner's state."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from traitlets.log import get_logger

from jupyterhub_gpuspawner.extensions.tunnel import words
from jupyterhub_gpuspawner.extensions.tunnel.master import Master
from jupyterhub_gpuspawner.extensions.tunnel.ports import NoPort, TunnelError
from jupyterhub_gpuspawner.extensions.tunnel.settings import TUNNEL, hub_url, port_numbers
from jupyterhub_gpuspawner.extensions.tunnel.ssh import LOOPBACK, Forward, is_host, tunnel_words
from jupyterhub_gpuspawner.extensions.tunnel.tunnels import Tunnels, reverse_of
from jupyterhub_gpuspawner.hub.extension import NOTHING, WithServer
from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name, proxy_of
from jupyterhub_gpuspawner.tasks import in_background, timeout

KEY = "tunnel"
AGAIN_SECONDS = 1.0
"""Seconds until it is tried again to forward."""
RESTORED_SECONDS = 8.0
"""After a restart the hub waits so long for the way to a running server; less than for the server itself."""
PROBE_SECONDS = 2.0


@dataclass(frozen=True)
class Way:
    """A forward, and which connection carries it."""

    words: tuple[str, ...]
    """The ssh that makes the connection."""
    number: int
    forward: Forward
    pid: int = 0
    """Of the connection's ssh that has made the forward."""

    def to_state(self) -> dict[str, Any]:
        """As it is stored."""
        at = self.forward
        forward = {"local": at.local, "host": at.host, "port": at.port}
        return {"ssh": list(self.words), "number": self.number, "pid": self.pid, **forward}


def stored_way(stored: object) -> Way | None:
    """A way as :meth:`Way.to_state` has it; None for anything else."""
    match stored:
        case {
            "ssh": [*ssh],
            "number": int(number),
            "local": int(local),
            "host": str(host),
            "port": int(port),
            **others,
        } if ssh and all(isinstance(word, str) for word in ssh) and is_host(host):
            pid = others.get("pid")
            return Way(tuple(ssh), number, Forward(local, host, port), pid if isinstance(pid, int) else 0)
    return None


class ServerTunnel(WithServer):
    """The way of one server; there is none where ``tunnel`` is empty."""

    def __init__(self, spawner: Any) -> None:
        super().__init__(spawner)
        self._tunnels: Tunnels = spawner.hub_state.of(Tunnels)
        self.way: Way | None = None
        self._fault = ""
        """Why there is no way yet, for administrators."""
        self._tries = False
        """It leads to a job that is only tried."""

    # --- what the hub asks -----------------------------------------------------------------------

    def carries(self) -> bool:
        """Where there is a tunnel."""
        return bool(self.spawner.tunnel)

    async def lead_back(self) -> None:
        """Make the connection as a hub does when it begins."""
        self._tries = True
        if words_of := tunnel_words(self.spawner.tunnel, where=TUNNEL):
            master = self._tunnels.master(words_of, 1)
            if self.spawner.tunnel_to_hub:
                hub = self.spawner.hub
                master.wanted.add(reverse_of(hub_url(self.spawner), hub.ip, hub.port))
            with suppress(TunnelError):  # which a check of its own says
                await master.keep_up()

    async def leave(self) -> None:
        """Close its port, and where it has tried, all connections that this program has made."""
        way, self.way = self.way, None
        if way is not None:
            await self._tunnels.close(self._tunnels.master(way.words, way.number), way.forward, no_routes)
        if self._tries:
            await self._tunnels.end()

    async def reach(self, host: str, port: int) -> tuple[str, int] | None:
        """Forward a port of this machine to the server; tries again until that works."""
        ssh = tunnel_words(self.spawner.tunnel, where=TUNNEL) or (self.way.words if self.way is not None else ())
        if not ssh:
            return None
        host = host or (self.way.forward.host if self.way is not None else "")
        while True:
            try:
                self._check(host, port)
                return await self._reach(ssh, host, port)
            except TunnelError as error:
                if str(error) != self._fault:
                    get_logger().warning("The server of %s is not reached: %s", log_name(self.spawner), error)
                self._fault = str(error)
                self.spawner.watch.notify()
            await asyncio.sleep(AGAIN_SECONDS)

    def awaits(self) -> str:
        """That there is no connection to the login node, or none by which the job could report."""
        return words.MISSING if self._fault or self._is_cut_off else ""

    @property
    def _is_cut_off(self) -> bool:
        """Whether the connection by which jobs report is known to be gone, and this one's has not reported."""
        if self.way is not None or not self.spawner.tunnel_to_hub:
            return False
        ssh = tunnel_words(self.spawner.tunnel, where=TUNNEL)
        return bool(ssh) and self._tunnels.master(ssh, 1).fault is not None

    async def unreached(self) -> str:
        """Why there is no way, or what is behind it."""
        if self._fault or self.way is None:
            return self._fault
        at = self.way.forward
        if not await closes_at_once(at.local):
            return ""
        return (
            f"The login node closes each connection to {at.host}, port {at.port}: its sshd does not allow it "
            "(PermitOpen; its log says `request was denied`), it has no route there, or nothing listens there."
        )

    async def reached_again(self) -> bool:
        """Whether the login node forwards to the server again; if not, that is tried further."""
        if self.way is None:
            return True
        try:
            async with timeout(RESTORED_SECONDS):
                if await self._tunnels.leads(self._master, self.way.forward):
                    return True
            await self._move()
        except (TunnelError, asyncio.TimeoutError):
            return False
        except Exception:  # noqa: BLE001 - JupyterHub would stop the server
            get_logger().exception("The way to the server of %s is not there again", log_name(self.spawner))
            return False
        return True

    @property
    def is_interrupted(self) -> bool:
        """Whether the connection that carries the running server is known to be gone."""
        return self.way is not None and self._master.fault is not None

    # --- the state -------------------------------------------------------------------------------

    def to_state(self) -> Mapping[str, Any]:
        """The way, which a restarted hub goes on with."""
        return {KEY: self.way.to_state()} if self.way is not None else NOTHING

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on with it; a port that another server has is not taken."""
        way = stored_way(state.get(KEY))
        if way is None:
            return
        self._use_ports()
        if self._tunnels.adopt(self._tunnels.master(way.words, way.number), way.forward, way.pid, self._lost):
            self.way = way
            self.spawner.report.entrance = LOOPBACK, way.forward.local
        else:
            get_logger().error("Port %d leads to two servers: not to %s", way.forward.local, log_name(self.spawner))

    def forget(self) -> None:
        """The server has ended: its port is closed when the proxy no longer leads there."""
        self._retire()
        self._fault = ""

    # --- the forward -----------------------------------------------------------------------------

    @property
    def _master(self) -> Master:
        assert self.way is not None
        return self._tunnels.master(self.way.words, self.way.number)

    def _check(self, host: str, port: int) -> None:
        """Raise TunnelError for what is no server's place: the port is what the job has reported."""
        first, last = port_numbers(self.spawner.port_range)
        if not is_host(host):
            raise TunnelError(f"{host!r} is no host to which a tunnel can lead.")
        if first and not first <= port <= last:
            raise TunnelError(f"port {port}, which the job has reported, is not in port_range.")

    def _use_ports(self) -> None:
        self._tunnels.use_ports(*port_numbers(self.spawner.tunnel_ports))

    async def _reach(self, ssh: tuple[str, ...], host: str, port: int) -> tuple[str, int]:
        if await self._still_leads(host, port):
            assert self.way is not None
            entrance = LOOPBACK, self.way.forward.local
        else:
            entrance = await self._open(ssh, host, port)
        self._fault = ""
        self.spawner.watch.notify()
        return entrance

    async def _still_leads(self, host: str, port: int) -> bool:
        """Whether the way that there is leads to this place; raises TunnelError."""
        if self.way is None or (self.way.forward.host, self.way.forward.port) != (host, port):
            return False
        await self._master.keep_up()
        return self.way is not None and self.way.forward in self._master.made

    async def _open(self, ssh: tuple[str, ...], host: str, port: int) -> tuple[str, int]:
        """Have another port lead there, and return where it is; raises TunnelError."""
        self._use_ports()
        master = self._tunnels.master_of(ssh, self.spawner.user.name, self.spawner.tunnel_connections)
        try:
            forward = await self._tunnels.open(master, host, port, self._lost)
        except NoPort:
            if self.way is not None and self.way.forward not in self._master.wanted:
                self._retire()  # its port may be the only one, once no route leads there
            raise
        self._retire()
        self.way = Way(master.words, master.number, forward, master.made_by(forward))
        return LOOPBACK, forward.local

    def _retire(self) -> None:
        """Close the port of the last way, once no route leads there."""
        way, self.way = self.way, None
        if way is not None:
            master = self._tunnels.master(way.words, way.number)
            in_background(self._tunnels.close(master, way.forward, proxy_of(self.spawner).get_all_routes))

    def _lost(self) -> None:
        """The connection that led to the server has ended: another port leads there, by the next one."""
        if self.way is not None:
            in_background(self.spawner.report.reroute(self.spawner.report.port))

    async def _move(self) -> None:
        """Lead to a server that is there since before a restart of the hub from another port; the route goes first."""
        way, spawner = self.way, self.spawner
        assert way is not None
        await proxy_of(spawner).delete_user(spawner.user, spawner.name)
        entrance = await self._open(way.words, way.forward.host, way.forward.port)
        spawner.report.entrance, spawner.server.port = entrance, entrance[1]


async def no_routes() -> Mapping[str, Any]:
    """Of a program without a proxy."""
    return NOTHING


async def closes_at_once(port: int) -> bool:
    """Whether the hub's end of a forward is closed as soon as it is opened: ssh reports no fault in another way."""
    try:
        async with timeout(PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            try:
                return await reader.read(1) == b""
            finally:
                writer.close()
    except asyncio.TimeoutError:
        return False
    except OSError:
        return True
