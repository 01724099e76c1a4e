"""The health of the nodes, as a section of the map."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.fleet import sentences
from jupyterhub_gpuspawner.fleet.health import FleetHealth
from jupyterhub_gpuspawner.fleet.health import health as health_of
from jupyterhub_gpuspawner.hub.text import health as text
from jupyterhub_gpuspawner.words import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyterhub_gpuspawner.fleet.health import NodeHealth
    from jupyterhub_gpuspawner.hub.fleet.store import FleetStore
    from jupyterhub_gpuspawner.hub.site.connection import Connection
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


@dataclass(frozen=True)
class HealthSection:
    """The section of the map, in words."""

    found: FleetHealth
    rows: tuple[HealthRow, ...]
    summary: str
    grants: str
    more: str
    """How many nodes are not shown; empty if all are."""


def section(health: FleetHealth, now: float) -> HealthSection:
    """What the map says of the nodes' health; ``now`` as in time.time()."""
    nodes = health.nodes
    return HealthSection(
        health,
        rows(health, now),
        text.summary(len(nodes), sum(node.ill for node in nodes)),
        text.ALL_GRANTS.format(grants=sentences.grants(health.grants)),
        text.left_out(len(nodes) - ROWS_AT_MOST) if len(nodes) > ROWS_AT_MOST else "",
    )


async def read_health(connection: Connection, store: FleetStore, max_age: float) -> FleetHealth:
    """The health of all nodes, by their reports and Slurm's configuration; raises SQLAlchemyError."""
    snapshot = await connection.cluster.recent(max_age)
    slurm: Mapping[str, Sequence[Gres]] | None = None
    if snapshot is not None and not connection.silent:
        slurm = {node.name: node.gres for node in snapshot.nodes}
    return await store.call(partial(_read, store, slurm))


def _read(store: FleetStore, slurm: Mapping[str, Sequence[Gres]] | None) -> FleetHealth:
    kept = store.read()
    return health_of(kept.records, kept.grants, slurm)
