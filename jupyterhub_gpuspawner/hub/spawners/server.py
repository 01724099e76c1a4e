"""What the hub knows of one server, as values: read by the pages, the API and the work in the background.

:func:`server_of` takes any spawner of a hub: ours, another package's, or a row of JupyterHub's database, which is all
that is left of a named server that was stopped. Each question is answered for a spawner that is none of ours, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from typing import Any, TypeVar

from jupyterhub import orm
from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.extension import ServerPart, WithServer
from jupyterhub_gpuspawner.hub.extensions import extensions_for
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind, Stage
from jupyterhub_gpuspawner.hub.job.ending import Ending, stored_ending
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.job.failed_start import ending_of
from jupyterhub_gpuspawner.hub.job.log import Extent
from jupyterhub_gpuspawner.hub.jupyterhub_compat import display_name, last_start
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.spawners.profiles import NOTHING_CHOSEN, GPUProfilesSpawner, job_spawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.spawners.stopping import is_cancelled
from jupyterhub_gpuspawner.hub.start.attempt import Line, line_of
from jupyterhub_gpuspawner.hub.start.progress import StartFacts, is_settling
from jupyterhub_gpuspawner.hub.times import parse_time
from jupyterhub_gpuspawner.hub.words import title_of_another
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.reason import NO_WORDS, Words
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

T = TypeVar("T")


class ServerState(str, Enum):
    """What a server is doing, the same on every page and over REST."""

    RUNNING = "running"
    WAITING = "waiting"
    """Its job is pending."""
    STARTING = "starting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    """It does not run, and nothing is to be said about that: a person stopped it, or it never ran."""
    ENDED = "ended"
    """It ran, and ended by itself."""
    OVER = "over"
    """It ran until the session of its profile's occasion was over, as was planned."""
    FAILED = "failed"
    """Its last start failed."""


@dataclass(frozen=True)
class Server:
    """What is known of one server of one user at this moment."""

    user: str = ""
    """The user's name."""
    name: str = ""
    """Empty for the default server."""
    display_name: str = ""
    """The name to show; empty for the default server."""
    pending: str | None = None
    """``spawn``, ``stop`` or ``check``, as JupyterHub says it; None where nothing is under way.

    A start that was cancelled, and takes long to end, is ``stop``.
    """
    ready: bool = False
    """It runs, and has answered the hub."""
    profile: str = ""
    """The slug of the profile that was chosen; empty where there is none.

    Of a start that has only just begun, and is not looked at yet, it is what its user has sent: escape it.
    """
    admin_profile: str = ""
    """The same, for that of an occasion the slug of the admin's profile that it narrows."""
    rank: int = 0
    """Which of an occasion's profiles that is, from 0, in the order in which their seats are filled."""
    profile_name: str = ""
    """The profile's display name as it was when it was chosen, also after the server has ended.

    The slug where that is not known.
    """
    last_profile: str = ""
    """The slug of its profile, also after the server has ended; empty where that is not known."""
    app: str = ""
    """The name of its profile's application; empty for Jupyter, for a server that is not active, and if not known."""
    job_id: str = ""
    """Empty for a server that is no Slurm job, or has not been submitted."""
    cluster: str = ""
    """The name of its job's cluster; empty in a hub that names none."""
    job: Job | None = None
    """The job as Slurm last reported it; None until it has."""
    settling: bool = False
    """It is pending only until Slurm has taken it up: everything was free when it was asked for."""
    placement: PlacementDocument | None = None
    """Where it runs and what it got; its end is the one that Slurm reports now. None until that is known."""
    topology: Mapping[str, Any] | None = None
    """The node's topology document, as the launcher reported it."""
    start: StartFacts | None = None
    """How far its start is; None for a spawner without stages, and where :func:`server_of` was not asked for it."""
    reported_port: int = 0
    """The port that the node reported; 0 until then."""
    routed_port: int = 0
    """The port to which the hub's proxy leads; 0 where the hub knows no address."""
    ending: Ending | None = None
    """How the last server ended or was stopped, or why the last start failed, where that was one of ours."""
    failure: BaseException | None = None
    """The exception of the last start, whoever raised it; None where it succeeded or is under way."""
    can_show_log: bool = False
    """The log of the job that runs now can be asked for (:func:`running_log`)."""
    parts: tuple[ServerPart, ...] = ()
    """What extensions show of it."""

    @property
    def state(self) -> ServerState:
        """What it is doing."""
        if self.pending == "stop":
            return ServerState.STOPPING
        if self.pending:
            return ServerState.WAITING if self.line.waits else ServerState.STARTING
        if self.ready:  # JupyterHub has not noted the end of a job that has ended a moment ago
            is_over = self.job is not None and self.job.phase is Phase.ENDED
            return ServerState.STOPPING if is_over else ServerState.RUNNING
        if self.ending is None:
            return ServerState.FAILED if self.failure is not None else ServerState.STOPPED
        if self.ending.stopped:
            return ServerState.STOPPED
        ended = ServerState.OVER if self.ending.session_over else ServerState.ENDED
        return ServerState.FAILED if self.ending.failed else ended

    @property
    def line(self) -> Line:
        """Whether its job waits in Slurm's queue."""
        return line_of(self.job, has_reported=self.placement is not None, settling=self.settling)

    @property
    def waits_in_line(self) -> bool:
        """It is being started, and waits in the line."""
        return self.pending == "spawn" and self.line.waits

    @property
    def active(self) -> bool:
        """It runs, starts or stops."""
        return bool(self.pending) or self.ready

    def end_words(self, contact: str = words.CONTACT, *, to_user: bool = True) -> Words:
        """What is said of how it ended, to its user or to somebody else; empty where that is not known.

        ``contact`` is whom its user may ask.
        """
        if self.ending is None:
            return NO_WORDS
        title = words.title(self.name, self.display_name, self.ending.profile or self.profile_name)
        return words_of(
            self.ending, title=title if to_user else title_of_another(title), contact=contact, to_user=to_user
        )

    @property
    def brief(self) -> str:
        """What extensions show of it in a few words, for tables with many servers."""
        return ", ".join(part.brief for part in self.parts if part.brief)

    @property
    def reachable(self) -> bool:
        """The hub leads to the port that the node reported."""
        return bool(self.reported_port) and self.reported_port == self.routed_port


def kept_with(spawner: Any, kind: type[T]) -> T | None:
    """What an extension keeps with the server of this spawner; None where it keeps nothing, or is not there."""
    ours = job_spawner(spawner)
    return ours.server_extensions.get(kind) if ours is not None else None


def server_of(spawner: Any, *, with_start: bool = True) -> Server:
    """What is known of this spawner's server; asks neither Slurm nor the database.

    ``with_start=False`` leaves out :attr:`Server.start`: a queued job's position is looked up among all waiting jobs,
    which is too much work where the servers of a whole hub are read.
    """
    failure, stored = _failure(spawner), _stored_ending(spawner)
    profiles = with_profiles(spawner)
    chosen = (profiles.chosen if profiles is not None else None) or NOTHING_CHOSEN
    last = (profiles.chosen or profiles.last if profiles is not None else None) or NOTHING_CHOSEN
    starting = profiles.user_options if profiles is not None and spawner.pending == "spawn" else {}
    server = Server(
        user=spawner.user.name if spawner.user else "",
        name=spawner.name,
        display_name=display_name(spawner),
        pending="stop" if is_cancelled(spawner) else spawner.pending,
        ready=spawner.ready,
        profile=chosen.profile or str(starting.get("profile", "")),
        admin_profile=chosen.base or chosen.profile,
        profile_name=last.title or (stored.profile if stored is not None else ""),
        last_profile=last.profile or (stored.slug if stored is not None else ""),
        rank=chosen.rank,
        app=chosen.app,
        routed_port=spawner.server.port if spawner.server is not None else 0,
        ending=stored if _is_same(ending_of(failure), stored) else ending_of(failure) or stored,
        failure=failure,
    )
    ours = job_spawner(spawner)
    server = server if ours is None else _with_job(server, ours, with_start=with_start)
    return replace(server, parts=extensions_for(spawner).parts_of(spawner, server))


def _with_job(server: Server, ours: GPUSlurmSpawner, *, with_start: bool) -> Server:
    job, report = ours.watch.status, ours.report
    return replace(
        server,
        job_id=ours.job_id,
        cluster=ours.cluster,
        job=job,
        settling=is_settling(ours.attempt, ours.watch, ours.server_extensions),
        placement=with_current_end(report.placement, job) if report.placement is not None else None,
        topology=report.topology,
        start=ours.start_facts() if with_start else None,
        reported_port=report.where[1],
        can_show_log=bool(ours.job_id),
    )


def servers_with_jobs(users: Iterable[Any]) -> Iterator[Server]:
    """The servers in the hub's memory that have a Slurm job, without :attr:`Server.start`; others are not read."""
    for user in users:
        for spawner in list(user.spawners.values()):
            if has_job(spawner):
                yield server_of(spawner, with_start=False)


def job_ids_of(users: Iterable[Any], cluster: str) -> set[str]:
    """The ids of the jobs on a cluster of all servers that the hub has in memory; reads no row of the database.

    After a rollback each row is read anew, one query after the other, in the hub's event loop.
    """
    spawners = [job_spawner(spawner) for user in users for spawner in list(user.spawners.values())]
    return {job for ours in spawners if ours is not None and ours.cluster == cluster for job in ours.job_ids}


def has_job(spawner: Any) -> bool:
    """Whether a Slurm job was submitted for the server; reads no row of the database."""
    ours = job_spawner(spawner)
    return ours is not None and bool(ours.job_id)


def waits_in_queue(spawner: Any) -> bool:
    """Whether the job of a server that is being started is pending; reads no row of the database."""
    ours = job_spawner(spawner)
    return ours is not None and bool(ours.job_id) and ours.attempt.in_queue


PAGE_PATIENCE_SECONDS = 0.5
"""Seconds that a page waits for an update of the queue; it comes without one where Slurm takes longer."""
EXTENSIONS_PATIENCE_SECONDS = 2.0
"""Seconds for which a page waits for what extensions ask of Slurm."""


async def refresh_servers(spawners: Iterable[Any]) -> None:
    """Update the queue for those that wait in it, and whether those that run still do, and their parts, for a page.

    Takes :data:`EXTENSIONS_PATIENCE_SECONDS` at most. Without it a page shows what another one has asked for.
    """
    active = [(job_spawner(spawner), spawner.ready) for spawner in spawners if spawner.active]
    with_jobs = [(ours, ready) for ours, ready in active if ours is not None and ours.job_id]
    running = [ours for ours, ready in with_jobs if ready]
    await asyncio.gather(
        *(ours.server_extensions.await_each(WithServer.refresh, EXTENSIONS_PATIENCE_SECONDS) for ours in running),
        *(ours.watch.update_running(PAGE_PATIENCE_SECONDS) for ours in running),
        *(ours.refresh_start(PAGE_PATIENCE_SECONDS) for ours, ready in with_jobs if not ready),
    )


async def running_log(spawner: Any, extent: Extent) -> tuple[str, str]:
    """Path and last lines of the log of the job that runs now (:attr:`Server.can_show_log`); either may be empty."""
    ours = job_spawner(spawner)
    return await ours.job_log.path_and_lines(extent) if ours is not None else ("", "")


async def ended_log(spawner: Any, ending: Ending, extent: Extent) -> str:
    """The last lines of the log of a server that has ended: of the file, or those that were kept with its ending."""
    if not isinstance(spawner, GPUSlurmSpawner):
        return ending.lines
    return await spawner.job_log.lines_of_ended(ending.log, ending.job_id, extent) or ending.lines


def with_profiles(spawner: Any) -> GPUProfilesSpawner | None:
    """This spawner where it offers profiles; None for any other, and for none."""
    return spawner if isinstance(spawner, GPUProfilesSpawner) else None


def contact_of(spawner: Any) -> str:
    """Whom the user of this spawner may ask."""
    profiles = with_profiles(spawner)
    return profiles.contact if profiles is not None else words.CONTACT


@dataclass(frozen=True)
class HubSite:
    """The site's settings: a spawner that is nobody's, is never started, and has what the configuration says."""

    spawner: GPUSlurmSpawner | None = None
    """None in a hub that starts no Slurm jobs of ours."""


def site_of(settings: Mapping[str, Any]) -> GPUSlurmSpawner | None:
    """The site's settings in the hub with these tornado settings; None where it starts no Slurm jobs of ours."""
    return state_of(settings).of(HubSite).spawner


def site_of_hub(app: JupyterHub) -> GPUSlurmSpawner | None:
    """The same, made on first use: all of the configuration must be known by then; raises TraitError."""
    state = state_of(app.tornado_settings)
    if HubSite not in state:
        site = None
        if issubclass(app.spawner_class, GPUSlurmSpawner):
            site = app.spawner_class(config=app.config)
            site.hub_state = state
        state.keep(HubSite(site))
    return state.of(HubSite).spawner


def with_current_end(placement: PlacementDocument, job: Job | None) -> PlacementDocument:
    """The placement with the end that Slurm reports now: an admin may have changed the job's time limit."""
    if job is None or job.phase is not Phase.RUNNING or job.ends_at is None:
        return placement
    return replace(placement, ends_at=datetime.fromtimestamp(job.ends_at, timezone.utc).isoformat())


def _failure(spawner: Any) -> BaseException | None:
    start = last_start(spawner)
    return start.exception() if start is not None and start.done() and not start.cancelled() else None


def _stored_ending(spawner: Any) -> Ending | None:
    """The ending that the spawner remembers, or that its row in the database holds."""
    if isinstance(spawner, GPUSlurmSpawner):
        return spawner.ended.last
    return stored_ending(spawner.state or {}) if isinstance(spawner, orm.Spawner) else None


def _is_same(failed: Ending | None, stored: Ending | None) -> bool:
    """Whether the second is the first with the profile, which is known once the start is over."""
    return stored is not None and failed == replace(stored, profile="", slug="")


def stop_record(server: Server, *, at: float, by: str = "", stopper: Kind = Kind.STOPPED_BY_USER) -> Ending:
    """The ending of a server that is stopped at ``at``; ``by`` is the person, where it is not its user.

    Its stage is that of the start; none for a server that had been running.
    """
    stage = Stage.QUEUED if server.waits_in_line else Stage.STARTING if server.pending == "spawn" else None
    started = server.placement.started_at if server.placement is not None and server.ready else None
    return Ending(
        Cause(stopper),
        at=at,
        by=by,
        job_id=server.job_id,
        stage=stage,
        gpus=gpus_of(server),
        ran=max(0.0, round(at - parse_time(started).timestamp())) if started is not None else 0.0,
        said="; ".join(part.at_end for part in server.parts if part.at_end),
    )


def gpus_of(server: Server) -> int:
    """The number of GPUs that a server's job holds."""
    placement = server.placement
    if placement is None:
        return 0
    return len(placement.gpus) + sum(len(node.gpus) for node in placement.other_nodes)


def server_title(server: Server) -> str:
    """The heading of the server's card."""
    return words.title(server.name, server.display_name, server.profile_name)
