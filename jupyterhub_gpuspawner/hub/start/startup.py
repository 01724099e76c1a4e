"""Starts a server as a Slurm job: submits the job, and waits until the server answers the hub."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy.exc import SQLAlchemyError

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SubmitRejected
from jupyterhub_gpuspawner.hub.job.ending import database_away, spawn_failure, start_failed
from jupyterhub_gpuspawner.hub.job.verdict import why_never
from jupyterhub_gpuspawner.hub.jupyterhub_compat import (
    begin_pending_start,
    checked_server_name,
    cookie_secret,
    end_pending_start,
    is_checked,
    is_first_check,
    proxy_of,
)
from jupyterhub_gpuspawner.hub.registered import require_registration
from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.hub.site.account import refuse_root
from jupyterhub_gpuspawner.hub.site.database import fault
from jupyterhub_gpuspawner.hub.site.tasks import timeout
from jupyterhub_gpuspawner.hub.start.attempt import Start, Timeouts
from jupyterhub_gpuspawner.hub.start.build import certificate_variables
from jupyterhub_gpuspawner.hub.start.progress import StartFacts
from jupyterhub_gpuspawner.hub.start.readiness import Readiness, StartingServer
from jupyterhub_gpuspawner.hub.start.submission import TRUSTED, RecordedStart, StartRecords, submit
from jupyterhub_gpuspawner.jobs.identity import hub_mark
from jupyterhub_gpuspawner.slurm.watcher import SHOW_JOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any

    from jupyterhub_gpuspawner.hub.events.life import Life
    from jupyterhub_gpuspawner.hub.job.server_ending import ServerEnding
    from jupyterhub_gpuspawner.hub.job.watch import JobWatch
    from jupyterhub_gpuspawner.hub.report.server_report import ServerReport
    from jupyterhub_gpuspawner.hub.site.account import Account
    from jupyterhub_gpuspawner.hub.site.stored_state import StoredState
    from jupyterhub_gpuspawner.hub.start.build import BatchJob
    from jupyterhub_gpuspawner.hub.start.submission import Cancellation
    from jupyterhub_gpuspawner.jobs.identity import JobIdentity


# Makes a start that a restart of the hub interrupted a pending start again.
#
# JupyterHub's check after a restart expects servers that run. While it waits for one that is still starting, the page
# has no progress, a stop answers 500, and other servers get no route; an exception from ``get_url`` ends the hub. So
# the rest of the start becomes what JupyterHub can show and cancel: a pending spawn with its future.

LOOK = 0.2
"""Seconds between two looks at what JupyterHub does meanwhile."""


def interrupted(spawner: Any, reported_port: int) -> bool:
    """Whether the restarted hub checks this server for the first time, and has not stored the port that it serves at.

    The stored address of a server that was still starting has a random port.
    """
    return bool(is_first_check(spawner) and spawner.server and spawner.server.port != reported_port)


async def take_up(spawner: Any, rest: Coroutine[Any, Any, None]) -> int | None:
    """Run ``rest`` of the start as a pending spawn, and return the answer for the hub's check.

    The answer is None once the server is ready, and 1 if the start
    failed (the hub then stops the server, and its page says why) or a user has stopped it.
    """
    arrived = asyncio.Event()
    start = asyncio.ensure_future(_start(spawner, rest, arrived))
    begin_pending_start(spawner, start)
    start.add_done_callback(lambda _: end_pending_start(spawner))
    arrival = asyncio.ensure_future(arrived.wait())
    await asyncio.wait({start, arrival}, return_when=asyncio.FIRST_COMPLETED)
    arrival.cancel()
    if start.cancelled():
        await _until(lambda: spawner.server is None)  # whoever cancelled it stops the server, too
    return 1 if start.done() else None


async def _start(spawner: Any, rest: Coroutine[Any, Any, None], arrived: asyncio.Event) -> None:
    await rest
    arrived.set()
    await _until(lambda: not is_checked(spawner))
    if spawner.server is None:
        raise start_failed("The server was started, but did not respond to the hub.", status_code=503, reason="timeout")
    # JupyterHub's own check of routes may be minutes away
    await proxy_of(spawner).add_user(spawner.user, spawner.name)


async def _until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - JupyterHub has no event for it
        await asyncio.sleep(LOOK)


VISIBILITY_SECONDS = 300.0
"""For so long it is known whether Slurm shows the hub its users' jobs."""
DEADLINE = "--deadline"
"""sbatch's option: Slurm removes a job that could not end before."""


class SubmittingServer(StartingServer, Protocol):
    """What is needed of the server's spawner."""

    cert_paths: dict[str, str]
    orm_spawner: Any
    """Its row in the database; None for a spawner without one."""
    life: Life
    """Its sessions."""

    def poll_and_notify(self) -> asyncio.Future[int | None]:
        """Poll the server, and have JupyterHub stop it if it has ended."""

    @property
    def queue_limit(self) -> int | None:
        """Seconds that the job may wait in the queue; None: no limit."""

    @property
    def name(self) -> str:
        """The server's name; empty for the default server."""

    async def account(self) -> Account:
        """Home and shell of the server's user."""

    def as_user(self) -> tuple[str, ...]:
        """The command prefix that runs a command as the server's user."""

    def batch_job(self, account: Account) -> BatchJob:
        """The job to submit."""

    def cancellation(self, username: str, identity: JobIdentity, *, trusted_until: float | None) -> Cancellation:
        """What cancels a job."""

    def job_environment(self, account: Account) -> dict[str, str]:
        """The environment of sbatch."""


class Startup:
    """The starts of one spawner's server; :attr:`start` is the last one."""

    def __init__(
        self,
        server: SubmittingServer,
        job: JobWatch,
        report: ServerReport,
        ending: ServerEnding,
        state: StoredState,
        *,
        name: str,
    ) -> None:
        """``name`` is the server's for the log."""
        self.start = Start()
        self._learning: asyncio.Future[None] | None = None
        self._server = server
        self._job = job
        self._report = report
        self._ending = ending
        self._state = state
        self._life = server.life
        self._name = name

    def facts(self) -> StartFacts:
        """What is known of the start; asks nothing."""
        return StartFacts(
            job_id=self._job.job_id,
            reached=dict(self.start.reached),
            job=self._job.status,
            placement=self._report.placement,
            matching=self._matching(),
            place=self._job.place_in_queue(),
            silent=self._job.silent,
            contact=self._ending.contact,
            answered_at=self._job.answered_at,
            kept_until=self.start.keeps_place_until,
        )

    @property
    def in_queue(self) -> bool:
        """The job that is being started is pending, as far as is known."""
        return bool(self._job.job_id) and self.start.in_queue

    def _matching(self) -> str:
        request = self._server.request
        if request is None:
            return "resources"
        return "GPUs" if request.resources.gpus or request.resources.shards else "CPUs"

    async def run(self) -> None:
        """Start the server and wait until it answers. Raises the exception that JupyterHub shows."""
        server = self._server
        self._report.forget()
        self._ending.forget()
        self._job.stopping = False
        timeouts = Timeouts(server.start_timeout, server.queue_limit)
        self.start = Start.begin(hub_mark(cookie_secret(server)), timeouts)
        self._life.begin(
            self.start.start_id,
            username=server.user.name,
            servername=server.name,
            begun_at=self.start.reached["submitted"],
        )
        try:
            require_registration()
            checked_server_name(server.name)
            await self._submit_in_time(timeouts.start)
            await self._readiness().wait()
        except GPUSpawnerError as error:
            if isinstance(error, SubmitRejected):
                error.told = await why_never(server, since=self.start.reached["submitted"]) or error.told
            self._life.fault = error.reason
            raise spawn_failure(error, server=self._name, contact=self._ending.contact) from error
        except SQLAlchemyError as error:
            self._life.fault = "database"
            server.log.error("The start of %s failed with the hub's database: %s", self._name, fault(error))  # noqa: TRY400
            raise database_away(server.orm_spawner) from error
        finally:
            self._life.waited_for(tuple(self.start.reasons))
        self._serves()
        server.log.info(
            "Job %s of %s serves at %s:%d", self._job.job_id, self._name, self._report.address, self._report.port
        )

    async def _submit_in_time(self, seconds: float) -> None:
        try:
            async with timeout(seconds):
                await self._prepare_and_submit()
        except asyncio.TimeoutError:
            raise self._ending.not_submitted(seconds) from None

    async def _prepare_and_submit(self) -> None:
        server = self._server
        start = RecordedStart(server.user.name, server.name)
        await refuse_root(start.user)
        await self._refuse_hidden_jobs()
        account = await server.account()
        self.start.certificates = await asyncio.to_thread(certificate_variables, server.cert_paths)
        await self._record(start)  # the job is made of rows, which are read anew after another task's rollback
        await self._submit(server.batch_job(account), account)

    async def _refuse_hidden_jobs(self) -> None:
        """Raise ConfigError where Slurm does not show the hub its users' jobs: it could not tell whether they run."""
        connection = self._server.connection()
        if self._server.exec_prefix.strip() and await connection.shows_jobs.recent(VISIBILITY_SECONDS) is False:
            raise ConfigError("Slurm does not show the hub the jobs of its users (PrivateData=jobs).", hint=SHOW_JOBS)

    async def _record(self, start: RecordedStart) -> None:
        """Record the start before sbatch, so that a job that loses its server is known as this hub's."""
        session = self._state.session
        if session is not None and not await StartRecords(session).add(self.start.start_id, start):
            self._life.fault = "database"
            raise database_away()

    async def _submit(self, job: BatchJob, account: Account) -> None:
        server = self._server
        for note in job.notes:
            server.log.warning("Batch script of %s: %s", self._name, note)
        job_id = await submit(
            server.connection().client,
            job,
            prefix=server.as_user(),
            environment=server.job_environment(account),
            cancel=server.cancellation(server.user.name, job.identity, trusted_until=None),
        )
        self._job.submitted(job_id, job.identity, trusted=TRUSTED)
        self.start.queued()
        self._life.submitted(job_id, server.request)
        self._state.store_soon()
        server.log.info("Submitted %s as job %s", self._name, job_id)
        if DEADLINE in job.script:
            self._learning = asyncio.ensure_future(self._learn_deadline(job_id, self.start))

    async def _learn_deadline(self, job_id: str, start: Start) -> None:
        """Have Slurm work out what the job's deadline means: it may be given as ``now+2hours``, or with a time zone."""
        with suppress(GPUSpawnerError):  # the page does not say then until when the place is kept
            detail = await self._server.connection().client.job(job_id)
            if detail is not None and detail.latest_start is not None:
                start.latest = detail.latest_start
                self._state.store_soon()

    @property
    def interrupted(self) -> bool:
        """The hub was restarted during the start, and has not taken it up again."""
        return self.start.clock is not None and interrupted(self._server, self._report.port)

    async def take_up(self) -> int | None:
        """Go on with an interrupted start; None once the server answers, 1 if the start failed or was stopped."""
        self._server.log.info(
            "Job %s of %s was starting when the hub ended: taking it up", self._job.job_id, self._name
        )
        metrics.adopted(self._server, "starting")
        return await take_up(self._server, self._resume())

    async def _resume(self) -> None:
        try:
            await self._readiness().wait()
        except GPUSpawnerError as error:
            self._life.fault = error.reason
            raise spawn_failure(error, server=self._name, contact=self._ending.contact) from error
        self._serves()
        self._state.store_soon()  # after start() JupyterHub does that itself

    def _readiness(self) -> Readiness:
        parts = (self._server, self.start, self._job, self._report, self._ending)
        return Readiness(*parts, store=self._state.store_soon, placed=self._placed)

    def _placed(self) -> None:
        self._life.waited_for(tuple(self.start.reasons))
        if self._report.placement is not None:
            self._life.placed(self._report.placement, self.start.reached.get("allocated"))

    def _serves(self) -> None:
        self._life.ready(self.start.reached)
        self._report.hand_over()
        self._state.count_age_from_now()
        self._job.serves(self._server.poll_and_notify)

    # --- the spawner's state --------------------------------------------------------------------

    def forget(self) -> None:
        """Nothing is being started."""
        self.start = Start()

    def load(self, state: Mapping[str, Any]) -> None:
        """Read the start's part of the state."""
        self.start = Start.stored(state, Timeouts(self._server.start_timeout))

    def to_state(self) -> dict[str, Any]:
        """The start's part of the spawner's state; empty without a job."""
        return self.start.to_state() if self._job.job_id else {}
