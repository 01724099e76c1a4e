"""Small asyncio functions that never lose a cancellation or a task."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from inspect import isawaitable
from ipaddress import ip_address
from typing import Any, TypeVar

from traitlets.log import get_logger

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout


__all__ = [
    "Ended",
    "connected",
    "contained",
    "first_of",
    "in_background",
    "in_name_thread",
    "open_connection",
    "resolved",
    "timeout",
]

T = TypeVar("T")

_TASKS: set[asyncio.Task[Any]] = set()


_NAME_THREADS = ThreadPoolExecutor(16, thread_name_prefix="gpuspawner-names")
_CONNECT = 2.0
"""Seconds for one try to connect."""
_LONGEST_PAUSE = 1.0
_GRACE = 5.0
"""Seconds that another's coroutine may take to end when it is cancelled."""


async def in_name_thread(call: Callable[..., T], *arguments: Any) -> T:
    """Call what asks a name service (LDAP, SSSD, DNS) in a thread of its own kind; raises what it raises.

    Such a service may hang for minutes. asyncio's threads, of which a small machine has six, read Slurm's answers and
    find the proxy's address.
    """
    return await asyncio.get_running_loop().run_in_executor(_NAME_THREADS, partial(call, *arguments))


async def resolved(host: str) -> tuple[str, ...]:
    """The addresses of a host, in the resolver's order; empty if it cannot be resolved."""
    try:
        return (str(ip_address(host)),)
    except ValueError:
        pass
    try:
        entries = await in_name_thread(partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM))
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))


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
    """Return when the first of ``waits`` is done, once the others, which are cancelled then, have ended.

    Raises its exception. Of several that fail at the same moment, that of the first in the order of ``waits`` is
    raised; the others' exceptions are logged.
    """
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    failed = [task for task in tasks if not task.cancelled() and task.exception() is not None]
    raised = next((task for task in failed if task in done), None)
    for task in failed:
        if task is not raised:
            get_logger().warning("Something else failed at the same time: %s", task.exception())
    if raised is not None:
        raised.result()


class Ended(Exception):
    """What another's code has done in place of raising an Exception; where it raised something, that is the cause."""


async def contained(call: Callable[[], Any], *, seconds: float | None = None) -> Any:
    """What another's function answers, or a coroutine function; it is cancelled with the caller, and ends nobody else.

    Raises what it raises, and :class:`Ended` for a SystemExit, for a CancelledError that nobody has asked it for, and
    if it takes more than ``seconds``. One that goes on when it is cancelled is left behind, also by a hub that ends:
    JupyterHub waits for all tasks then, so it must not find this one.
    """

    async def run() -> Any:
        try:
            answer = call()
            return await answer if isawaitable(answer) else answer
        except SystemExit as error:  # asyncio would end its loop
            raise _ended(error) from error

    task = asyncio.ensure_future(run())
    asyncio.tasks._unregister_task(task)  # noqa: SLF001 - asyncio's documentation has it, in "Extending"
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise Ended(f"it took more than {seconds:g} s")
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE)
    try:
        return task.result()
    except asyncio.CancelledError as error:
        raise _ended(error) from error


def _ended(error: BaseException) -> Ended:
    return Ended(f"{type(error).__name__}: {error}")


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


def retrieve_failure(start: asyncio.Future[None]) -> None:
    """For a start that nobody awaits: its failure is logged and shown elsewhere, so asyncio need not log it, too."""
    if not start.cancelled():
        start.exception()
