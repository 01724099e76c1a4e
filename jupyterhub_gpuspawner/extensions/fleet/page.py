"""The health of a cluster's nodes: a section below its map, and the same as JSON."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from jupyterhub.apihandlers import APIHandler
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from markupsafe import Markup

from jupyterhub_gpuspawner.extensions.fleet.health import FleetHealth, health
from jupyterhub_gpuspawner.extensions.fleet.store import FleetStore
from jupyterhub_gpuspawner.hub import times
from jupyterhub_gpuspawner.hub.site.connection import Cluster
from jupyterhub_gpuspawner.hub.web.clusters import check_scopes, requested_cluster, snapshot_of
from jupyterhub_gpuspawner.words import counted, sentence

REPORTS_AT_MOST = 1000
"""Nodes on one page at most; those that differ come first."""


def health_section(health: FleetHealth, now: float) -> dict[str, Any]:
    """What the template of the nodes' health gets; ``now`` as in time.time()."""
    return {
        "slurm_asked": health.slurm_asked,
        "nodes": health.nodes[:REPORTS_AT_MOST],
        "known": len(health.nodes),
        "ill": sum(node.ill for node in health.nodes),
        "grants": health.grants,
        "ago": partial(times.relative, now=now),
        "counted": counted,
        "sentence": sentence,
    }


async def health_of(handler: BaseHandler, cluster: Cluster) -> FleetHealth:
    """The health of a cluster's nodes, by their reports and Slurm's configuration; raises SQLAlchemyError."""
    store = FleetStore(handler.db.get_bind(), cluster.name)
    snapshot = await snapshot_of(cluster)
    nodes = snapshot.nodes if snapshot is not None and not cluster.silent else None
    gres = {node.name: node.gres for node in nodes} if nodes is not None else None

    def read() -> FleetHealth:
        stored = store.read()
        return health(stored.records, stored.grants, gres)

    return await store.call(read)


async def below_map(handler: BaseHandler, cluster: Cluster, name: str) -> Markup:
    """The section of a cluster, with its ``name`` where there are several; raises SQLAlchemyError."""
    section = health_section(await health_of(handler, cluster), time.time())
    html = await handler.render_template("gpuspawner_health.html", cluster=name, health=section)
    return Markup(html)  # noqa: S704 - the template has escaped its texts


class FleetHandler(APIHandler):
    """Nodes that differ from their siblings or contradict Slurm's configuration, and how well Slurm placed jobs there.

    For admins.
    """

    @needs_scope("admin-ui")
    async def get(self) -> None:
        """The fleet document, version 1, of the first cluster or of the one that `cluster` names."""
        check_scopes(self)
        self.write((await health_of(self, requested_cluster(self))).to_json())
