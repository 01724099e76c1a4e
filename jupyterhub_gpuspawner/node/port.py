"""Choose the server's port: one that is free now, on every address of this machine.

Another process can take the port before the server binds it, by chance or on purpose. The launcher cannot hold it open,
since then the server could not bind it either. So the hub learns the port only once the server listens on it
(:mod:`~jupyterhub_gpuspawner.node.report`). The choice is also written to a file: if the server fails at once,
and another process has its port, the batch script launches it a second time.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import time
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from os import urandom
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


# Find out who listens on a port of this machine, from the kernel's table of sockets and the processes' open files.
#
# The kernel tells address, user and inode of every listening socket of this process's network namespace, whichever
# user owns it: on request, for one port (sock_diag(7)), or in the files ``/proc/net/tcp`` and ``tcp6`` (proc(5)).
# Whenever these are read the kernel goes through all its sockets and their hash table, which takes milliseconds.
# ``/proc/PID/fd`` shows which process holds a socket, for one's own processes.

NET = "/proc/net"
PROC = "/proc"
NOBODY, OURS, OTHERS = "nobody", "ours", "taken"
PROCESS, USER, UNSEEN = "process", "user", "unseen"
_LISTEN = b" 0A "
"""The state of a listening socket; the only word of its line that can be this."""
_DUMP = struct.Struct("=IHHII")
"""``struct nlmsghdr``: length, type, flags, sequence number, port id (netlink(7))."""
_REQUEST = struct.Struct("=BBxxI")
"""The start of ``struct inet_diag_req_v2``: family, protocol, states; ``struct inet_diag_sockid`` follows."""
_SOCKET_ID = struct.Struct(">H46x")
"""``struct inet_diag_sockid``; only the source port is asked for."""
_ANSWER = struct.Struct("=Bxxx4x16s16x12x12xII")
"""``struct inet_diag_msg``: family, source address, user, inode."""
_SOCK_DIAG, _BY_FAMILY, _REQUEST_DUMP, _LISTENING, _MULTI_DONE, _ERROR = 4, 20, 0x301, 1 << 10, 3, 2
_ANSWER_TIME = 1.0
"""Seconds that the kernel may take for its answer, which is there at once."""
_OVERFLOW = 65534
"""The uid that a user namespace shows for users not mapped in it (``/proc/sys/kernel/overflowuid``)."""


@dataclass(frozen=True)
class Socket:
    """A listening socket; ``uid`` is the user of the process that created it."""

    address: str
    uid: int
    inode: int


@dataclass(frozen=True)
class PortOwner:
    """Whether the server listens on its port."""

    state: str = NOBODY
    """``nobody`` listens, the server does (``ours``), or the port is ``taken`` by another process."""
    seen: str = ""
    """How the server was recognised: its ``process`` holds the socket, or only its ``user`` matches."""
    addresses: tuple[str, ...] = ()
    """Addresses on which the server listens."""
    uid: int = -1
    """User of the other process if the port is taken."""


def owner_of_port(sockets: Collection[Socket], server: int, token: str) -> PortOwner:
    """Whether these sockets belong to the process ``server``, or to one that it started.

    Such a process is recognised by its pid or by ``token``. Raises OSError without ``/proc``.
    """
    if not sockets:
        return PortOwner()
    ours, others = holders({inode.inode for inode in sockets}, server, token)
    return classify(sockets, uid=os.geteuid(), ours=ours, others=others)


def classify(sockets: Iterable[Socket], *, uid: int, ours: Collection[int], others: Collection[int]) -> PortOwner:
    """Decide whose the sockets are that listen on the server's port.

    ``ours`` are inodes held by the server's processes, ``others`` those held by other processes of ``uid``. For the
    rest no process can be seen, so the user decides. A single foreign socket means ``taken``: it may listen on the very
    address that the hub connects to.
    """
    addresses: list[str] = []
    owner = PROCESS
    for listener in sockets:
        if listener.inode in ours:
            addresses.append(listener.address)
        elif listener.uid == uid != _OVERFLOW and listener.inode not in others:
            addresses.append(listener.address)
            owner = USER
        else:
            return PortOwner(OTHERS, uid=listener.uid)
    return PortOwner(OURS, owner, tuple(dict.fromkeys(addresses))) if addresses else PortOwner()


def listening(port: int, net: str = "") -> list[Socket]:
    """The sockets that listen on ``port``, on any address; raises OSError if the kernel's table cannot be read.

    ``net``, a folder with the tables as files, is read instead of asking the kernel. It is also read where the kernel
    does not answer, such as in a container that allows no such sockets.
    """
    if not net:
        try:
            return _sockets(port)
        except (OSError, AttributeError, struct.error):  # AttributeError: no such sockets on this system
            net = NET
    sockets = _table(f"{net}/tcp", port)
    if os.path.exists(f"{net}/tcp6"):  # missing on a kernel without IPv6
        sockets += _table(f"{net}/tcp6", port)
    return sockets


def _sockets(port: int) -> list[Socket]:
    """The kernel's answer for one port and both families, IPv4 first; raises OSError."""
    sockets: list[Socket] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.settimeout(_ANSWER_TIME)
        for family in (socket.AF_INET, socket.AF_INET6):
            body = _REQUEST.pack(family, socket.IPPROTO_TCP, _LISTENING) + _SOCKET_ID.pack(port)
            kernel.send(_DUMP.pack(_DUMP.size + len(body), _BY_FAMILY, _REQUEST_DUMP, 0, 0) + body)
            while not _read_answer(kernel.recv(1 << 16), sockets):
                pass
    return sockets


def _read_answer(answer: bytes, sockets: list[Socket]) -> bool:
    """Add the sockets of one datagram to ``sockets``; returns whether it was the last one."""
    at = 0
    while at + _DUMP.size <= len(answer):
        length, kind = _DUMP.unpack_from(answer, at)[:2]
        if kind == _MULTI_DONE:
            return True
        if kind == _ERROR or length < _DUMP.size:
            raise OSError("the kernel does not list its sockets")
        family, address, uid, inode = _ANSWER.unpack_from(answer, at + _DUMP.size)
        packed = address if family == socket.AF_INET6 else address[:4]
        sockets.append(Socket(socket.inet_ntop(family, packed), uid, inode))
        at += (length + 3) & ~3
    return False


def _table(path: str, port: int) -> list[Socket]:
    sockets = []
    wanted = b":%04X " % port
    with open(path, "rb") as file:
        next(file, None)
        for line in file:
            if _LISTEN not in line:
                break  # the kernel lists listening sockets first; many others may follow
            if wanted in line:  # splitting every line would take five times as long
                words = line.split()
                sockets.append(Socket(_address(words[1].split(b":")[0]), int(words[7]), int(words[9])))
    return list(dict.fromkeys(sockets))  # while others come and go, the kernel may list a socket twice


def _address(text: bytes) -> str:
    """Parse the kernel's hexadecimal address, in which each 32 bits are in this machine's byte order."""
    packed = bytes.fromhex(text.decode())
    if sys.byteorder == "little":
        packed = b"".join(packed[start : start + 4][::-1] for start in range(0, len(packed), 4))
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def holders(inodes: Collection[int], server: int, token: str, proc: str = PROC) -> tuple[set[int], set[int]]:
    """Which of these sockets the server's processes hold, and which only other processes hold, as far as visible.

    The server's processes are ``server`` itself, its descendants, and processes with its token in their environment,
    such as one that has detached from its parent. Their user does not matter: a container may map users.
    """
    names = {f"socket:[{inode}]": inode for inode in inodes}

    def held_by(pid: int) -> set[int]:
        return {names[name] for name in _open(f"{proc}/{pid}/fd") if name in names}

    ours = held_by(server)
    if len(ours) == len(names):  # all other processes of the node need not be looked at, which takes long
        return ours, set()
    others: set[int] = set()
    parent = lru_cache(maxsize=None)(partial(_parent, proc))
    for pid in _processes(proc):
        held = held_by(pid)
        if held:
            has_token = bool(token) and child.has_variable(pid, f"JUPYTERHUB_API_TOKEN={token}", proc)
            (ours if has_token or child.descends(pid, (server,), parent) else others).update(held)
    return ours, others - ours


def _processes(proc: str) -> list[int]:
    return [int(name) for name in os.listdir(proc) if name.isdigit()]


def _open(folder: str) -> list[str]:
    """The files that a process has open; none if it has ended or may not be examined."""
    inodes = []
    try:
        for name in os.listdir(folder):
            try:
                inodes.append(os.readlink(f"{folder}/{name}"))
            except OSError:  # closed in the meantime
                continue
    except OSError:
        return inodes
    return inodes


def _parent(proc: str, pid: int) -> int:
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


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
    try:
        return bool(listening(port))
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


def is_taken(folder: str) -> bool:
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
    for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
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
