"""Leave the objects of a started hub out of Python's garbage collections.

A full collection visits every object of the process and holds the event loop meanwhile: 0.2 seconds for the modules,
tables and handlers of a hub alone. Those live as long as the hub does, so they are set aside once, when it has started
(gc.freeze). What is made later is collected as before.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyterhub.app import JupyterHub

LOOK = 0.5
"""Seconds between two checks of whether the hub has started."""


def set_aside() -> None:
    """Collect what is garbage now, and leave all other objects out of later collections."""
    gc.collect()
    gc.freeze()


def register_garbage(app: JupyterHub) -> None:
    """Set the objects of the hub aside once it has started."""
    held: set[asyncio.Task[None]] = set()

    async def when_started() -> None:
        while app.http_server is None:  # noqa: ASYNC110 - JupyterHub has no event for it
            await asyncio.sleep(LOOK)
        set_aside()

    def begin(_change: object) -> None:
        if not held:
            held.add(asyncio.get_running_loop().create_task(when_started()))

    app.observe(begin, "handlers")
