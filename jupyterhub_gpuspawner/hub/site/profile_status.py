"""The availability of each profile for one user now, as the form and REST show it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import MappingProxyType

from jupyterhub_gpuspawner.cluster.availability import Availability, Chance, availability, within
from jupyterhub_gpuspawner.errors import Refusal, RequestError
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import ResolvedResources, permitted, queue_limit, resolve
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot


@dataclass(frozen=True)
class ProfileStatus:
    """One profile, and whether a user can start it now."""

    profile: Profile
    refusal: Refusal | None
    """Why the user may not use it now, from :func:`permitted`; None if they may."""
    availability: Availability | None
    """Whether its job could start now; None if the profile is refused or is not a Slurm job."""
    resources: ResolvedResources | None = None
    """What that job requests, with the site's defaults; None without a job."""

    @property
    def is_shown(self) -> bool:
        """Whether the user sees the profile, on the form and over REST."""
        return self.refusal is None or self.refusal.is_shown


def profile_statuses(
    offered: Sequence[Profile],
    *,
    username: str,
    groups: Collection[str],
    snapshot: ClusterSnapshot | None,
    now: datetime,
    defaults: Resources | None = None,
    owner: str = "",
    unix_groups: Mapping[str, bool] = MappingProxyType({}),
    site_queue_limit: int | None = None,
    own_jobs: Collection[str] = (),
    choice: Mapping[str, object] = MappingProxyType({}),
) -> tuple[ProfileStatus, ...]:
    """Return the status of every profile, in the given order, with each option at its default.

    For the profile of ``choice`` (user options) its options count, if they are allowed.

    ``now`` has a time zone; ``defaults`` are the site's. ``owner`` is the account that would own the job, empty if
    unknown, and ``unix_groups`` says whether that account is in a group, as far as the hub's machine knows. A start
    that is expected after the queue's limit has a warning; ``site_queue_limit`` (seconds; None: no limit) is that of
    profiles without one of their own. ``own_jobs`` are the ids of the jobs of the user's servers.
    """

    def status(profile: Profile) -> ProfileStatus:
        refusal = permitted(profile, username, groups, now)
        if refusal is not None or profile.kind != "slurm":
            return ProfileStatus(profile, refusal, None)
        query = partial(
            resolve, (profile,), username=username, groups=groups, server_name="", now=now, defaults=defaults
        )
        try:
            request = None
            if choice.get("profile") == profile.slug:
                with suppress(RequestError):
                    request = query(choice)
            request = request or query({"profile": profile.slug})
        except RequestError as error:  # no reservation today
            message = _clause(str(error))
            return ProfileStatus(profile, None, Availability(Chance.NEVER, message, field=error.field))
        rejected = availability(
            request.resources,
            snapshot,
            now=now.timestamp(),
            user=owner,
            shared=owner != username,
            own_jobs=own_jobs,
            groups=unix_groups,
        )
        limit = queue_limit(profile.queue_timeout, site_queue_limit)
        return ProfileStatus(profile, None, within(rejected, limit, now=now.timestamp()), request.resources)

    return tuple(map(status, offered))


def _clause(sentence: str) -> str:
    """Return a sentence as a clause: without capital letter and full stop."""
    return (sentence[:1].lower() + sentence[1:]).rstrip(".")
