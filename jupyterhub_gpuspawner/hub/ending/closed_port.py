"""Whether a server whose job Slurm does not show has ended: the hub looks at its port itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress

REFUSALS = 3
"""Looks in a row at which the port was closed."""
_CONNECT = 2.0
"""Seconds for one look."""


class ClosedPort:
    """Counts how often in a row nothing listened at a server's port; one look for each poll of the hub's.

    Only a refused connection counts: the node answers, and nothing listens there. A node that does not answer, or a
    route that is lost, says nothing of the server.
    """

    def __init__(self) -> None:
        self._refused = 0

    async def look(self, host: str, port: int) -> bool:
        """Look once; whether the port has been closed at :data:`REFUSALS` looks in a row."""
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT)
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
