"""``GET /hub/api/gpuspawner/profiles[/user]`` and ``POST /hub/api/gpuspawner/trial[/user]``: profiles and dry runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from typing import Any

from jupyterhub.scopes import needs_scope
from jupyterhub.user import User
from tornado import web

from jupyterhub_gpuspawner.cluster.availability import Availability, Chance
from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.hub.choose.offer import ProfileStatus, site_of, statuses_of, what_a_job_gets
from jupyterhub_gpuspawner.hub.choose.trial import trial_of
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import with_profiles
from jupyterhub_gpuspawner.hub.web.handlers import RESTHandler
from jupyterhub_gpuspawner.profiles.resolve import options_schema
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

# The documents of ``GET /hub/api/gpuspawner/profiles`` and ``POST .../trial``, and how they are made.

VERSION = 1


@dataclass(frozen=True)
class AskedResources:
    """What a job of a profile requests when no option is changed, with the site's defaults; counts are per node."""

    partition: str | None = None
    """None: Slurm's default."""
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
    """When it would start, if that is known: ISO 8601, UTC."""
    field: str = ""
    """The profile's field at fault, such as ``slurm.time``."""


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
    options_schema: Mapping[str, Any] | None
    """JSON Schema (draft 2020-12) of the user options; null where the profile is not allowed."""


@dataclass(frozen=True)
class ProfilesDocument:
    """What one user may start, and when it would start. ``POST /hub/api/users/NAME/server`` takes the options."""

    version: int = VERSION
    taken_at: str | None = None
    """The time of the data behind ``availability``: ISO 8601, UTC; None where Slurm has not responded yet."""
    silent: bool = False
    """Slurm did not respond to the last query."""
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
    statuses: Sequence[ProfileStatus], snapshot: ClusterSnapshot | None, *, silent: bool
) -> ProfilesDocument:
    """The document of these statuses, without the profiles that the form does not show, either."""
    return ProfilesDocument(
        taken_at=None if snapshot is None else _iso(snapshot.taken_at),
        silent=silent,
        profiles=tuple(_offered(status) for status in statuses if status.is_shown),
    )


def _offered(status: ProfileStatus) -> OfferedProfile:
    profile, resources = status.profile, status.resources
    allowed = status.refusal is None
    return OfferedProfile(
        slug=profile.slug,
        display_name=profile.display_name,
        description=profile.description,
        default=profile.default,
        kind=profile.kind,
        allowed=allowed,
        reason=status.refusal.text if status.refusal is not None else "",
        resources=_requested(resources) if resources is not None else None,
        availability=Prospect(**prospect(status.availability)) if status.availability is not None else None,
        options_schema=options_schema(profile) if allowed else None,
    )


def _requested(resources: Resources) -> AskedResources:
    values = {field.name: getattr(resources, field.name) for field in fields(AskedResources)}
    return AskedResources(**{**values, "reservation": resources.reservation_name or None})


def prospect(availability: Availability) -> dict[str, Any]:
    """The fields of a :class:`Prospect`."""
    return {
        "chance": availability.chance.value,
        "sentence": availability.sentence,
        "starts_at": _iso(availability.starts_at) if availability.starts_at is not None else None,
        "field": availability.field,
    }


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


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
        except ConfigError as error:
            self.refuse(error)
            return
        connection = site.connection
        snapshot = await connection.cluster.recent() if connection is not None else None
        statuses = await statuses_of(spawner, offered, site, snapshot)
        silent = connection is not None and connection.silent
        self.write(asdict(profiles_document(statuses, snapshot, silent=silent)))


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
            trial = NOT_SLURM.get(request.kind) or await trial_of(spawner, request)
            of_slurm = request.kind not in NOT_SLURM
            gets = what_a_job_gets(request.resources, spawner.connection().cluster.latest) if of_slurm else ()
        except (RequestError, ConfigError) as error:
            self.refuse(error)
            return
        self.write(asdict(TrialDocument(**prospect(trial), nodes=trial.nodes, gets=gets)))

    def _options(self) -> dict[str, Any]:
        body = self.limited_body()
        options = body.get("user_options", {}) if isinstance(body, dict) else None
        if not isinstance(options, dict) or set(body) - {"user_options"}:
            raise web.HTTPError(400, 'The body must be {"user_options": {...}}.')
        return options


NOT_SLURM = {
    "local": Availability(Chance.NOW, "starts at once, on the hub's own machine"),
    "other": Availability(Chance.UNKNOWN, "starts without Slurm"),
}
"""By a profile's kind."""

HANDLERS = [
    (r"/api/gpuspawner/profiles", ProfilesHandler),
    (r"/api/gpuspawner/profiles/([^/]+)", ProfilesHandler),
    (r"/api/gpuspawner/trial", TrialHandler),
    (r"/api/gpuspawner/trial/([^/]+)", TrialHandler),
]
