"""What pages and documents about whole clusters need: who may see them, and which cluster is asked for."""

from __future__ import annotations

from collections.abc import Mapping

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import Scope
from tornado import web

from jupyterhub_gpuspawner.hub.site.connection import Cluster
from jupyterhub_gpuspawner.hub.spawners.server import site_of
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

SCOPES = ("admin-ui", "list:users", "read:servers")
"""Scopes needed for all users to see a whole cluster: everybody's jobs and servers are named there."""
AGE = 15.0
"""Seconds for which one answer of Slurm is used for all readers."""


def may_see_cluster(parsed_scopes: Mapping[str, object]) -> bool:
    """Whether these scopes include all of :data:`SCOPES`, each without a filter."""
    return all(parsed_scopes.get(scope) is Scope.ALL for scope in SCOPES)


def check_scopes(handler: BaseHandler) -> None:
    """Raise 403 unless the reader has all of :data:`SCOPES`, unfiltered."""
    if not may_see_cluster(handler.parsed_scopes):
        raise web.HTTPError(403, f"The map of the cluster needs the scopes {', '.join(SCOPES)} for all users.")


def clusters_of(handler: BaseHandler) -> dict[str, Cluster]:
    """Each of the hub's clusters by its name, which is empty in a hub that names none.

    Raises 404 in a hub without Slurm jobs.
    """
    site = site_of(handler.settings)
    if site is None:
        raise web.HTTPError(404, "This hub does not start Slurm jobs.")
    return site.connections()


async def snapshot_of(cluster: Cluster) -> ClusterSnapshot | None:
    """What Slurm says of a cluster, at most :data:`AGE` old where it answers; None if it has never answered."""
    return await cluster.view.recent(AGE)


def requested_cluster(handler: BaseHandler) -> Cluster:
    """The cluster that the query names, or the first one; raises 404."""
    clusters = clusters_of(handler)
    name = handler.get_argument("cluster", "") or next(iter(clusters))
    if name not in clusters:
        names = ", ".join(filter(None, clusters)) or "none"
        raise web.HTTPError(404, f"There is no such cluster. The clusters with a name are: {names}.")
    return clusters[name]
