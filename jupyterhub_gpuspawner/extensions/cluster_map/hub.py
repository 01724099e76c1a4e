"""The page of the map, and its entry of the navigation bar."""

from collections.abc import Mapping
from typing import Any

from jupyterhub_gpuspawner.extensions.cluster_map.page import ClusterHandler, ClusterPage
from jupyterhub_gpuspawner.hub.extension import HubExtension, Link
from jupyterhub_gpuspawner.hub.web.clusters import may_see_cluster


def _may_see(parsed_scopes: Mapping[str, object], _user: Any) -> bool:
    return may_see_cluster(parsed_scopes)


HUB = HubExtension(
    api=((r"/api/gpuspawner/cluster", ClusterHandler),),
    pages=((r"/gpuspawner/cluster", ClusterPage),),
    links=(Link("Cluster", "gpuspawner/cluster", _may_see),),
)
