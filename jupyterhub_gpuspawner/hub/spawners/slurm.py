"""The spawner of servers that are Slurm jobs.

From batchspawner it inherits the name, the ``req_*`` settings, ``exec_prefix`` and an admin's own ``batch_script``. The
rest is done by the objects that it owns (:mod:`..start`, :mod:`..report`, :mod:`..ending`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from traitlets import TraitError, default

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SubmitRejected
from jupyterhub_gpuspawner.hub.events.life import Life
from jupyterhub_gpuspawner.hub.extension import Extension
from jupyterhub_gpuspawner.hub.job.ending import (
    Ending,
    ServerEnding,
    contact_of,
    database_away,
    ending_state,
    spawn_failure,
    stored_ending,
    why_never,
)
from jupyterhub_gpuspawner.hub.job.log import Extent, JobLog
from jupyterhub_gpuspawner.hub.job.watch import JobWatch
from jupyterhub_gpuspawner.hub.jupyterhub_compat import (
    GroupOverrides,
    LogName,
    OwnStartTimeout,
    UserOptions,
    checked_server_name,
    cookie_secret,
    require_registration,
)
from jupyterhub_gpuspawner.hub.report.server_report import ServerReport, ServerUsage
from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.hub.site.account import Account, account_of, refuse_root
from jupyterhub_gpuspawner.hub.site.database import TO_POLL, TO_START, TO_STOP, StoredState, fault, takes_changes
from jupyterhub_gpuspawner.hub.site.slurm_settings import STOP_PATIENCE_SECONDS, CheckedTimeouts, SlurmSettings
from jupyterhub_gpuspawner.hub.site.tasks import first_of, in_background, timeout
from jupyterhub_gpuspawner.hub.spawner_bases import Spawner
from jupyterhub_gpuspawner.hub.spawners.inherited_settings import IgnoredSetting, ignored_settings
from jupyterhub_gpuspawner.hub.start.attempt import Attempt, Moment, Stage, new_attempt, stored_attempt
from jupyterhub_gpuspawner.hub.start.build import (
    BatchJob,
    JobSettings,
    batch_job,
    certificate_variables,
    plain_request,
    refuse_options,
    site_profile,
)
from jupyterhub_gpuspawner.hub.start.progress import StartFacts, events, start_facts
from jupyterhub_gpuspawner.hub.start.readiness import Readiness, interrupted, resume
from jupyterhub_gpuspawner.hub.start.submission import (
    TRUSTED,
    Cancellation,
    RecordedStart,
    StartRecords,
    cancel_surely,
    submit,
)
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, queue_limit
from jupyterhub_gpuspawner.slurm.command_settings import check_commands
from jupyterhub_gpuspawner.slurm.commands import command_prefix
from jupyterhub_gpuspawner.slurm.identity import JobIdentity, hub_mark
from jupyterhub_gpuspawner.slurm.job import Job, Phase, sentence
from jupyterhub_gpuspawner.slurm.watcher import SHOW_JOBS
from jupyterhub_gpuspawner.units import parse_wait
from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacementDocument

VISIBILITY_SECONDS = 300.0
"""For so long it is known whether Slurm shows the hub its users' jobs."""
DEADLINE = "--deadline"
"""sbatch's option: Slurm removes a job that could not end before."""


class GPUSlurmSpawner(LogName, GroupOverrides, OwnStartTimeout, CheckedTimeouts, SlurmSettings):
    """Starts each server as one Slurm job, bound to the right GPUs, cores and memory."""

    user_options = UserOptions()

    request: JobRequest | None = None
    """What was asked for; None in a hub without profiles, and after a restart."""
    child_profile = ""
    """The slug of the server's profile; empty in a hub without profiles."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        name = {"server": self._log_name, "log": self.log}
        self._username = ""  # for while the database is away; empty before the first start
        self._state = StoredState(self, **name)
        self._job = JobWatch(self)
        self._report = ServerReport(self, self._state, **name)
        self.life = Life()
        self.usage = ServerUsage(self, on_summary=self.life.used)
        self._log_file = JobLog(self._job, self, **name)
        self._ending = ServerEnding(self._job, self._log_file, self)
        self._attempt = Attempt()
        self._deadline_task: asyncio.Future[None] | None = None
        self.extension = Extension(self, self._job, self._state, name=self._log_name)

    @default("apply_user_options")
    def _default_apply_user_options(self) -> Any:
        return refuse_options

    # --- what others read -----------------------------------------------------------------------

    @property
    def job_id(self) -> str:
        """Slurm's job id; empty before the submission."""
        return self._job.job_id

    @property
    def identity(self) -> JobIdentity:
        """What tells the server's job from another one under the same id."""
        return self._job.identity

    @property
    def job(self) -> Job | None:
        """The job as Slurm last reported it; None until it has."""
        return self._job.status

    @property
    def placement(self) -> PlacementDocument | None:
        """Where the server runs and what it got; None until Slurm has confirmed the node's report."""
        return self._report.placement

    @property
    def topology(self) -> Mapping[str, Any] | None:
        """The node's topology document."""
        return self._report.topology

    @property
    def node_topologies(self) -> Mapping[str, Mapping[str, Any]]:
        """The topology documents of the job's other nodes, as far as they are kept, by the node's name."""
        return self._report.nodes.topologies

    @property
    def reported_port(self) -> int:
        """Where the server listens; 0 while it does not, or while another process has its port."""
        return self._report.port

    @property
    def address(self) -> str:
        """The server's host as the hub reaches it; empty until that is known."""
        return self._report.address

    @property
    def ending(self) -> Ending | None:
        """How the last server ended, or why the last start failed; kept until the next start."""
        return self._ending.last

    @ending.setter
    def ending(self, ending: Ending | None) -> None:
        self._ending.last = ending

    @property
    def in_queue(self) -> bool:
        """The job is being started and is pending, as far as is known."""
        return bool(self.job_id) and self._attempt.in_queue

    @property
    def queue_limit(self) -> int | None:
        """Seconds that the job may be pending: the profile's limit, else the site's; None: no limit."""
        limit = self.request.queue_timeout if self.request is not None else None
        return queue_limit(limit, self.site_queue_limit)

    @property
    def site_queue_limit(self) -> int | None:
        """Seconds that a job may be pending where its profile sets no limit; None: no limit."""
        return parse_wait(self.site_value("queue_timeout"))

    def start_facts(self) -> StartFacts:
        """What is known of the start that is under way; asks nothing."""
        return start_facts(
            self._attempt,
            self._job,
            placement=self.placement,
            request=self.request,
            contact=contact_of(self),
        )

    async def update_queue(self, patience: float) -> None:
        """While the job is pending, update its position in the queue; returns after ``patience`` seconds at most."""
        await self._job.update_queue(patience)

    async def job_log(self, extent: Extent) -> tuple[str, str]:
        """The path of the job's log as Slurm reports it, and its last lines; either may be empty."""
        return await self._log_file.path_and_lines(extent)

    async def log_of_ended(self, ending: Ending, extent: Extent) -> str:
        """The last lines of the log of this user's server that ended so; empty where it cannot be read."""
        return await self._log_file.lines_of_ended(ending.log, ending.job_id, extent)

    def accept_report(self, report: NodeReport) -> None:
        """Take a report of the launcher's; see :meth:`ServerReport.accept`."""
        requested = self.request.resources.memory if self.request is not None else None
        self._report.accept(report, memory_mib=requested)

    # --- settings -------------------------------------------------------------------------------

    def as_user(self) -> tuple[str, ...]:
        """The same, also while the database is away."""
        return command_prefix(self.exec_prefix, self._username or self.user.name)

    def configured_as(self, name: str) -> str:
        """A setting as the admin wrote it, such as ``c.GPUSlurmSpawner.req_partition``."""
        holders = (cls for cls in type(self).__mro__ if name in self.config.get(cls.__name__, {}))
        owner = GPUSlurmSpawner if GPUSlurmSpawner.class_traits().get(name) is not None else type(self)
        return f"c.{next(holders, owner).__name__}.{name}"

    def override_settings(self, settings: dict[str, Any], apply: Callable[[dict[str, Any]], None]) -> None:
        """Apply the overrides of a user's group; raises HTTPError for a value that is not valid."""
        where = "c.Spawner.group_overrides"
        if "idle" in settings:
            self.log.warning("%s: idle has no effect for a group. Set it in a profile.", where)
        try:
            apply(settings)
        except TraitError as error:
            failure = ConfigError(str(error), where=where)
            raise spawn_failure(failure, server=self._log_name, contact=contact_of(self)) from error

    def job_settings(self) -> JobSettings:
        """The settings from which the server's job is made, as they are now."""
        variables = {*self.get_env(), *self._attempt.certificates} if self.batch_script else ()
        return self._read_settings(frozenset(variables))

    def site_settings(self) -> JobSettings:
        """The same as the site has set them, whatever the server's profile sets, and without variables."""
        return self._read_settings(frozenset())

    def _read_settings(self, variables: frozenset[str]) -> JobSettings:
        requests = self.requests()
        return JobSettings(
            args=tuple(self.get_args()),
            batch_script=self.batch_script,
            cmd=tuple(self.cmd),
            exec_prefix=self.exec_prefix,
            gpus_option=self.gpus_option,
            hub_name=self.hub_name,
            job_name=self.job_name,
            lab_companion=self.lab_companion,
            log_dir=self.log_dir,
            memory_policy=self.memory_policy,
            placement_policy=self.placement_policy,
            port_range=self.port_range,
            req_epilogue=self.req_epilogue,
            req_homedir=self.req_homedir,
            req_prologue=self.req_prologue,
            topology_file=self.topology_file,
            usage_interval=self.usage_interval,
            requests=requests,
            locations={name: self.configured_as(name) for name in requests},
            variables=variables,
        )

    def check(self) -> None:
        """Raise ConfigError for a setting with which every start would fail."""
        site_profile(self.site_settings())
        check_commands(self)
        for gate in (False, True):  # takes a fifth of a second, once: now, not in the hub's loop during a start
            launcher_archive(gate=gate)

    def ignored_settings(self) -> tuple[IgnoredSetting, ...]:
        """Settings of this hub that have no effect, for the admin."""
        return ignored_settings(self.config, type(self), batch_script=self.batch_script)

    # --- the job --------------------------------------------------------------------------------

    async def account(self, settings: JobSettings | None = None) -> Account:
        """Home and shell of the job's user, by default the server's; raises ConfigError if there is no such account."""
        name = self._username or self.user.name
        home = (settings or self).req_homedir.replace("{username}", name)
        return await account_of(name, home=home, cluster=self.connection().accounts)

    def get_env(self) -> dict[str, str]:
        """JupyterHub's variables for a server, without batchspawner's of an account on the hub's machine."""
        env: dict[str, str] = Spawner.get_env(self)
        return env

    def job_environment(self, account: Account) -> dict[str, str]:
        """The environment of sbatch, and so of the job: JupyterHub's variables for a server, and the account's."""
        env = self.get_env()
        env.update(USER=account.name, LOGNAME=account.name, HOME=account.home, SHELL=account.shell)
        env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
        env.setdefault("LANG", "C.UTF-8")
        env.update(self._attempt.certificates)
        return env

    def batch_job(self, account: Account) -> BatchJob:
        """The job as it would be submitted now; raises ConfigError or RequestError."""
        settings = self.job_settings()
        request = self.request or plain_request(settings, username=self.user.name, server_name=self.name)
        return batch_job(settings, request, account, start_id=self._attempt.start_id)

    def cancellation(self, username: str, identity: JobIdentity, *, trusted_until: float | None = 0.0) -> Cancellation:
        """What cancels a job as this user, if it is the one of ``identity``."""
        return Cancellation(
            self.connection().client,
            identity,
            prefix=command_prefix(self.exec_prefix, username),
            environment={"USER": username, "LOGNAME": username},
            trusted_until=trusted_until,
        )

    def cancel_in_background(self) -> None:
        """Cancel the job, and try again until that works."""
        cancel = self.cancellation(self._username or self.user.name, self.identity)
        in_background(cancel_surely(self.job_id, cancel))

    # --- JupyterHub's contract ------------------------------------------------------------------

    async def start(self) -> Any:
        """Start the server and return where it is: for a job, its node's address and the server's port."""
        await takes_changes(self.orm_spawner, TO_START)
        try:
            where = await self.start_server()
        finally:  # JupyterHub's next step, after an error or a cancellation too, is to write to the database
            writable = await takes_changes(self.orm_spawner, TO_START)
        if not writable:
            raise database_away()
        return where

    async def start_server(self) -> Any:
        """Submit the job, and wait for the node's report and for the server."""
        self._begin()
        try:
            require_registration()
            checked_server_name(self.name)
            await self._submit_in_time()
            await self._until_ready()
        except GPUSpawnerError as error:
            if isinstance(error, SubmitRejected):
                since = self._attempt.reached[Stage.SUBMITTED]
                why = await why_never(self.connection(), self.exec_prefix, self.request, since=since)
                error.for_user = why or error.for_user
            raise self._start_error(error) from error
        except SQLAlchemyError as error:
            self.life.fault = "database"
            self.log.error("The start of %s failed with the hub's database: %s", self._log_name, fault(error))  # noqa: TRY400
            raise database_away(self.orm_spawner) from error
        finally:
            self.life.waited_for(tuple(self._attempt.reasons))
        self._serves()
        self.log.info("Job %s of %s serves at %s:%d", self.job_id, self._log_name, self.address, self.reported_port)
        self.port = self.reported_port
        return self.address, self.reported_port

    def _begin(self) -> None:
        """A new attempt begins, and nothing of the last one counts."""
        self._username = self.user.name
        metrics.SERVERS.add(self)
        self._report.forget()
        self._ending.last = None
        self._job.stopping = False
        mark = hub_mark(cookie_secret(self))
        self._attempt = new_attempt(mark, start_timeout=self.start_timeout, queue_timeout=self.queue_limit)
        self.life.begin(
            self._attempt.start_id,
            username=self._username,
            servername=self.name,
            begun_at=self._attempt.reached[Stage.SUBMITTED],
        )

    async def _submit_in_time(self) -> None:
        try:
            async with timeout(self.start_timeout):
                await self._prepare_and_submit()
        except asyncio.TimeoutError:
            raise self._ending.not_submitted(self.start_timeout) from None

    async def _prepare_and_submit(self) -> None:
        start = RecordedStart(self._username, self.name)
        await refuse_root(start.user)
        await self._refuse_hidden_jobs()
        account = await self.account()
        self._attempt.certificates = await asyncio.to_thread(certificate_variables, self.cert_paths)
        await self._record(start)  # the job is made of rows, which are read anew after another task's rollback
        await self._submit(self.batch_job(account), account)

    async def _refuse_hidden_jobs(self) -> None:
        """Raise ConfigError where Slurm does not show the hub its users' jobs: it could not tell whether they run."""
        if self.exec_prefix.strip() and await self.connection().shows_jobs.recent(VISIBILITY_SECONDS) is False:
            raise ConfigError("Slurm does not show the hub the jobs of its users (PrivateData=jobs).", hint=SHOW_JOBS)

    async def _record(self, start: RecordedStart) -> None:
        """Record the start before sbatch, so that a job that loses its server is known as this hub's."""
        session = self._state.session
        if session is not None and not await StartRecords(session).add(self._attempt.start_id, start):
            self.life.fault = "database"
            raise database_away()

    async def _submit(self, job: BatchJob, account: Account) -> None:
        for note in job.notes:
            self.log.warning("Batch script of %s: %s", self._log_name, note)
        job_id = await submit(
            self.connection().client,
            job,
            prefix=self.as_user(),
            environment=self.job_environment(account),
            cancel=self.cancellation(self._username, job.identity, trusted_until=None),
        )
        self._job.submitted(job_id, job.identity, trusted=TRUSTED)
        self._attempt.queued(Moment.now())
        self.life.submitted(job_id, self.request)
        self._state.store_soon()
        self.log.info("Submitted %s as job %s", self._log_name, job_id)
        if DEADLINE in job.script:
            self._deadline_task = asyncio.ensure_future(self._read_deadline(job_id, self._attempt))

    async def _read_deadline(self, job_id: str, attempt: Attempt) -> None:
        """Have Slurm work out what the job's deadline means: it may be given as ``now+2hours``, or with a time zone."""
        with suppress(GPUSpawnerError):  # the page does not say then until when the place is kept
            detail = await self.connection().client.job(job_id)
            if detail is not None and detail.latest_start is not None:
                attempt.latest = detail.latest_start
                self._state.store_soon()

    async def _until_ready(self) -> None:
        """Wait until the server answers; raises the error that says why it does not."""
        await Readiness(
            spawner=self,
            attempt=self._attempt,
            job=self._job,
            report=self._report,
            ending=self._ending,
            state=self._state,
            life=self.life,
            request=self.request,
        ).wait()

    def _start_error(self, error: GPUSpawnerError) -> Exception:
        """The exception that JupyterHub shows for an error of a start."""
        self.life.fault = error.reason
        return spawn_failure(error, server=self._log_name, contact=contact_of(self))

    def _serves(self) -> None:
        """The server answers from now on."""
        self.life.ready(self._attempt.reached)
        self._report.hand_over()
        self._state.count_age_from_now()
        self._job.serves(self.poll_and_notify)

    @property
    def _is_interrupted(self) -> bool:
        """The hub was restarted during the start, and has not resumed it."""
        return self._attempt.stage is not None and interrupted(self, self.reported_port)

    async def _resume(self) -> None:
        """The rest of a start that a restart of the hub interrupted."""
        self.log.info("Job %s of %s was starting when the hub ended: taking it up", self.job_id, self._log_name)
        metrics.adopted(self, "starting")
        try:
            await self._until_ready()
        except GPUSpawnerError as error:
            raise self._start_error(error) from error
        self._serves()
        self._state.store_soon()  # after start() JupyterHub does that itself

    async def poll(self) -> int | None:
        """None unless Slurm reports that the job has ended, and the hub can note it; then its exit code, or 1.

        In the hub's first check after a restart, it waits for a start that was under way.
        """
        try:
            status = await self.server_status()
            return status if status is None or await takes_changes(self.orm_spawner, TO_POLL) else None
        except Exception:  # JupyterHub would stop the server, in its first check after a restart
            self.log.exception(
                "Whether the server of %s still runs could not be determined, and it is kept", self._log_name
            )
            return None

    async def server_status(self) -> int | None:
        """None while the server runs, as far as is known; else its exit code."""
        if not self.job_id:
            return 0
        return await (resume(self, self._resume()) if self._is_interrupted else self._job_status())

    async def _job_status(self) -> int | None:
        """None while the server may run; else the job's exit code, or 1 where that is 0 or unknown.

        Only what Slurm reports ends a server; silence does not.
        """
        status = await self._job.first_status()
        if status is None or not self._job.over():
            self._lives(status)
            return None
        if status.phase is not Phase.ENDED:
            self.log.warning(
                "Slurm requeued job %s of %s; its server is gone: cancelling it", self.job_id, self._log_name
            )
            self.cancel_in_background()
        await self._ending.keep_job_end(status)
        self.log.info("Job %s of %s has ended: %s", self.job_id, self._log_name, sentence(status))
        code = status.exit_code.partition(":")[0]
        return int(code) if code.isdigit() and int(code) else 1

    def _lives(self, status: Job | None) -> None:
        metrics.adopted(self, "running")
        if self.pending != "spawn" and status is not None and status.phase in (Phase.RUNNING, Phase.ENDING):
            self._job.served_before()
        if self._job.served_at is not None:
            self._job.poll_when_over(self.poll_and_notify)

    async def stop(self, now: bool = False) -> None:  # noqa: FBT001, FBT002 - JupyterHub's signature
        """Cancel the job; unless ``now``, wait a few seconds for its end. Waits for the database."""
        await self.stop_server(now=now)
        await takes_changes(self.orm_spawner, TO_STOP)

    async def stop_server(self, *, now: bool) -> None:
        """Cancel the job, if there is one."""
        if self.job_id:
            await self._end_job(now=now)

    async def _end_job(self, *, now: bool) -> None:
        self._job.stopping = True
        self.log.info("Stopping %s: cancelling job %s", self._log_name, self.job_id)
        username = self._username or self.user.name
        cancel = self.cancellation(username, self.identity, trusted_until=self._job.trusted_until)
        try:
            await cancel(self.job_id)
        except GPUSpawnerError:  # JupyterHub forgets the server all the same
            self._ending.stop_unconfirmed()
            in_background(cancel_surely(self.job_id, cancel))
            return
        if not now:
            await first_of(self._job.until_ending(), asyncio.sleep(STOP_PATIENCE_SECONDS))

    def progress(self) -> AsyncIterator[dict[str, Any]]:
        """One event for each change: job, state and reason, position in the queue, node, GPUs."""
        return events(
            self.start_facts, update=lambda: self.update_queue(0.0), placement_event=lambda: self._report.placed
        )

    async def get_url(self) -> str:
        """Where the server is; after a restart of the hub, where one that was starting has arrived."""
        if not self.address or (self.server and self.server.port == self.reported_port):
            return str(await super().get_url())
        proto = "https" if self.internal_ssl else "http"
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{proto}://{host}:{self.reported_port}{self.server.base_url if self.server else '/'}"

    # --- state ----------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """The facts of job, start and report; where nothing runs, how the last server ended."""
        states = (part.to_state() for part in (self._job, self._report, self.extension, self.life))
        state = dict(item for state in states for item in state.items())
        return state | (self._attempt.to_state() if self.job_id else ending_state(self.ending))

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the job up again; what cannot be read is dropped."""
        self._username = self.user.name if self.user else ""
        self._job.load(state, server=self._log_name, log=self.log)
        self._attempt = stored_attempt(state, Moment.now(), start_timeout=self.start_timeout)
        for part in (self._report, self.extension, self.life):
            part.load(state)
        self.ending = stored_ending(state)
        if self.job_id:  # JupyterHub loads the state of a new spawner, too
            metrics.restored(self)
            metrics.SERVERS.add(self)

    def clear_state(self) -> None:
        """Forget the job, whose session is over; only JupyterHub decides when."""
        Spawner.clear_state(self)
        self.life.ended(self._ending.cause, self.job)
        self._attempt = Attempt()
        for part in (self._job, self._report, self.extension):
            part.forget()
