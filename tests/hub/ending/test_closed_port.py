"""A server whose job Slurm does not show has ended when its port is closed at several looks in a row."""

from __future__ import annotations

import asyncio

from jupyterhub_gpuspawner.hub.ending.closed_port import REFUSALS, ClosedPort


async def listening(port: int = 0) -> asyncio.Server:
    """Something that listens."""
    return await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)


async def test_only_a_port_that_stays_closed_is_an_end() -> None:
    """An open port is none, nor one that was closed once; each successful connection resets the count."""
    server = await listening()
    port = server.sockets[0].getsockname()[1]
    looks = ClosedPort()
    assert [await looks.look("127.0.0.1", port) for _ in range(5)] == [False] * 5
    server.close()
    await server.wait_closed()
    assert [await looks.look("127.0.0.1", port) for _ in range(REFUSALS - 1)] == [False] * (REFUSALS - 1)
    server = await listening(port)
    assert await looks.look("127.0.0.1", port) is False
    server.close()
    await server.wait_closed()
    assert [await looks.look("127.0.0.1", port) for _ in range(REFUSALS)] == [False] * (REFUSALS - 1) + [True]


async def test_a_host_that_cannot_be_found_ends_nothing() -> None:
    """That says nothing about the server."""
    looks = ClosedPort()
    assert [await looks.look("no-such-host.invalid", 80) for _ in range(REFUSALS + 2)] == [False] * (REFUSALS + 2)
