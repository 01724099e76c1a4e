"""Makes a start that a restart of the hub interrupted a pending start again.

JupyterHub's check after a restart expects servers that run. While it waits for one that is still starting, the page has
no progress, a stop answers 500, and other servers get no route; an exception from ``get_url`` ends the hub. So the rest
of the start becomes what JupyterHub can show and cancel: a pending spawn with its future.

It sets the underscored attributes that ``BaseHandler.spawn_single_user`` sets; JupyterHub offers no other way
(5.4 to 6.1).
"""
# ruff: noqa: SLF001 - see above

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.ending.failure import start_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from jupyterhub.spawner import Spawner

LOOK = 0.2
"""Seconds between two looks at what JupyterHub does meanwhile."""


def interrupted(known: Spawner, reported_port: int) -> bool:
    """Whether the restarted hub checks this server for the first time, and has not stored the port that it serves at.

    The stored address of a server that was still starting has a random port.
    """
    first = known._check_pending and known._spawn_future is None
    return bool(first and known.server and known.server.port != reported_port)


async def take_up(known: Spawner, rest: Coroutine[Any, Any, None]) -> int | None:
    """Run ``rest`` of the start as a pending spawn, and return the answer for the hub's check.

    ``known`` is the spawner that JupyterHub knows. The answer is None once the server is ready, and 1 if the start
    failed (the hub then stops the server, and its page says why) or a user has stopped it.
    """
    arrived = asyncio.Event()
    start = known._spawn_future = asyncio.ensure_future(_start(known, rest, arrived))
    known._spawn_pending = True
    start.add_done_callback(lambda _: _over(known))
    arrival = asyncio.ensure_future(arrived.wait())
    await asyncio.wait({start, arrival}, return_when=asyncio.FIRST_COMPLETED)
    arrival.cancel()
    if start.cancelled():
        await _until(lambda: known.server is None)  # whoever cancelled it stops the server, too
    return 1 if start.done() else None


async def _start(known: Spawner, rest: Coroutine[Any, Any, None], arrived: asyncio.Event) -> None:
    await rest
    arrived.set()
    await _until(lambda: not known._check_pending)
    if known.server is None:
        raise start_failed("The server was started, but did not answer the hub.", status_code=503, reason="timeout")
    # JupyterHub's own check of routes may be minutes away
    await known.user.settings["proxy"].add_user(known.user, known.name)


async def _until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - JupyterHub has no event for it
        await asyncio.sleep(LOOK)


def _over(known: Spawner) -> None:
    start = known._spawn_future
    known._spawn_pending = False
    if start.cancelled():
        known._check_pending = False  # so that Stop may go on
    if start.cancelled() or start.exception() is None:
        known._spawn_future = None
