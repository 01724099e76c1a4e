"""A cap on the event streams of a start that one reader has open: beyond it the oldest ends, and says so.

Each stream costs the hub a connection and a task that wakes up every third of a second. A page whose stream has ended
so looks again from time to time, so that it works in any number of tabs.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jupyterhub.apihandlers.users import SpawnProgressAPIHandler
from tornado import web

from jupyterhub_gpuspawner.hub.pages.text import wait

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

LIMIT = 20
"""Streams that one reader has of one user's servers, at most."""


class OpenStreams:
    """The streams that are open, the oldest first, by who reads whose."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._open: dict[Hashable, list[asyncio.Event]] = {}

    @contextmanager
    def one(self, reader: Hashable) -> Iterator[asyncio.Event]:
        """One more stream while the block runs; its event is set when it has to end."""
        mine = asyncio.Event()
        streams = self._open.setdefault(reader, [])
        streams.append(mine)
        for oldest in streams[: -self.limit]:
            oldest.set()
        try:
            yield mine
        finally:
            streams.remove(mine)
            if not streams:
                self._open.pop(reader, None)


STREAMS = OpenStreams()


class ProgressStream(SpawnProgressAPIHandler):
    """``/hub/api/users/.../progress``: JupyterHub's own, with a cap."""

    async def get(self, user_name: str, server_name: str = "") -> None:
        """The events of a start; the last one has ``elsewhere`` where others are read instead."""
        reader: Any = self.current_user
        events = asyncio.ensure_future(super().get(user_name, server_name))
        with STREAMS.one((type(reader).__name__, getattr(reader, "name", ""), user_name)) as over:
            ends = asyncio.ensure_future(over.wait())
            await asyncio.wait({events, ends}, return_when=asyncio.FIRST_COMPLETED)
            ends.cancel()
        if events.done():
            await events
            return
        # not cancelled: JupyterHub's loop would leave its spawner's generator in the middle of a step
        events.add_done_callback(_retrieved)
        await self.send_event({"message": wait.ELSEWHERE.format(limit=STREAMS.limit), "elsewhere": True})

    async def send_event(self, event: dict[str, Any]) -> None:
        """Write an event; ends the loop that brings them where the stream has ended."""
        if self._finished:
            raise web.Finish
        await super().send_event(event)


def _retrieved(events: asyncio.Future[None]) -> None:
    """Let asyncio know that the end of a stream that nobody reads is of no interest."""
    if not events.cancelled():
        events.exception()
