"""Another user of the node: holds all but a few ports of a range, and takes these, too, while releasing others.

``python3 neighbour.py FIRST LAST SPARE MARK``, standard library only; runs until SIGTERM. It answers every
connection like a running server. At the end it prints a line of JSON: how many ports were held at first, how many were
taken later, how many requests came, and how many of them contained MARK, which stands for a user's cookie.
"""

from __future__ import annotations

import json
import random
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress

BODY = b'{"neighbour": true}'
ANSWER = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
TURN = 0.15
"""Seconds between taking two ports."""


def listening(port: int) -> socket.socket | None:
    """A socket on this port; None if it is in use."""
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind(("0.0.0.0", port))  # noqa: S104 - as a neighbour would
        door.listen(16)
    except OSError:
        door.close()
        return None
    door.setblocking(False)
    return door


def main(first: int, last: int, spare: int, mark: bytes) -> dict[str, int]:
    """Hold and take ports and answer requests until stopped; returns the counters."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ports = list(range(first, last + 1))
    random.shuffle(ports)
    held = {port: door for port in ports[spare:] if (door := listening(port)) is not None}
    count = {"held": len(held), "taken": 0, "asked": 0, "marked": 0}
    doors = selectors.DefaultSelector()
    for door in held.values():
        doors.register(door, selectors.EVENT_READ)
    turn = time.monotonic()
    try:
        while True:
            for key, _ in doors.select(0.02):
                with suppress(OSError):
                    answer(key.fileobj, count, mark)  # type: ignore[arg-type]
            if time.monotonic() > turn:
                turn = time.monotonic() + TURN
                port = random.choice([each for each in ports if each not in held])
                door = listening(port)
                if door is not None:
                    held[port] = door
                    doors.register(door, selectors.EVENT_READ)
                    count["taken"] += 1
                    let_go = random.choice([each for each in held if each != port])
                    doors.unregister(held[let_go])
                    held.pop(let_go).close()
    except SystemExit:
        return count


def answer(door: socket.socket, count: dict[str, int], mark: bytes) -> None:
    """Answer one request like a healthy server."""
    caller, _ = door.accept()
    with caller:
        caller.settimeout(0.5)
        said = caller.recv(65536)
        count["asked"] += bool(said)
        count["marked"] += mark in said
        caller.sendall(ANSWER)


if __name__ == "__main__":
    sys.stdout.write(
        json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode())) + "\n"
    )
