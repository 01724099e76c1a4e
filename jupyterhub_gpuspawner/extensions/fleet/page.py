"""The health of a cluster's nodes: a section below its map, and the same as JSON."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from jupyterhub.apihandlers import APIHandler
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from markupsafe import Markup

from jupyterhub_gpuspawner.extensions.fleet.health import FleetHealth, NodeHealth, health
from jupyterhub_gpuspawner.extensions.fleet.store import FleetStore
from jupyterhub_gpuspawner.hub import times
from jupyterhub_gpuspawner.hub.site.connection import Cluster
from jupyterhub_gpuspawner.hub.web.clusters import check_scopes, requested_connection, snapshot_of
from jupyterhub_gpuspawner.words import counted, sentence

REPORTS_AT_MOST = 1000
"""Nodes on one page at most; those that differ come first."""


@dataclass(frozen=True)
class HealthRow:
    """One node in words."""

    name: str
    ill: bool
    state: str
    has: str
    """Its GPUs, and how many siblings it has."""
    seen: str
    findings: tuple[str, ...]
    hints: tuple[str, ...]
    """What is not known, and what gres.conf's lines would gain."""
    grants: str


def _health_row(node: NodeHealth, now: float) -> HealthRow:
    number = node.siblings
    siblings = f"{number:,} sibling{'s' * (number != 1)}" if number else ""
    has = (str(node.shape), siblings, "simulated" if node.simulated else "")
    ago = times.relative(node.seen_at, now=now)
    return HealthRow(
        name=node.node,
        ill=node.ill,
        state=_state(node),
        has=", ".join(filter(None, has)),
        seen=f"{node.seen}; last report {'just now' if ago == times.NOW else ago}",
        findings=tuple(sentence(str(fault)) for fault in (*node.differences, *node.contradictions)),
        hints=(*node.doubts, *filter(None, (node.gains,))),
        grants=sentence(str(node.grants)),
    )


def _state(node: NodeHealth) -> str:
    if node.ill or node.perhaps_ill:
        return "differs" if node.ill else "perhaps differs"
    return "as its siblings" if node.siblings else "no siblings"


def health_section(health: FleetHealth, now: float) -> dict[str, Any]:
    """What the map says of the nodes' health, for its template; ``now`` as in time.time()."""
    nodes, ill = health.nodes, sum(node.ill for node in health.nodes)
    verb_end = "s" * (ill <= 1)
    count = f"{len(nodes):,} node{'s' * (len(nodes) != 1)} known"
    number = f"{ill:,}" if ill else "none"
    more = len(nodes) - REPORTS_AT_MOST
    return {
        "slurm_asked": health.slurm_asked,
        "rows": tuple(_health_row(node, now) for node in nodes[:REPORTS_AT_MOST]),
        "summary": f"{count}; {number} differ{verb_end} or contradict{verb_end} Slurm's configuration",
        "grants": f"All nodes together: {health.grants}.",
        "more": f"{counted(more, 'more node')} not shown: use gpuspawner fleet." if more > 0 else "",
    }


async def health_of(handler: BaseHandler, connection: Cluster) -> FleetHealth:
    """The health of a cluster's nodes, by their reports and Slurm's configuration; raises SQLAlchemyError."""
    store = FleetStore(handler.db.get_bind(), connection.name)
    snapshot = await snapshot_of(connection)
    nodes = snapshot.nodes if snapshot is not None and not connection.silent else None
    gres = {node.name: node.gres for node in nodes} if nodes is not None else None

    def read() -> FleetHealth:
        stored = store.read()
        return health(stored.records, stored.grants, gres)

    return await store.call(read)


async def below_map(handler: BaseHandler, connection: Cluster, cluster: str) -> Markup:
    """The section of a cluster, with its name (``cluster``) where there are several; raises SQLAlchemyError."""
    section = health_section(await health_of(handler, connection), time.time())
    html = await handler.render_template("gpuspawner_health.html", cluster=cluster, health=section)
    return Markup(html)  # noqa: S704 - the template has escaped its texts


class FleetHandler(APIHandler):
    """Nodes that differ from their siblings or contradict Slurm's configuration, and how well Slurm placed jobs there.

    For admins.
    """

    @needs_scope("admin-ui")
    async def get(self) -> None:
        """The fleet document, version 1, of the first cluster or of the one that `cluster` names."""
        check_scopes(self)
        self.write((await health_of(self, requested_connection(self))).to_json())
