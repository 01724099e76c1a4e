"""The spawner of servers that are Slurm jobs: what JupyterHub calls, and the server's state.

From batchspawner it inherits the name, the ``req_*`` settings, ``exec_prefix`` and an admin's own ``batch_script``. The
job is made by :class:`.ServerJob`; the rest is done by the objects that it owns (:mod:`..start`, :mod:`..report`,
:mod:`..job`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

from traitlets import default

from jupyterhub_gpuspawner.batch import job as build
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.hub import jupyterhub_compat as compat
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.hub.extensions import extensions_for
from jupyterhub_gpuspawner.hub.job.cause import Stage
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.job.failed_start import database_away, hook_failure, spawn_failure
from jupyterhub_gpuspawner.hub.job.log import JobLog
from jupyterhub_gpuspawner.hub.job.server_ending import ServerEnding, recorded_subject
from jupyterhub_gpuspawner.hub.job.session import Life, Stream
from jupyterhub_gpuspawner.hub.job.watch import JobWatch
from jupyterhub_gpuspawner.hub.report.server_report import ServerReport
from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.hub.site.connection import Cluster
from jupyterhub_gpuspawner.hub.site.database import TO_POLL, TO_START, TO_STOP, StoredState, takes_changes, written
from jupyterhub_gpuspawner.hub.site.slurm_settings import CONNECTION, STOP_PATIENCE_SECONDS, Effective
from jupyterhub_gpuspawner.hub.site.state import require_set_up
from jupyterhub_gpuspawner.hub.spawner_bases import Spawner
from jupyterhub_gpuspawner.hub.spawners.server_job import ServerJob, certificate_variables
from jupyterhub_gpuspawner.hub.start import submission
from jupyterhub_gpuspawner.hub.start.attempt import Attempt, Moment, new_attempt, stored_attempt, stored_kept_start
from jupyterhub_gpuspawner.hub.start.progress import StartFacts, events, start_facts
from jupyterhub_gpuspawner.hub.start.readiness import Readiness, interrupted, keep_without_answer, resume
from jupyterhub_gpuspawner.hub.start.submission import TRUSTED, Cancellation, RecordedStart, StartRecords, cancel_surely
from jupyterhub_gpuspawner.profiles.resolve import queue_limit
from jupyterhub_gpuspawner.slurm.accounts import refuse_root
from jupyterhub_gpuspawner.slurm.commands import command_prefix
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, Waits
from jupyterhub_gpuspawner.slurm.job import Account, End, Job, JobIdentity, Phase, hub_mark, job_words
from jupyterhub_gpuspawner.slurm.watcher import SHOW_JOBS
from jupyterhub_gpuspawner.tasks import first_of, in_background, in_name_thread, timeout
from jupyterhub_gpuspawner.wire.documents import NodeReport

VISIBILITY_SECONDS = 300.0
"""For so long it is known whether Slurm shows the hub its users' jobs."""
DEADLINE = "--deadline"
"""sbatch's option: Slurm removes a job that could not end before."""


def take_options(spawner: Any, user_options: Mapping[str, object]) -> None:
    """What a form of the site's has sent is for its hooks and its template; other options are refused.

    JupyterHub's ``apply_user_options`` of a hub without profiles. Raises HTTPError.
    """
    try:
        if user_options and not spawner.has_form():
            name = str(next(iter(user_options)))[:40]
            raise RequestError(f"{name!r} is not an option here.", field=name, hint="No options are offered.")
        build.with_options(spawner.site_settings(), user_options)
    except GPUSpawnerError as error:
        raise spawn_failure(error, server=spawner._log_name, contact=spawner.contact) from error  # noqa: SLF001 - ours


class GPUSlurmSpawner(compat.LogName, compat.OwnStartTimeout, compat.SiteHooks, ServerJob):
    """Starts each server as one Slurm job, bound to the right GPUs, cores and memory."""

    user_options = compat.UserOptions()

    child_profile = ""
    """The slug of the server's profile; empty in a hub without profiles."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.row = StoredState(self, server=self._log_name, log=self.log)
        self.watch = JobWatch(self)
        self.report = ServerReport(self, self.row)
        self.ended = ServerEnding(self.watch, self.report)
        self.life = Life(self.hub_state.of(Stream))
        self._taken_up = True
        """False for a server of the database that is not yet known to be there."""
        self._ended_job = ""
        """The id of the last job whose end was noticed."""
        self.server_extensions = extensions_for(self).with_server(self)

    @default("apply_user_options")
    def _default_apply_user_options(self) -> Any:
        return take_options

    # --- what others read -----------------------------------------------------------------------

    @property
    def job_id(self) -> str:
        """Slurm's job id; empty before the submission."""
        return self.watch.job_id

    @property
    def job_ids(self) -> set[str]:
        """The ids of its jobs: there may be another one beside its own."""
        rival = self.attempt.contest.rival if self.attempt.contest is not None else None
        return {job_id for job_id in (self.job_id, rival.job_id if rival is not None else "") if job_id}

    @cached_property
    def job_log(self) -> JobLog:
        """The log of its job, which a start that goes well does not read."""
        return JobLog(self.watch)

    @property
    def _log_job(self) -> str:
        """The job in a line of the log; with its cluster, in a hub that names them."""
        return f"{self.job_id} on {self.cluster}" if self.cluster else self.job_id

    def start_facts(self) -> StartFacts:
        """What is known of the start that is under way; asks nothing."""
        return start_facts(
            self.attempt,
            self.watch,
            self.report.placement,
            self.request,
            self.waits(queued=True),
            self.server_extensions,
        )

    async def refresh_start(self, patience: float = 0.0) -> None:
        """Bring up to date what pages show of the start that is under way; takes ``patience`` seconds at most."""
        await asyncio.gather(
            self.watch.update_boot(patience), self.server_extensions.await_each(WithServer.refresh_waiting, patience)
        )

    def waits(self, *, queued: bool) -> Waits:
        """What is known of waits on its cluster, of pending jobs or before a job is submitted."""
        return extensions_for(self).waits(self.cluster, queued=queued)

    def accept_report(self, report: NodeReport) -> None:
        """Take a report of the launcher's; see :meth:`ServerReport.accept`."""
        self.report.accept(report, memory_mib=self.request.resources.memory if self.request is not None else None)

    def cancellation(
        self,
        username: str,
        identity: JobIdentity,
        *,
        trusted_until: float | None = 0.0,
        on: Effective | None = None,
    ) -> Cancellation:
        """What cancels a job as this user, if it is the one of ``identity``; ``on`` another cluster's settings."""
        return Cancellation(
            self.connection(on).client,
            identity,
            username,
            command_prefix((on or self).exec_prefix, username),
            trusted_until,
        )

    def cancel_in_background(self) -> None:
        """Cancel the job, and try again until that works."""
        cancel = self.cancellation(self._username or self.user.name, self.watch.identity)
        in_background(cancel_surely(self.connection(), self.job_id, cancel))

    # --- JupyterHub's contract ------------------------------------------------------------------

    async def start(self) -> Any:
        """Start the server and return where it is: for a job, its node's address and the server's port."""
        await takes_changes(self.orm_spawner, TO_START)
        self.ended.begin()
        try:
            with self.ended.of_start():
                require_set_up()
                where = await self.start_server()
        finally:  # JupyterHub's next step, after an error or a cancellation too, is to write to the database
            writable = await takes_changes(self.orm_spawner, TO_START)
        if not writable:
            self.log.error("The start of %s failed: the hub's database takes no changes.", self._log_name)
            raise self.ended.start_failed(database_away())
        return where

    async def start_server(self) -> Any:
        """Submit the job, and wait for the node's report and for the server."""
        self._begin()
        try:
            compat.checked_server_name(self.name)
            try:
                async with timeout(self.attempt.left(Moment.now())):
                    await self._submit()
            except asyncio.TimeoutError:
                if self.attempt.unanswered is not None:
                    raise self.attempt.unanswered from None
                raise await self.ended.took_too_long(Stage.SUBMITTED, self.start_timeout) from None
            await self._until_ready()
        except SubmitRejected as error:
            if self.request is not None:
                since = self.attempt.reached[Stage.SUBMITTED]
                why = await self.server_extensions.await_first(WithServer.why_never, self.request, since=since)
                error.why = why or ""
            raise
        self._serves()
        at, (host, self.port) = (self.report.address, self.report.port), self.report.where
        self.log.info("Job %s of %s serves at %s:%d", self._log_job, self._log_name, *at)
        return host, self.port

    def _begin(self) -> None:
        """A new attempt begins, and nothing of the last one counts."""
        self._username = self.user.name
        for name in vars(self):  # not a trait
            if name.startswith("req_"):
                self.log.warning("There is no setting %s, which a hook has set for %s", name, self._log_name)
        self.hub_state.of(metrics.ServersWithJobs).add(self)
        self.report.forget()
        limit = self.request.profile.queue_timeout if self.request is not None else None
        self.attempt = new_attempt(
            hub_mark(compat.cookie_secret(self)),
            start_timeout=self.start_timeout,
            queue_timeout=queue_limit(limit, self.site_queue_limit),
            kept=self.attempt.kept,
        )
        self.life.begin(
            self.attempt.start_id,
            username=self._username,
            servername=self.name,
            begun_at=self.attempt.reached[Stage.SUBMITTED],
            request=self.request,
            cluster=self.cluster,
        )

    async def _submit(self) -> None:
        start = RecordedStart(self._username, self.name)
        await refuse_root(start.user)
        await in_name_thread(self.check_account)
        # without their jobs, the hub could not tell whether they run
        if self.exec_prefix.strip() and await self.connection().shows_jobs.recent(VISIBILITY_SECONDS) is False:
            raise ConfigError("Slurm does not show the hub the jobs of its users (PrivateData=jobs).", hint=SHOW_JOBS)
        if self.attempt.submissions:
            await self._end_submissions()
        account = await self._account_when_slurm_answers()
        self.attempt.certificates = await asyncio.to_thread(certificate_variables, self.cert_paths)
        # recorded before sbatch, so that a job that loses its server is known as this hub's
        session = self.row.session
        if session is not None and not await StartRecords(session).add(self.attempt.start_id, start):
            raise database_away()
        if self.attempt.is_kept:
            await self.ask_right_again()
        await self._note_expectation()
        job = self.batch_job(account)  # it is made of rows, which are read anew after another task's rollback
        self.attempt.submissions, self.attempt.submitted_on = (job.identity,), self.cluster
        if self.attempt.is_kept and session is not None and not await written(session, self.row.store, TO_START):
            raise database_away()  # a hub that is restarted would not look for this job
        for note in job.notes:
            self.log.warning("Batch script of %s: %s", self._log_name, note)
        job_id = await submission.submit(
            self.connection(),
            job,
            prefix=self.as_user(),
            environment=self.job_environment(account),
            cancel=self.cancellation(self._username, job.identity, trusted_until=None),
            on_silence=self._keep_for_later,
            renewed=partial(self._renewed_job, account),
        )
        self.attempt.unanswered = None
        self.watch.submitted(job_id, job.identity, trusted=TRUSTED)
        self.attempt.queued(Moment.now())
        self.watch.notify()
        self.life.submitted(job_id, self.request)
        self.row.store_soon()
        self.log.info("Submitted %s as job %s", self._log_name, self._log_job)
        if DEADLINE in job.script:
            in_background(self._read_deadline(job_id, self.attempt))

    async def _renewed_job(self, account: Account) -> build.BatchJob:
        """The job as its user may have it now; raises RequestError where they may not."""
        await self.ask_right_again()
        return self.batch_job(account)

    async def ask_right_again(self) -> None:
        """Raise RequestError where the user may not start this server any more: its start was kept for a while."""
        await takes_changes(self.orm_spawner, TO_START)  # the rights are read from the database
        if self.row.is_deleted:
            raise RequestError("The server was deleted while its start was kept for later.")
        if not self._groups <= self.groups_of_user():
            raise RequestError(
                "The groups of its user have changed while the start was kept for later, and with them what it gets.",
                hint="Start again.",
            )

    async def _end_submissions(self) -> None:
        """Have no job of the attempts before a restart of the hub run beside the one that is submitted now."""
        settings = self.effective(self.attempt.submitted_on)
        cancel = {job: self.cancellation(self._username, job, on=settings) for job in self.attempt.submissions}
        await submission.without_jobs(self.connection(settings), cancel, self._keep_for_later)

    async def _account_when_slurm_answers(self) -> Account:
        """The job's account. Waits for Slurm, if that is known to be silent, or is needed to look the account up."""
        cluster = self.connection()
        if cluster.silent:
            try:
                async with timeout(submission.FIRST_SEARCH_SECONDS):
                    await submission.until_answer(cluster, self._keep_for_later)
            except asyncio.TimeoutError:
                self._keep_for_later(SlurmUnavailable("Slurm has not answered the hub's last question."))
                await submission.until_answer(cluster, self._keep_for_later)
        while True:
            try:
                return await self.account()
            except SlurmUnavailable as error:
                self._keep_for_later(error)
                await asyncio.sleep(submission.ANSWER_SECONDS)
                await submission.until_answer(cluster, self._keep_for_later)

    def _keep_for_later(self, error: SlurmUnavailable) -> None:
        """Slurm does not take the job now: pages say so, and that the server starts when Slurm answers."""
        if self.attempt.unanswered is None:
            seconds = self.attempt.left(Moment.now()) or 0.0
            self.log.warning(
                "The start of %s is kept until Slurm answers, for %.0f s at most: %s", self._log_name, seconds, error
            )
            self.attempt.unanswered = error
            self.row.store_soon()  # a hub that is restarted goes on with it
        self.attempt.unanswered = error
        self.watch.notify()

    async def _note_expectation(self) -> None:
        """Note what the form says of the start."""
        if self.request is None:
            return
        answer = await self.server_extensions.await_first(WithServer.availability, self.request)
        if answer is not None and answer.estimate != UNKNOWN:
            self.attempt.at_click = answer.estimate
            self.server_extensions.each(WithServer.expects, answer.estimate, answer.partition, now=time.time())

    async def _read_deadline(self, job_id: str, attempt: Attempt) -> None:
        """Have Slurm work out what the job's deadline means: it may be given as ``now+2hours``, or with a time zone."""
        with suppress(GPUSpawnerError):  # the page does not say then until when the place is kept
            detail = await self.connection().client.job(job_id)
            # the start may be over by now, and its server gone
            if detail is not None and detail.latest_start is not None and attempt is self.attempt:
                attempt.latest = detail.latest_start
                self.row.store_soon()

    async def _until_ready(self) -> None:
        try:
            await self._readiness().wait()
        finally:
            if self.watch.status is not None and self.watch.status.end is End.REVOKED:
                self.cancel_in_background()  # on the federation's other cluster, where nobody would end it

    def _readiness(self) -> Readiness:
        return Readiness(
            spawner=self,
            attempt=self.attempt,
            job=self.watch,
            report=self.report,
            state=self.row,
            life=self.life,
            ending=self.ended,
            request=self.request,
            extensions=self.server_extensions,
            waits=self.waits(queued=True),
        )

    def hook_failed(self, name: str, error: Exception) -> Exception:
        """A hook of the site has ended the start before :meth:`start`; the session's record says so, too."""
        failure = hook_failure(self, name, error)
        if failure is not error:
            self._begin()
            self.ended.begin()
            self.ended.start_failed(failure)
        return failure

    def _serves(self) -> None:
        """The server answers from now on."""
        self.life.ready(self.attempt.reached)
        self.report.hand_over()
        self.row.count_age_from_now()
        self.watch.serves()

    @property
    def _is_interrupted(self) -> bool:
        """The hub was restarted during the start, and has not resumed it."""
        return self.attempt.stage is not None and interrupted(self, self.report.where[1])

    async def _resume(self) -> None:
        """The rest of a start that a restart of the hub interrupted."""
        self.log.info("Job %s of %s was starting when the hub ended: taking it up", self._log_job, self._log_name)
        self.count_adopted("starting")
        with self.ended.of_start():
            await self._until_ready()
        self._serves()
        self.row.store_soon()  # after start() JupyterHub does that itself

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
        status = await self.watch.first_status()
        if status is None or not self.watch.over():
            self._lives(status)
            if compat.is_first_check(self) and self.server:
                suspended = status is not None and status.state == "SUSPENDED"
                if suspended or not all(await self.server_extensions.await_each(WithServer.reached_again)):
                    fact = "Slurm has suspended" if suspended else "The hub has no way to"
                    self.log.info("%s job %s of %s, which is kept", fact, self._log_job, self._log_name)
                    keep_without_answer(self)
            return None
        first, self._ended_job = self._ended_job != self.job_id, self.job_id  # several polls may see the same end
        if first and status.phase is not Phase.ENDED:
            self.log.warning(
                "Slurm requeued job %s of %s; its server is gone: cancelling it", self._log_job, self._log_name
            )
        if first and (status.phase is not Phase.ENDED or status.end is End.REVOKED):
            self.cancel_in_background()
        session = self.life.session
        await self.ended.keep_job_end(status, planned=session.session_ends_at if session is not None else None)
        if first:
            ending = self.ended.last
            why = words_of(ending) if ending is not None and ending.served else job_words(status)
            self.log.info("Job %s of %s has ended: %s", self._log_job, self._log_name, why.sentence)
        code = status.exit_code.partition(":")[0]
        return int(code) if code.isdigit() and int(code) else 1

    def _lives(self, status: Job | None) -> None:
        self.count_adopted("running")
        runs = status is not None and status.phase in (Phase.RUNNING, Phase.ENDING)
        if status is not None:
            submission.note_owner(self.connection(), self.as_user(), status)
        if runs and self.pending != "spawn" and self.watch.served_at is None:
            self.watch.served_at = 0.0  # it ran already when this hub process began
        if self.watch.served_at is not None:
            self.watch.poll_when_over()

    async def stop(self, now: bool = False) -> None:
        """Cancel the job; unless ``now``, wait a few seconds for its end. Waits for the database."""
        await self.stop_server(now=now)
        await takes_changes(self.orm_spawner, TO_STOP)

    async def stop_server(self, *, now: bool) -> None:
        """Cancel the job, if there is one."""
        if self.job_id:
            await self._end_job(now=now)

    async def _end_job(self, *, now: bool) -> None:
        self.watch.stopping = True
        self.log.info("Stopping %s: cancelling job %s", self._log_name, self._log_job)
        username, job_id = self._username or self.user.name, self.job_id
        cancel = self.cancellation(username, self.watch.identity, trusted_until=self.watch.trusted_until)
        try:
            await cancel(job_id)
        except GPUSpawnerError:  # JupyterHub forgets the server all the same, and may have done so meanwhile
            self.ended.stop_unconfirmed()
            in_background(self._cancel_later(self.connection(), job_id, cancel))
            return
        if not now:
            await self.ended.keep_log_of_stop()
            await first_of(self.watch.until_ending(), asyncio.sleep(STOP_PATIENCE_SECONDS))

    async def _cancel_later(self, cluster: Cluster, job_id: str, cancel: Cancellation) -> None:
        """Cancel the job of a server that was stopped already; its card then no longer says that it may run.

        JupyterHub has dropped this spawner by then, and may have made another one, which pages show and which may have
        started another job since.
        """
        await cancel_surely(cluster, job_id, cancel)
        spawner = self.user.spawners.get(self.name, self)
        if spawner.ended.stop_confirmed(job_id):
            spawner.row.store_soon()

    def progress(self) -> AsyncIterator[dict[str, Any]]:
        """One event for each change: job, state and reason, position in the queue, node, GPUs."""
        return events(self.start_facts, self.watch, self.refresh_start)

    async def get_url(self) -> str:
        """Where the server is; after a restart of the hub, where one that was starting has arrived."""
        host, port = self.report.where
        if not self.report.address or (self.server and self.server.port == port):
            return str(await super().get_url())
        proto = "https" if self.internal_ssl else "http"
        host = f"[{host}]" if ":" in host else host
        return f"{proto}://{host}:{port}{self.server.base_url if self.server else '/'}"

    # --- state ----------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """The facts of job, start and report; where nothing runs, how the last server ended."""
        states = (part.to_state() for part in (self.watch, self.report, self.server_extensions, self.life))
        state = dict(item for state in states for item in state.items())
        if self.cluster and self.job_id:
            state["cluster"] = {"name": self.cluster, **{name: getattr(self, name) for name in CONNECTION}}
        if self.job_id:  # it stands also where wrapspawner's spawner reads it, in a hub that goes back
            state |= self.attempt.to_state() | {"child_state": {"job_id": self.job_id}}
        return state | self.state_without_job()

    def state_without_job(self) -> dict[str, Any]:
        """How the last server ended, unless another one runs, and what is kept of a start that Slurm has not taken."""
        if self.job_id:
            return {}
        kept = self.attempt.to_keep
        return self.ended.to_state() | (kept.to_state() if kept is not None else {})

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the job up again; what cannot be read is dropped."""
        self.load_state_without_job(state)
        self._username = self.user.name if self.user else ""
        self._load_cluster(state.get("cluster"))
        self.watch.load(state)
        for part in (self.server_extensions, self.report, self.life):
            part.load(state)
        if self.job_id:  # JupyterHub loads the state of a new spawner, too
            self.attempt = stored_attempt(state, Moment.now(), start_timeout=self.start_timeout)
            self._taken_up = False
            self.hub_state.of(metrics.ServersWithJobs).add(self)

    def load_state_without_job(self, state: Mapping[str, Any]) -> None:
        """Read what :meth:`state_without_job` gave."""
        self.attempt = Attempt(kept=stored_kept_start(state))
        self.ended.load(state)

    def count_adopted(self, state: str) -> None:
        """Count a server that this hub has read from its database, once it is known to be there."""
        if not self._taken_up:
            self._taken_up = True
            metrics.ADOPTED.labels(self.cluster, state).inc()
            if self.watch.identity.uid == 0 and not self.dangerously_run_servers_as_root:
                text = "Job %s of %s is root's: exec_prefix was another one then. It is kept until somebody stops it."
                self.log.warning(text, self._log_job, self._log_name)

    def _load_cluster(self, stored: object) -> None:
        """Be on the cluster of a stored server, by today's settings, or where the hub names it no more, by its own."""
        if not isinstance(stored, dict) or not stored.get("name"):
            return
        name = str(stored["name"])
        if name in self.clusters:
            settings = self.cluster_settings(name)
        else:
            settings = {"cluster": name, **{setting: stored[setting] for setting in CONNECTION if setting in stored}}
        self.own(settings, where="stored state")

    def clear_state(self) -> None:
        """Forget the job, whose session is over; only JupyterHub decides when."""
        Spawner.clear_state(self)
        last = self.ended.last
        subject = recorded_subject(last, self.request) if last is not None else ""
        promises = self.server_extensions.promises()
        self.life.ended(self.ended.cause, self.watch.status, subject, self.attempt.reasons, promises)
        self.attempt = Attempt(kept=self.attempt.kept)
        for part in (self.watch, self.report, self.server_extensions):
            part.forget()
        self.disown()
