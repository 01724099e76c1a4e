"""Choose the server's port: one that is free now, on every address of this machine.

Another process can take the port before the server binds it, by chance or on purpose. The launcher cannot hold it open,
since then the server could not bind it either. So the hub learns the port only once the server listens on it
(:mod:`~jupyterhub_gpuspawner.node.report.retry`). The choice is also written to a file: if the server fails at once,
and another process has its port, the batch script launches it a second time.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from dataclasses import dataclass, replace
from os import urandom

ATTEMPTS = 120.0
"""Seconds after the launch within which a failure of the server may be due to its port."""
_TRIES = 10
"""Tries to get a port on which nobody listens on another address."""


@dataclass(frozen=True)
class Url:
    """The parts of a URL that the launcher needs; ``host`` without brackets."""

    scheme: str
    host: str
    port: int | None
    path: str

    @property
    def authority(self) -> str:
        """``host:port``, an IPv6 address in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def parse_url(text: str) -> Url:
    """Split a URL into scheme, host, port and path; raises ValueError."""
    scheme, separator, rest = text.partition("://")
    authority, slash, path = rest.partition("/")
    host_port = authority.rpartition("@")[2]
    if host_port.startswith("["):
        host, _, tail = host_port[1:].partition("]")
        port = tail[1:]
    else:
        host, _, port = host_port.partition(":")
    if not separator or not scheme or (port and not (port.isascii() and port.isdigit())):
        raise ValueError(f"{text!r} is not a URL of the form scheme://host:port/path")
    return Url(scheme.lower(), host, int(port) if port else None, slash + path)


def door(service_url: str, port_range: tuple[int, int] | None) -> tuple[int, str | None, list[str]]:
    """A free port on the host of ``JUPYTERHUB_SERVICE_URL``, that URL with the port in it, and problems.

    A port that the hub chose is kept if it is free and in the range. The port is 0 if none can be had at all.
    """
    problems: list[str] = []
    url = Url("http", "", None, "/")
    try:
        url = parse_url(service_url) if service_url else url
    except ValueError as error:
        problems.append(f"JUPYTERHUB_SERVICE_URL: {error}")
        service_url = ""
    for host, ports in ((url.host, port_range), (url.host, None), ("", None)):
        try:
            number = pick(host, port_range=ports, wish=url.port or 0)
        except OSError as error:
            problems.append(f"No port on {host or 'any address'}: {error.strerror or error}.")
        else:
            return number, str(replace(url, port=number)) if service_url else None, problems
    return 0, None, problems


def pick(host: str, *, port_range: tuple[int, int] | None, wish: int = 0) -> int:
    """A port that is now free on ``host`` (empty: all addresses).

    It is taken from ``port_range`` (both ends included), starting at ``wish`` if that is in the range, or else at a
    random port. Without a range it is ``wish`` if that is free, or else any port. Raises OSError if the whole range is
    taken, or ``host`` is not an address of this machine.
    """
    if port_range is None:
        if wish and _free(host, wish):
            return wish
        for _ in range(_TRIES):
            port = _bound(host, 0)
            if not _heard(port):
                break
        return port
    first, last = port_range
    count = last - first + 1
    start = wish - first if first <= wish <= last else int.from_bytes(urandom(4), "big")
    for step in range(count):
        port = first + (start + step) % count
        if _free(host, port):
            return port
    raise OSError(f"no port from {first} to {last} is free")


def _free(host: str, port: int) -> bool:
    try:
        return _bound(host, port) == port and not _heard(port)
    except PermissionError:
        return False
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise


def _heard(port: int) -> bool:
    """Whether any process listens on the port, on any address; False if the kernel does not show that."""
    from jupyterhub_gpuspawner.node.report import listener

    try:
        return bool(listener.listening(port))
    except (OSError, ValueError, IndexError):
        return False


def _bound(host: str, port: int) -> int:
    """Bind a socket, close it, and return its port."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.bind(address)
        return int(probe.getsockname()[1])


def remember(folder: str, number: int) -> None:
    """Write the server's port to a file in the job's folder; a full disk is ignored."""
    try:
        with open(os.path.join(folder, "port"), "w", encoding="ascii", opener=_private) as file:
            file.write(str(number))
    except OSError:
        return


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def was_taken(folder: str) -> bool:
    """Whether another process has the port of a server that was launched a moment ago and has ended."""
    path = os.path.join(folder, "port")
    try:
        if time.time() - os.stat(path).st_mtime > ATTEMPTS:
            return False
    except OSError:
        return False
    number = remembered(folder)
    return number > 0 and (_heard(number) or _held(number) or answers(number))


def remembered(folder: str) -> int:
    """The port written to the job's folder; 0 if there is none."""
    try:
        with open(os.path.join(folder, "port"), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _held(port: int) -> bool:
    """Whether a process has bound the port, even if it does not listen on it."""
    for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - it does not listen
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore connections that have ended
                probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
    return False


def answers(port: int, service_url: str = "") -> bool:
    """Whether any process accepts a connection on this port of this machine."""
    hosts = ["127.0.0.1", "::1", os.uname().nodename]
    if "://" in service_url:
        hosts.append(service_url.partition("://")[2].partition("/")[0].rpartition(":")[0].strip("[]"))
    for host in hosts:
        try:
            socket.create_connection((host, port), timeout=1.0).close()
        except OSError:
            continue
        return True
    return False
