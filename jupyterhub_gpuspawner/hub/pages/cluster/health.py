"""The health of the nodes: ``/hub/gpuspawner/cluster/health``, and the same as JSON."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from jupyterhub.apihandlers import APIHandler
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from tornado import web

from jupyterhub_gpuspawner.fleet import sentences
from jupyterhub_gpuspawner.fleet.health import FleetHealth, health
from jupyterhub_gpuspawner.hub.fleet.store import FleetStore
from jupyterhub_gpuspawner.hub.pages.cluster.page import AGE, ClusterSight
from jupyterhub_gpuspawner.hub.text import health as text
from jupyterhub_gpuspawner.words import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.orm import Session

    from jupyterhub_gpuspawner.fleet.health import NodeHealth
    from jupyterhub_gpuspawner.units import Gres

ROWS_AT_MOST = 1000
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


def rows(found: FleetHealth, now: float) -> tuple[HealthRow, ...]:
    """The nodes in words; ``now`` as in time.time()."""
    return tuple(_row(node, now) for node in found.nodes[:ROWS_AT_MOST])


def _row(node: NodeHealth, now: float) -> HealthRow:
    said = [*map(sentences.difference, node.differences), *map(sentences.contradiction, node.contradictions)]
    hints = [sentences.doubt(node), "" if node.complete else sentences.PARTIAL, sentences.gains(node)]
    alike = text.ALIKE if node.siblings else text.ALONE
    has = [sentences.shape(node.shape), text.siblings(node.siblings), text.SIMULATED if node.simulated else ""]
    return HealthRow(
        name=node.node,
        ill=node.ill,
        state=text.DIFFERS if node.ill else alike,
        has=", ".join(filter(None, has)),
        seen=f"{sentences.seen(node)}; {text.seen_at(node.seen_at, now)}",
        findings=tuple(map(sentence, said)),
        hints=tuple(filter(None, hints)),
        grants=sentence(sentences.grants(node.grants)),
    )


class HealthSight(ClusterSight):
    """A mixin for the handlers of page and API: checks the scopes and reads what is known."""

    if TYPE_CHECKING:  # what a handler has
        db: Session

    async def health(self) -> FleetHealth:
        """The health of all nodes; raises 403, and 404 in a hub that starts no Slurm jobs."""
        self.check_scopes()
        connection = self._connection()
        snapshot = await connection.cluster.recent(AGE)
        slurm: Mapping[str, Sequence[Gres]] | None = None
        if snapshot is not None and not connection.silent:
            slurm = {node.name: node.gres for node in snapshot.nodes}
        store = FleetStore(self.db.get_bind())
        return await store.call(partial(_read, store, slurm))


def _read(store: FleetStore, slurm: Mapping[str, Sequence[Gres]] | None) -> FleetHealth:
    kept = store.read()
    return health(kept.records, kept.grants, slurm)


class HealthPage(HealthSight, BaseHandler):
    """The health as an HTML page."""

    @web.authenticated
    @needs_scope("admin-ui")
    async def get(self) -> None:
        """Nodes that differ first."""
        found = await self.health()
        told: dict[str, Any] = {
            "rows": rows(found, time.time()),
            "more": text.left_out(len(found.nodes) - ROWS_AT_MOST) if len(found.nodes) > ROWS_AT_MOST else "",
            "summary": text.summary(len(found.nodes), sum(node.ill for node in found.nodes)),
            "grants": text.ALL_GRANTS.format(grants=sentences.grants(found.grants)),
        }
        self.finish(await self.render_template("cluster_health.html", found=found, **told))


class FleetHandler(HealthSight, APIHandler):
    """Nodes that differ from their siblings or contradict Slurm's configuration, and how well Slurm placed jobs there.

    For admins.
    """

    @needs_scope("admin-ui")
    async def get(self) -> None:
        """The fleet document, version 1."""
        self.write((await self.health()).to_json())
