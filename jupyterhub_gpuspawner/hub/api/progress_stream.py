"""JupyterHub's progress stream, with a limit on the streams that one reader has open.

Each stream costs the hub a connection and some KiB of memory. Beyond the limit the oldest stream ends with an event
that says so; its page then polls, so that it works in any number of tabs.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jupyterhub.apihandlers.users import SpawnProgressAPIHandler
from tornado import web

from jupyterhub_gpuspawner.hub.text import wait

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

LIMIT = 20
"""Streams of one user's servers that one reader may have open."""


class OpenStreams:
    """The open streams by reader, the oldest first."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._open: dict[Hashable, list[asyncio.Event]] = {}

    @contextmanager
    def one(self, reader: Hashable) -> Iterator[asyncio.Event]:
        """Count one more stream while the block runs; the event is set when that stream must end."""
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
    """``/hub/api/users/.../progress``: JupyterHub's own handler, with the limit."""

    async def get(self, user_name: str, server_name: str = "") -> None:
        """Send the events of a start; the last event has ``elsewhere`` if newer streams have displaced this one."""
        reader: Any = self.current_user
        events = asyncio.ensure_future(super().get(user_name, server_name))
        with STREAMS.one((type(reader).__name__, getattr(reader, "name", ""), user_name)) as over:
            ends = asyncio.ensure_future(over.wait())
            await asyncio.wait({events, ends}, return_when=asyncio.FIRST_COMPLETED)
            ends.cancel()
        if events.done():
            await events
            return
        # not cancelled: that would interrupt the spawner's generator in the middle of a step
        events.add_done_callback(_retrieved)
        await self.send_event({"message": wait.ELSEWHERE.format(limit=STREAMS.limit), "elsewhere": True})

    async def send_event(self, event: dict[str, Any]) -> None:
        """Send an event; raises Finish, which ends JupyterHub's loop, if the stream has ended."""
        if self._finished:
            raise web.Finish
        await super().send_event(event)


def _retrieved(events: asyncio.Future[None]) -> None:
    """Retrieve the exception of a stream that nobody reads, so that asyncio does not log it."""
    if not events.cancelled():
        events.exception()
