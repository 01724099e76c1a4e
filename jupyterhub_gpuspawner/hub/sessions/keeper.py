"""Records the sessions of a running hub: a thread writes what happens, and what is too old is deleted.

What is recorded is not worth a server: an error of the file is logged, and servers start and end as before.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, TypeVar

from jupyterhub import orm
from sqlalchemy.exc import SQLAlchemyError
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.events.life import session_in
from jupyterhub_gpuspawner.hub.events.stream import STREAM
from jupyterhub_gpuspawner.hub.sessions.settings import GPUSessions
from jupyterhub_gpuspawner.hub.site.database import fault, roll_back
from jupyterhub_gpuspawner.hub.spawners.server import starts_slurm_jobs
from jupyterhub_gpuspawner.sessions.store import SessionStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from concurrent.futures import Future
    from pathlib import Path

    from jupyterhub.app import JupyterHub

    from jupyterhub_gpuspawner.sessions.events import Event

T = TypeVar("T")
DAY = 86400.0
WAITING_AT_MOST = 10_000
"""Events that may wait to be written; where a disk hangs, later ones are lost."""


class Recorder:
    """Writes events to the file, in the order in which they come, in one thread of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # a thread of an executor ends, before the process does, when all that waits is written
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpuspawner-sessions")
        self._store: SessionStore | None = None
        self._room = BoundedSemaphore(WAITING_AT_MOST)  # taken in the hub's thread, given back in the other
        self._failing = False

    def take(self, event: Event) -> None:
        """Have an event written; returns at once."""
        if self._room.acquire(blocking=False):
            self._thread.submit(self._run, lambda store: store.take(event)).add_done_callback(self._written)

    async def under_way(self) -> frozenset[str]:
        """The ids of the sessions without an end; none where the file cannot be read."""
        found = await asyncio.wrap_future(
            self._thread.submit(self._run, lambda store: frozenset(each.session for each in store.under_way()))
        )
        return found or frozenset()

    async def close_lost(self, sessions: Collection[str]) -> None:
        """Complete sessions whose end nobody saw."""
        await asyncio.wrap_future(self._thread.submit(self._run, lambda store: store.close_lost(sessions)))

    async def expire(self, before: float) -> None:
        """Delete the records of sessions that ended before this time."""
        await asyncio.wrap_future(self._thread.submit(self._run, lambda store: store.expire(before)))

    def close(self) -> None:
        """Write what waits, and close the file."""
        self._thread.submit(lambda: self._store.close() if self._store is not None else None)
        self._thread.shutdown()

    def _run(self, work: Callable[[SessionStore], T]) -> T | None:
        """Do this in the thread; None where the file cannot be used, which is logged once until it can be again."""
        try:
            if self._store is None:
                self._store = SessionStore(self._path)
            found = work(self._store)
        except GPUSpawnerError as error:
            if not self._failing:
                get_logger().error("Sessions are not recorded: %s", error)
            self._failing = True
            return None
        self._failing = False
        return found

    def _written(self, done: Future[object]) -> None:
        self._room.release()
        if done.exception() is not None:
            get_logger().error("A session was not recorded", exc_info=done.exception())


def stored_sessions(app: JupyterHub) -> frozenset[str]:
    """The sessions of the servers that run or start by the hub's database; raises SQLAlchemyError."""
    rows = app.db.query(orm.Spawner.state).filter(orm.Spawner.server_id.isnot(None))
    return frozenset(filter(None, (session_in(state) for (state,) in rows)))


async def keep(app: JupyterHub, recorder: Recorder, days: int) -> None:
    """Complete what a hub that was killed has left open, and delete each day what is too old; until cancelled."""
    open_before = await recorder.under_way()
    while open_before:
        try:
            await recorder.close_lost(open_before - stored_sessions(app))
            break
        except SQLAlchemyError as error:
            get_logger().warning("Sessions are completed later, since the database failed: %s", fault(error))
            roll_back(app.db)
            await asyncio.sleep(60.0)
    while True:
        await recorder.expire(time.time() - days * DAY)
        await asyncio.sleep(DAY)


def register_sessions(app: JupyterHub) -> None:
    """Record the sessions of this hub from the time on at which it sets up its handlers."""
    held: list[object] = []

    def begin(_change: object) -> None:
        if held or not starts_slurm_jobs(app.spawner_class):
            return
        settings = GPUSessions(config=app.config)
        if not settings.enabled:
            return
        recorder = Recorder(settings.file(app.db_url))
        task = asyncio.get_running_loop().create_task(keep(app, recorder, settings.keep_sessions))
        task.add_done_callback(_ended)
        held.extend((STREAM.subscribe(recorder.take), task))

    app.observe(begin, "handlers")


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        get_logger().error("Session records are no longer kept up to date", exc_info=task.exception())
