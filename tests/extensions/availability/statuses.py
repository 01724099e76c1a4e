"""The statuses of profiles by snapshots of the clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jupyterhub_gpuspawner.extensions.availability.forecast import ClusterForecast, ClusterNow
from jupyterhub_gpuspawner.hub.choose import offer
from jupyterhub_gpuspawner.profiles.profile import Profile


def profile_statuses(
    offered: Sequence[Profile],
    *,
    clusters: Mapping[str, ClusterNow],
    now: datetime,
    site_queue_limit: int | None = None,
    **more: Any,
) -> tuple[offer.ProfileStatus, ...]:
    """Those of the form, for a user who would find these clusters."""
    forecast = ClusterForecast(clusters, now=now.timestamp(), site_queue_limit=site_queue_limit)
    return offer.profile_statuses(offered, now=now, forecast=forecast, **more)
