"""A server that is a Slurm job, from its submission until it answers: waited for, and told of where it never will."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from jupyterhub.utils import make_ssl_context, url_path_join, wait_for_http_server

from jupyterhub_gpuspawner.cluster.pending import place_in_line
from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.ending.failure import spawn_failure
from jupyterhub_gpuspawner.hub.ending.job_end import JobEnd
from jupyterhub_gpuspawner.hub.pages.text import wait
from jupyterhub_gpuspawner.hub.report.confirmation import confirmed, names_a_node_of
from jupyterhub_gpuspawner.hub.report.node_report import ReportedPlacement, ReportTooEarly
from jupyterhub_gpuspawner.hub.report.reach import resolved, way
from jupyterhub_gpuspawner.hub.report.reader import ReportError
from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.hub.site.account import job_owner
from jupyterhub_gpuspawner.hub.site.tasks import connected, first_of
from jupyterhub_gpuspawner.hub.start import comments
from jupyterhub_gpuspawner.hub.start.deadline import clocks
from jupyterhub_gpuspawner.hub.start.progress import StartFacts, event
from jupyterhub_gpuspawner.hub.start.verdict import verdict
from jupyterhub_gpuspawner.jobs.comment import tag
from jupyterhub_gpuspawner.jobs.identity import JobIdentity
from jupyterhub_gpuspawner.jobs.status import JobDetail, JobStatus, Phase
from jupyterhub_gpuspawner.slurm.watcher import HIDDEN
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.cluster.pending import Place
    from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot
    from jupyterhub_gpuspawner.hub.site.metrics import StartTimes
    from jupyterhub_gpuspawner.hub.start.deadline import Deadline
    from jupyterhub_gpuspawner.profiles.resolve import JobRequest
    from jupyterhub_gpuspawner.slurm.watcher import Watch
    from jupyterhub_gpuspawner.wire.documents import NodeReport

_NOTED_AGAIN = 4.0
"""Seconds until the hub tries again to note that a server has ended, while its database is away."""
_LINE = 60.0
"""Seconds until the line of those who wait is looked at again."""
_NOT_YET_SEEN = 15.0
"""The same for a job that was not in it."""
_TAKEN = 0.05
"""Seconds between two looks whether the node has reported again."""


class WatchedJob(JobEnd, ReportedPlacement):
    """A mixin for the spawner of Slurm jobs: what happens to the job, and its way to a server that answers."""

    if TYPE_CHECKING:  # what the spawner has
        exec_prefix: str
        hub_name: str
        http_timeout: int
        internal_ssl: bool
        name: str
        slurm_timeout: float
        user: Any

        async def get_url(self) -> str: ...  # noqa: D102

    request: JobRequest | None = None
    _start_by: Deadline | None = None
    """When the start is given up."""
    _least_left = 0.0
    """Seconds that it gets at least; more than none in a hub that was restarted."""
    _identity: JobIdentity | None = None
    """As it was submitted or stored; None where an earlier version has stored the server."""
    _trusted_until = 0.0
    """Until when the number is sbatch's own word, on the monotonic clock."""
    _watch: Watch | None = None
    _lookout: asyncio.Future[None] | None = None
    _served_at: float | None = None
    """When the server was there, in seconds since the epoch; None before that, 0 if another hub process saw it."""
    _times: StartTimes | None = None
    """None for a start that was under way when the hub was restarted."""

    _reached: dict[str, float] | None = None
    """When each stage of the start was reached, see :class:`StartFacts`."""

    _in_line: tuple[ClusterSnapshot, Place | None] | None = None
    """The place in line, and the snapshot that it was read from."""

    def _watching(self) -> Watch:
        if self._watch is None:
            new = time.monotonic() < self._trusted_until
            self._watch = self.connection().watcher.watch(self.job_id, self.identity, new=new)
            metrics.SERVERS.add(self)
        return self._watch

    @property
    def identity(self) -> JobIdentity:
        """What tells the server's job from another one under its number."""
        if self._watch is not None:
            return self._watch.identity
        if self._identity is not None:
            return self._identity
        # stored by an earlier version, or by batchspawner: the first answer completes it
        return JobIdentity(
            owner=job_owner(self.exec_prefix, self.user.name), tag=tag(self.hub_name, self.user.name, self.name)
        )

    def is_own(self, job: JobStatus) -> bool:
        """Whether what Slurm says under the job's number is said of the server's job."""
        return self._watch.is_own(job) if self._watch is not None else self.identity.matches(job)

    def _serves(self) -> None:
        self._served_at = time.time()
        self.hand_over()
        self._look_out()

    def _look_out(self) -> None:
        """Have the hub ask as soon as the job of a server that runs has ended, not when its next poll is due."""
        if self._lookout is None or self._lookout.done():
            self._lookout = asyncio.ensure_future(self._until_over())

    async def _until_over(self) -> None:
        watch = self._watching()
        with suppress(RuntimeError):  # the hub has forgotten the server
            while not self._over(watch):
                await watch.changed()
            # None: the hub cannot note it yet
            while self.job_id and not self._stopping and await self.known.poll_and_notify() is None:  # noqa: ASYNC110
                await asyncio.sleep(_NOTED_AGAIN)

    def _over(self, watch: Watch) -> bool:
        """Whether Slurm says that the server's process is no more: it has ended, or was taken from its node."""
        return watch.status is not None and (watch.status.phase is Phase.ENDED or self._put_back(watch))

    def _put_back(self, watch: Watch) -> bool:
        """Whether the job of a server that ran waits again, by an answer that is surely newer than the server."""
        status, answered = watch.status, self.connection().watcher.last_answer
        return (
            (status is not None and status.phase is Phase.QUEUED)
            and (self._served_at is not None and answered is not None)
            and answered > self._served_at + self.slurm_timeout
        )

    def _hidden(self) -> bool:
        """Slurm does not show the job to the hub's account."""
        return self._watch is not None and self._watch.hidden

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def check_report(self, report: NodeReport) -> None:
        """Raise ReportError where the report names another job than this server's."""
        if not self.job_id:
            if self.known.pending == "spawn":  # sbatch's answer is on its way
                raise ReportTooEarly("server: its job is not known yet")
            raise ReportError("server: nothing is being started here")
        if report.placement.job_id not in (None, self.job_id):
            raise ReportError(f"placement.job_id: must be {self.job_id}, the job of this server")

    def take_claim(self) -> None:
        """Nothing is shown before Slurm has confirmed it."""

    @property
    def job(self) -> JobStatus | None:
        """The job as Slurm last told it; never asks."""
        return self._watch.status if self._watch is not None else None

    def start_facts(self) -> StartFacts:
        """What is known of the start that is under way; asks nothing."""
        return StartFacts(
            job_id=self.job_id,
            reached=dict(self._reached or {}),
            job=self.job,
            placement=self.placement,
            place=self._place_in_line(),
            silent=self._watch is not None and self._watch.stale,
            hidden=self._hidden(),
            answered_at=self.connection().watcher.last_answer,
        )

    async def see_the_line(self, patience: float) -> None:
        """While the job waits have the cluster looked at, once for all who wait; takes ``patience`` seconds at most.

        With the watcher's questions that stays below one RPC in a second, however many wait.
        """
        if self.job is not None and self.job.phase is Phase.QUEUED:
            max_age = _NOT_YET_SEEN if self._place_in_line() is None else _LINE
            await self.connection().cluster.recent(max_age, patience)

    def _place_in_line(self) -> Place | None:
        snapshot = self.connection().cluster.latest
        if snapshot is None or self.job is None or self.job.phase is not Phase.QUEUED:
            return None
        if self._in_line is None or self._in_line[0] is not snapshot:
            self._in_line = snapshot, place_in_line(snapshot, self.job_id)
        return self._in_line[1]

    async def _until_ready(self) -> None:
        """Wait until the server accepts connections; raises what is to be told where it never will."""
        # a little before the hub's own time-out, which has no words
        left = self._start_by.left(clocks(), at_most=self.start_timeout) if self._start_by is not None else 0.0
        left = max(left - min(1.0, self.start_timeout / 10), self._least_left)
        await first_of(self._arrive(), self._until_ended(), asyncio.sleep(left))
        if not self.address:
            raise self._too_late(
                event(self.start_facts(), now=time.time())["message"], hint=HIDDEN if self._hidden() else ""
            )

    async def _finish_start(self) -> None:
        """What :meth:`start` would have done after the submission."""
        try:
            await self._until_ready()
        except GPUSpawnerError as error:
            raise spawn_failure(error) from error
        self._serves()
        self.store_soon()  # after start() the hub does that itself

    async def _arrive(self) -> None:
        await self.reported.wait()
        self._reached = {"starting": time.time(), **(self._reached or {})}
        if self._times is not None:
            self._times.reported()
        self.address = await self._confirm()
        try:
            await asyncio.wait_for(self._answers(), self.http_timeout)
        except asyncio.TimeoutError:
            raise await self._failure(
                self._unanswered(),
                hint="Start again. If it happens again, tell your administrator: the server is slow to start, or the "
                "hub cannot reach that port.",
                reason="timeout",
                status_code=503,
            ) from None

    def _unanswered(self) -> str:
        where = f"at {self.address}"
        if self.reported_port:
            return (
                f"Job {self.job_id} runs, but its server {where}, port {self.reported_port}, "
                f"did not answer the hub within {self.http_timeout} s."
            )
        known = self.claimed.problems[-1:] if self._taken and self.claimed is not None else ()
        told = (
            f"Job {self.job_id} runs, but its server {where} did not listen at its port within {self.http_timeout} s."
        )
        return " ".join((told, *known))

    async def _answers(self) -> None:
        """Return when the server answers at the port that was reported last."""
        report = self._accepted
        while True:
            last, report = report, self._accepted
            if last is not None and report is not None and last.placement != report.placement:
                self.address = await self._confirm()
            port = self.reported_port
            if port:
                await self._choose_way()
                await first_of(self._serves_at(port), self._another_report(report))
            else:
                await self._another_report(report)
            if port and port == self.reported_port:
                return

    async def _choose_way(self) -> None:
        """Go by an address of the node on which the server listens; raises what is to be told where there is none."""
        listens = self._accepted.door.addresses if self._accepted is not None and self._accepted.door else ()
        chosen = way(self.address, await resolved(self.address) if listens else (), listens)
        if chosen is None:
            raise await self._failure(
                f"Job {self.job_id} runs, but its server listens on {' and '.join(listens)} alone, and the hub reaches "
                f"its node at {self.address}.",
                hint="Tell your administrator: the profile's command makes the server listen there, or c.Spawner.ip.",
                reason="unreachable",
                status_code=503,
            )
        if not self.internal_ssl:  # there the certificate is the name's
            self.address = chosen

    async def _another_report(self, report: NodeReport | None) -> None:
        while report is self._accepted:  # noqa: ASYNC110 - one task, and a report comes once or twice
            await asyncio.sleep(_TAKEN)

    async def _serves_at(self, port: int) -> None:
        """Return when it answers as the hub will ask it: a server that dies before that would be told of late."""
        await connected(self.address, port)
        names = ("internal_ssl_key", "internal_ssl_cert", "internal_ssl_ca")
        key, certificate, authority = (self.user.settings.get(name) for name in names)
        await wait_for_http_server(
            url_path_join(await self.get_url(), "api"),
            timeout=self.http_timeout,
            ssl_context=make_ssl_context(key, certificate, cafile=authority),
        )

    async def _until_ended(self) -> None:
        """Watch the job; raises once it has ended, or can never start."""
        status = await verdict(self._watching(), first_answer=self._look_at_comment)
        raise await self._died(status) if status.phase is Phase.ENDED else self._hopeless(status)

    def _look_at_comment(self, status: JobStatus) -> None:
        if self._identity is not None:
            comments.look_at(status, self._identity, self.log)

    async def _confirm(self) -> str:
        """The address of the job's first node, by Slurm's word; completes the placement with Slurm's facts."""
        client = self.connection().client
        while True:
            with suppress(SlurmUnavailable):
                detail = self._already_told() or await client.job(self.job_id, allocations=self._has_several_nodes())
                if detail is not None and detail.batch_host and self.is_own(detail):
                    address = await client.address(detail.batch_host)
                    claimed = self.claimed or self.placement or PlacementDocument()
                    if not names_a_node_of(detail, claimed):
                        self.topology = None
                    self.place(confirmed(claimed, detail))
                    if self._times is not None:
                        self._times.started(detail.starts_at)
                    return address
                if detail is None and self._hidden() and self.claimed is not None and self.claimed.node:
                    return await self._unconfirmed(self.claimed)
            await asyncio.sleep(1.0)

    async def _unconfirmed(self, claimed: PlacementDocument) -> str:
        """The address of the node that the report names, where Slurm does not show the job: a node of the cluster's.

        Slurm knows the node's address, and nobody confirms that the job is there; the card says so.
        """
        address = await self.connection().client.address(claimed.node)
        self.place(replace(claimed, job_id=self.job_id, problems=(*claimed.problems, wait.UNCONFIRMED)))
        return address

    def _already_told(self) -> JobDetail | None:
        """The job as the watcher knows it, where Slurm has told that it runs on the node that the report names."""
        status, told = self.job, self.claimed or self.placement
        if status is None or told is None or self._has_several_nodes() or status.phase is not Phase.RUNNING:
            return None
        return JobDetail(**asdict(status)) if status.batch_host == told.node else None

    def _has_several_nodes(self) -> bool:
        return self.request is not None and self.request.resources.nodes > 1
