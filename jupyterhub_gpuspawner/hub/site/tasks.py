"""Small asyncio functions that never lose a cancellation or a task."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from traitlets.log import get_logger

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout


__all__ = [
    "ChangePoller",
    "News",
    "connected",
    "first_of",
    "in_background",
    "in_name_thread",
    "open_connection",
    "timeout",
]

T = TypeVar("T")

_TASKS: set[asyncio.Task[Any]] = set()


_NAME_THREADS = ThreadPoolExecutor(16, thread_name_prefix="gpuspawner-names")
_CONNECT = 2.0
"""Seconds for one try to connect."""
_LONGEST_PAUSE = 1.0
_BATCH_SIZE = 200
"""Values that are looked at before the event loop does other things."""


async def in_name_thread(call: Callable[..., T], *arguments: Any) -> T:
    """Call what asks a name service (LDAP, SSSD, DNS) in a thread of its own kind; raises what it raises.

    Such a service may hang for minutes. asyncio's threads, of which a small machine has six, read Slurm's answers and
    find the proxy's address.
    """
    return await asyncio.get_running_loop().run_in_executor(_NAME_THREADS, partial(call, *arguments))


async def open_connection(host: str, port: int) -> asyncio.StreamWriter:
    """Connect to the first address that accepts it; raises OSError, and ConnectionRefusedError if all refuse."""
    entries = await in_name_thread(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
    errors: list[OSError] = []
    for address in dict.fromkeys(str(entry[4][0]) for entry in entries):
        try:
            return (await asyncio.open_connection(address, port))[1]
        except OSError as error:
            errors.append(error)
    raise next((error for error in errors if not isinstance(error, ConnectionRefusedError)), errors[0])


async def connected(host: str, port: int) -> None:
    """Return when something accepts connections there; tries forever, at first often and then once a second."""
    pause = 0.1
    while True:
        try:
            async with timeout(_CONNECT):
                writer = await open_connection(host, port)
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


class News:
    """Waits until a value changes; see :class:`ChangePoller`."""

    def __init__(self, value: Callable[[], object], repeat_after: float) -> None:
        self._value = value
        self._again = repeat_after
        self._seen: object = None
        self._due = 0.0
        self._woken: asyncio.Future[None] | None = None  # an asyncio.Event takes four times the memory
        self._is_woken = False

    def note(self) -> None:
        """From now on only another value is news; the same is again after a while."""
        self._seen, self._due = self._value(), time.monotonic() + self._again

    async def wait(self) -> None:
        """Wait for news; one task at a time."""
        if not self._is_woken:
            self._woken = asyncio.get_running_loop().create_future()
            try:
                await self._woken
            finally:
                self._woken = None
        self._is_woken = False

    def wake(self, _done: object = None) -> None:
        """End the wait."""
        self._is_woken = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def compare(self, now: float) -> None:
        """End the wait if there is news; ``now`` by the monotonic clock."""
        if not self._is_woken and (now > self._due or self._value() != self._seen):
            self.wake()


class ChangePoller:
    """One task that looks whether values have changed, for all who wait for that: a thousand need no timer each."""

    def __init__(self, interval: float) -> None:
        """``interval`` in seconds; it grows where the looks would take more than a hundredth of the time."""
        self._interval = interval
        self._open: set[News] = set()
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def at(self, value: Callable[[], object], *, repeat_after: float) -> Iterator[News]:
        """Look at ``value()`` while the block runs; the same value is news ``again`` seconds after it was seen."""
        news = News(value, repeat_after)
        self._open.add(news)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())
        try:
            yield news
        finally:
            self._open.discard(news)

    async def _run(self) -> None:
        pause = self._interval
        while self._open:
            await asyncio.sleep(pause)
            spent, left = 0.0, list(self._open)
            while left:
                began = time.thread_time()
                for news in left[:_BATCH_SIZE]:
                    try:
                        news.compare(time.monotonic())
                    except Exception:  # noqa: BLE001 - who waits for it gets the error when it asks for the value
                        news.wake()
                del left[:_BATCH_SIZE]
                spent += time.thread_time() - began
                await asyncio.sleep(0)
            pause = max(self._interval, 100 * spent)


def in_background(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run ``work`` independently of the caller; its exception is logged."""
    task = asyncio.get_running_loop().create_task(work)
    _TASKS.add(task)
    task.add_done_callback(_done)
    return task


def _done(task: asyncio.Task[Any]) -> None:
    _TASKS.discard(task)
    if not task.cancelled() and task.exception() is not None:
        get_logger().error("Work in the background failed", exc_info=task.exception())
