"""Stopping a server: the start that is cancelled first, and what its spawner keeps of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakSet

from jupyterhub_gpuspawner.hub.job.cause import Kind
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_polled, last_start, log_name
from jupyterhub_gpuspawner.hub.site.state import state_for
from jupyterhub_gpuspawner.hub.spawners.profiles import job_spawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.tasks import in_background

PENDING_PATIENCE_SECONDS = 10.0
"""Seconds that whoever stops a server waits for the end of its cancelled start, or of a check."""
POLL_SECONDS = 0.05


_PENDING_BEFORE_STOP = ("spawn", "check")
"""What JupyterHub lets nobody stop; a check is that of a hub that was restarted."""


class CancelledStarts(WeakSet[asyncio.Future[Any]]):
    """The starts that a stop has cancelled: each once, since a second cancellation would end what the first cleans up.

    ``Task.cancelling()`` of Python 3.11 tells the same.
    """


def is_cancelled(spawner: Any) -> bool:
    """Whether a stop has cancelled the start that is pending."""
    return spawner.pending == "spawn" and last_start(spawner) in state_for(spawner).of(CancelledStarts)


async def end_start(spawner: Any) -> bool:
    """Cancel a start that is pending, and wait for its end, or for that of a check; False where that takes long.

    The server must be stopped next if it is active then: JupyterHub leaves the row and the job of a cancelled start as
    they are.
    """
    start = last_start(spawner)
    if spawner.pending == "spawn" and start is not None:
        cancelled = state_for(spawner).of(CancelledStarts)
        if start not in cancelled:
            cancelled.add(start)
            start.cancel()
        await asyncio.wait({start}, timeout=PENDING_PATIENCE_SECONDS)
    for _ in range(round(PENDING_PATIENCE_SECONDS / POLL_SECONDS)):
        if spawner.pending != "check":
            break
        await asyncio.sleep(POLL_SECONDS)
    return spawner.pending not in _PENDING_BEFORE_STOP


async def stop_server(spawner: Any, record: Ending | None, stop: Callable[[], Awaitable[bool]]) -> bool:
    """Stop a server that runs, or cancel its start with its job; False if it still runs afterwards.

    It may still be stopping. Where its start takes long to end, it is stopped as soon as that has ended.

    From now on its card says what ``record`` says, where its spawner keeps an ending; with None its card does not
    change. A server that has ended by itself keeps its own. ``stop`` stops what is active, through JupyterHub, and
    returns whether that was done.
    """
    if spawner.pending == "spawn" and record is not None:
        keep_stop(spawner, record)
    if await end_start(spawner):
        return await _stop_active(spawner, record, stop)
    spawner.log.warning("The start of %s takes long to end; the server is stopped as soon as it has", log_name(spawner))
    in_background(_stop_later(spawner, record, stop))
    return True


async def _stop_later(spawner: Any, record: Ending | None, stop: Callable[[], Awaitable[bool]]) -> None:
    while not await end_start(spawner):  # noqa: ASYNC110 - JupyterHub has no event for it
        await asyncio.sleep(POLL_SECONDS)
    await _stop_active(spawner, record, stop)


async def _stop_active(spawner: Any, record: Ending | None, stop: Callable[[], Awaitable[bool]]) -> bool:
    """Stop a server of which no start is pending; True where it was not active, or is stopping already."""
    # as in JupyterHub's own handler: poll_and_notify() cleans up after a server that has died. It does so only for one
    # that became ready; what a cancelled start leaves is stopped whether anything runs or not
    if spawner.ready and is_polled(spawner):
        await spawner.poll_and_notify()
    if not spawner.active or spawner.pending in ("spawn", "stop"):
        return True
    if spawner.pending:
        return False
    if record is not None:
        keep_stop(spawner, record)
    stopped = False
    try:
        stopped = await stop()
    finally:
        if not stopped and record is not None:
            keep_stop(spawner, None)
    return stopped


def keep_stop(spawner: Any, record: Ending | None) -> None:
    """Have the spawner keep how it was stopped, in its state, until the next start; None takes that back."""
    if isinstance(spawner, GPUSlurmSpawner):
        spawner.ended.keep(record)


def note_stopper(spawner: Any, stopper: Kind) -> None:
    """Have the session's record say who asked JupyterHub itself to stop the server; its card does not change."""
    ours = job_spawner(spawner)
    if ours is not None:
        ours.ended.stopper = stopper
