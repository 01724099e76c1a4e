"""Chooses the address of a node at which the hub reaches a server: one on which the server listens.

At an address on which it does not listen, such as the IPv6 address of a server on IPv4 only, any user of the node may
listen at the same port.
"""

from __future__ import annotations

import socket
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.site.tasks import in_name_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Address = IPv4Address | IPv6Address


async def resolved(host: str) -> tuple[str, ...]:
    """The addresses of a host, in the resolver's order; empty if it cannot be resolved."""
    try:
        return (str(ip_address(host)),)
    except ValueError:
        pass
    try:
        found = await in_name_thread(partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM))
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(each[4][0]) for each in found))


def way(host: str, addresses: Sequence[str], listens: Iterable[str]) -> str | None:
    """The host or address for the hub to use.

    That is ``host`` if the server listens on all of its ``addresses``, else the first address on which it listens, and
    None if there is none. If ``addresses`` or ``listens`` is unknown, that is ``host``, too.
    """
    doors = [_plain(ip_address(each)) for each in listens]
    if not doors or not addresses:
        return host
    fitting = [each for each in addresses if any(_opens(door, _plain(ip_address(each))) for door in doors)]
    if not fitting and any(door == IPv6Address("::") for door in doors):  # which may accept IPv4, too
        return host
    if len(fitting) == len(addresses):
        return host
    return fitting[0] if fitting else None


def _plain(address: Address) -> Address:
    return getattr(address, "ipv4_mapped", None) or address


def _opens(door: Address, address: Address) -> bool:
    """Whether a server that listens on ``door`` is reached at ``address`` from another machine."""
    return door.version == address.version and (door.is_unspecified or not door.is_loopback or address.is_loopback)
