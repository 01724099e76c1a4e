"""Records the sessions of a running hub: a thread writes what happens, and what is too old is deleted.

What is recorded is not worth a server: an error of the file is logged, and servers start and end as before.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore
from types import MappingProxyType
from typing import Any, TypeVar

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from traitlets import Bool
from traitlets.config import Configurable
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.extensions.records.failures import IN_A_ROW, FailingNode, failing_nodes, slurm_commands
from jupyterhub_gpuspawner.extensions.records.metrics import observe_promises
from jupyterhub_gpuspawner.extensions.records.promised import ServerPromises
from jupyterhub_gpuspawner.extensions.records.promises import Learned, Outcome, Promise, learned, outcomes
from jupyterhub_gpuspawner.extensions.records.record import on_clusters
from jupyterhub_gpuspawner.extensions.records.store import PATIENCE, SessionStore, StoreError
from jupyterhub_gpuspawner.hub.extension import PlannedWait
from jupyterhub_gpuspawner.hub.job.session import Event, Stream, stored_session
from jupyterhub_gpuspawner.hub.site.background import DAY_SECONDS, every
from jupyterhub_gpuspawner.hub.site.database import NOT_CACHED, full_url
from jupyterhub_gpuspawner.hub.site.slurm_settings import Count
from jupyterhub_gpuspawner.hub.site.state import HubState, state_of
from jupyterhub_gpuspawner.hub.spawners.server import kept_with, site_of, waits_in_queue
from jupyterhub_gpuspawner.slurm.estimate import Span

# The admin's settings for session records: ``c.GPUSessions``.

FILE = "sessions.sqlite"


class GPUSessions(Configurable):
    """Whether, where and for how long a record of each session is kept: what `gpuspawner sessions` reads."""

    enabled = Bool(
        True,
        config=True,
        help="""Keep a record of each session of a server that is a Slurm job: who started it, how long it waited, what
        it got and used, and why it ended. No file names, and nothing of what runs in notebooks.""",
    )
    keep_sessions = Count(
        400, low=1, high=36500, config=True, help="Days for which the record of a session is kept after its end."
    )


def records_file(db_url: str) -> Path:
    """The file of the records in a hub with this database: beside it, or in the hub's working directory."""
    try:
        url = make_url(full_url(db_url))
    except ArgumentError:
        return Path(FILE)
    beside = url.get_backend_name() == "sqlite" and url.database and not url.database.startswith((":", "file:"))
    return Path(url.database or "").parent / FILE if beside else Path(FILE)


T = TypeVar("T")
WAITING_AT_MOST = 10_000
"""Events that may wait to be written; where a disk hangs, later ones are lost."""
PROMISES_AT_MOST = 4000
"""Sessions from whose waits the hub learns: the latest ones."""
LEARN_SECONDS = 600.0
"""Seconds between two looks at them."""
FAILING_SECONDS = DAY_SECONDS
"""For so long a start that failed counts against its node."""
FAILING_NODES_SECONDS = 60.0
"""Seconds between two searches for them."""
TRY_SECONDS = 1.0
"""Seconds after which a write to a locked file is tried again: at the hub's end it is the last try."""


@dataclass
class FromRecords:
    """What a hub knows from its records, by cluster; the only one of a hub that names none has an empty name."""

    waits: Mapping[str, Learned] = field(default_factory=dict)
    failing_nodes: Mapping[str, Mapping[str, FailingNode]] = field(default_factory=dict)
    """The nodes by name on which the last starts of several people failed, as of the last search."""


class Recorder:
    """Writes events to the file, in the order in which they come, in one thread of its own."""

    def __init__(self, path: Path, known: FromRecords | None = None) -> None:
        self._path = path
        self._known = FromRecords() if known is None else known
        # a thread of an executor ends, before the process does, when all that waits is written
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpuspawner-sessions")
        self._store: SessionStore | None = None
        self._room = BoundedSemaphore(WAITING_AT_MOST)  # taken in the hub's thread, given back in the other
        self._failing = False
        self._ending = threading.Event()
        self._given_up = False

    def take(self, event: Event) -> None:
        """Have an event written; returns at once."""
        if self._room.acquire(blocking=False):
            self._thread.submit(self._run, lambda store: store.take(event)).add_done_callback(self._written)

    async def open_sessions(self, before: float = math.inf) -> frozenset[str]:
        """The ids of the sessions that began before this time and have no end; none where the file cannot be read."""

        def ids(store: SessionStore) -> frozenset[str]:
            return frozenset(record.session for record in store.open_sessions() if record.begun_at < before)

        return await self._asked(ids) or frozenset()

    async def close_lost(self, sessions: Collection[str]) -> None:
        """Complete sessions whose end nobody saw."""
        await self._asked(lambda store: store.close_lost(sessions))

    async def expire(self, before: float) -> None:
        """Delete the records of sessions that ended before this time."""
        await self._asked(lambda store: store.expire(before))

    async def learn(self, waiting: Iterable[tuple[str, Sequence[Promise]]] = (), *, first: str = "") -> None:
        """Have the hub expect the next waits on each cluster to be like the latest ones that were recorded there.

        ``waiting`` is what was said to those who still wait, with their cluster: a wait that has been longer than that
        teaches, too. ``first`` is the cluster of the records from before the hub named its clusters.
        """
        records, now = await self._asked(lambda store: store.promised(PROMISES_AT_MOST)) or (), time.time()
        taught: dict[str, list[Outcome]] = defaultdict(list)
        for record in on_clusters(records, first):
            taught[record.cluster].extend(record.promise_outcomes)
        for cluster, promises in waiting:
            taught[cluster].extend(outcomes(promises, None, now))
        self._known.waits = {cluster: learned(of_cluster) for cluster, of_cluster in taught.items()}

    async def find_failing_nodes(self, commands: Mapping[str, str] = MappingProxyType({}), *, first: str = "") -> None:
        """Find the nodes on which the last starts of several people failed.

        ``commands`` as for :func:`failing_nodes`, ``first`` as for :meth:`learn`.
        """
        since = time.time() - FAILING_SECONDS

        def nodes(store: SessionStore) -> list[FailingNode]:
            if store.failed_starts(since) < IN_A_ROW:
                return []
            return failing_nodes(on_clusters(store.sessions(since=since), first), commands)

        failing = await self._asked(nodes) or ()
        by_cluster: dict[str, dict[str, FailingNode]] = defaultdict(dict)
        for node in failing:
            by_cluster[node.cluster][node.node] = node
        self._known.failing_nodes = dict(by_cluster)

    def end(self, _task: object = None) -> None:
        """The hub ends: from now on a file that is locked is not waited for."""
        self._ending.set()

    def close(self) -> None:
        """Write what waits, and close the file."""
        self._thread.submit(lambda: self._store.close() if self._store is not None else None)
        self._thread.shutdown()

    async def _asked(self, work: Callable[[SessionStore], T]) -> T | None:
        """Do this in the thread, after what waits there; None where the file cannot be used."""
        return await asyncio.wrap_future(self._thread.submit(self._run, work))

    def _run(self, work: Callable[[SessionStore], T]) -> T | None:
        """Do this in the thread; None where the file cannot be used, which is logged once until it can be again."""
        if self._given_up:
            return None
        try:
            outcome = self._patiently(work)
        except GPUSpawnerError as error:
            if not self._failing:
                get_logger().error("Sessions are not recorded: %s", error)
            self._failing = True
            return None
        self._failing = False
        return outcome

    def _patiently(self, work: Callable[[SessionStore], T]) -> T:
        """Do this again while another process writes, unless the hub ends, which waits for what is left here."""
        gives_up_at = time.monotonic() + PATIENCE
        while True:
            try:
                if self._store is None:
                    self._store = SessionStore(self._path, patience=TRY_SECONDS)
                return work(self._store)
            except StoreError as error:
                self._given_up = self._ending.is_set()
                if "locked" not in str(error.__cause__) or self._given_up or time.monotonic() > gives_up_at:
                    raise

    def _written(self, done: Future[object]) -> None:
        self._room.release()
        if done.exception() is not None:
            get_logger().error("A session was not recorded", exc_info=done.exception())


def estimate(hub: HubState, wait: PlannedWait) -> Span | None:
    """How long a wait will be, as past ones like it were; None where too few are known."""
    learned_there = hub.of(FromRecords).waits.get(wait.cluster, Learned())
    past = (learned_there.queued if wait.queued else learned_there.asked).get(wait.partition)
    return past.span(wait.seconds) if past is not None else None


def promised_to_waiting(users: Iterable[Any]) -> list[tuple[str, tuple[Promise, ...]]]:
    """Cluster of each start whose job is pending now, and what was said of it; reads no row of the database."""
    waiting = (spawner for user in users for spawner in list(user.spawners.values()) if waits_in_queue(spawner))
    of_starts = (kept_with(spawner, ServerPromises) for spawner in waiting)
    return [(promises.spawner.cluster, promises.promises()) for promises in of_starts if promises is not None]


def session_in(state: Any) -> str:
    """The id of the session in a spawner's stored state, with or without a child; empty where there is none."""
    parts = (state, state.get("child"), state.get("child_state")) if isinstance(state, dict) else ()
    for part in parts:
        session = stored_session(part.get("session")) if isinstance(part, dict) else None
        if session is not None:
            return session.id
    return ""


def stored_sessions(app: JupyterHub) -> frozenset[str]:
    """The sessions of the servers that run or start by the hub's database; raises SQLAlchemyError."""
    rows = app.db.query(orm.Spawner.state).execution_options(**NOT_CACHED).filter(orm.Spawner.server_id.isnot(None))
    return frozenset(filter(None, (session_in(state) for (state,) in rows)))


async def complete_left(app: JupyterHub, recorder: Recorder, started_at: float) -> None:
    """Complete what a hub that was killed before this time has left open; raises SQLAlchemyError."""
    left_open = await recorder.open_sessions(before=started_at)
    if left_open:
        await recorder.close_lost(left_open - stored_sessions(app))


def begin_sessions(app: JupyterHub) -> None:
    """Record the sessions of this hub from now on."""
    state = state_of(app.tornado_settings)
    stream = state.of(Stream)
    stream.subscribe(observe_promises)
    settings = GPUSessions(config=app.config)
    site = site_of(app.tornado_settings)
    if site is None or not settings.enabled:
        return
    recorder, now = Recorder(records_file(app.db_url), state.of(FromRecords)), time.time()
    first = site.first_cluster
    stream.subscribe(recorder.take)

    async def learn() -> None:
        await recorder.learn(promised_to_waiting(app.users.values()), first=first)

    every(app, LEARN_SECONDS, learn, "Learning from past waits")

    async def find_failing_nodes() -> None:
        await recorder.find_failing_nodes(slurm_commands(site), first=first)

    every(app, FAILING_NODES_SECONDS, find_failing_nodes, "The search for nodes on which starts fail")
    every(app, 0, partial(complete_left, app, recorder, now), "The completion of sessions that were left open")
    expiry = every(
        app,
        DAY_SECONDS,
        lambda: recorder.expire(time.time() - settings.keep_sessions * DAY_SECONDS),
        "The deletion of old session records",
    )
    expiry.add_done_callback(recorder.end)  # JupyterHub cancels all tasks when it ends
