"""Small asyncio functions that never lose a cancellation or a task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from traitlets.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Coroutine

_KEPT: set[asyncio.Task[Any]] = set()


_CONNECT = 2.0
"""Seconds for one try to connect."""
_LONGEST_PAUSE = 1.0


async def connected(host: str, port: int) -> None:
    """Return when something accepts connections there; tries forever, at first often and then once a second."""
    pause = 0.1
    while True:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT)
        except (OSError, asyncio.TimeoutError):
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        else:
            writer.close()
            return


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when the first of ``waits`` is done, or raise its exception; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for task in done:
        task.result()


def in_background(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` independently of the caller; its exception is logged."""
    task = asyncio.ensure_future(work)
    _KEPT.add(task)
    task.add_done_callback(_done)


def _done(task: asyncio.Task[Any]) -> None:
    _KEPT.discard(task)
    if not task.cancelled() and task.exception() is not None:
        get_logger().error("Work in the background failed", exc_info=task.exception())
