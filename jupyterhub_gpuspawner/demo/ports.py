"""Free ports of this host."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

from jupyterhub_gpuspawner.errors import GPUSpawnerError


def free_ports(count: int) -> list[int]:
    """Unused ports, below the range that the kernel uses for outgoing connections. Raises GPUSpawnerError."""
    with ExitStack() as stack:
        ports: list[int] = []
        for port in random.sample(range(20000, 32000), 2000):
            each = stack.enter_context(socket.socket())
            try:
                each.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise GPUSpawnerError(f"There are no {count} free ports from 20000 to 31999.")
