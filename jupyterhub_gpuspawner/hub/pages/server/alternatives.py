"""The profiles that would start now, for a user whose server waits in the queue.

They are judged as on the form, by the last snapshot of the cluster that all pages share: a page asks Slurm nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cluster.availability import Chance
from jupyterhub_gpuspawner.cluster.gpu_model import gpu_model
from jupyterhub_gpuspawner.cluster.limits import cpus_per_core_of
from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.hub.pages.choose.what_you_get import what_you_get
from jupyterhub_gpuspawner.hub.site.account import allowed_groups, job_owner
from jupyterhub_gpuspawner.hub.site.profile_status import profile_statuses
from jupyterhub_gpuspawner.hub.start.build import site_defaults
from jupyterhub_gpuspawner.jobs.status import Phase
from jupyterhub_gpuspawner.profiles.resolve import resolve
from jupyterhub_gpuspawner.profiles.resources import Resources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot
    from jupyterhub_gpuspawner.hub.site.profile_status import ProfileStatus
    from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
    from jupyterhub_gpuspawner.hub.spawners.server import Server
    from jupyterhub_gpuspawner.profiles.resolve import ResolvedResources

AT_MOST = 2
"""Alternatives that a page shows."""
MAX_AGE = 90.0
"""Seconds; an older snapshot no longer says what is free now. While servers wait there is a new one every minute."""
_PATIENCE = 2.0
"""Seconds to wait for a new one, before a place is given up."""


@dataclass(frozen=True)
class Alternative:
    """A profile that would start now, with each option at its default."""

    slug: str
    display_name: str
    gets: tuple[str, ...]
    """Its resources, in a few words each."""


def waits_in_line(server: Server) -> bool:
    """Whether the server is being started and its job is pending."""
    in_queue = server.job is not None and server.job.phase is Phase.QUEUED and server.placement is None
    return server.pending == "spawn" and in_queue


async def alternatives(spawner: GPUProfilesSpawner, *, fresh: bool = False) -> tuple[Alternative, ...]:
    """What the user of this waiting server could start now, the closest to what was asked for first.

    ``fresh``: by a snapshot that is as new as the form's.
    """
    try:
        offered, site = spawner.offered(), spawner.slurm_site()
        defaults, cluster = site_defaults(site), site.connection().cluster
    except ConfigError:  # logged where the profiles are read
        return ()
    snapshot = await cluster.recent(patience=_PATIENCE) if fresh else cluster.latest
    now = datetime.now().astimezone()
    if snapshot is None or now.timestamp() - snapshot.taken_at > MAX_AGE:
        return ()
    name, groups = spawner.user.name, spawner.groups_of_user()
    try:
        asked = resolve(
            offered,
            spawner.user_options,
            username=name,
            groups=groups,
            server_name=spawner.name,
            now=now,
            defaults=defaults,
        )
    except RequestError:  # its profile is no longer offered
        return ()
    owner = job_owner(site.exec_prefix, name)
    statuses = profile_statuses(
        offered,
        username=name,
        groups=groups,
        snapshot=snapshot,
        now=now,
        defaults=defaults,
        owner=owner,
        unix_groups=await allowed_groups(snapshot, owner),
    )
    return tuple(_alternative(each, snapshot) for each in closest(asked.resources, statuses))


def closest(asked: ResolvedResources, statuses: Sequence[ProfileStatus]) -> tuple[ProfileStatus, ...]:
    """The profiles that start now and request something else than ``asked``, the closest one first.

    For GPUs: the same model, or at least as much GPU memory; then other GPUs; then none. Without GPUs: others without
    GPUs first. Among these the number of GPUs that is nearest to what was asked for, then the order of the profiles.
    """
    free = (
        (each, each.resources)
        for each in statuses
        if each.availability is not None and each.availability.chance is Chance.NOW
    )
    others = [(each, resources) for each, resources in free if resources is not None and resources != asked]
    return tuple(each for each, resources in sorted(others, key=lambda pair: _distance(asked, pair[1])))


def _distance(asked: ResolvedResources, offered: ResolvedResources) -> tuple[int, int]:
    wanted, given = _count(asked), _count(offered)
    if not wanted or not given:
        return (0 if wanted == given else 2), abs(wanted - given)
    return (0 if _as_good(asked, offered) else 1), abs(wanted - given)


def _count(resources: ResolvedResources) -> int:
    """GPUs in all; a request for shards counts as one, since they are parts of a GPU."""
    return (resources.gpus or min(resources.shards or 0, 1)) * resources.nodes


def _as_good(asked: ResolvedResources, offered: ResolvedResources) -> bool:
    """Whether each GPU is of the same model, or has at least as much memory; any GPU will do where none was named."""
    if bool(asked.shards) != bool(offered.shards):
        return False
    if not asked.gpu_type:
        return True
    if not offered.gpu_type:
        return False
    wanted, given = gpu_model(asked.gpu_type), gpu_model(offered.gpu_type)
    if wanted.name == given.name:
        return True
    return wanted.memory_gb is not None and given.memory_gb is not None and given.memory_gb >= wanted.memory_gb


def _alternative(status: ProfileStatus, snapshot: ClusterSnapshot) -> Alternative:
    with_defaults = status.profile.model_copy(update={"slurm": Resources(), "profile_options": {}})
    per_core = cpus_per_core_of(status.resources, snapshot)
    gets = what_you_get(with_defaults, status.resources, cpus_per_core=per_core)
    return Alternative(status.profile.slug, status.profile.display_name, gets)
