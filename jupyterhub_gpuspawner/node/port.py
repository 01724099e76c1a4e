"""The server's port: free now, and unlikely to be taken before the server listens.

Between this choice and the server's own ``bind`` another process can take the port; a random start in the range
makes that rare. Held open it cannot be: the server would not get it either.
"""

from __future__ import annotations

import socket
from os import urandom
from typing import NamedTuple, Optional, Tuple


class Url(NamedTuple):
    """The parts of a URL that the launcher needs; ``host`` without brackets."""

    scheme: str
    host: str
    port: Optional[int]
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{'' if self.port is None else f':{self.port}'}{self.path}"


def parse_url(text: str) -> Url:
    """Scheme, host, port and path; raises ValueError. (``urllib.parse`` costs a tenth of the whole launch.)"""
    scheme, separator, rest = text.partition("://")
    authority, slash, path = rest.partition("/")
    host, bracket, tail = authority.rpartition("@")[2].partition("]")
    if bracket:
        host, colon, port = host.lstrip("["), tail[:1], tail[1:]
    else:
        host, colon, port = authority.rpartition("@")[2].partition(":")
    if not separator or not scheme or (port and not port.isdigit()):
        raise ValueError(f"{text!r} is no URL of the form scheme://host:port/path")
    return Url(scheme.lower(), host, int(port) if port else None, slash + path)


def pick(host: str, *, port_range: Optional[Tuple[int, int]], wish: int = 0) -> int:
    """A port that is free on ``host`` (empty: all addresses) now.

    From ``port_range`` (both ends included), beginning at a random one; without a range ``wish`` if it is free, else
    any. Raises OSError where the whole range is taken, or ``host`` is no address of this machine.
    """
    if port_range is None:
        if wish and _free(host, wish):
            return wish
        return _bound(host, 0)
    first, last = port_range
    count = last - first + 1
    start = int.from_bytes(urandom(4), "big")
    for step in range(count):
        port = first + (start + step) % count
        if _free(host, port):
            return port
    raise OSError(f"no port from {first} to {last} is free")


def _free(host: str, port: int) -> bool:
    try:
        return _bound(host, port) == port
    except PermissionError:
        return False
    except OSError as error:
        import errno

        if error.errno == errno.EADDRINUSE:
            return False
        raise


def _bound(host: str, port: int) -> int:
    """Bind, let go, tell the port."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.bind(address)
        return int(probe.getsockname()[1])
