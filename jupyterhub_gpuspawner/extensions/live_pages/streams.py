"""What keeps a page up to date: what it shows, made once for all who look at it, and a stream of its changes."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import aclosing, suppress
from typing import Generic, Protocol, TypeVar

from jupyterhub.handlers.base import BaseHandler
from tornado.iostream import StreamClosedError

from jupyterhub_gpuspawner.hub.site.database import AWAY
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.web.handlers import OpenStreams

INTERVAL = 2.0
"""Seconds for which a picture of a page is used."""
KEEPALIVE_SECONDS = 10.0
"""Seconds after which a stream without news says that it is alive."""
STREAM_SECONDS = 300.0
"""Seconds after which a stream ends. The browser opens another one, for which the rights are checked again."""
S = TypeVar("S", bound="Snapshot")


class Snapshot(Protocol):
    """A page at one moment."""

    @property
    def version(self) -> str:
        """Another one whenever the page shows something else."""


class LivePage(Generic[S]):
    """A page, made once for all who look at it at the same time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._made_at = float("-inf")
        self._task: asyncio.Task[S] | None = None

    @abstractmethod
    async def make(self) -> S:
        """The page now."""

    @abstractmethod
    async def event(self, now: S, last: S | None) -> str:
        """An event with what has changed since ``last``, or with everything, as JSON."""

    async def recent(self, max_age: float = INTERVAL) -> S:
        """The page, at most ``max_age`` seconds old; whoever asks at the same time gets the same."""
        if self._task is None or (self._task.done() and self._clock() - self._made_at > max_age):
            self._made_at = self._clock()
            self._task = asyncio.ensure_future(self.make())
        return await asyncio.shield(self._task)

    def expire(self) -> None:
        """Make the next page anew, however old this one is: something was done."""
        self._task = None

    def pause(self, now: S) -> float:  # noqa: ARG002 - for pages that change now and then
        """Seconds until the next look."""
        return INTERVAL

    async def events(self, version: str, *, interval: float | None = None) -> AsyncGenerator[str | None, None]:
        """An event for each change since ``version``, and an empty text after each look that found none; for ever.

        None is for a look while the hub's database is away: nobody knows then what has changed.

        ``interval``: seconds between two looks; None: those of :meth:`pause`.
        """
        last, pause = None, INTERVAL
        while True:
            event = None
            with suppress(*AWAY):  # the hub's log says so
                now = await self.recent(pause)
                event = await self.event(now, last) if now.version != version else ""
                version, last = now.version, now
                pause = self.pause(now) if interval is None else interval
            yield event
            await asyncio.sleep(pause)


class EventStream(BaseHandler):
    """A handler that sends events in the browser's format for server-sent events."""

    async def send_events(
        self, streams: type[OpenStreams], reader: Hashable, events: AsyncGenerator[str | None, None]
    ) -> None:
        """Send them until the page is closed; beyond their limit the reader's oldest stream ends.

        Where the first of them is None the page is told ``away``, and ``back`` before the next that is not.
        """
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("Cache-Control", "no-cache")
        self.set_header("X-Accel-Buffering", "no")  # nginx would keep events back
        began = sent_at = time.monotonic()
        away = False
        with state_of(self.settings).of(streams).one(reader) as over, suppress(StreamClosedError):
            await self._send(": \n\n")
            async with aclosing(events):
                async for event in events:
                    now = time.monotonic()
                    if over.done():
                        await self._send("event: elsewhere\ndata: {}\n\n")
                        return
                    if self._finished or now - began > STREAM_SECONDS:
                        return
                    if away != (event is None):
                        away = event is None
                        await self._send(f"event: {'away' if away else 'back'}\ndata: {{}}\n\n")
                    if event or now - sent_at > KEEPALIVE_SECONDS:
                        await self._send(f"data: {event}\n\n" if event else ": \n\n")
                        sent_at = now

    async def _send(self, text: str) -> None:
        self.write(text)
        await self.flush()
