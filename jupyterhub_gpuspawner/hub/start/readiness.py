"""Waits until the server of a submitted job answers the hub, or raises the error that says why it will not."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol

from jupyterhub.utils import make_ssl_context, url_path_join, wait_for_http_server

from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.job.verdict import verdict, why_never
from jupyterhub_gpuspawner.hub.jupyterhub_compat import internal_certificates
from jupyterhub_gpuspawner.hub.report.reader import confirmed, names_a_node_of, resolved, way
from jupyterhub_gpuspawner.hub.site.tasks import connected, first_of, timeout
from jupyterhub_gpuspawner.hub.start.progress import event
from jupyterhub_gpuspawner.hub.start.submission import check_comment
from jupyterhub_gpuspawner.jobs.status import JobDetail, JobStatus, Phase
from jupyterhub_gpuspawner.units import expand_nodelist
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from jupyterhub_gpuspawner.hub.job.server_ending import ServerEnding
    from jupyterhub_gpuspawner.hub.job.watch import JobWatch
    from jupyterhub_gpuspawner.hub.report.server_report import ServerReport
    from jupyterhub_gpuspawner.hub.site.connection import Connection
    from jupyterhub_gpuspawner.hub.start.attempt import Start
    from jupyterhub_gpuspawner.hub.start.progress import StartFacts
    from jupyterhub_gpuspawner.profiles.resolve import JobRequest
    from jupyterhub_gpuspawner.slurm.client import SlurmClient
    from jupyterhub_gpuspawner.wire.documents import NodeReport

READY = "api"
"""The path below a server's own at which JupyterHub asks whether it is ready."""
_NEXT_REPORT = 0.05
"""Seconds between two looks whether the node has reported again."""
_ASK_AGAIN = 1.0
"""Seconds until Slurm is asked again where the job runs."""
_STILL_SILENT = 1.0
"""Seconds between two looks at a start that would be given up if Slurm answered."""


class StartingServer(Protocol):
    """What is needed of the server's spawner."""

    user: Any

    @property
    def request(self) -> JobRequest | None:
        """What was asked for; None in a hub without profiles, and after a restart."""

    @property
    def exec_prefix(self) -> str:
        """The prefix that runs a command as the server's user."""

    @property
    def start_timeout(self) -> int:
        """Seconds that the start may take, from the allocation on."""

    @property
    def http_timeout(self) -> int:
        """Seconds that the server may take until it answers, from its report on."""

    @property
    def internal_ssl(self) -> bool:
        """The server is reached by TLS."""

    @property
    def log(self) -> logging.Logger:
        """The hub's log."""

    def connection(self) -> Connection:
        """The hub's connection to Slurm."""

    def start_facts(self) -> StartFacts:
        """What is known of the start."""

    async def get_url(self) -> str:
        """Where the server is."""


class Readiness:
    """Of one start: from the submission of its job until the server answers."""

    def __init__(
        self,
        server: StartingServer,
        start: Start,
        job: JobWatch,
        report: ServerReport,
        ending: ServerEnding,
        *,
        store: Callable[[], None],
        placed: Callable[[], None] = lambda: None,
    ) -> None:
        """``store`` writes the spawner's state to the hub's database, soon.

        ``placed`` is called when the placement to show is known.
        """
        self._server = server
        self._start = start
        self._job = job
        self._report = report
        self._ending = ending
        self._store = store
        self._placed = placed
        self._looked = asyncio.Event()

    async def wait(self) -> None:
        """Return once the server answers at the address and port of ``report``.

        Raises the error that JupyterHub shows: the job has ended or can never start, the server does not answer, or the
        start takes too long.
        """
        await first_of(self._until_ready(), self._until_failed(), self._until_given_up())
        ask_readiness_at(self._server, self._readiness_path())

    async def _until_given_up(self) -> None:
        """Raise once the start has taken too long: in the queue, or from the allocation until its address is known."""
        while True:
            self._looked.clear()
            left = self._start.left()
            over = () if left is None else (asyncio.sleep(left or _STILL_SILENT),)
            await first_of(self._looked.wait(), *over)
            if self._start.left() == 0 and not self._report.address:
                # while Slurm does not answer, the job may have left the queue
                if self._start.in_queue and self._job.silent:
                    continue
                raise self._given_up()

    def _given_up(self) -> Exception:
        clock = self._start.clock
        limit = clock.limit if clock is not None else None
        if self._start.in_queue:
            return self._ending.waited_too_long(limit or 0.0)
        known = event(self._server.start_facts(), now=time.time())["message"]
        return self._ending.timed_out(limit or 0.0, known)

    def _follow(self, status: JobStatus | None) -> None:
        """Take note of Slurm's answer: the queue and the start have each their own time."""
        if self._start.follow(status, since_pending=self._job.since_pending):
            self._store()
        self._looked.set()

    async def _until_failed(self) -> None:
        """Watch the job; raises once it has ended, or can never start."""
        status = await verdict(self._job.watch(), first_answer=self._check_comment, look=self._follow)
        if status.phase is Phase.ENDED:
            raise await self._ending.died(status, reported=self._report.reported.is_set())
        why = await why_never(self._server, since=self._start.reached.get("submitted", 0.0))
        raise self._ending.never_starts(status, why=why)

    def _check_comment(self, status: JobStatus) -> None:
        identity = self._job.submitted_identity
        if identity is not None:
            check_comment(status, identity, self._server.log)

    async def _until_ready(self) -> None:
        await self._report.reported.wait()
        self._start.reported()
        self._follow(self._job.status)
        self._report.address = await self._confirm()
        try:
            async with timeout(self._server.http_timeout):
                await self._until_it_answers()
        except asyncio.TimeoutError:
            raise await self._unreachable(
                words.UNANSWERED.format(time=words.span(self._server.http_timeout)),
                advice=words.NO_ANSWER_ADVICE,
                for_admin=self._unanswered(),
                reason="timeout",
            ) from None

    async def _unreachable(self, what: str, *, advice: str, for_admin: str, reason: str) -> Exception:
        """The error of a server that the hub cannot reach; addresses and ports are for administrators and the log."""
        self._server.log.error("%s", for_admin)
        return await self._ending.failed(what, hint=advice, for_admin=for_admin, reason=reason, status_code=503)

    def _unanswered(self) -> str:
        """Where the server was expected, for administrators."""
        report, seconds = self._report, self._server.http_timeout
        server = f"Job {self._job.job_id} is running, but its server at {report.address}"
        if report.port:
            return (
                f"{server}, port {report.port}, did not respond to the hub within {seconds} s. It is slow to start, or "
                "the hub cannot reach that port."
            )
        known = report.claimed.problems[-1:] if report.port_taken and report.claimed is not None else ()
        return " ".join((f"{server} did not listen on its port within {seconds} s.", *known))

    # --- where the job runs ---------------------------------------------------------------------

    async def _confirm(self) -> str:
        """The address of the job's first node, as Slurm reports it; completes the placement with Slurm's facts."""
        client, report, puzzling = self._server.connection().client, self._report, False
        while True:
            try:
                detail = self._already_known() or await self._asked(client)
                if detail is not None and detail.batch_host and self._job.is_own(detail):
                    address = await client.address(detail.batch_host)
                    claimed = report.claimed or report.placement or PlacementDocument()
                    if not names_a_node_of(detail, claimed):
                        report.topology = None
                    report.place(confirmed(claimed, detail), detail.allocations)
                    self._start.job_started(detail.starts_at)
                    self._placed()
                    return address
            except (
                GPUSpawnerError
            ) as error:  # the job's end, or the start's limit, ends the start; an odd answer does not
                if not isinstance(error, SlurmUnavailable) and not puzzling:
                    puzzling = True
                    self._server.log.warning("Slurm is asked again where job %s runs: %s", self._job.job_id, error)
            await asyncio.sleep(_ASK_AGAIN)

    def _already_known(self) -> JobDetail | None:
        """The job as the watcher knows it, if by that it runs on the node that the report names."""
        status, reported = self._job.status, self._report.claimed or self._report.placement
        if status is None or reported is None or self._has_several_nodes() or status.phase is not Phase.RUNNING:
            return None
        return JobDetail(**asdict(status)) if status.batch_host == reported.node else None

    async def _asked(self, client: SlurmClient) -> JobDetail | None:
        """The job as Slurm reports it now; what it holds on each node is asked for only where it has several."""
        several = self._has_several_nodes()
        detail = await client.job(self._job.job_id, allocations=several)
        if detail is not None and not several and len(expand_nodelist(detail.nodes)) > 1:
            detail = await client.job(self._job.job_id, allocations=True)
        return detail

    def _has_several_nodes(self) -> bool:
        """By what was requested, which is not known after a restart, or by what Slurm granted."""
        if self._server.request is not None and self._server.request.resources.nodes > 1:
            return True
        return self._job.status is not None and len(expand_nodelist(self._job.status.nodes)) > 1

    # --- the server -----------------------------------------------------------------------------

    async def _until_it_answers(self) -> None:
        """Return when the server answers at the port that was reported last."""
        report = self._report.accepted
        while True:
            last, report = report, self._report.accepted
            if last is not None and report is not None and last.placement != report.placement:
                self._report.address = await self._confirm()
            port = self._report.port
            if port:
                await self._choose_address()
                await first_of(self._serves_at(port), self._another_report(report))
            else:
                await self._another_report(report)
            if port and port == self._report.port:
                return

    async def _choose_address(self) -> None:
        """Use an address of the node on which the server listens; raises the start's error where there is none."""
        accepted, address = self._report.accepted, self._report.address
        listens = accepted.door.addresses if accepted is not None and accepted.door else ()
        chosen = way(address, await resolved(address) if listens else (), listens)
        if chosen is None:
            raise await self._unreachable(
                words.UNREACHABLE,
                advice=words.ASK,
                for_admin=f"Job {self._job.job_id} is running, but its server listens only on {' and '.join(listens)}, "
                f"and the hub reaches its node at {address}. The profile's command, or c.Spawner.ip, makes the server "
                "listen there.",
                reason="unreachable",
            )
        if not self._server.internal_ssl:  # a certificate is valid for the name
            self._report.address = chosen

    async def _another_report(self, report: NodeReport | None) -> None:
        while report is self._report.accepted:  # noqa: ASYNC110 - one task, and a report comes once or twice
            await asyncio.sleep(_NEXT_REPORT)

    def _readiness_path(self) -> str:
        app = self._server.request.app if self._server.request is not None else None
        return app.readiness if app is not None else READY

    async def _serves_at(self, port: int) -> None:
        """Return when the server answers as JupyterHub will ask it: its own check would find a failure late."""
        await connected(self._report.address, port)
        key, certificate, authority = internal_certificates(self._server)
        await wait_for_http_server(
            url_path_join(await self._server.get_url(), self._readiness_path()),
            timeout=self._server.http_timeout,
            ssl_context=make_ssl_context(key, certificate, cafile=authority),
        )


def ask_readiness_at(spawner: Any, path: str) -> None:
    """Let JupyterHub ask at ``path`` whether this start's server is ready; it has no setting for that."""
    server = spawner.server
    if path == READY or server is None:
        return
    wait_up = server.wait_up

    @wraps(wait_up)
    def wait_up_at(*arguments: Any, **named: Any) -> Any:
        if named.get("extra_path") == READY:
            named["extra_path"] = path
        return wait_up(*arguments, **named)

    server.wait_up = wait_up_at
