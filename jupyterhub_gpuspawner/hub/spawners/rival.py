"""A server that waits, and beside its job for a moment another one, for a choice that its user accepts as well.

What is decided, and when it is stored, is in :mod:`..start.rival`; here it is done. Whatever fails beside it, the job
that waits goes on waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from jupyterhub_gpuspawner.batch.job import BatchJob
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, ReportError, RequestError, SubmitRejected
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.hub.jupyterhub_compat import cookie_secret
from jupyterhub_gpuspawner.hub.report.server_report import ReportTooEarly
from jupyterhub_gpuspawner.hub.site.connection import Cluster
from jupyterhub_gpuspawner.hub.site.database import TO_START, written
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start import submission
from jupyterhub_gpuspawner.hub.start.attempt import Line, line_of, new_start_id
from jupyterhub_gpuspawner.hub.start.progress import is_settling
from jupyterhub_gpuspawner.hub.start.rival import Contest, Rival, Step, Turn, next_step
from jupyterhub_gpuspawner.hub.start.submission import RecordedStart, StartRecords
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, covers, with_partitions_of
from jupyterhub_gpuspawner.slurm.estimate import Chance
from jupyterhub_gpuspawner.slurm.job import Account, Job, hub_mark
from jupyterhub_gpuspawner.slurm.watcher import Watch
from jupyterhub_gpuspawner.tasks import first_of, in_background
from jupyterhub_gpuspawner.wire.documents import ASKS_TURN, TurnQuestion

LOOK_SECONDS = 15.0
"""Seconds between two looks whether something that the user accepts is free."""
LOOK_PATIENCE = 2.0
"""Seconds that a look waits for a new view of the cluster; it goes by the last one then."""
AGAIN_SECONDS = 300.0
"""Seconds until a choice is submitted beside once more that was refused, or did not start at once; also of an error."""


class WithRival(GPUSlurmSpawner):
    """Its attempt may have two jobs, of which each asks before it runs the server."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._not_before: dict[str, float] = {}
        """By profile and resources: when it may be submitted beside again, by the monotonic clock."""
        self._beside: tuple[JobRequest | None, Watch, float] | None = None
        """What the job beside was submitted for (None after a restart), its watch, and since when it is watched."""
        self._judged: tuple[Any, Any] = None, None
        """The view of the cluster by which it was last judged what is free, and the user options then."""
        self._end_of_rival: asyncio.Task[None] | None = None

    def acceptable(self) -> Sequence[JobRequest]:
        """What its user accepts as well on its cluster, as they may have it now; nothing here."""
        return ()

    @property
    def may_look(self) -> bool:
        """Whether a job may be submitted beside: a restarted hub has not what hooks, tokens and certificates made."""
        return self.attempt.contest is not None and self.request is not None

    def job_beside(
        self, request: JobRequest, account: Account, start_id: str
    ) -> tuple[BatchJob, Mapping[str, str], Mapping[str, Any]]:
        """The job of this request, its environment, and what is stored of its profile; changes nothing here."""
        raise NotImplementedError

    def take_profile(self, profile: Mapping[str, Any], request: JobRequest | None) -> None:
        """Be the spawner of another profile, whose job runs the server; never raises."""
        raise NotImplementedError

    def stored_profile(self) -> Mapping[str, Any]:
        """What the state has of its profile."""
        raise NotImplementedError

    def get_env(self) -> dict[str, str]:
        """Also that its job asks whether it runs the server."""
        asks = {ASKS_TURN: "1"} if self.attempt.contest is not None else {}
        return {**super().get_env(), **asks}

    def _begin(self) -> None:
        super()._begin()
        self._not_before.clear()
        if self.request is not None and self.request.may_have_rival:
            self.attempt.contest = Contest()

    async def _submit(self) -> None:
        """For all partitions by which alone acceptable choices differ; where Slurm refuses that, for its own."""
        request = self.request
        if request is not None and self.attempt.contest is not None:
            with suppress(ConfigError):  # logged where the profiles are read
                self.request = with_partitions_of(request, self.acceptable())
        try:
            await super()._submit()
        except SubmitRejected as error:
            if self.request is request:
                raise
            self.log.warning("Job of %s is submitted for its own partition alone: %s", self._log_name, error)
            self.request, self.attempt.start_id = request, new_start_id(hub_mark(cookie_secret(self)))
            self.life.renamed(self.attempt.start_id)
            await super()._submit()

    # --- a job asks ---

    def take_turn(self, question: TurnQuestion) -> None:
        """Return where this job runs the server, once that is stored.

        Raises ReportError where another one does, ReportTooEarly until that is decided, and SQLAlchemyError.
        """
        if self.watch.stopping or not (self.job_id or self.pending == "spawn"):
            raise ReportError("job_id: the server is not being started")
        contest = self.attempt.contest or Contest()
        turn = contest.turn(question.job_id, self.job_id)
        if turn is Turn.NOT_YET:
            raise ReportTooEarly("job_id: it is not known yet which job runs the server")
        if turn is Turn.ANOTHERS:
            self.row.store()  # it ends, so the other one must be known to a hub that is restarted
            raise ReportError("job_id: another job runs the server")
        if question.job_id == self.job_id:
            self.attempt.contest = contest if contest.decided else contest.won_by_own()
        elif contest.rival is not None:
            self._swap(contest.rival)
        self.row.store()
        self.watch.notify()
        self._end_rival()

    def _swap(self, rival: Rival) -> None:
        """The job beside runs the server: it is this attempt's own from now on, and the one that waited is beside."""
        request = self._beside[0] if self._beside is not None else None
        lost = Rival(self.watch.identity, self.stored_profile(), self.job_id, lost=True)
        self.log.info("Job %s of %s is first: it runs the server", rival.job_id, self._log_name)
        self.take_profile(rival.profile, request)
        self._close_watch()
        if (former := self.watch.replaced(rival.job_id, rival.identity)) is not None:
            self._beside = None, former, time.monotonic()
        self.report.forget()
        attempt = self.attempt
        attempt.contest, attempt.starts_at, attempt.latest = Contest(lost, decided=True), None, None
        attempt.start_timeout = self.start_timeout
        self.life.submitted(rival.job_id, self.request, profile=self.child_profile)

    # --- what goes on beside the wait ---

    async def _until_ready(self) -> None:
        job_id = ""
        while job_id != self.job_id:
            job_id = self.job_id
            try:
                await first_of(super()._until_ready(), self._go_on_beside(job_id))
            except Exception:  # where it is cancelled, the server is stopped, or the hub ends, and the next one goes on
                self._end_rival()
                raise
            self._end_rival()

    async def _go_on_beside(self, job_id: str) -> None:
        """Return once the attempt has another job than this one."""
        while True:
            changed = self.watch.changed  # before the step: what changes from now on is not missed
            if self.job_id != job_id:
                return
            pause = AGAIN_SECONDS
            try:
                await self._take_step()
                pause = LOOK_SECONDS
            except GPUSpawnerError as error:  # the job that waits goes on waiting
                self.log.warning("Nothing is submitted beside job %s of %s: %s", *self._log_names, error)
            except Exception:
                self.log.exception("Nothing is submitted beside job %s of %s", *self._log_names)
            if self.job_id == job_id:
                await first_of(changed.wait(), asyncio.sleep(pause))

    async def _take_step(self) -> None:
        contest = self.attempt.contest
        if contest is None:
            return
        job, seconds = self._job_beside(contest)
        reported = self.report.placement is not None
        settling = is_settling(self.attempt, self.watch, self.server_extensions)
        waits = line_of(self.watch.status, has_reported=reported, settling=settling) is Line.WAITING and self.may_look
        step = next_step(contest, job, waits=waits, silent=self.watch.silent, seconds=seconds)
        if step is Step.LOOK:
            await self._look()
        elif step is Step.END:
            if (ending := self._end_rival()) is not None:
                await asyncio.shield(ending)
        elif step is Step.FORGET:
            self._forget_rival(contest.rival)

    def _job_beside(self, contest: Contest) -> tuple[Job | None, float]:
        """The job beside as Slurm last reported it, and for how many seconds it has been watched."""
        rival = contest.rival
        if rival is None or not rival.job_id or rival.lost:
            return None, 0.0
        if self._beside is None:
            watch = self.connection().watcher.watch(rival.job_id, rival.identity)
            self._beside = None, watch, time.monotonic()
        _, watch, since = self._beside
        return watch.status, time.monotonic() - since

    async def _look(self) -> None:
        """Submit the first acceptable choice that is free, if any is; judged once by each view of the cluster."""
        await self.refresh_start(LOOK_PATIENCE)
        view, options = self.connection().view.latest, self.user_options
        if view is not None and self._judged[0] is view and self._judged[1] == options:
            return
        self._judged = view, options
        for request in self.acceptable():
            if self.request is not None and covers(self.request, request):
                continue
            name = f"{request.profile.slug} {request.resources}"
            if self._not_before.get(name, 0.0) > time.monotonic():
                continue
            answer = await self.server_extensions.await_first(WithServer.availability, request)
            if answer is not None and answer.chance is Chance.NOW:
                self._not_before[name] = time.monotonic() + AGAIN_SECONDS
                await self._submit_beside(request)
                return

    async def _submit_beside(self, request: JobRequest) -> None:
        cluster, session = self.connection(), self.row.session
        start_id = new_start_id(hub_mark(cookie_secret(self)))
        account = await self.account()
        if session is not None and not await StartRecords(session).add(
            start_id, RecordedStart(self._username, self.name)
        ):
            return
        contest = self.attempt.contest
        if contest is None or contest.decided or contest.rival is not None:
            return
        job, environment, profile = self.job_beside(request, account, start_id)
        if cluster.replaces_comments and not job.identity.name:
            return  # one that cannot be found again could be a second server
        self.attempt.contest = replace(contest, rival=Rival(job.identity, profile))
        # stored before there is a job: a hub that is restarted looks for it
        if session is not None and not await written(session, self.row.store, TO_START):
            return
        contest = self.attempt.contest
        if contest is None or contest.decided or contest.rival is None or contest.rival.lost:  # or stopped meanwhile
            return
        self.log.info("%s is free: submitting it beside job %s of %s", profile.get("profile"), *self._log_names)
        cancel = self.cancellation(self._username, job.identity, trusted_until=None)
        try:
            job_id = await submission.submit(
                cluster,
                job,
                prefix=self.as_user(),
                environment=environment,
                cancel=cancel,
                on_silence=lambda _: None,
                renewed=_no_longer,
            )
        except GPUSpawnerError as error:  # such as a limit on submitted jobs; that there is no job is made sure of next
            self.log.warning("Nothing is submitted beside job %s of %s: %s", *self._log_names, error)
            return
        contest = self.attempt.contest
        if contest is None or contest.rival is None or contest.rival.lost:  # the other job has asked meanwhile
            in_background(submission.cancel_surely(cluster, job_id, cancel))
            return
        self.attempt.contest = replace(contest, rival=replace(contest.rival, job_id=job_id))
        self._beside = request, cluster.watcher.watch(job_id, job.identity, new=True), time.monotonic()
        self.row.store_soon()

    @property
    def _log_names(self) -> tuple[str, str]:
        return self._log_job, self._log_name

    # --- its end ---

    def _end_rival(self) -> asyncio.Task[None] | None:
        """Cancel the job beside, in the background, until Slurm says that it is gone; None where none is."""
        contest = self.attempt.contest
        if contest is None or contest.rival is None:
            return None
        if self._end_of_rival is None or self._end_of_rival.done():
            rival = replace(contest.rival, lost=True)
            self.attempt.contest = replace(contest, rival=rival)
            cancel = self.cancellation(self._username or self.user.name, rival.identity)
            self._end_of_rival = in_background(self._ended(self.connection(), rival, cancel))
        return self._end_of_rival

    async def _ended(self, cluster: Cluster, rival: Rival, cancel: submission.Cancellation) -> None:
        if rival.job_id:
            await submission.cancel_surely(cluster, rival.job_id, cancel)
        await submission.without_jobs(cluster, {rival.identity: cancel}, lambda _: None, cancelled={rival.job_id})
        self._forget_rival(rival)

    def _forget_rival(self, rival: Rival | None) -> None:
        """It is gone."""
        contest = self.attempt.contest
        now = contest.rival if contest is not None else None
        if contest is not None and now is not None and rival is not None and now.identity == rival.identity:
            self._close_watch()
            self.attempt.contest = replace(contest, rival=None)
            self.row.store_soon()

    def _close_watch(self) -> None:
        if self._beside is not None:
            self._beside[1].close()
            self._beside = None

    async def stop_server(self, *, now: bool) -> None:
        """Cancel both jobs."""
        self.watch.stopping = True
        self._end_rival()
        await super().stop_server(now=now)

    def _lives(self, status: Job | None) -> None:
        super()._lives(status)
        if self.attempt.contest is not None and self.attempt.contest.decided:
            self._end_rival()  # a restart of the hub came between

    def clear_state(self) -> None:
        """Forget both jobs; that beside is cancelled by now, or in the background."""
        self._end_rival()
        self._close_watch()
        super().clear_state()


async def _no_longer() -> BatchJob:
    """Slurm did not answer: by now something else may be free, and a job that was made is cancelled."""
    raise RequestError("Slurm did not answer.")
