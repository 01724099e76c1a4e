"""Waiting that loses neither a cancellation nor a task."""

from __future__ import annotations

import asyncio

import pytest

from jupyterhub_gpuspawner.hub.waiting import first_of


async def test_the_first_wait_ends_it_and_the_others_are_cancelled() -> None:
    """Nothing waits on behind the back of whoever asked."""
    ended: list[str] = []

    async def wait(name: str, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            ended.append(f"{name} cancelled")
            raise
        ended.append(name)

    await first_of(wait("short", 0), wait("long", 60))
    await asyncio.sleep(0)

    assert ended == ["short", "long cancelled"]


async def test_a_cancelled_waiter_is_cancelled_and_its_waits_too() -> None:
    """CancelledError goes through."""
    started = asyncio.Event()
    ended: list[str] = []

    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("ended")

    task = asyncio.ensure_future(first_of(wait(), wait()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)

    assert ended == ["ended", "ended"]
