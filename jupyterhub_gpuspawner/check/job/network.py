"""The way between the hub's machine and the nodes: a stand-in for a hub that does not run, and a word sent to a job."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from jupyterhub_gpuspawner.check.hub.address import HubAddress

SECONDS = 5.0
"""Time limit of one connection."""
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 20\r\n\r\n"
    b'{"version": "check"}'
)


@asynccontextmanager
async def listening_hub(hub: HubAddress) -> AsyncIterator[bool]:
    """While this is open, something listens at the hub's address: the hub, or a stand-in that answers in its place.

    Yields False if neither does.
    """
    if await _connects(hub.host, urlsplit(hub.told).port or hub.port):
        yield True
        return
    try:
        server = await asyncio.start_server(_answer, hub.listens or None, hub.port)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        server.close()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 1.0)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.TimeoutError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
        writer.write(_ANSWER)
        await writer.drain()
    writer.close()


async def _connects(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), SECONDS)
    except (OSError, asyncio.TimeoutError):
        return False
    writer.close()
    return True


async def answers_with(word: str, host: str, port: int) -> str:
    """Send a word to a job's port; empty if it comes back, else why it does not."""
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), SECONDS)
    except asyncio.TimeoutError:
        return f"no answer within {SECONDS:g} s"
    except OSError as error:
        return error.strerror or str(error)
    try:
        writer.write(f"{word}\n".encode("ascii"))
        answer = await asyncio.wait_for(reader.readline(), SECONDS)
    except (OSError, asyncio.TimeoutError, ValueError):
        return "the connection was closed"
    finally:
        writer.close()
    return "" if answer.strip() == word.encode("ascii") else "another program answers there"
