"""Find out who listens on a port of this machine, from the kernel's table of sockets and the processes' open files.

``/proc/net/tcp`` and ``tcp6`` (proc(5), of this process's network namespace) give address, user and inode of every
listening socket, whichever user owns it. ``/proc/PID/fd`` shows which process holds a socket, for one's own processes.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

NET = "/proc/net"
PROC = "/proc"
NOBODY, OURS, TAKEN = "nobody", "ours", "taken"
PROCESS, USER, UNSEEN = "process", "user", "unseen"
_LISTEN = b"0A"
_OVERFLOW = 65534
"""The uid that a user namespace shows for users not mapped in it (``/proc/sys/kernel/overflowuid``)."""


@dataclass(frozen=True)
class Socket:
    """A listening socket; ``uid`` is the user of the process that created it."""

    address: str
    uid: int
    inode: int


@dataclass(frozen=True)
class Look:
    """Whether the server listens on its port."""

    state: str = NOBODY
    """``nobody`` listens, the server does (``ours``), or the port is ``taken`` by another process."""
    seen: str = ""
    """How the server was recognised: its ``process`` holds the socket, or only its ``user`` matches."""
    addresses: tuple[str, ...] = ()
    """Addresses on which the server listens."""
    uid: int = -1
    """User of the other process if the port is taken."""


def look(port: int, server: int, token: str) -> Look:
    """Whether process ``server``, or one that it started, listens on ``port``; raises OSError without ``/proc``."""
    return whose(listening(port), server, token)


def whose(found: Collection[Socket], server: int, token: str) -> Look:
    """Whether these sockets belong to the server, recognised by pid or ``token``; raises OSError without ``/proc``."""
    if not found:
        return Look()
    ours, others = holders({each.inode for each in found}, server, token)
    return judge(found, uid=os.geteuid(), ours=ours, others=others)


def judge(found: Iterable[Socket], *, uid: int, ours: Collection[int], others: Collection[int]) -> Look:
    """Decide whose the sockets are that listen on the server's port.

    ``ours`` are inodes held by the server's processes, ``others`` those held by other processes of ``uid``. For the
    rest no process can be seen, so the user decides. A single foreign socket means ``taken``: it may listen on the very
    address that the hub connects to.
    """
    addresses: list[str] = []
    seen = PROCESS
    for each in found:
        if each.inode in ours:
            addresses.append(each.address)
        elif each.uid == uid != _OVERFLOW and each.inode not in others:
            addresses.append(each.address)
            seen = USER
        else:
            return Look(TAKEN, uid=each.uid)
    return Look(OURS, seen, tuple(dict.fromkeys(addresses))) if addresses else Look()


def listening(port: int, net: str = NET) -> list[Socket]:
    """The sockets that listen on ``port``, on any address; raises OSError if the kernel's table cannot be read."""
    found = _table(f"{net}/tcp", port)
    if os.path.exists(f"{net}/tcp6"):  # missing on a kernel without IPv6
        found += _table(f"{net}/tcp6", port)
    return found


def _table(path: str, port: int) -> list[Socket]:
    found = []
    wanted = b":%04X" % port
    with open(path, "rb") as file:
        next(file, None)
        for line in file:
            words = line.split()
            if words[3] != _LISTEN:
                break  # the kernel lists listening sockets first; many others may follow
            if words[1].endswith(wanted):
                found.append(Socket(_address(words[1].split(b":")[0]), int(words[7]), int(words[9])))
    return found


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
    ours: set[int] = set()
    others: set[int] = set()
    parents: dict[int, int] = {}
    for pid in _processes(proc):
        held = {names[name] for name in _open(f"{proc}/{pid}/fd") if name in names}
        if held:
            own = _descends(pid, server, parents, proc) or _has(pid, token, proc)
            (ours if own else others).update(held)
    return ours, others - ours


def _processes(proc: str) -> list[int]:
    return [int(name) for name in os.listdir(proc) if name.isdigit()]


def _open(folder: str) -> list[str]:
    """The files that a process has open; none if it has ended or may not be examined."""
    found = []
    try:
        for name in os.listdir(folder):
            try:
                found.append(os.readlink(f"{folder}/{name}"))
            except OSError:  # closed in the meantime
                continue
    except OSError:
        return found
    return found


def _descends(pid: int, server: int, parents: dict[int, int], proc: str) -> bool:
    while pid > 1 and pid != server:
        if pid not in parents:
            parents[pid] = _parent(pid, proc)
        pid = parents[pid]
    return pid == server


def _parent(pid: int, proc: str) -> int:
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _has(pid: int, token: str, proc: str) -> bool:
    if not token:
        return False
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            return b"\0JUPYTERHUB_API_TOKEN=" + token.encode() + b"\0" in b"\0" + file.read()
    except OSError:
        return False
