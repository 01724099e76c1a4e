"""The asyncio functions lose neither a cancellation nor a task."""

from __future__ import annotations

import asyncio
import socket

import pytest

from jupyterhub_gpuspawner.hub.site.tasks import connected, first_of


async def test_the_first_wait_ends_it_and_the_others_are_cancelled() -> None:
    """No task is left running."""
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
    """CancelledError is raised."""
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


async def test_a_server_that_begins_to_listen_is_noticed() -> None:
    """Refused connections are tried again until one is accepted."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        host, port = server.getsockname()
        waiting = asyncio.ensure_future(connected(host, port))
        await asyncio.sleep(0.2)

        assert not waiting.done()

        server.listen()
        await asyncio.wait_for(waiting, 5)
