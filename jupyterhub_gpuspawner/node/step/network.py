"""What a rank must know of its node's network: the interface towards an address, InfiniBand, and a free port."""

from __future__ import annotations

import os
import random
import socket

_SIOCGIFADDR = 0x8915
_ARPHRD_INFINIBAND = "32"
_NET = "/sys/class/net"
PORTS = (20000, 32767)
"""Ports from which the master's is taken: below those that Linux gives to clients (ip_local_port_range, from 32768)."""


def interface_to(address: str) -> str | None:
    """The interface by which this node reaches ``address`` (IPv4), or that has it; None if it is not known.

    No packet is sent: connecting a UDP socket asks the kernel for the route.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            own = probe.getsockname()[0]
            return next((name for name in sorted(os.listdir(_NET)) if _address_of(probe, name) == own), None)
    except (OSError, ValueError):
        return None


def _address_of(probe: socket.socket, interface: str) -> str | None:
    import fcntl

    try:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, interface.encode()[:15].ljust(40, b"\0"))
    except OSError:
        return None
    return socket.inet_ntoa(answer[20:24])


def has_infiniband() -> bool:
    """Whether this node has an InfiniBand interface, with an address or without."""
    try:
        return any(_kind(name) == _ARPHRD_INFINIBAND for name in os.listdir(_NET))
    except OSError:
        return False


def _kind(interface: str) -> str:
    try:
        with open(f"{_NET}/{interface}/type", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def free_port(*, here: bool) -> int:
    """A port for the master: free on this node, if that is the master's; else one at random.

    Another process may take it before the master does; then the run fails, and its user starts it again. Raises OSError
    if none is free.
    """
    ports = range(PORTS[0], PORTS[1] + 1)
    for port in random.sample(ports, len(ports)):
        if not here:
            return port
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {PORTS[0]} to {PORTS[1]} is free on this node")


def resolved(name: str) -> str:
    """The address of a node; the name itself if it cannot be resolved."""
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return name
    addresses = [str(entry[4][0]) for entry in sorted(entries, key=lambda entry: entry[0] != socket.AF_INET)]
    return next(iter(addresses), name)
