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
from tornado.iostream import StreamClosedError

from jupyterhub_gpuspawner.hub.jupyterhub_compat import forget_rights
from jupyterhub_gpuspawner.hub.text import wait

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

LIMIT = 20
"""Streams of one user's servers that one reader may have open."""


class OpenStreams:
    """The open streams by reader, the oldest first."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._open: dict[Hashable, list[asyncio.Future[None]]] = {}

    @contextmanager
    def one(self, reader: Hashable) -> Iterator[asyncio.Future[None]]:
        """Count one more stream while the block runs; the future is done when that stream must end."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        streams = self._open.setdefault(reader, [])
        streams.append(mine)
        for oldest in streams[: -self.limit]:
            if not oldest.done():
                oldest.set_result(None)
        try:
            yield mine
        finally:
            streams.remove(mine)
            if not streams:
                self._open.pop(reader, None)


STREAMS = OpenStreams()


class Heartbeats:
    """Sends an empty line in each open stream now and then, so that no proxy closes it: one task for all streams."""

    def __init__(self) -> None:
        self._streams: set[ProgressStream] = set()
        self._task: asyncio.Task[None] | None = None

    def of(self, stream: ProgressStream) -> None:
        """Begin with this stream; it ends by itself."""
        self._streams.add(stream)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while self._streams:
            self._streams = {stream for stream in self._streams if stream.beat()}
            await asyncio.sleep(ProgressStream.keepalive_interval)


HEARTBEATS = Heartbeats()


class ProgressStream(SpawnProgressAPIHandler):
    """``/hub/api/users/.../progress``: JupyterHub's own handler, with the limit."""

    async def get(self, user_name: str, server_name: str = "") -> None:
        """Send the events of a start; the last event has ``elsewhere`` if newer streams have displaced this one."""
        reader: Any = self.current_user
        events = asyncio.ensure_future(super().get(user_name, server_name))
        with STREAMS.one((type(reader).__name__, getattr(reader, "name", ""), user_name)) as over:
            await asyncio.wait({events, over}, return_when=asyncio.FIRST_COMPLETED)
        if events.done():
            await events
            return
        # not cancelled: that would interrupt the spawner's generator in the middle of a step
        events.add_done_callback(_retrieved)
        await self.send_event({"message": wait.ELSEWHERE.format(limit=STREAMS.limit), "elsewhere": True})

    async def keepalive(self) -> None:
        """JupyterHub's begins a task of its own for each stream."""
        HEARTBEATS.of(self)

    def beat(self) -> bool:
        """Send an empty line; returns whether the stream is still open."""
        if self._finished or self.request.connection is None:
            return False
        try:
            self.write("\n\n")
            self.flush().add_done_callback(_retrieved)
        except (StreamClosedError, RuntimeError):
            return False
        return True

    async def send_event(self, event: dict[str, Any]) -> None:
        """Send an event; raises Finish, which ends JupyterHub's loop, if the stream has ended."""
        if self._finished:
            raise web.Finish
        forget_rights(self)
        await super().send_event(event)


def _retrieved(events: asyncio.Future[None]) -> None:
    """Retrieve the exception of a stream that nobody reads, so that asyncio does not log it."""
    if not events.cancelled():
        events.exception()
