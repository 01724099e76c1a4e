"""Holds ports of this machine for a hub that may be restarted: a program of its own, of the standard library alone.

``python holder.py SOCKET`` answers one request for each connection to the socket, which only its own account can
connect to: ``keep PORT`` with a socket that is bound to this port, ``get PORT``, which answers with it, and ``drop
PORT``. It ends when it has held nothing for a while, or when its socket was removed.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress

LOOK_SECONDS = 30.0
"""Between two looks at whether it is still needed."""
REQUEST_SECONDS = 1.0


def serve(path: str) -> None:
    """Listen, and go on in the background until no port has been held for a while."""
    os.umask(0o077)
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - pathlib would triple the time that it takes to begin
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen(64)
        listening.settimeout(LOOK_SECONDS)
        own = os.stat(path).st_ino  # noqa: PTH116 - as above
        if os.fork():
            os._exit(0)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nothing, descriptor)
        held: dict[bytes, socket.socket] = {}
        while True:
            try:
                client, _ = listening.accept()
            except TimeoutError:
                if not held or not _is_own(path, own):
                    return
                continue
            with client, suppress(OSError, ValueError):
                client.settimeout(REQUEST_SECONDS)
                _answer(client, held)


def _is_own(path: str, inode: int) -> bool:
    try:
        return os.stat(path).st_ino == inode  # noqa: PTH116 - as above
    except OSError:
        return False


def _answer(client: socket.socket, held: dict[bytes, socket.socket]) -> None:
    request, descriptors, *_ = socket.recv_fds(client, 64, 1)
    sent = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    word, port = request.split()
    if word == b"keep" and sent:
        held[port] = sent[0]
    elif word == b"drop" and port in held:
        del held[port]
    given = [held[port].fileno()] if word == b"get" and port in held else []
    socket.send_fds(client, [b"done"], given)


if __name__ == "__main__":
    serve(sys.argv[1])
