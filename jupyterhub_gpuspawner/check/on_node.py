"""What the job runs on the node: Python, the way to the hub, and a port that the hub's machine connects to.

Its source is part of the batch script: standard library only, Python 3.9. Each fact is one line of the job's log.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import sys
import time
from urllib.parse import urlsplit

MARK = "gpuspawner-check"
"""The first word of a line that is a fact."""
SECONDS = 5.0
"""Time limit of one connection."""


def say(fact: str, **values: object) -> None:
    """Write one fact to the job's log."""
    sys.stdout.write(f"{MARK} {fact} {json.dumps(values)}\n")
    sys.stdout.flush()


def ask_hub(url: str) -> dict[str, object]:
    """What answers at the hub's API, as the launcher would reach it: without a proxy."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    connection = http.client.HTTPConnection(host, parts.port or 80, timeout=SECONDS)
    if parts.scheme == "https":
        # a private CA is the launcher's concern; here it is whether there is a way
        context = ssl._create_unverified_context()  # noqa: S323, SLF001 - nothing secret is sent
        connection = http.client.HTTPSConnection(host, parts.port or 443, timeout=SECONDS, context=context)
    try:
        connection.request("GET", parts.path.rstrip("/") + "/")
        answer = connection.getresponse()
        text = answer.read(4096)
    except (OSError, http.client.HTTPException) as error:
        return {"reached": False, "why": str(error) or type(error).__name__}
    finally:
        connection.close()
    try:
        is_hub = "version" in json.loads(text)
    except (ValueError, TypeError):
        is_hub = False
    return {"reached": True, "status": answer.status, "hub": is_hub}


def listen(first: int, last: int) -> tuple[socket.socket | None, int]:
    """A socket that listens on a free port from ``first`` to ``last``, and how many were tried; 0 stands for any."""
    start = os.getpid() % (last - first + 1)
    for step in range(last - first + 1):
        door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            door.bind(("", first + (start + step) % (last - first + 1)))
            door.listen(1)
        except OSError:
            door.close()
            continue
        return door, step + 1
    return None, last - first + 1


def answer_once(door: socket.socket, word: str, seconds: float) -> bool:
    """Wait for a connection that sends ``word``, and send it back; False if none comes in time."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        door.settimeout(max(0.1, ends_at - time.monotonic()))
        try:
            visitor, _ = door.accept()
        except OSError:
            continue
        with visitor:
            visitor.settimeout(SECONDS)
            try:
                if visitor.recv(256).decode("ascii", "replace").strip() == word:
                    visitor.sendall(f"{word}\n".encode("ascii"))
                    return True
            except OSError:
                continue
    return False


def main(text: str) -> None:
    """Look at the node; ``text`` is a JSON object with hub, ports, word and seconds."""
    request = json.loads(text)
    say("python", version=sys.version.split()[0], node=socket.gethostname())
    arrived = os.environ.get("GPUSPAWNER_CHECK") == request["word"]
    say("environment", arrived=arrived, sbatch=sorted(name for name in os.environ if name.startswith("SBATCH_")))
    say("hub", **ask_hub(request["hub"]))
    first, last = request["ports"]
    door, tried = listen(first, last)
    if door is None:
        say("port", port=0, tried=tried)
        return
    say("port", port=door.getsockname()[1], tried=tried)
    say("back", reached=answer_once(door, request["word"], request["seconds"]))
    door.close()


if __name__ == "__main__":
    main(sys.argv[1])
