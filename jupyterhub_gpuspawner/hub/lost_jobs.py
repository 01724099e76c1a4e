"""Cancel jobs of this hub that no server belongs to; checked when the hub has started, and every ten minutes.

A job loses its server if the hub is killed after sbatch has answered and before the job's id is stored, or while a
cancellation waits for Slurm. Such a job carries this hub's mark in its comment or name, the hub's database has a record
of its start, and no server's state names it. If two checks some seconds apart find it so, it is cancelled as its owner,
counted and logged, and the page of the failed start tells its user.

Jobs that may belong to another hub or to a start under way are left alone: the comment has the hub's name and, after
the ``#``, a mark made from the hub's own secret. A hub restored from a backup has both, and would take the jobs that
the original has started since for its own: so a job whose start is not recorded in this database is left alone, and
logged. Since owners may change comment and name, a job is also left alone unless it is owned by the account of the
server's user.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.job.cause import start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.job.failed_start import start_error
from jupyterhub_gpuspawner.hub.jupyterhub_compat import last_start, set_last_start
from jupyterhub_gpuspawner.hub.site import metrics, slurm_settings
from jupyterhub_gpuspawner.hub.site.background import DAY_SECONDS, every
from jupyterhub_gpuspawner.hub.site.database import NOT_CACHED
from jupyterhub_gpuspawner.hub.site.slurm_settings import Effective
from jupyterhub_gpuspawner.hub.spawners.server import job_ids_of, site_of
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start.submission import RecordedStart, StartRecords
from jupyterhub_gpuspawner.slurm.job import (
    Job,
    JobIdentity,
    Phase,
    hub_mark,
    job_owner,
    parse_tag,
    start_of,
    start_of_name,
)

# Find jobs with this hub's mark, and tell whose server each may belong to.

ALIVE = (Phase.QUEUED, Phase.STARTING, Phase.RUNNING)


@dataclass(frozen=True)
class Orphan:
    """A job without a server, and the recorded start that submitted it."""

    job: Job
    start: RecordedStart

    @property
    def job_id(self) -> str:
        return self.job.job_id


def marked(jobs: Iterable[Job], *, hub: str, mark: str, name_template: str) -> Iterator[tuple[Job, str]]:
    """Yield the jobs that have not ended and carry the hub's mark, each with the id of its start.

    The id begins with the mark. It is in the job's comment or, if a plugin has replaced that, in the job's name.
    """
    for job in jobs:
        names = parse_tag(job.tag)
        if job.phase not in ALIVE or (names is not None and names[0] != hub):
            continue
        start_id = start_of(job.tag) if names is not None else start_of_name(name_template, job.name)
        if start_id.startswith(f"{mark}-"):
            yield job, start_id


def owned(job: Job, start: RecordedStart, owner: Callable[[str], JobIdentity]) -> bool:
    """Whether the job may belong to the server of ``start``: the user's account owns it, and its comment fits.

    ``owner`` returns who owns a user's jobs, as far as that is known.
    """
    names = parse_tag(job.tag)
    return owner(start.user).owns(job) is not False and (names is None or names[1:] == (start.user, start.server))


CONFIRMED_AFTER = 5.0
"""Seconds for which a job must have had no server before it is cancelled."""


class Reconciliation:
    """Compares the jobs of a hub with its servers, and cancels what no server belongs to."""

    def __init__(self, site: GPUSlurmSpawner, on: Effective, servers: HubServers, mark: str) -> None:
        """``site`` has the settings of all servers (:func:`site_of`), ``on`` those on one cluster."""
        self._site = site
        self._on = on
        self._servers = servers
        self._mark = mark
        self._failed: set[str] = set()
        self._suspected: dict[str, float] = {}
        """Ids of jobs without a server, with the monotonic time at which each was first found."""
        self._foreign: set[str] = set()
        """Ids of jobs whose start is not in the database, as of the last check."""

    async def run_once(self) -> float | None:
        """Run squeue, and scancel for each orphan that an earlier check found, too.

        Return the seconds until the next check if that is to confirm something. Raises GPUSpawnerError if Slurm does
        not answer, and SQLAlchemyError; nothing is cancelled then.
        """
        own_jobs = self._own_jobs()
        jobs = await self._site.connection(self._on).client.every_job()
        # a job that a server had before or has after the question is no orphan
        own_jobs |= self._own_jobs()
        mine = marked(jobs.values(), hub=self._site.hub_name, mark=self._mark, name_template=self._site.job_name)
        unknown = [(job, start) for job, start in mine if job.job_id not in own_jobs and start not in own_jobs]
        starts = self._servers.starts({start for _, start in unknown})
        orphans = [
            Orphan(job, starts[start])
            for job, start in unknown
            if start in starts and owned(job, starts[start], self._owner)
        ]
        orphans = [
            orphan
            for orphan in orphans
            if orphan.job_id not in self._servers.stored_job_ids(orphan.start.user, orphan.start.server)
        ]
        self._leave_alone([job for job, start in unknown if start not in starts])
        before, now = self._suspected, time.monotonic()
        self._suspected = {orphan.job_id: before.get(orphan.job_id, now) for orphan in orphans}
        for orphan in orphans:
            if orphan.job_id in before and now - before[orphan.job_id] >= CONFIRMED_AFTER:
                del self._suspected[orphan.job_id]
                await self._end(orphan)
        return CONFIRMED_AFTER if self._suspected else None

    def _own_jobs(self) -> set[str]:
        """Ids of jobs on this cluster, and ids of starts."""
        cluster = self._site.connection(self._on)
        submitting = {start for start in map(start_of, cluster.submitting) if start}
        return self._servers.job_ids() | cluster.cancelling | submitting

    def _owner(self, user: str) -> JobIdentity:
        prefix = self._on.exec_prefix
        # if the owner is unknown, Slurm decides whether that account may cancel the job
        return JobIdentity(owner=job_owner(prefix, user), uid=None if prefix.strip() else os.getuid())

    def _leave_alone(self, jobs: Iterable[Job]) -> None:
        """Log and count jobs that another copy of this hub has started, each once."""
        job_ids = set()
        for job in jobs:
            names = parse_tag(job.tag)
            if names is not None and self._owner(names[1]).owns(job) is False:
                continue  # the job's owner has copied this comment
            job_ids.add(job.job_id)
            if job.job_id not in self._foreign:
                metrics.FOREIGN.labels(self._on.cluster).inc()
                get_logger().warning(
                    "Job %s (%s) carries this hub's mark, and this hub's database has no record of its start: another "
                    "copy of this hub submitted it. It is not cancelled.",
                    *(job.job_id, job.tag or job.name),
                )
        self._foreign = job_ids

    async def _end(self, orphan: Orphan) -> None:
        log, job = get_logger(), orphan.job
        if orphan.job_id not in self._failed:
            log.warning("Job %s (%s) belongs to no server: cancelling it", orphan.job_id, job.tag or job.name)
            metrics.LOST.labels(self._on.cluster, "orphan").inc()
        identity = JobIdentity(owner=job.user, uid=job.uid, tag=job.tag, name=job.name)
        try:
            await self._site.cancellation(orphan.start.user, identity, on=self._on)(orphan.job_id)
        except GPUSpawnerError as error:
            if orphan.job_id not in self._failed:
                self._failed.add(orphan.job_id)
                log.error("Job %s is not cancelled yet; the hub will try again: %s", orphan.job_id, error)
        else:
            self._failed.discard(orphan.job_id)
            log.info("Job %s is cancelled", orphan.job_id)
            self._servers.notify(orphan)


def parts_of_state(state: Any) -> Iterator[Mapping[str, Any]]:
    """A spawner's stored state, and in it that of a child: of ours, or written by wrapspawner."""
    for part in (state, state.get("child"), state.get("child_state")) if isinstance(state, dict) else ():
        if isinstance(part, dict):
            yield part


def state_job_ids(state: Mapping[str, Any] | None) -> set[str]:
    """Return the job ids in a spawner's stored state."""
    return {str(part["job_id"]) for part in parts_of_state(state) if part.get("job_id")}


class HubServers:
    """The servers of a running hub, of which those on one cluster are asked for their jobs."""

    def __init__(self, app: JupyterHub, cluster: str) -> None:
        self._app = app
        self._cluster = cluster

    def job_ids(self) -> set[str]:
        """The job ids of the servers in memory, which are all that have run since the hub started, and more."""
        return job_ids_of(self._app.users.values(), self._cluster)

    def stored_job_ids(self, user: str, server: str) -> set[str]:
        """The job ids of one server in the database."""
        row = (
            self._app.db.query(orm.Spawner.state)
            .execution_options(**NOT_CACHED)
            .join(orm.User, orm.User.id == orm.Spawner.user_id)
            .filter(orm.User.name == user, orm.Spawner.name == server)
            .one_or_none()
        )
        return state_job_ids(row[0] if row is not None else None)

    def starts(self, start_ids: Collection[str]) -> Mapping[str, RecordedStart]:
        """Those of the starts that are recorded in the database, by id; raises SQLAlchemyError."""
        return StartRecords(self._app.db).find(start_ids)

    def notify(self, orphan: Orphan) -> None:
        """Show the user that the job was cancelled, unless the server runs or has more recent news.

        It is shown as a failed start, which JupyterHub's pages know how to show, or as the stop that a person had
        asked for, and that Slurm had not taken when the hub ended.
        """
        user, server = orphan.start.user, orphan.start.server
        orm_user = orm.User.find(self._app.db, user)
        if orm_user is None or server not in orm_user.orm_spawners:
            return
        spawner = self._app.users[orm_user].spawners[server]
        if spawner.active or last_start(spawner) is not None:
            return
        if not spawner.ended.stop_confirmed(orphan.job_id):
            ending = Ending(start_failed("hub_restarted"), at=time.time(), job_id=orphan.job_id)
            spawner.ended.keep(ending)
            set_last_start(spawner, _failed_start(ending))
        spawner.orm_spawner.state = spawner.get_state()
        self._app.db.commit()


def _failed_start(ending: Ending) -> asyncio.Future[None]:
    start: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    start.set_exception(start_error(ending))
    start.exception()  # else asyncio would log that nobody has read it
    return start


def begin_reconciliation(app: JupyterHub) -> None:
    """Look on each cluster that profiles submit jobs to for jobs of this hub that belong to no server."""
    site = site_of(app.tornado_settings)
    if site is None:
        return

    def begin() -> None:
        for name in site.clusters or [""]:
            servers, mark = HubServers(app, name), hub_mark(app.cookie_secret)
            reconcile = Reconciliation(site, site.effective(name), servers, mark).run_once
            check = f"The check for jobs without a server{f' on {name}' if name else ''}"
            every(app, slurm_settings.RECONCILE_INTERVAL, reconcile, check)

    every(app, 0, begin, "The search for clusters that may have jobs without a server")
    every(app, DAY_SECONDS, StartRecords(app.db).forget_old, "The deletion of old records of starts")
