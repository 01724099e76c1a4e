"""Which ports of the hub's machine lead to a server. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from jupyterhub_gpuspawner.extensions.tunnel.master import TunnelError


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
