"""Who listens at a port of this machine: the kernel's table of sockets, and the processes that hold them.

``/proc/net/tcp`` and ``tcp6`` (proc(5), of this process's network namespace) tell address, user and inode of every
listening socket, of whatever user. Which process holds a socket is told by ``/proc/PID/fd``, for one's own processes.
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
"""The user that a user namespace shows for those whom it does not know (``/proc/sys/kernel/overflowuid``)."""


@dataclass(frozen=True)
class Socket:
    """A listening socket; ``uid`` is that of the process that made it."""

    address: str
    uid: int
    inode: int


@dataclass(frozen=True)
class Look:
    """Whether the server listens at its port."""

    state: str = NOBODY
    """``nobody`` listens there, the server does (``ours``), or it is ``taken`` by another process."""
    seen: str = ""
    """How it is known that it is the server: its ``process`` holds the socket, or its ``user`` does."""
    addresses: tuple[str, ...] = ()
    """On which the server listens."""
    uid: int = -1
    """Whose it is where it is taken."""


def look(port: int, server: int, token: str) -> Look:
    """Whether process ``server``, or one that it has started, listens at ``port``; raises OSError without ``/proc``."""
    return whose(listening(port), server, token)


def whose(found: Collection[Socket], server: int, token: str) -> Look:
    """Whether these sockets are the server's, which has this ``token``; raises OSError without ``/proc``."""
    if not found:
        return Look()
    ours, others = holders({each.inode for each in found}, server, token)
    return judge(found, uid=os.geteuid(), ours=ours, others=others)


def judge(found: Iterable[Socket], *, uid: int, ours: Collection[int], others: Collection[int]) -> Look:
    """The verdict on the sockets that listen at the server's port.

    ``ours`` are inodes that the server's processes hold, ``others`` those of other processes of ``uid``; of the rest no
    process can be seen, and the user decides. One socket of somebody else's is enough for ``taken``: it may listen on
    the very address by which the hub comes.
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
    """The sockets that listen at ``port``, on any address; raises OSError where the kernel's table cannot be read."""
    found = _table(f"{net}/tcp", port)
    if os.path.exists(f"{net}/tcp6"):  # not with a kernel without IPv6
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
                break  # the kernel lists those that listen first; there may be many others
            if words[1].endswith(wanted):
                found.append(Socket(_address(words[1].split(b":")[0]), int(words[7]), int(words[9])))
    return found


def _address(text: bytes) -> str:
    """From the kernel's hexadecimal, each 32 bits of it in this machine's order of bytes."""
    packed = bytes.fromhex(text.decode())
    if sys.byteorder == "little":
        packed = b"".join(packed[start : start + 4][::-1] for start in range(0, len(packed), 4))
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def holders(inodes: Collection[int], server: int, token: str, proc: str = PROC) -> tuple[set[int], set[int]]:
    """Which of these sockets the server's processes hold, and which only other processes that can be looked into.

    The server's are ``server`` itself, what descends from it, and what has its token in its environment, such as a
    process that has left its parent. They are the server's whatever their user: a container may map users.
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
    """What a process has open; nothing where that is not for us to see, or it has ended."""
    found = []
    try:
        for name in os.listdir(folder):
            try:
                found.append(os.readlink(f"{folder}/{name}"))
            except OSError:  # closed meanwhile
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
