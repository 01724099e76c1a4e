"""Waits until the server of a submitted job answers the hub, or raises the error that says why it will not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import wraps
from ipaddress import IPv4Address, IPv6Address, ip_address
from types import SimpleNamespace
from typing import Any

import jupyterhub
from jupyterhub.utils import make_ssl_context, url_path_join, wait_for_http_server

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.hub import jupyterhub_compat as compat
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.hub.extensions import ServerExtensions
from jupyterhub_gpuspawner.hub.job.cause import Stage, start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.job.failed_start import start_error
from jupyterhub_gpuspawner.hub.job.server_ending import ServerEnding
from jupyterhub_gpuspawner.hub.job.session import Life
from jupyterhub_gpuspawner.hub.job.watch import JobWatch, verdict
from jupyterhub_gpuspawner.hub.report.server_report import ServerReport, confirmed, names_a_node_of
from jupyterhub_gpuspawner.hub.site.database import StoredState
from jupyterhub_gpuspawner.hub.site.slurm_settings import SlurmSettings
from jupyterhub_gpuspawner.hub.start.attempt import Attempt, Moment
from jupyterhub_gpuspawner.hub.start.progress import note_wait
from jupyterhub_gpuspawner.hub.start.submission import check_comment, note_owner
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.sections import program_of
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.estimate import Waits, as_planned
from jupyterhub_gpuspawner.slurm.job import End, Job, JobIdentity, Phase
from jupyterhub_gpuspawner.slurm.run_as import foreign_owner
from jupyterhub_gpuspawner.tasks import connected, first_of, resolved, timeout
from jupyterhub_gpuspawner.units import expand_nodelist
from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacementDocument

READY_PATH = "api"
"""The path below a server's own at which JupyterHub asks whether it is ready."""
RETRY_SECONDS = 1.0
"""Seconds until Slurm is asked again where the job runs."""
SILENCE_POLL_SECONDS = 1.0
"""Seconds between two looks at an attempt that would be given up if Slurm answered."""
CONFIG_SECONDS = 300.0
"""Age in seconds at which slurm.conf is read again for the time that a node may take to boot."""
HUB_POLL_SECONDS = 0.2
"""Seconds between two looks at what JupyterHub does with an attempt that was resumed."""


@dataclass
class Readiness:
    """Of one attempt: from the submission of its job until the server answers."""

    spawner: SlurmSettings
    attempt: Attempt
    job: JobWatch
    report: ServerReport
    state: StoredState
    life: Life
    ending: ServerEnding
    """Explains why it fails."""
    request: JobRequest | None
    """What was requested; None in a hub without profiles, and after a restart."""
    extensions: ServerExtensions = field(default_factory=ServerExtensions)
    waits: Waits = as_planned
    """What is known of waits of pending jobs on its cluster."""
    _job_checked: bool = False

    async def wait(self) -> None:
        """Return once the server answers at the address and port of the report.

        Raises the error that JupyterHub shows: the job has ended or can never start, the server does not answer, or the
        start takes too long.
        """
        await first_of(self._until_ready(), self._until_failed(), self._until_limit())
        ask_readiness_at(self.spawner, self._readiness_path())

    async def _until_limit(self) -> None:
        """Raise once the start has taken too long: in the queue, or from the allocation until its address is known."""
        while True:
            left = self.attempt.left(Moment.now())
            with suppress(asyncio.TimeoutError):
                async with timeout(SILENCE_POLL_SECONDS if left == 0 else left):
                    await self.job.changed.wait()
            if self.attempt.left(Moment.now()) == 0 and not self.report.address:
                await self._allow_for_boot()
            if self.attempt.left(Moment.now()) == 0 and not self.report.address:
                # while Slurm does not answer, the job may have left the queue
                if self.attempt.in_queue and self.job.silent:
                    continue
                stage = Stage.QUEUED if self.attempt.in_queue else Stage.ALLOCATED
                raise await self.ending.took_too_long(stage, self.attempt.limit or 0.0)

    async def _allow_for_boot(self) -> None:
        """Leave a node that was powered down the time that Slurm allows it, which gives it up itself after that."""
        snapshot, booting = None, self.job.status is not None and self.job.status.phase is Phase.STARTING
        if booting:
            snapshot = await self.spawner.connection().view.recent(CONFIG_SECONDS)
        self.attempt.boot_timeout = float(snapshot.config.resume_timeout or 0) if snapshot is not None else 0.0

    def _follow(self, status: Job | None) -> None:
        """Take note of Slurm's answer: the queue and the start have each their own time."""
        submitted = self.job.submitted_as
        shown = status is not None and status.end not in (End.VANISHED, End.REPLACED)
        if status is not None and shown and submitted is not None and not self._job_checked:
            self._job_checked = True
            self._refuse_foreign(status, submitted)
            if self.attempt.restored_at is None:
                check_comment(self.spawner.connection(), status, submitted, self.spawner.log)
                note_owner(self.spawner.connection(), self.spawner.as_user(), status)
        if self.attempt.follow(status, Moment.now(), since_pending=self.job.since_pending):
            self.state.store_soon()
        if status is not None and status.phase is Phase.QUEUED:
            note_wait(status, self.waits, self.extensions, now=time.time())
        self.job.notify()

    def _refuse_foreign(self, job: Job, submitted: JobIdentity) -> None:
        """Raise ConfigError for a job that turns out to be another account's; it is cancelled as the start fails."""
        prefix, username = self.spawner.as_user(), self.spawner.user.name
        owner = foreign_owner(job, submitted, prefix, username)
        if owner and not (self.spawner.dangerously_run_servers_as_root and job.uid == 0):
            raise ConfigError(
                f"job {job.job_id} of {username!r} runs as {owner!r}, and must run as {username!r}; it is cancelled.",
                where=self.spawner.configured_as("exec_prefix"),
                for_user="The server was stopped: it ran under another account than yours.",
                hint=f"Find out as whom {' '.join(prefix) or 'the hub'!r} runs sbatch.",
            )

    async def _until_failed(self) -> None:
        """Watch the job; raises once it has ended, or can never start."""
        status = await verdict(self.job.watch(), on_status=self._follow)
        if status.phase is Phase.ENDED:
            stage = self.attempt.stage or Stage.ALLOCATED
            if status.nodes and stage is Stage.QUEUED:  # it ended before anybody had seen it run
                stage = Stage.ALLOCATED
            raise await self.ending.died(status, stage=Stage.STARTING if self.report.reported.is_set() else stage)
        since, why = self.attempt.reached.get(Stage.SUBMITTED, 0.0), ""
        if self.request is not None:
            why = await self.extensions.await_first(WithServer.why_never, self.request, since=since) or ""
        raise self.ending.never_starts(status, why=why)

    async def _until_ready(self) -> None:
        await self.report.reported.wait()
        self.attempt.reported(Moment.now())
        self._follow(self.job.status)
        self.report.address = await self._confirmed_address()
        try:
            async with timeout(self.spawner.http_timeout):
                await self._until_it_answers()
        except asyncio.TimeoutError:
            why = await self.extensions.await_first(WithServer.unreached)
            raise await self._unreachable("no_way" if why else "timeout", why or self._unanswered()) from None

    async def _unreachable(self, fault: str, hint: str) -> Exception:
        """The error of a server that the hub cannot reach; addresses and ports are for administrators and the log."""
        return await self.ending.unreachable(fault, hint, seconds=self.spawner.http_timeout)

    def _unanswered(self) -> str:
        """Where the server was expected, for administrators."""
        report, seconds = self.report, self.spawner.http_timeout
        server = f"Job {self.job.job_id} is running, but its server at {report.address}"
        if report.port:
            return (
                f"{server}, port {report.port}, did not respond to the hub within {seconds} s. It is slow to start, or "
                "the hub cannot reach that port."
            )
        problem = report.claimed.problems[-1:] if report.port_taken and report.claimed is not None else ()
        return " ".join((f"{server} did not listen on its port within {seconds} s.", *problem))

    async def _confirmed_address(self) -> str:
        """The address of the job's first node, as Slurm reports it; completes the placement with Slurm's facts."""
        client, warned = self.spawner.connection().client, False
        while True:
            try:
                detail = self._watched_detail() or await self._detail(client)
                if detail is not None and detail.batch_host and self.job.is_own(detail):
                    address = await client.address(detail.batch_host)
                    self._keep_placement(detail)
                    return address
            # the job's end, or the attempt's limit, ends the start; an odd answer does not
            except GPUSpawnerError as error:
                if not isinstance(error, SlurmUnavailable) and not warned:
                    warned = True
                    self.spawner.log.warning("Slurm is asked again where job %s runs: %s", self.job.job_id, error)
            await asyncio.sleep(RETRY_SECONDS)

    def _keep_placement(self, detail: Job) -> None:
        """Keep the placement to show: what the node claims, as far as Slurm confirms it."""
        report = self.report
        claimed = report.claimed or report.placement or PlacementDocument()
        if not names_a_node_of(detail, claimed):
            report.topology = None
        placement = confirmed(claimed, detail)
        report.place(placement, detail.allocations)
        self.attempt.job_started(detail.starts_at)
        allocated_at = self.attempt.reached.get(Stage.ALLOCATED)
        self.life.placed(placement, allocated_at, self.attempt.reasons, self.extensions.promises())

    def _watched_detail(self) -> Job | None:
        """The job as the watcher knows it, if by that it runs on the node that the report names.

        The watcher does not know the memory of a job that requested none, which is by default in slurm.conf.
        """
        status, reported = self.job.status, self.report.claimed or self.report.placement
        if status is None or reported is None or reported.memory_mib is None:
            return None
        if self._has_several_nodes() or status.phase is not Phase.RUNNING:
            return None
        return Job(**asdict(status)) if status.batch_host == reported.node else None

    async def _detail(self, client: SlurmClient) -> Job | None:
        """The job as Slurm reports it now; what it holds on each node is asked for only where it has several."""
        several = self._has_several_nodes()
        detail = await client.job(self.job.job_id, allocations=several)
        if detail is not None and not several and len(expand_nodelist(detail.nodes)) > 1:
            detail = await client.job(self.job.job_id, allocations=True)
        return detail

    def _has_several_nodes(self) -> bool:
        """By what was requested, which is not known after a restart, or by what Slurm granted."""
        if self.request is not None and self.request.resources.node_count > 1:
            return True
        return self.job.status is not None and len(expand_nodelist(self.job.status.nodes)) > 1

    async def _until_it_answers(self) -> None:
        """Return when the server answers at the port that was reported last."""
        report = self.report.accepted
        while True:
            last, report = report, self.report.accepted
            if last is not None and report is not None and last.placement != report.placement:
                self.report.address = await self._confirmed_address()
            port = self.report.port
            if port:
                await self._choose_address()
                await first_of(self._serves_at(port), self._another_report(report))
            else:
                await self._another_report(report)
            if port and port == self.report.port:
                return

    async def _choose_address(self) -> None:
        """Use an address of the node on which the server listens; raises the start's error where there is none."""
        accepted, address = self.report.accepted, self.report.address
        listens = accepted.door.addresses if accepted is not None and accepted.door else ()
        chosen = reachable_address(address, await resolved(address) if listens else (), listens)
        if chosen is None:
            raise await self._unreachable(
                "unreachable",
                f"Job {self.job.job_id} is running, but its server listens only on {' and '.join(listens)}, "
                f"and the hub reaches its node at {address}. The profile's command, or c.Spawner.ip, makes the server "
                "listen there.",
            )
        if not self.spawner.internal_ssl:  # a certificate is valid for the name
            self.report.address = chosen

    async def _another_report(self, report: NodeReport | None) -> None:
        while report is self.report.accepted:
            await self.job.changed.wait()

    def _readiness_path(self) -> str:
        program = program_of(self.request.profile) if self.request is not None else None
        return program.readiness if program is not None else READY_PATH

    async def _serves_at(self, port: int) -> None:
        """Return when the server answers as JupyterHub will ask it: its own check would find a failure late."""
        self.report.entrance = await self.extensions.await_first(WithServer.reach, self.report.address, port)
        if self.report.entrance is not None:
            self.state.store_soon()
        await connected(*self.report.where)
        key, certificate, authority = compat.internal_certificates(self.spawner)
        await wait_for_http_server(
            url_path_join(await self.spawner.get_url(), self._readiness_path()),
            timeout=self.spawner.http_timeout,
            ssl_context=make_ssl_context(key, certificate, cafile=authority),
        )


def ask_readiness_at(spawner: Any, path: str) -> None:
    """Let JupyterHub ask at ``path`` whether this start's server is ready; it has no setting for that."""
    server = spawner.server
    if path == READY_PATH or server is None:
        return
    wait_up = server.wait_up

    @wraps(wait_up)
    def wait_up_at(*arguments: Any, **named: Any) -> Any:
        if named.get("extra_path") == READY_PATH:
            named["extra_path"] = path
        return wait_up(*arguments, **named)

    server.wait_up = wait_up_at


def keep_without_answer(spawner: Any) -> None:
    """Have JupyterHub's check after a restart keep a server that cannot answer now; it would stop it."""
    server = spawner.server

    async def wait_up(**_: Any) -> Any:
        del server.wait_up  # the next one has to answer
        return SimpleNamespace(headers={"X-JupyterHub-Version": jupyterhub.__version__})

    server.wait_up = wait_up


# Makes a start that a restart of the hub interrupted a pending start again.
#
# JupyterHub's check after a restart expects servers that run. While it waits for one that is still starting, the page
# has no progress, a stop answers 500, and other servers get no route; an exception from ``get_url`` ends the hub. So
# the rest of the start becomes what JupyterHub can show and cancel: a pending spawn with its future.


def interrupted(spawner: Any, port: int) -> bool:
    """Whether the restarted hub checks this server for the first time, and has not stored the port that it reaches.

    The stored address of a server that was still starting has a random port.
    """
    return bool(compat.is_first_check(spawner) and spawner.server and spawner.server.port != port)


async def resume(spawner: Any, rest: Coroutine[Any, Any, None]) -> int | None:
    """Run ``rest`` of the start as a pending spawn, and return the answer for the hub's check.

    The answer is None once the server is ready, and 1 if the start failed (the hub then stops the server, and its page
    says why) or a user has stopped it.
    """
    arrived = asyncio.Event()
    start = asyncio.ensure_future(_start(spawner, rest, arrived))
    compat.begin_pending_start(spawner, start)
    start.add_done_callback(lambda _: compat.end_pending_start(spawner))
    arrival = asyncio.ensure_future(arrived.wait())
    await asyncio.wait({start, arrival}, return_when=asyncio.FIRST_COMPLETED)
    arrival.cancel()
    if start.cancelled():
        await _until(lambda: spawner.server is None)  # whoever cancelled it stops the server, too
    return 1 if start.done() else None


async def _start(spawner: Any, rest: Coroutine[Any, Any, None], arrived: asyncio.Event) -> None:
    await rest
    arrived.set()
    await _until(lambda: not compat.is_checked(spawner))
    if spawner.server is None:
        raise start_error(Ending(start_failed("timeout")), contact=spawner.contact)
    try:  # JupyterHub's own check of routes may be minutes away
        await compat.proxy_of(spawner).add_user(spawner.user, spawner.name)
    except Exception:  # noqa: BLE001 - the proxy is being replaced; the server runs, and that check adds its route
        spawner.log.warning("The proxy has no route to %s's server yet; JupyterHub adds it", spawner.user.name)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - JupyterHub has no event for it
        await asyncio.sleep(HUB_POLL_SECONDS)


Address = IPv4Address | IPv6Address


def reachable_address(host: str, addresses: Sequence[str], listens: Iterable[str]) -> str | None:
    """The host or address at which the hub reaches a server: one on which the server listens.

    At an address on which it does not listen, such as the IPv6 address of a server on IPv4 only, any user of the node
    may listen at the same port.

    That is ``host`` if the server listens on all of its ``addresses``, else the first address on which it listens, and
    None if there is none. If ``addresses`` or ``listens`` is unknown, that is ``host``, too.
    """
    doors = [_plain(ip_address(address)) for address in listens]
    if not doors or not addresses:
        return host
    fitting = [
        resolved_address
        for resolved_address in addresses
        if any(_opens(door, _plain(ip_address(resolved_address))) for door in doors)
    ]
    if not fitting and any(door == IPv6Address("::") for door in doors):  # which may accept IPv4, too
        return host
    if len(fitting) == len(addresses):
        return host
    return fitting[0] if fitting else None


def _plain(address: Address) -> Address:
    return getattr(address, "ipv4_mapped", None) or address


def _opens(door: Address, address: Address) -> bool:
    """Whether a server that listens on ``door`` is reached at ``address`` from another machine."""
    return door.version == address.version and (door.is_unspecified or not door.is_loopback or address.is_loopback)
