"""Runs ``sbatch`` and ``scancel`` so that no job is lost: the hub gets its id, or the job is cancelled.

A job can be lost in three ways: the start is cancelled while sbatch runs; sbatch fails although slurmctld has accepted
the job (a time-out, a signal, a site's wrapper that prints more than an id or fails after sbatch); Slurm does not
answer when the job should be cancelled.

While Slurm does not answer, the submission waits until it does. sbatch runs again only once Slurm's answers show that
the one before, which got no answer, has made no job.

A start is recorded before sbatch runs, in a table of our own in the hub's database. A job without a server is cancelled
only if its start is recorded there: a hub restored from a backup has the same name, secret and servers, but no record
of what was started since.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

from sqlalchemy import Column, Connection, String, Table, Unicode, delete, insert, select
from sqlalchemy.orm import Session
from traitlets.log import get_logger

from jupyterhub_gpuspawner.batch.job import BatchJob
from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.hub.site.connection import Cluster
from jupyterhub_gpuspawner.hub.site.database import TO_START, transaction, written
from jupyterhub_gpuspawner.hub.site.tables import SECONDS, TABLES, delete_older, delete_rows_of
from jupyterhub_gpuspawner.slurm.accounts import refuse_root
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import CommandMissing
from jupyterhub_gpuspawner.slurm.job import PREFIX, Job, JobIdentity
from jupyterhub_gpuspawner.tasks import in_background, timeout

FIRST_SEARCH_SECONDS = 0.5
"""Seconds for the first look, while the user waits: a slurmctld that answers again needs no more."""
SEARCHES = 10
"""How often to look for a job that sbatch may have made: for about six minutes."""
ANSWERS = 3
"""Answers of Slurm without a job of the start after which an sbatch that got no answer has made none.

A slurmctld that was stopped takes up what it was sent before, within moments.
"""
SUBMISSIONS = 3
"""How often sbatch is run for one start: a slurmctld that answers other questions all the time has another fault."""
ANSWER_SECONDS = 2.0
"""Seconds between two questions whether Slurm answers again."""
Cancel = Callable[[str], Awaitable[None]]
PAUSES = (2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds between tries; the last one repeats."""
REST = 2.0
"""Age in seconds up to which the view of a cluster is taken as it is after a submission: many may follow each other."""
TRUSTED = 60.0
"""Seconds after sbatch for which the id alone identifies the job if Slurm does not show its owner."""


async def submit(
    cluster: Cluster,
    job: BatchJob,
    *,
    prefix: Sequence[str],
    environment: Mapping[str, str],
    cancel: Cancel,
    on_silence: Callable[[SlurmUnavailable], None],
    renewed: Callable[[], Awaitable[BatchJob]],
) -> str:
    """Submit ``job`` and return its id; ``on_silence`` is called with the error of an sbatch that got no answer.

    Once Slurm answers again, and before each further sbatch, ``renewed`` returns the same job as it is to be made then.
    The start fails with what that raises, such as RequestError where its user may not have it any more; a job that is
    there is cancelled.

    It waits until Slurm answers: the caller limits that time. Raises what :meth:`SlurmClient.submit` raises, and
    SlurmUnavailable only where nobody could say later whose a job is that this sbatch made.

    Even if sbatch fails, the job may exist: one that Slurm shows is used if it surely is this start's. A job that shows
    up after the start has failed, or beside another one, is cancelled, and so is the job of a submission that was
    cancelled.
    """
    cluster.submitting.add(job.tag)
    for attempt in range(1, SUBMISSIONS + 1):
        if attempt > 1:
            try:
                job = await renewed()
            except BaseException:
                in_background(_looking_after(cluster, job, _search(cluster, job, cancel, SEARCHES)))
                raise
        submission = asyncio.ensure_future(_submitted(cluster, job, prefix, environment))
        try:
            job_id = await asyncio.shield(submission)
        except asyncio.CancelledError:
            in_background(_looking_after(cluster, job, _cancel_when_submitted(submission, cluster, job, cancel)))
            raise
        except _Failed as failed:
            try:
                job_id = await _job_of_unanswered(cluster, job, prefix, failed, on_silence, last=attempt == SUBMISSIONS)
            except (_Failed, asyncio.CancelledError) as error:
                in_background(_looking_after(cluster, job, _search(cluster, job, cancel, failed.searches)))
                raise (failed.error if error is failed else error) from failed.error.__cause__
            if job_id:
                try:
                    await renewed()  # its user may have lost the right while Slurm did not answer
                except BaseException:
                    in_background(cancel_surely(cluster, job_id, cancel))
                    cluster.submitting.discard(job.tag)
                    raise
        if job_id:
            break
    if attempt > 1:
        in_background(_looking_after(cluster, job, _search(cluster, job, cancel, SEARCHES, own=job_id)))
    cluster.submitting.discard(job.tag)  # the caller stores the id before anything else happens in the loop
    cluster.view.outdate(REST)  # for whoever chooses next
    return job_id


class _Failed(Exception):
    """sbatch failed with ``error``; ``searches`` answers without the job are needed to be sure there is none.

    ``uncertain``: a job has the start's comment, and it is not certain whose it is.
    """

    def __init__(self, error: Exception, searches: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.searches = searches
        self.uncertain = False


async def until_answer(cluster: Cluster, on_silence: Callable[[SlurmUnavailable], None]) -> None:
    """Wait until Slurm answers a question; tries for ever. ``on_silence`` is called with the error of each try."""
    while True:
        try:
            async with cluster.question:
                await cluster.client.config()
        except GPUSpawnerError as error:
            if not isinstance(error, SlurmUnavailable) or isinstance(error, CommandMissing):
                return  # not silence, and the next command says what it is
            on_silence(error)
            await asyncio.sleep(ANSWER_SECONDS)
        else:
            return


async def _job_of_unanswered(
    cluster: Cluster,
    job: BatchJob,
    prefix: Sequence[str],
    failed: _Failed,
    on_silence: Callable[[SlurmUnavailable], None],
    *,
    last: bool,
) -> str:
    """The id of the job that an unanswered sbatch has made; empty once Slurm's answers say that it has made none.

    Raises ``failed`` where sbatch was answered, where it was the ``last`` one and has made none, and where it cannot be
    known whether a job is this start's.
    """
    error, identifiable = failed.error, job.identity.name or not cluster.replaces_comments
    if not isinstance(error, SlurmUnavailable) or isinstance(error, CommandMissing):
        raise failed
    if failed.uncertain or not identifiable:
        raise failed
    on_silence(error)
    for _ in range(ANSWERS):
        jobs = None
        while jobs is None:
            await asyncio.sleep(ANSWER_SECONDS)
            with suppress(GPUSpawnerError):
                async with cluster.question:
                    jobs = await cluster.client.jobs_of_start(job.identity)
        job_id = _own(cluster, job, prefix, jobs, failed)
        if job_id:
            return job_id
    if last:
        raise failed
    return ""


def _own(cluster: Cluster, job: BatchJob, prefix: Sequence[str], jobs: Mapping[str, Job], failed: _Failed) -> str:
    """The one of these jobs that is surely the start's; empty where there is none. Raises ``failed`` where one may be.

    Any user can write this comment.
    """
    identity, accounts = job.identity, cluster.submits_as.get(tuple(prefix), ())
    if not identity.owner and identity.uid is None and len(accounts) == 1:
        ((owner, uid),) = accounts
        identity = replace(identity, owner=owner, uid=uid)
    for job_id, status in jobs.items():
        if identity.proves(status):
            get_logger().warning("sbatch failed, but created job %s, which is used: %s", job_id, failed.error)
            return job_id
    if jobs:
        raise failed
    return ""


async def without_jobs(
    cluster: Cluster,
    cancel: Mapping[JobIdentity, Cancel],
    on_silence: Callable[[SlurmUnavailable], None],
    *,
    cancelled: Collection[str] = (),
) -> None:
    """Return once Slurm's answers say that none of these jobs is there; one that is there is cancelled first.

    For starts of which a restart of the hub has lost the job's id, if there is a job: its server has a token that the
    hub no longer knows. Waits until Slurm answers: the caller limits that time. Raises ConfigError where Slurm
    refuses. Those in ``cancelled`` have not lost a start: the caller has cancelled them.
    """
    answers, found = 0, set(cancelled)
    while answers < ANSWERS:
        try:
            async with cluster.question:
                jobs = {job_id: own for own in cancel for job_id in await cluster.client.jobs_of_start(own)}
            for job_id, identity in jobs.items():
                if job_id not in found:
                    found.add(job_id)
                    get_logger().warning("Job %s (%s) has lost its start: cancelling it", job_id, identity.tag)
                    metrics.LOST.labels(cluster.name, "orphan").inc()
                await cancel[identity](job_id)
        except SlurmUnavailable as error:
            on_silence(error)
        else:
            answers = 0 if jobs else answers + 1
        if answers < ANSWERS:
            await asyncio.sleep(ANSWER_SECONDS)


async def _looking_after(cluster: Cluster, job: BatchJob, work: Awaitable[None]) -> None:
    cluster.submitting.add(job.tag)
    try:
        await work
    finally:
        cluster.submitting.discard(job.tag)


async def _submitted(cluster: Cluster, job: BatchJob, prefix: Sequence[str], environment: Mapping[str, str]) -> str:
    try:
        return await cluster.client.submit(job.script, prefix=prefix, environment=environment)
    except Exception as error:
        # slurmctld may have accepted the job; an sbatch that has exited has made it by now, or never will
        failed = _Failed(error, SEARCHES if isinstance(error, SlurmUnavailable) else 1)
        with suppress(GPUSpawnerError, asyncio.TimeoutError):
            async with timeout(FIRST_SEARCH_SECONDS):
                jobs = await cluster.client.jobs_of_start(job.identity)
            failed.uncertain = bool(jobs)
            failed.searches = max(failed.searches - 1, int(failed.uncertain))
            if job_id := _own(cluster, job, prefix, jobs, failed):
                return job_id
        raise failed from error


async def _cancel_when_submitted(
    submission: asyncio.Future[str], cluster: Cluster, job: BatchJob, cancel: Cancel
) -> None:
    try:
        job_id = await submission
    except _Failed as failed:
        await _search(cluster, job, cancel, failed.searches)
    else:
        get_logger().info("The start of %s was cancelled: cancelling job %s", job.tag, job_id)
        metrics.LOST.labels(cluster.name, "start given up").inc()
        await cancel_surely(cluster, job_id, cancel)


async def _search(cluster: Cluster, job: BatchJob, cancel: Cancel, questions: int, *, own: str = "") -> None:
    """Cancel jobs of this start other than ``own``, if one shows up within so many answers of Slurm."""
    for attempt in range(SEARCHES):
        if not questions:
            return
        await asyncio.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
        with suppress(GPUSpawnerError):
            jobs = [job_id for job_id in await cluster.client.jobs_of_start(job.identity) if job_id != own]
            questions -= 1
            for job_id in jobs:
                get_logger().warning("sbatch failed, but created job %s (%s): cancelling it", job_id, job.tag)
                metrics.LOST.labels(cluster.name, "sbatch unanswered").inc()
                await cancel_surely(cluster, job_id, cancel)
            if jobs:
                return


def note_owner(cluster: Cluster, prefix: Sequence[str], job: Job) -> None:
    """Note whose a job is that was submitted with this prefix, which may not tell: where it names one account for all.

    By that a job is known whose submission got no answer (:func:`submit`). A prefix that runs sbatch as several
    accounts, such as a site's own program, teaches nothing.
    """
    cluster.submits_as.setdefault(tuple(prefix), set()).add((job.user, job.uid))


def check_comment(cluster: Cluster, job: Job, submitted: JobIdentity, log: logging.Logger) -> None:
    """Note whether the cluster keeps comments of jobs, by its first answer about a new one.

    Logged where a cluster begins to replace them. A user can change the comment of a job later.
    """
    known, cluster.replaces_comments = cluster.replaces_comments, job.tag != submitted.tag
    if known or not cluster.replaces_comments:
        return
    if submitted.name and job.name == submitted.name:
        what = "Jobs are found again by their name instead."
    else:
        what = (
            "Their names do not identify them either: a job whose id is lost cannot be found again. "
            "Set c.GPUSlurmSpawner.job_name with {start} in it; your own batch_script must not set --job-name."
        )
    log.warning(
        "Slurm shows the comment %r for job %s, not the one that it was submitted with: something replaces comments, "
        "such as a plugin of slurm.conf's JobSubmitPlugins or CliFilterPlugins. %s "
        "Configure it to keep comments that begin with %s/.",
        *(job.tag[:80], job.job_id, what, PREFIX),
    )


@dataclass
class Cancellation:
    """Cancels one start's job; before each ``scancel`` it checks that the id still belongs to that job.

    A call raises SlurmUnavailable if Slurm does not answer whose job it is, and ConfigError if Slurm refuses or scancel
    cannot be run.
    """

    client: SlurmClient
    identity: JobIdentity
    username: str
    """Whose server the job is."""
    prefix: tuple[str, ...]
    """Runs scancel as the job's owner."""
    trusted_until: float | None = 0.0
    """Until then (monotonic clock) the id alone identifies the job; None: :data:`TRUSTED` seconds from the first call.
    """

    async def __call__(self, job_id: str) -> None:
        """Cancel the job; do nothing if it has ended, or if its id belongs to another job by now."""
        if self.trusted_until is None:
            self.trusted_until = time.monotonic() + TRUSTED
        trusted = time.monotonic() < self.trusted_until
        try:
            job = (await self.client.jobs([job_id])).get(job_id)
        except GPUSpawnerError:
            if not trusted:
                raise
            job = None
        # a job that squeue does not show may be hidden (PrivateData): scancel, run as its owner, knows more
        own = job is None or (self.identity.may_be(job) if trusted else self.identity.matches(job))
        if job is not None and not own:
            get_logger().warning(
                "Job %s is not cancelled: the id belongs to another job now, of %s; this hub's job (%s) is gone",
                *(job_id, job.user or "somebody", self.identity.tag),
            )
            return
        # a job of root's, as of before `exec_prefix` was what it is now, is cancelled by nobody else
        prefix = () if job is not None and job.uid == 0 and os.geteuid() == 0 else self.prefix
        if prefix:
            await refuse_root(self.username)
        environment = {"USER": self.username, "LOGNAME": self.username}
        await self.client.cancel(job_id, prefix=prefix, environment=environment)


async def cancel_surely(cluster: Cluster, job_id: str, cancel: Cancel) -> None:
    """Cancel a job on this cluster, and try again until that works; a hub that is restarted finds the job again.

    A refusal is tried again, too: slurmctld may not find the account for a while, and an admin may mend the rights.
    """
    cluster.cancelling.add(job_id)
    try:
        await _cancel_until_done(job_id, cancel)
    finally:
        cluster.cancelling.discard(job_id)


async def _cancel_until_done(job_id: str, cancel: Cancel) -> None:
    for failures in count():
        try:
            await cancel(job_id)
        except GPUSpawnerError as error:
            if failures == 0:
                get_logger().error("Job %s is not cancelled yet; the hub will try again: %s", job_id, error)
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
        else:
            get_logger().info("Job %s is cancelled", job_id)
            return


RETENTION_SECONDS = 180 * 86400.0
"""Seconds that a record is kept: longer than a server runs."""
_BATCH_SIZE = 200
"""Starts in one query; databases limit the number of parameters."""

_TABLE = Table(
    "gpuspawner_starts",
    TABLES,
    Column("start_id", String(64), primary_key=True),
    Column("user_name", Unicode(255), nullable=False),
    Column("server_name", Unicode(255), nullable=False),
    Column("made_at", SECONDS, nullable=False),
)


@dataclass(frozen=True)
class RecordedStart:
    """The user and the server of a start."""

    user: str
    server: str


class StartRecords:
    """The table, through JupyterHub's session; every query blocks for as long as the database takes."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, start_id: str, start: RecordedStart, *, patience: float = TO_START) -> bool:
        """Record a start as soon as the database takes it; return False if it does not in ``patience`` seconds.

        Raises SQLAlchemyError for an error that a later try cannot mend.
        """
        row = {"start_id": start_id, "user_name": start.user, "server_name": start.server, "made_at": time.time()}

        def write() -> None:
            with transaction(self._session):
                # a commit whose answer was lost with the connection may have succeeded
                self._session.execute(delete(_TABLE).where(_TABLE.c.start_id == start_id))
                self._session.execute(insert(_TABLE).values(**row))

        return await written(self._session, write, patience)

    def find(self, start_ids: Collection[str]) -> dict[str, RecordedStart]:
        """Those of ``start_ids`` that are recorded; raises SQLAlchemyError."""
        wanted, recorded = sorted(start_ids), dict[str, RecordedStart]()
        for at in range(0, len(wanted), _BATCH_SIZE):
            query = select(_TABLE).where(_TABLE.c.start_id.in_(wanted[at : at + _BATCH_SIZE]))
            for row in self._session.execute(query):
                recorded[row.start_id] = RecordedStart(row.user_name, row.server_name)
        return recorded

    def forget_old(self) -> None:
        """Delete records older than :data:`RETENTION_SECONDS`; raises SQLAlchemyError."""
        delete_older(self._session, _TABLE.c.made_at, RETENTION_SECONDS)


def forget_starts(connection: Connection, user: str) -> int:
    """Delete all records of a user's starts, and return how many there were. Raises SQLAlchemyError.

    A job that still runs is then left alone if the hub ever loses its server.
    """
    return delete_rows_of(user, _TABLE.c.user_name, connection)
