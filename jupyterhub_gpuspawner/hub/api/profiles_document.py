"""The documents of ``GET /hub/api/gpuspawner/profiles`` and ``POST .../trial``, and how they are made."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - the reference reads the types of the fields
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.profiles.user_options import options_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.cluster.availability import Availability
    from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot
    from jupyterhub_gpuspawner.hub.api.trial import Trial
    from jupyterhub_gpuspawner.hub.site.profile_status import ProfileStatus
    from jupyterhub_gpuspawner.profiles.resolve import ResolvedResources

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

    def to_json(self) -> dict[str, Any]:
        """The document as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class TrialDocument:
    """What Slurm would do with a job of these options if it were submitted now."""

    version: int = VERSION
    chance: str = "unknown"
    """``now``, ``later``, ``never`` or ``unknown``."""
    sentence: str = ""
    """For a participant; without leading capital and final full stop. ``{time}`` stands for ``starts_at``."""
    starts_at: str | None = None
    """When it would start, if that is known: ISO 8601, UTC."""
    nodes: tuple[str, ...] = ()
    """The nodes on which it would start."""
    field: str = ""
    """The profile's field at fault, such as ``slurm.time``."""

    def to_json(self) -> dict[str, Any]:
        """The document as JSON."""
        return asdict(self)


def profiles_document(
    statuses: Sequence[ProfileStatus], snapshot: ClusterSnapshot | None, *, silent: bool
) -> ProfilesDocument:
    """The document of these statuses, without the profiles that the form does not show, either."""
    return ProfilesDocument(
        taken_at=None if snapshot is None else _iso(snapshot.taken_at),
        silent=silent,
        profiles=tuple(_offered(status) for status in statuses if status.is_shown),
    )


def trial_document(trial: Trial) -> TrialDocument:
    """The document of a trial."""
    starts_at = None if trial.starts_at is None else _iso(trial.starts_at)
    return TrialDocument(
        chance=trial.chance.value,
        sentence=trial.sentence,
        starts_at=starts_at,
        nodes=trial.nodes,
        field=trial.field,
    )


def _offered(status: ProfileStatus) -> OfferedProfile:
    profile = status.profile
    allowed = status.refusal is None
    return OfferedProfile(
        slug=profile.slug,
        display_name=profile.display_name,
        description=profile.description,
        default=profile.default,
        kind=profile.kind,
        allowed=allowed,
        reason=status.refusal.text if status.refusal is not None else "",
        resources=_asked(status.resources) if status.resources is not None else None,
        availability=_prospect(status.availability) if status.availability is not None else None,
        options_schema=options_schema(profile) if allowed else None,
    )


def _asked(resources: ResolvedResources) -> AskedResources:
    return AskedResources(**{name: getattr(resources, name) for name in AskedResources.__dataclass_fields__})


def _prospect(found: Availability) -> Prospect:
    starts_at = None if found.starts_at is None else _iso(found.starts_at)
    return Prospect(found.chance.value, found.sentence, starts_at, found.field)


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
