"""Detects the end of a server whose job Slurm does not show: the hub tries to connect to its port."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from jupyterhub_gpuspawner.hub.site.tasks import open_connection, timeout

REFUSALS = 3
"""Refused connections in a row after which the server counts as ended."""
_CONNECT = 2.0
"""Seconds for one try to connect."""


class ClosedPort:
    """Counts how often in a row the connection to a server's port was refused; one try for each poll of the hub.

    Only a refused connection counts: the node answers, and nothing listens. A node that does not answer, or a lost
    route, says nothing about the server.
    """

    def __init__(self) -> None:
        self._refused = 0

    async def look(self, host: str, port: int) -> bool:
        """Try to connect; return whether the last :data:`REFUSALS` tries in a row were refused."""
        try:
            async with timeout(_CONNECT):
                writer = await open_connection(host, port)
        except ConnectionRefusedError:
            self._refused += 1
        except (OSError, asyncio.TimeoutError):
            pass
        else:
            self._refused = 0
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        return self._refused >= REFUSALS
