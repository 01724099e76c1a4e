"""Every job of this hub belongs to a server: looked at when the hub has started, and every ten minutes.

A job can lose its server where nobody is left to notice: the hub is killed after sbatch has answered and before the
job's id is stored, or while a cancellation waits for Slurm. Such a job carries this hub's tag, and no server's state
names it. It is cancelled as its owner, counted and logged; its user is told on the page of the failed start.

A job of a server needs nothing done: the server was taken up with the job's id from the database. Left alone is what
another hub or a start under way may own: the tag has the hub's name and, after the ``#``, a mark made from the hub's
own secret, so that a copy of this hub's configuration elsewhere touches nothing. And since a comment is its owner's to
change, a job is left alone whose owner is not the account that the tag's user has here.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from jupyterhub import orm
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub import metrics, submission
from jupyterhub_gpuspawner.hub.account import job_owner
from jupyterhub_gpuspawner.hub.database import AWAY, fault, roll_back
from jupyterhub_gpuspawner.hub.failure import ending_of, start_failed
from jupyterhub_gpuspawner.job import Phase
from jupyterhub_gpuspawner.tag import PREFIX, parse_tag, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from jupyterhub.app import JupyterHub

    from jupyterhub_gpuspawner.hub.slurm_spawner import GPUSlurmSpawner
    from jupyterhub_gpuspawner.job import JobStatus

AGAIN = 30.0
"""Seconds until the next look where Slurm gave no answer."""
LOOK = 0.5
"""Seconds between two looks at whether the hub has started."""
ALIVE = (Phase.QUEUED, Phase.STARTING, Phase.RUNNING)


def hub_mark(secret: bytes) -> str:
    """Eight hexadecimal digits that tell this hub from another one of the same name; empty without a secret."""
    return hmac.new(secret, PREFIX.encode(), hashlib.sha256).hexdigest()[:8] if secret else ""


@dataclass(frozen=True)
class Orphan:
    """A job that no server belongs to, and whom its tag names."""

    job_id: str
    user: str
    server: str
    tag: str


def orphans(
    jobs: Iterable[JobStatus], *, hub: str, mark: str, owner: Callable[[str], str | None], known: Collection[str]
) -> Iterator[Orphan]:
    """Those of ``jobs`` that are alive, this hub's by name and mark, and not ``known`` by their id or their tag.

    ``owner`` is the account whose job a user's server is; None where that cannot be told.
    """
    for job in jobs:
        names = parse_tag(job.tag)
        if job.phase not in ALIVE or names is None or names[0] != hub:
            continue
        if not job.tag.partition("#")[2].startswith(f"{mark}-"):
            continue
        _, user, server = names
        if job.user == (owner(user) or job.user) and job.job_id not in known and job.tag not in known:
            yield Orphan(job.job_id, user, server, job.tag)


class Servers(Protocol):
    """What the hub has, as far as it is asked here."""

    def job_ids(self) -> set[str]:
        """Of the servers that are in memory: all that have run since the hub started, and more."""

    def stored_job_ids(self, user: str, server: str) -> set[str]:
        """Of one server, by the database."""

    def tell(self, orphan: Orphan) -> None:
        """Tell the user that the job is cancelled, unless a server is there or has more recent news."""

    def roll_back(self) -> None:
        """Make the database's session usable again after an error."""


class Reconciliation:
    """Compares the jobs of a hub with its servers, and cancels what no server belongs to."""

    def __init__(self, site: GPUSlurmSpawner, servers: Servers, mark: str) -> None:
        """``site`` is a spawner of nobody's, with the settings of all."""
        self._site = site
        self._servers = servers
        self._mark = mark
        self._failed: set[str] = set()

    async def run(self) -> None:
        """Look now, and again after each interval; for ever."""
        while True:
            try:
                answered = await self.look()
            except AWAY as error:  # the hub's own database
                get_logger().warning("Jobs without a server are looked for later: %s", fault(error))
                self._servers.roll_back()
                answered = False
            if answered and not self._site.reconcile_interval:
                return
            await asyncio.sleep(self._site.reconcile_interval if answered else AGAIN)

    async def look(self) -> bool:
        """One squeue, and a scancel for each orphan; whether Slurm answered."""
        client = self._site.connection().client
        known = self._known()
        try:
            jobs = await client.tagged(tag(self._site.hub_name, "", "")[:-1])
        except GPUSpawnerError as error:
            get_logger().debug("Slurm was not asked for jobs that no server belongs to: %s", error)
            return False
        # what a server had before the question or has after it is no orphan
        known |= self._known()
        found = orphans(jobs.values(), hub=self._site.hub_name, mark=self._mark, owner=self._owner, known=known)
        for orphan in list(found):
            if orphan.job_id not in self._servers.stored_job_ids(orphan.user, orphan.server):
                await self._end(orphan)
        return True

    def _known(self) -> set[str]:
        return self._servers.job_ids() | submission.UNDER_WAY

    def _owner(self, user: str) -> str | None:
        # None: Slurm says whether that account may cancel it
        return job_owner(self._site.exec_prefix, user) or None

    async def _end(self, orphan: Orphan) -> None:
        log = get_logger()
        if orphan.job_id not in self._failed:
            log.warning("Job %s (%s) belongs to no server: cancelling it", orphan.job_id, orphan.tag)
            metrics.lost_job("orphan")
        try:
            await self._site.cancel_as(orphan.user, orphan.job_id)
        except GPUSpawnerError as error:
            if orphan.job_id not in self._failed:
                self._failed.add(orphan.job_id)
                log.error("Job %s is not cancelled yet; the hub tries on: %s", orphan.job_id, error)  # noqa: TRY400
        else:
            self._failed.discard(orphan.job_id)
            log.info("Job %s is cancelled", orphan.job_id)
            self._servers.tell(orphan)


def state_job_ids(state: Mapping[str, Any] | None) -> set[str]:
    """The job ids in a spawner's stored state: ours, that of a bare spawner, wrapspawner's."""
    found = set()
    for part in (state, (state or {}).get("child"), (state or {}).get("child_state")):
        if isinstance(part, dict) and part.get("job_id"):
            found.add(str(part["job_id"]))
    return found


class HubServers:
    """The servers of a hub that runs."""

    def __init__(self, app: JupyterHub) -> None:
        self._app = app

    def job_ids(self) -> set[str]:
        """See :class:`Servers`."""
        spawners = (spawner for user in self._app.users.values() for spawner in user.spawners.values())
        jobs = (getattr(getattr(each, "child_spawner", None) or each, "job_id", "") for each in spawners)
        return {str(job) for job in jobs if job}

    def stored_job_ids(self, user: str, server: str) -> set[str]:
        """See :class:`Servers`."""
        row = (
            self._app.db.query(orm.Spawner.state)
            .join(orm.User, orm.User.id == orm.Spawner.user_id)
            .filter(orm.User.name == user, orm.Spawner.name == server)
            .one_or_none()
        )
        return state_job_ids(row[0] if row is not None else None)

    def tell(self, orphan: Orphan) -> None:
        """See :class:`Servers`: a start that failed, as JupyterHub's pages know one."""
        known = orm.User.find(self._app.db, orphan.user)
        if known is None or orphan.server not in known.orm_spawners:
            return
        spawner = self._app.users[known].spawners[orphan.server]
        if spawner.active or spawner._spawn_future is not None:  # noqa: SLF001 - JupyterHub has no other place for it
            return
        start = spawner._spawn_future = _failed_start(  # noqa: SLF001
            f"The hub was restarted while your server was being started. Slurm had made job {orphan.job_id} for it; "
            "it is cancelled. Please start your server again."
        )
        spawner.ending = ending_of(start.exception())
        spawner.orm_spawner.state = spawner.get_state()
        self._app.db.commit()

    def roll_back(self) -> None:
        """See :class:`Servers`."""
        roll_back(self._app.db)


def _failed_start(message: str) -> asyncio.Future[None]:
    start: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    start.set_exception(start_failed(message, reason="hub_restarted", status_code=503))
    start.exception()  # so that nobody misses it
    return start


def register_reconciliation(app: JupyterHub) -> None:
    """Let the hub look, once it has started.

    No spawner need exist then: nobody may have a server. JupyterHub sets up its handlers while its loop runs, with all
    of its configuration read; a task that begins there waits until the hub listens.
    """
    held: set[asyncio.Task[None]] = set()

    def begin(_change: object) -> None:
        if held or not hasattr(app.spawner_class, "slurm_site"):
            return
        task = asyncio.get_running_loop().create_task(_when_started(app))
        held.add(task)
        task.add_done_callback(_ended)

    app.observe(begin, "handlers")


async def _when_started(app: JupyterHub) -> None:
    while app.http_server is None:  # noqa: ASYNC110 - JupyterHub tells nobody
        await asyncio.sleep(LOOK)
    site = app.spawner_class(config=app.config, hub=app.hub).slurm_site()
    await Reconciliation(site, HubServers(app), hub_mark(app.cookie_secret)).run()


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        get_logger().error("Jobs without a server are no longer looked for", exc_info=task.exception())
