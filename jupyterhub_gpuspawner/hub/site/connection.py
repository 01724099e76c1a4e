"""The hub's connection to Slurm, shared by all servers: one client, one watcher and one view of the cluster."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.slurm import watcher
from jupyterhub_gpuspawner.slurm.accounts import LoginNodeAccounts
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import DEFAULT_TIMEOUT, Installation
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.slurm.text import UnparsedField
from jupyterhub_gpuspawner.slurm.watcher import JobWatcher

# The cluster as all pages of a hub see it: Slurm is asked on demand, once for all who ask at the same time.

FIRST_PAUSE = 5.0
"""Seconds to wait after a question that got no answer; doubled after each further one."""
LONGEST_PAUSE = 60.0
LATE = 3.0
"""Seconds after which a question counts as not answered, while it may still be."""

COMMANDS_AT_A_TIME = 8
"""Slurm commands that run at the same time on a cluster, for requests of users and of the hub itself."""

Answer = TypeVar("Answer")
T = TypeVar("T")


class SharedView(Generic[Answer]):
    """Caches the last answer of ``ask``, and shares each new question among all callers.

    While Slurm does not answer, the last answer is kept.
    """

    without_answer = "The cluster cannot be shown as it is now"
    """What the log says before the reason."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[Answer]],
        *,
        clock: Callable[[], float] = time.monotonic,
        on_silence: Callable[[], None] = lambda: None,
        log: logging.Logger | logging.LoggerAdapter[Any] | None = None,
    ) -> None:
        """``clock`` returns seconds since any fixed time; ``on_silence`` is called for each question without answer."""
        self.latest: Answer | None = None
        """The last answer, None before the first. Reading it does not ask Slurm."""
        self.fault: GPUSpawnerError | None = None
        """Why the last question got no answer; None if it was answered."""
        self._ask = ask
        self._clock = clock
        self._on_silence = on_silence
        self._log = log or get_logger()
        self._asked_at = 0.0
        self._answered_at = 0.0
        self._changes, self._changes_seen, self._rest = 0, 0, 0.0
        """All, and those before the last answer's question; and what :meth:`outdate` was last called with."""
        self._failures = 0
        self._asking: asyncio.Task[None] | None = None

    @property
    def silent(self) -> bool:
        """Whether the last question got no answer, or the present one is late."""
        return self.fault is not None or (self._asking is not None and self._clock() - self._asked_at > LATE)

    async def recent(self, max_age: float = 15.0, patience: float = 2.0) -> Answer | None:
        """Return an answer at most ``max_age`` seconds old, or the last one if none arrives in ``patience`` seconds.

        None if there has been no answer yet. Does not raise if Slurm does not answer; cancelling the caller does not
        cancel the question.
        """
        if self._due(max_age):
            self._asked_at = self._clock()
            self._asking = asyncio.ensure_future(self._refresh())
        if self._asking is not None and not self._fresh(max_age):
            await asyncio.wait({self._asking}, timeout=patience)
        return self.latest

    async def _answer(self) -> Answer:
        return await self._ask()

    def outdate(self, rest: float = 0.0) -> None:
        """Have the next caller ask anew, after a change by the hub, unless the last answer is ``rest`` seconds old.

        The last answer is kept until then.
        """
        self._changes += 1
        self._rest = rest

    def _fresh(self, max_age: float) -> bool:
        age = self._clock() - self._answered_at
        return self.latest is not None and age <= max_age and (self._changes_seen == self._changes or age < self._rest)

    def _due(self, max_age: float) -> bool:
        pause = min(FIRST_PAUSE * 2 ** (self._failures - 1), LONGEST_PAUSE) if self._failures else 0.0
        return self._asking is None and not self._fresh(max_age) and self._clock() - self._asked_at >= pause

    async def _refresh(self) -> None:
        late = asyncio.get_running_loop().call_later(LATE, self._on_silence)
        changes = self._changes
        try:
            answer = await self._answer()
        except GPUSpawnerError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 - a page works without an answer, whatever the error
            if not self._failures:
                self._log.exception("The cluster cannot be shown")
            self._failed(GPUSpawnerError(f"{type(error).__name__}: {error}"), logged=True)
        else:
            if self._failures:
                self._log.info("Slurm is responding to queries about the cluster again")
            self.latest, self.fault, self._failures = answer, None, 0
            self._answered_at, self._changes_seen = self._asked_at, changes
        finally:
            late.cancel()
            self._asking = None

    def _failed(self, error: GPUSpawnerError, *, logged: bool = False) -> None:
        if not self._failures and not logged:
            self._log.warning("%s: %s", self.without_answer, error)
        self._failures = min(self._failures + 1, 10)
        self.fault = error
        self._on_silence()


class ClusterView(SharedView[ClusterSnapshot]):
    """The cluster: ``ask`` is :meth:`SlurmClient.snapshot`, and ``taken_at`` is the time of the last one."""

    prepare: Callable[[ClusterSnapshot], object] | None = None
    """See :attr:`Clusters.prepare`."""

    async def _answer(self) -> ClusterSnapshot:
        snapshot = await self._ask()
        if self.prepare is not None:
            await asyncio.to_thread(self.prepare, snapshot)
        return snapshot


# Count and log the records of Slurm's answers that were not understood, each once.

NAMED = 5
"""Records that are named in one line of the log."""
REMEMBERED = 10_000
"""Records that are remembered as logged: as many as Slurm keeps jobs by default (MaxJobCount)."""


class UnreadRecords:
    """Takes what a :class:`SlurmClient` reports. Logs the names of records and fields, never a field's text."""

    def __init__(self, log: logging.Logger | None = None, *, cluster: str = "") -> None:
        """``cluster`` is the name of the cluster that answers; empty in a hub that names none."""
        self._log = log or get_logger()
        self._cluster = cluster
        self._logged: dict[UnparsedField, None] = {}

    def report(self, unread: Sequence[UnparsedField]) -> None:
        """Count the new ones among the records of one answer, and log them in one line."""
        new = [record for record in dict.fromkeys(unread) if record not in self._logged]
        self._logged.update(dict.fromkeys(new))
        while len(self._logged) > REMEMBERED:
            del self._logged[next(iter(self._logged))]
        for record in new:
            metrics.UNREAD.labels(self._cluster, record.kind).inc()
        if new:
            named = ", ".join(_named(record) for record in new[:NAMED])
            more = f" and {len(new) - NAMED} more" if len(new) > NAMED else ""
            self._log.warning(
                "Slurm's answer was not understood for %s%s; the rest of the answer is used.", named, more
            )


def _named(unread: UnparsedField) -> str:
    name = f"{unread.kind} {unread.name[:80]!r}" if unread.kind != "job" else f"job {unread.name or 'without an id'}"
    return f"{name} (field {unread.field or 'unknown'})"


@dataclass(frozen=True)
class Location:
    """Where a cluster's Slurm is, and how it is asked; what is equal is one cluster."""

    name: str
    """The cluster's name in ``clusters``; empty in a hub that names none."""
    bin_dir: str = ""
    slurm_conf: str = ""
    req_cluster: str = ""
    """Slurm's name of it, where the commands need it (``-M``)."""
    wrapper_dir: str = ""
    query_prefix: tuple[str, ...] = ()
    timeout: float = DEFAULT_TIMEOUT
    """Seconds for one command."""


@dataclass(eq=False)
class Cluster:
    """One cluster: a client (with its limit of commands at once), a watcher (one ``squeue`` for all jobs), views.

    What the hub does there beside Slurm's answers belongs to it, too: jobs of two clusters may have one number.
    """

    name: str
    """The cluster's name in ``clusters``; empty in a hub that names none."""
    client: SlurmClient
    watcher: JobWatcher
    view: ClusterView
    shows_jobs: SharedView[bool]
    """Whether Slurm shows this account the jobs of others."""
    accounts: LoginNodeAccounts | None = None
    """Accounts as the cluster knows them; None where this machine does."""
    submitting: set[str] = field(default_factory=set)
    """Comments of submissions under way, and of those whose job is looked for; nothing else acts on these jobs."""
    cancelling: set[str] = field(default_factory=set)
    """Ids of jobs that are being cancelled; nothing else acts on them."""
    question: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of the submissions that wait for Slurm one asks at a time: each question may last until it times out."""
    submits_as: dict[tuple[str, ...], set[tuple[str, int | None]]] = field(default_factory=dict)
    """Accounts, as name and uid, whose jobs Slurm has shown that were submitted with a prefix, by its words."""
    of_extensions: dict[Callable[[Cluster], Any], Any] = field(default_factory=dict, repr=False)
    """What extensions keep with it, by what has made it."""
    replaces_comments: bool = False
    """It showed another comment for the last new job than the one with which that was submitted."""

    def of(self, make: Callable[[Cluster], T]) -> T:
        """What this makes of the cluster, made once: what an extension keeps for all who ask there."""
        if make not in self.of_extensions:
            self.of_extensions[make] = make(self)
        value: T = self.of_extensions[make]
        return value

    @property
    def silent(self) -> bool:
        """Slurm is not responding: to the last question about the cluster, or to a later one about the hub's jobs."""
        latest, since = self.view.latest, self.watcher.unanswered_since
        return self.view.silent or (since is not None and (latest is None or since > latest.taken_at))


class Clusters(dict[Location, Cluster]):
    """The clusters of a hub by where they are, which all servers share; each is made on first use."""

    prepare: Callable[[ClusterSnapshot], object] | None = None
    """Builds what pages ask of a cluster's view: called in a thread, not in the event loop that serves pages."""

    def __missing__(self, at: Location) -> Cluster:
        self[at] = cluster = _new_cluster(at)
        cluster.view.prepare = self.prepare
        return cluster


def count_command(cluster: str, command: str, seconds: float, status: int | None) -> None:
    """Count a command that ended with this exit status after so many seconds; None if it was given up."""
    if status is not None:
        metrics.COMMANDS.labels(cluster, command).observe(seconds)
    if status != 0:
        metrics.FAILURES.labels(cluster, command, "silent" if status is None else "refused").inc()


def _new_cluster(at: Location) -> Cluster:
    metrics.export_zeros(at.name)
    installation = Installation(
        bin_dir=at.bin_dir,
        slurm_conf=at.slurm_conf,
        cluster=at.req_cluster,
        wrapper_dir=at.wrapper_dir,
        query_prefix=at.query_prefix,
        timeout=at.timeout,
        limit=COMMANDS_AT_A_TIME,
        observe=partial(count_command, at.name),
    )
    log = logging.getLogger(f"{get_logger().name}.{at.name}" if at.name else get_logger().name)
    client = SlurmClient(installation, report=UnreadRecords(log, cluster=at.name).report)
    jobs = JobWatcher(client, active_interval=watcher.ACTIVE_INTERVAL, rest_interval=watcher.REST_INTERVAL, log=log)
    return Cluster(
        at.name,
        client,
        jobs,
        # a page that gets no answer has the watcher ask at once, so that all pages say the same
        view=ClusterView(client.snapshot, on_silence=jobs.ask_soon, log=log),
        shows_jobs=SharedView(client.sees_jobs_of, log=log),
        accounts=LoginNodeAccounts(installation) if at.query_prefix else None,
    )
