"""Makes a start that a restart of the hub interrupted a pending start again.

JupyterHub's check after a restart expects servers that run. While it waits for one that is still starting, the page has
no progress, a stop answers 500, and other servers get no route; an exception from ``get_url`` ends the hub. So the rest
of the start becomes what JupyterHub can show and cancel: a pending spawn with its future.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.ending.failure import start_failed
from jupyterhub_gpuspawner.hub.jupyterhub_compat import (
    begin_pending_start,
    end_pending_start,
    is_checked,
    is_first_check,
    proxy_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any


LOOK = 0.2
"""Seconds between two looks at what JupyterHub does meanwhile."""


def interrupted(spawner: Any, reported_port: int) -> bool:
    """Whether the restarted hub checks this server for the first time, and has not stored the port that it serves at.

    The stored address of a server that was still starting has a random port.
    """
    return bool(is_first_check(spawner) and spawner.server and spawner.server.port != reported_port)


async def take_up(spawner: Any, rest: Coroutine[Any, Any, None]) -> int | None:
    """Run ``rest`` of the start as a pending spawn, and return the answer for the hub's check.

    The answer is None once the server is ready, and 1 if the start
    failed (the hub then stops the server, and its page says why) or a user has stopped it.
    """
    arrived = asyncio.Event()
    start = asyncio.ensure_future(_start(spawner, rest, arrived))
    begin_pending_start(spawner, start)
    start.add_done_callback(lambda _: end_pending_start(spawner))
    arrival = asyncio.ensure_future(arrived.wait())
    await asyncio.wait({start, arrival}, return_when=asyncio.FIRST_COMPLETED)
    arrival.cancel()
    if start.cancelled():
        await _until(lambda: spawner.server is None)  # whoever cancelled it stops the server, too
    return 1 if start.done() else None


async def _start(spawner: Any, rest: Coroutine[Any, Any, None], arrived: asyncio.Event) -> None:
    await rest
    arrived.set()
    await _until(lambda: not is_checked(spawner))
    if spawner.server is None:
        raise start_failed("The server was started, but did not respond to the hub.", status_code=503, reason="timeout")
    # JupyterHub's own check of routes may be minutes away
    await proxy_of(spawner).add_user(spawner.user, spawner.name)


async def _until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - JupyterHub has no event for it
        await asyncio.sleep(LOOK)
