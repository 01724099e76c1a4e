"""Two small ways to wait that never lose a cancellation or a task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from traitlets.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Coroutine

_KEPT: set[asyncio.Task[Any]] = set()


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when the first of ``waits`` is done; the others are cancelled. What it raised is raised."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for task in done:
        task.result()


def in_background(work: Coroutine[Any, Any, None]) -> None:
    """Let ``work`` go on after its starter is gone; what it raises is logged."""
    task = asyncio.ensure_future(work)
    _KEPT.add(task)
    task.add_done_callback(_done)


def _done(task: asyncio.Task[Any]) -> None:
    _KEPT.discard(task)
    if not task.cancelled() and task.exception() is not None:
        get_logger().error("Work in the background failed", exc_info=task.exception())
