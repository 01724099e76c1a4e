"""Profiles and dry runs: ``GET /hub/api/gpuspawner/profiles[/user]`` and ``POST /hub/api/gpuspawner/trial[/user]``.

A trial asks Slurm when a job would start, or why it would be refused, without submitting it (``sbatch --test-only``).
The command runs as the user. It makes slurmctld evaluate the whole cluster, so each user has one trial at a time, the
hub runs few at once, and answers are cached for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any
from weakref import WeakValueDictionary

from jupyterhub.scopes import needs_scope
from jupyterhub.user import User
from tornado import web
from traitlets.log import get_logger

from jupyterhub_gpuspawner.batch.job import batch_job
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.extensions.availability.dry_run import WillRun, will_run
from jupyterhub_gpuspawner.extensions.availability.forecast import (
    Silence,
    availability_of,
    forecast_of,
    hardware_of,
    on_cluster,
    silence_of,
    site_of,
)
from jupyterhub_gpuspawner.extensions.availability.model.availability import within
from jupyterhub_gpuspawner.extensions.availability.model.capacity import capacity_of
from jupyterhub_gpuspawner.extensions.availability.options_schema import options_schema
from jupyterhub_gpuspawner.hub.choose.gets import what_a_job_gets
from jupyterhub_gpuspawner.hub.choose.offer import ProfileStatus, statuses_of
from jupyterhub_gpuspawner.hub.extension import Hardware
from jupyterhub_gpuspawner.hub.extensions import extensions_for
from jupyterhub_gpuspawner.hub.site.connection import Cluster
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import with_profiles
from jupyterhub_gpuspawner.hub.web.handlers import RESTHandler
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, queue_limit
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.accounts import refuse_root
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import command_prefix
from jupyterhub_gpuspawner.slurm.estimate import (
    UNKNOWN,
    Availability,
    Chance,
    Waits,
    as_planned,
    expected,
    starts_now,
    utc,
)
from jupyterhub_gpuspawner.slurm.sbatch_options import directives
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

RETENTION_SECONDS = 30.0
"""Seconds for which an answer is cached."""
CONCURRENT_TRIALS = 3
"""Trials that run at once, of all users together."""
WAITING = 4
"""Trials of one user that may be queued or running; a further one is not made."""
PATIENCE = 12.0
"""Seconds that a request waits for its trial. The trial then goes on, and its answer is cached."""
SILENT = "Slurm is not responding at the moment"
SILENT_ON = "Slurm on {cluster} is not responding at the moment"
_SOON = 90.0
"""A start within this many seconds is shown as now."""
_OF_A_SERVER = tuple(f"#SBATCH --{name}=" for name in ("comment", "job-name", "output"))
"""How the lines of a batch script begin that differ between the servers of a user."""
_NEVER = 10 * 366 * 86400.0
"""Seconds. For a job that cannot start Slurm gives a time centuries ahead."""


def of_start(answer: WillRun, *, now: float, waits: Waits = as_planned) -> Availability:
    """Put Slurm's answer into words for a participant; ``now`` in seconds, ``waits`` as for :func:`expected`."""
    if answer.starts_at - now > _NEVER:
        closed = f"partition {answer.partition} is closed, or you are not allowed to use it"
        return Availability(Chance.NEVER, closed, field="slurm.partition")
    if answer.starts_at - now <= _SOON:
        starts = Availability(Chance.NOW, "starts now", starts_now(answer.starts_at))
    else:
        estimate = expected(answer.starts_at, now=now, partition=answer.partition, waits=waits)
        starts = Availability(Chance.LATER, f"expected start: {estimate.words(now)}", estimate)
    return replace(starts, partition=answer.partition, nodes=answer.nodes)


def of_error(error: GPUSpawnerError) -> Availability:
    """Put Slurm's refusal, or the lack of an answer, into words for a participant."""
    if isinstance(error, SubmitRejected):
        clause = f"{error.for_user[:1].lower()}{error.for_user[1:].rstrip('.')}"
        return Availability(Chance.NEVER, clause, field=error.field)
    silent = isinstance(error, SlurmUnavailable)
    return _unknown(SILENT if silent else "this hub cannot check in advance when a job would start")


def _unknown(sentence: str) -> Availability:
    return Availability(Chance.UNKNOWN, sentence)


def in_the_forms_words(trial: Availability, by_snapshot: Availability | None, *, others_wait: bool) -> Availability:
    """The trial of a job in the words that the form has for it by the snapshot, so that both say the same of a choice.

    Whichever is newer says whether it starts now, and Slurm when it starts later. But where others wait for nodes of
    the partition (``others_wait``), ``sbatch --test-only`` predicts a start after theirs, also where they wait for
    other devices than these: a snapshot that is newer, or has a set time, then says it.
    """
    if by_snapshot is None or trial.chance is Chance.NEVER:
        return trial
    if trial.chance is Chance.UNKNOWN:
        return by_snapshot if by_snapshot.chance is Chance.LATER else trial
    is_newer = (by_snapshot.taken_at or 0.0) > (trial.taken_at or 0.0)
    if trial.chance is Chance.NOW:
        if by_snapshot.chance is Chance.NOW:
            return replace(trial, sentence=by_snapshot.sentence)
        return by_snapshot if is_newer and by_snapshot.chance is Chance.LATER else trial
    if by_snapshot.estimate != UNKNOWN:
        return by_snapshot if others_wait and (is_newer or by_snapshot.chance is Chance.LATER) else trial
    if by_snapshot.chance is not Chance.LATER:
        return trial
    when = f"{trial.sentence[:1].upper()}{trial.sentence[1:]}"
    return replace(trial, sentence=f"{by_snapshot.sentence}. {when}", out_of_service=by_snapshot.out_of_service)


def others_wait(by_snapshot: Availability | None, snapshot: ClusterSnapshot | None) -> bool:
    """Whether jobs of any partition are pending for nodes of that in which the snapshot has this start."""
    if by_snapshot is None or snapshot is None:
        return False
    return bool(capacity_of(snapshot).queue_order.get(by_snapshot.partition))


class Trials:
    """The trials on one cluster: limited in number, and cached for :data:`RETENTION_SECONDS` seconds.

    Equal questions of one user share one trial.
    """

    def __init__(self, cluster: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        """``cluster`` is the cluster's name; ``clock`` returns seconds since any fixed time."""
        self._cluster = cluster
        self._clock = clock
        self._cached: dict[tuple[Hashable, ...], tuple[float, asyncio.Future[Availability]]] = {}
        self._slots = asyncio.Semaphore(CONCURRENT_TRIALS)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By user: one of a user's trials runs at a time."""
        self._logged: set[str] = set()

    async def of(
        self,
        client: SlurmClient,
        script: str,
        *,
        user: str,
        prefix: tuple[str, ...],
        waits: Waits = as_planned,
    ) -> Availability:
        """Try the job of this script; faults of Slurm or sudo are part of the answer.

        ``prefix`` runs a command as the user, ``waits`` is what is known of waits on the cluster.
        """
        key = _question(script, user, prefix)
        self._forget()
        if key not in self._cached:
            if sum(key[0] == user and not trial.done() for key, (_, trial) in self._cached.items()) >= WAITING:
                return _unknown("please wait: Slurm is still checking your earlier choices")
            turn = self._turns.setdefault(user, asyncio.Lock())
            question = asyncio.ensure_future(self._ask(client, script, user, prefix, turn, waits))
            self._cached[key] = (self._clock() + RETENTION_SECONDS, question)
        trial = self._cached[key][1]
        await asyncio.wait({trial}, timeout=PATIENCE)
        return trial.result() if trial.done() else _unknown("Slurm is responding slowly")

    def latest(self, script: str, *, user: str, prefix: tuple[str, ...]) -> Availability | None:
        """The answer of the last trial of this job, if that is still cached; asks nothing."""
        until, trial = self._cached.get(_question(script, user, prefix), (0.0, None))
        return trial.result() if trial is not None and trial.done() and until > self._clock() else None

    def _forget(self) -> None:
        now = self._clock()
        for key in [key for key, (until, trial) in self._cached.items() if until <= now and trial.done()]:
            del self._cached[key]

    async def _ask(
        self,
        client: SlurmClient,
        script: str,
        user: str,
        prefix: tuple[str, ...],
        turn: asyncio.Lock,
        waits: Waits,
    ) -> Availability:
        async with turn, self._slots:
            asked_at = time.time()
            try:
                await refuse_root(user)
                answer = await will_run(client, script, prefix=prefix, user=user)
            except GPUSpawnerError as error:
                self.log(error)
                return of_error(error)
        return replace(of_start(answer, now=time.time(), waits=waits), taken_at=asked_at)

    def log(self, error: GPUSpawnerError) -> None:
        """Log, once, a fault that only the administrator can repair."""
        if not isinstance(error, (SubmitRejected, SlurmUnavailable)) and str(error) not in self._logged:
            self._logged.add(str(error))
            get_logger().warning("Slurm cannot be asked in advance whether a job would start: %s", error)


def _question(script: str, user: str, prefix: tuple[str, ...]) -> tuple[Hashable, ...]:
    """What decides about the answer of a trial: not which of a user's servers the job is for."""
    return user, prefix, tuple(line for line in directives(script) if not line.startswith(_OF_A_SERVER))


def tried_partitions(resources: Resources, best: str, snapshot: ClusterSnapshot | None) -> str:
    """The partitions of a trial: the best of those that the job requests, since --test-only evaluates only the first.

    The others follow where Slurm refuses a job for the limits of any of them.
    """
    if snapshot is None or not snapshot.config.enforces_limits_of_all:
        return best
    return ",".join((best, *(name for name in snapshot.partitions_of(resources.partition) if name != best)))


def trials_on(cluster: Cluster) -> Trials:
    """The trials of all users on a cluster."""
    return Trials(cluster.name)


async def _job_of(
    spawner: Any, request: JobRequest, by_snapshot: Availability | None, snapshot: ClusterSnapshot | None
) -> tuple[str, tuple[str, ...]]:
    """The script of the job that is tried, and the prefix with which its user's commands run."""
    cluster = spawner.connections()[request.resources.cluster or ""]
    settings = spawner.settings_of(request)
    if by_snapshot is not None and by_snapshot.partition:
        partition = tried_partitions(request.resources, by_snapshot.partition, snapshot)
        request = replace(request, resources=request.resources.model_copy(update={"partition": partition}))
    job = batch_job(settings, request, await spawner.account(settings, cluster), start_id="")
    return job.script, command_prefix(settings.exec_prefix, spawner.user.name)


async def expected_of(spawner: Any, request: JobRequest, snapshot: ClusterSnapshot) -> Availability:
    """What the form says of this request by a snapshot, and by the last trial of it; asks Slurm nothing."""
    by_snapshot = await availability_of(spawner, request, snapshot, now=time.time())
    script, prefix = await _job_of(spawner, request, by_snapshot, snapshot)
    trials = spawner.connections()[request.resources.cluster or ""].of(trials_on)
    trial = trials.latest(script, user=spawner.user.name, prefix=prefix)
    if trial is None:
        return by_snapshot
    return in_the_forms_words(trial, by_snapshot, others_wait=others_wait(by_snapshot, snapshot))


async def trial_of(spawner: GPUProfilesSpawner, request: JobRequest) -> Availability:
    """The trial of a request for a Slurm job, which this spawner could start. Raises RequestError.

    Slurm is not asked about a job that the cluster snapshot rules out, nor while it does not answer. Of several
    partitions the one that the snapshot finds best is tried, see :func:`tried_partitions`. Where Slurm says later
    than the snapshot, a newer snapshot tells whether others wait.
    """
    name = request.resources.cluster or ""
    cluster = spawner.connections()[name]
    trials = cluster.of(trials_on)
    try:
        snapshot = await cluster.view.recent()
        by_snapshot = None
        if snapshot is not None:
            by_snapshot = await availability_of(spawner, request, snapshot, now=time.time())
        if by_snapshot is not None and by_snapshot.chance is Chance.NEVER:
            return on_cluster(by_snapshot, name, spawner.clusters)
        if cluster.silent:
            return _unknown(SILENT_ON.format(cluster=name) if len(spawner.clusters) > 1 else SILENT)
        script, prefix = await _job_of(spawner, request, by_snapshot, snapshot)
        trial = await trials.of(
            cluster.client,
            script,
            user=spawner.user.name,
            prefix=prefix,
            waits=extensions_for(spawner).waits(name, queued=False),
        )
        if by_snapshot is not None and (by_snapshot.chance, trial.chance) == (Chance.NOW, Chance.LATER):
            snapshot = await cluster.view.recent(time.time() - (trial.taken_at or 0.0))
            if snapshot is not None:
                by_snapshot = await availability_of(spawner, request, snapshot, now=time.time())
        trial = in_the_forms_words(trial, by_snapshot, others_wait=others_wait(by_snapshot, snapshot))
        trial = on_cluster(trial, name, spawner.clusters)
        limit = queue_limit(request.profile.queue_timeout, spawner.site_queue_limit)
        return within(trial, limit, now=time.time())
    except ConfigError as error:
        trials.log(error)
        return of_error(error)


# The documents of ``GET /hub/api/gpuspawner/profiles`` and ``POST .../trial``, and how they are made.

VERSION = 1


@dataclass(frozen=True)
class AskedResources:
    """What a job of a profile requests when no option is changed, with the site's defaults; counts are per node."""

    partition: str | None = None
    """None: Slurm's default."""
    cluster: str | None = None
    """None in a hub that names no clusters."""
    nodes: int = 1
    gpus: int | None = None
    gpu_type: str | None = None
    shards: int | None = None
    cpus: int | None = None
    memory: int | None = None
    """MiB; 0 means all memory of the node."""
    time: int | str | None = None
    """Seconds, or UNLIMITED."""
    reservation: str | None = None


@dataclass(frozen=True)
class Prospect:
    """Whether and when such a job would start."""

    chance: str
    """``now``, ``later``, ``never`` or ``unknown``."""
    sentence: str
    """For a participant; without leading capital and final full stop. ``{time}`` stands for ``starts_at``."""
    starts_at: str | None = None
    """When it is likely to start, or does not start before; None if it is now or not known: ISO 8601, UTC."""
    estimate: Mapping[str, str | None] = field(default_factory=dict)
    """``kind`` (``now``, ``expected``, ``not before`` or ``unknown``), ``earliest``, ``likely`` and ``latest`` (ISO
    8601, UTC, or null), ``words``, as all pages say it, and ``span``, the same without its condition."""
    field: str = ""
    """The profile's field at fault, such as ``slurm.time``."""
    ends_at: str | None = None
    """When it ends if it starts now; None where it does not, or has no limit: ISO 8601, UTC."""
    room: Mapping[str, Any] | None = None
    """How much is free where it may run: ``free`` of ``all``, and ``words``; None where that is not known."""


@dataclass(frozen=True)
class OfferedProfile:
    """One profile."""

    slug: str
    """Its name in links and user options."""
    display_name: str
    description: str
    default: bool
    """It is used where the user picks none."""
    kind: str
    """``slurm``, ``local`` or ``other``."""
    allowed: bool
    """Whether the user may use it now; false for a profile that begins later."""
    reason: str
    """From when it is available; empty if it is now."""
    resources: AskedResources | None
    """None where the profile is not allowed, or does not start a Slurm job."""
    availability: Prospect | None
    """None where the profile is not allowed, or does not start a Slurm job."""
    choices: Mapping[str, Mapping[str, Prospect]]
    """The same for each choice of each option, with the others at their defaults."""
    taken_at: str | None
    """The time of the data behind ``availability``: ISO 8601, UTC; of several clusters, those of the profile's."""
    options_schema: Mapping[str, Any] | None
    """JSON Schema (draft 2020-12) of the user options; null where the profile is not allowed."""


@dataclass(frozen=True)
class ProfilesDocument:
    """What one user may start, and when it would start. ``POST /hub/api/users/NAME/server`` takes the options."""

    version: int = VERSION
    taken_at: str | None = None
    """The time of the oldest data behind an ``availability``: ISO 8601, UTC; None before Slurm has responded."""
    silent: bool = False
    """Slurm did not respond to the last query."""
    silent_clusters: Mapping[str, str | None] = field(default_factory=dict)
    """On which of several clusters, each with the time of its last answer (ISO 8601, UTC) or None."""
    profiles: tuple[OfferedProfile, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrialDocument(Prospect):
    """What Slurm would do with a job of these options if it were submitted now."""

    version: int = VERSION
    nodes: tuple[str, ...] = ()
    """The nodes on which it would start."""
    gets: tuple[str, ...] = ()
    """What the job would get, in a few words each; empty for a profile that does not use Slurm."""


def profiles_document(
    statuses: Sequence[ProfileStatus],
    snapshots: Mapping[str, ClusterSnapshot | None],
    *,
    silence: Silence | None,
    now: float,
) -> ProfilesDocument:
    """The document of these statuses, without the profiles that the form does not show, either."""
    times = [snapshot.taken_at for snapshot in snapshots.values() if snapshot is not None]
    clusters = silence.clusters if silence is not None else {}
    return ProfilesDocument(
        taken_at=utc(min(times, default=None)),
        silent=silence is not None,
        silent_clusters={name: utc(at) for name, at in clusters.items()},
        profiles=tuple(_offered(status, snapshots, now) for status in statuses if status.is_shown),
    )


def _offered(status: ProfileStatus, snapshots: Mapping[str, ClusterSnapshot | None], now: float) -> OfferedProfile:
    profile, resources = status.profile, status.resources
    snapshot = snapshots.get(resources.cluster or "") if resources is not None else None
    allowed = status.refusal is None
    length = resources.time if resources is not None else None
    return OfferedProfile(
        slug=profile.slug,
        display_name=profile.display_name,
        description=profile.description,
        default=profile.default,
        kind=profile.kind,
        allowed=allowed,
        reason=status.refusal.text if status.refusal is not None else "",
        resources=_requested(resources) if resources is not None else None,
        availability=Prospect(**prospect(status.availability, now, length))
        if status.availability is not None
        else None,
        choices={
            option: {choice: Prospect(**prospect(answer, now)) for choice, answer in choices.items()}
            for option, choices in status.choices.items()
        },
        taken_at=utc(snapshot.taken_at) if snapshot is not None else None,
        options_schema=options_schema(profile) if allowed else None,
    )


def _requested(resources: Resources) -> AskedResources:
    values = {field.name: getattr(resources, field.name) for field in fields(AskedResources)}
    return AskedResources(**{**values, "reservation": resources.reservation_name or None})


def prospect(availability: Availability, now: float, length: float | str | None = None) -> dict[str, Any]:
    """The fields of a :class:`Prospect`; ``now`` in seconds since the epoch, ``length`` in seconds."""
    estimate = availability.estimate
    starts = availability.taken_at or now
    ends = starts + length if availability.chance is Chance.NOW and isinstance(length, (int, float)) else None
    return {
        "chance": availability.chance.value,
        "sentence": availability.sentence,
        "starts_at": utc(estimate.likely),
        "estimate": estimate.document(now),
        "field": availability.field,
        "ends_at": utc(ends),
        "room": availability.room.document() if availability.room is not None else None,
    }


class OfUser(RESTHandler):
    """A handler for one user: the caller, or the user that the address names."""

    def requested_user(self, user_name: str | None) -> str:
        """The user's name; raises 403 without credentials, 400 for a service that names no user."""
        if self.current_user is None:
            raise web.HTTPError(403, "Missing or invalid credentials.")
        if not user_name and not isinstance(self.current_user, User):
            raise web.HTTPError(400, "A service must name a user in the URL.")
        return user_name or str(self.current_user.name)

    def spawner_of(self, user_name: str) -> GPUProfilesSpawner:
        """The spawner of the user's default server, running or not; raises 404 for an unknown user or no profiles."""
        user = self.find_user(user_name)
        spawner = with_profiles(user.spawners[""]) if user is not None else None
        if spawner is None:
            raise web.HTTPError(404, "There is no such user, or this hub offers no profiles.")
        return spawner


class ProfilesHandler(OfUser):
    """The profiles that a user may start, the options of each, and when it would start now."""

    async def get(self, user_name: str | None = None) -> None:
        """The profiles document, version 1, of the user or the caller. Needs the scope `servers` for that user."""
        await self._answer(self.requested_user(user_name))

    @needs_scope("servers")
    async def _answer(self, user_name: str) -> None:
        spawner = self.spawner_of(user_name)
        await spawner.refresh_profiles()
        try:
            offered = spawner.offered()
            site = site_of(spawner, offered)
            snapshots = await site.snapshots()
            statuses = statuses_of(spawner, offered, await forecast_of(spawner, site, snapshots))
        except ConfigError as error:
            self.refuse(error)
            return
        now = time.time()
        self.write(asdict(profiles_document(statuses, snapshots, silence=silence_of(site, snapshots, now), now=now)))


class TrialHandler(OfUser):
    """A dry run of a choice: Slurm is asked as the user, and no job is created."""

    async def post(self, user_name: str | None = None) -> None:
        """The trial document, version 1, for a body ``{"user_options": {...}}``; 400 with the `field` at fault."""
        await self._answer(self.requested_user(user_name))

    @needs_scope("servers")
    async def _answer(self, user_name: str) -> None:
        spawner = self.spawner_of(user_name)
        options = self._options()
        await spawner.refresh_profiles()
        try:
            request = spawner.resolve(options)
            trial = NOT_SLURM.get(request.profile.kind) or await trial_of(spawner, request)
            of_slurm = request.profile.kind not in NOT_SLURM
            latest = spawner.connections()[request.resources.cluster or ""].view.latest if of_slurm else None
            hardware = hardware_of(request.resources, latest) if latest is not None else Hardware()
            gets = what_a_job_gets(request.resources, hardware).parts if of_slurm else ()
        except (RequestError, ConfigError) as error:
            self.refuse(error)
            return
        known = prospect(trial, time.time(), request.resources.time)
        self.write(asdict(TrialDocument(**known, nodes=trial.nodes, gets=gets)))

    def _options(self) -> dict[str, Any]:
        body = self.limited_body()
        options = body.get("user_options", {}) if isinstance(body, dict) else None
        if not isinstance(options, dict) or set(body) - {"user_options"}:
            raise web.HTTPError(400, 'The body must be {"user_options": {...}}.')
        return options


NOT_SLURM = {
    "local": Availability(Chance.NOW, "starts at once, on the hub's own machine", starts_now()),
    "other": Availability(Chance.UNKNOWN, "starts without Slurm"),
}
"""By a profile's kind."""

HANDLERS = [
    (r"/api/gpuspawner/profiles", ProfilesHandler),
    (r"/api/gpuspawner/profiles/([^/]+)", ProfilesHandler),
    (r"/api/gpuspawner/trial", TrialHandler),
    (r"/api/gpuspawner/trial/([^/]+)", TrialHandler),
]
