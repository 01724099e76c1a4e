"""Whether a user would get the jobs of profiles now, judged from the views of the clusters that all pages share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from jupyterhub_gpuspawner.extensions.availability import words
from jupyterhub_gpuspawner.extensions.availability.groups import allowed_groups
from jupyterhub_gpuspawner.extensions.availability.model.availability import availability, no_longer_now, within
from jupyterhub_gpuspawner.extensions.availability.model.capacity import capacity_of
from jupyterhub_gpuspawner.extensions.availability.model.limits import allocated, cpus_per_core_of, preempted
from jupyterhub_gpuspawner.hub.extension import Forecast, Hardware
from jupyterhub_gpuspawner.hub.site.connection import Cluster
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, queue_limit
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.estimate import Availability, Chance
from jupyterhub_gpuspawner.slurm.job import job_owner
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

ANSWERED_SECONDS = 30.0
"""Age of a cluster's snapshot up to which it says what starts now; a page has it asked again at half of that."""
FIRST_PATIENCE = 2.0
"""Seconds that a page waits for Slurm while nothing is known about the cluster."""
PATIENCE = 0.5
"""Seconds that it waits where older data is there to be shown, with its age."""


class Site(NamedTuple):
    """The clusters on which one user gets the jobs of profiles; none where no profile uses Slurm."""

    clusters: Mapping[str, Cluster] = MappingProxyType({})
    """By cluster."""
    owners: Mapping[str, str] = MappingProxyType({})
    """The account that owns the user's jobs on each cluster."""

    def silent(
        self, snapshots: Mapping[str, ClusterSnapshot | None], now: float, *, max_age: float = ANSWERED_SECONDS
    ) -> tuple[str, ...]:
        """The names of the clusters that do not respond, or whose snapshot is older: they were asked for these.

        A question counts as late after some seconds; until then only the snapshot's age says that none has come.
        """
        return tuple(
            name
            for name, snapshot in snapshots.items()
            if snapshot is None or now - snapshot.taken_at > max_age or self.clusters[name].silent
        )

    @property
    def latest(self) -> dict[str, ClusterSnapshot | None]:
        """The last snapshot of each cluster; nothing is asked."""
        return {name: cluster.view.latest for name, cluster in self.clusters.items()}

    async def snapshots(self, *, patience: float = 2.0, first: float = 2.0) -> dict[str, ClusterSnapshot | None]:
        """The last snapshot of each cluster, once each was asked: ``patience`` seconds at most.

        A cluster of which nothing is known that could be shown as it is now is waited for ``first`` seconds, unless it
        is known not to respond.
        """
        now = time.time()

        def seconds(cluster: Cluster) -> float:
            latest = cluster.view.latest
            shown = latest is not None and (now - latest.taken_at <= ANSWERED_SECONDS or cluster.silent)
            return patience if shown else first

        answers = (cluster.view.recent(patience=seconds(cluster)) for cluster in self.clusters.values())
        return dict(zip(self.clusters, await asyncio.gather(*answers), strict=True))


def site_of(spawner: GPUProfilesSpawner, offered: Sequence[Profile]) -> Site:
    """The site of these profiles, for the spawner's user; raises ConfigError."""
    if not any(profile.kind == "slurm" for profile in offered):
        return Site()
    owners = {
        name: job_owner(spawner.effective(name).exec_prefix, spawner.user.name) for name in spawner.clusters or [""]
    }
    return Site(spawner.connections(), owners)


@dataclass(frozen=True)
class Silence:
    """Slurm does not respond, on every cluster or on some."""

    clusters: Mapping[str, float | None]
    """The names of these, each with the time of its last answer or None; empty in a hub with one cluster."""
    as_of: float | None
    """The earliest of these times; None where there was no answer yet."""


def silence_of(site: Site, snapshots: Mapping[str, ClusterSnapshot | None], now: float) -> Silence | None:
    """Which clusters do not respond, or have not responded yet; None if all do."""
    times = {name: snapshot.taken_at if snapshot is not None else None for name, snapshot in snapshots.items()}
    answers = {name: times[name] for name in site.silent(snapshots, now)}
    if not answers:
        return None
    as_of = min((at for at in answers.values() if at is not None), default=None)
    return Silence(answers if len(snapshots) > 1 else {}, as_of)


@dataclass(frozen=True)
class ClusterNow:
    """A cluster, as a job of one user would find it now."""

    snapshot: ClusterSnapshot | None
    """None where Slurm has not responded yet."""
    owner: str = ""
    """The account that would own the job; empty if unknown."""
    unix_groups: Mapping[str, bool] = field(default_factory=dict)
    """Whether that account is in a group, as far as the hub's machine knows."""
    responds: bool = True
    """Its Slurm answers; else nothing is said to start now."""
    placement_policy: str = ""
    """The site's, for profiles without one of their own."""

    def availability(self, request: JobRequest, *, now: float) -> Availability:
        """Whether the job of this request would start."""
        answer = availability(
            request.resources,
            self.snapshot,
            now=now,
            user=self.owner,
            person=request.username,
            binds_cores=binds_cores(request, self.placement_policy),
            groups=self.unix_groups,
        )
        return answer if self.responds else no_longer_now(answer, now=now)


def binds_cores(request: JobRequest, site_policy: str) -> bool:
    """Whether the job gets its GPUs with cores beside them alone: the script then says so to Slurm."""
    return (request.placement.policy or request.profile.traits.get("placement_policy") or site_policy) == "restricted"


def on_cluster(answer: Availability, name: str, clusters: Collection[str]) -> Availability:
    """The same, in a sentence that says on which of several clusters the job would be, where that is known."""
    if len(clusters) <= 1 or answer.chance is Chance.UNKNOWN:
        return answer
    return replace(answer, sentence=f"{answer.sentence} on {name}")


class ClusterForecast(Forecast):
    """When jobs of one user would start on these clusters, by their names, which is empty in a hub that names none.

    A start that is expected after the queue's limit has a warning; ``site_queue_limit`` (seconds; None: no limit) is
    that of profiles without one of their own. ``now`` is in seconds since the epoch.
    """

    def __init__(
        self,
        clusters: Mapping[str, ClusterNow],
        *,
        now: float,
        silence: Silence | None = None,
        site_queue_limit: int | None = None,
    ) -> None:
        self._clusters, self._now, self._site_queue_limit = clusters, now, site_queue_limit
        if silence is not None:
            self.notice, self.as_of = words.silent_slurm(silence.clusters, as_of=silence.as_of), silence.as_of

    def of(self, request: JobRequest) -> Availability:
        """When the job of this request would start."""
        name = request.resources.cluster or ""
        limit = queue_limit(request.profile.queue_timeout, self._site_queue_limit)
        answer = self._clusters[name].availability(request, now=self._now)
        return within(on_cluster(answer, name, self._clusters), limit, now=self._now)

    def snapshot_of(self, resources: Resources) -> ClusterSnapshot | None:
        """The cluster of a job with these resources, where it has responded."""
        return self._clusters[resources.cluster or ""].snapshot

    def hardware(self, resources: Resources) -> Hardware:
        """That of the nodes of the job's partitions."""
        snapshot = self.snapshot_of(resources)
        return hardware_of(resources, snapshot) if snapshot is not None else Hardware()


def hardware_of(resources: Resources, snapshot: ClusterSnapshot) -> Hardware:
    """What is known of the nodes on which a job with these resources may run."""
    capacity, interrupted, types = capacity_of(snapshot), preempted(resources, snapshot), set[str]()
    if resources.gpus and not resources.gpu_type:
        types = {kind for name in snapshot.partitions_of(resources.partition) for kind in capacity.nodes(name).types}
    return Hardware(
        gpu_type=types.pop() if len(types) == 1 else "",
        types_beside=capacity.types_beside,
        cpus_per_core=cpus_per_core_of(resources, snapshot),
        **allocated(resources, snapshot)._asdict(),
        risk=words.PREEMPTED[interrupted] if interrupted is not None else "",
    )


async def forecast_of(
    spawner: GPUProfilesSpawner,
    site: Site,
    snapshots: Mapping[str, ClusterSnapshot | None],
    *,
    max_age: float = ANSWERED_SECONDS,
) -> ClusterForecast:
    """The forecast for the spawner's user; by a snapshot of more than ``max_age`` seconds nothing starts now."""
    now = time.time()
    silent = site.silent(snapshots, now, max_age=max_age)
    clusters = {
        name: ClusterNow(
            snapshot,
            owner=site.owners[name],
            unix_groups=await allowed_groups(snapshot, site.owners[name]),
            responds=name not in silent,
            placement_policy=spawner.effective(name).placement_policy,
        )
        for name, snapshot in snapshots.items()
    }
    return ClusterForecast(
        clusters,
        now=time.time(),
        silence=silence_of(site, snapshots, now),
        site_queue_limit=spawner.site_queue_limit if clusters else None,
    )


async def forecast_for(spawner: Any, offered: Sequence[Profile], asks: bool) -> ClusterForecast:
    """The forecast for the spawner's user, for the form; raises ConfigError."""
    site = site_of(spawner, offered)
    snapshots = await site.snapshots(patience=PATIENCE, first=FIRST_PATIENCE) if asks else site.latest
    return await forecast_of(spawner, site, snapshots)


async def availability_of(spawner: Any, request: JobRequest, snapshot: ClusterSnapshot, *, now: float) -> Availability:
    """When this request of a Slurm spawner's user would start by a snapshot of its cluster. Asks Slurm nothing."""
    settings = spawner.effective(request.resources.cluster or "")
    owner = job_owner(settings.exec_prefix, spawner.user.name)
    return availability(
        request.resources,
        snapshot,
        now=now,
        user=owner,
        person=spawner.user.name,
        groups=await allowed_groups(snapshot, owner),
        binds_cores=binds_cores(request, settings.placement_policy),
    )
