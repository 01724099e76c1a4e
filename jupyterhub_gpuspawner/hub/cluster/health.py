"""The health of the nodes, as a section of the map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from jupyterhub_gpuspawner.fleet.health import FleetHealth, NodeHealth
from jupyterhub_gpuspawner.fleet.health import health as health_of
from jupyterhub_gpuspawner.hub import times
from jupyterhub_gpuspawner.hub.cluster.fleet import FleetStore
from jupyterhub_gpuspawner.hub.site.connection import Connection
from jupyterhub_gpuspawner.units import Gres
from jupyterhub_gpuspawner.words import sentence

HEALTH = "Health"
INTRO = (
    "What servers have reported about their nodes: which nodes differ from most nodes of their kind, and how well "
    "Slurm placed jobs on them. A GPU that no job has seen yet is not judged."
)
NOTHING = "No server has reported from a node with GPUs yet."
AS_REPORTED = "Slurm is not responding; its configuration is that of the last reports."
DIFFERS = "differs"
ALIKE = "as its siblings"
ALONE = "no siblings"
GRANTS = "Grants"
SIMULATED = "simulated"
ALL_GRANTS = "All nodes together: {grants}."
GRES_CONF = (
    "“Siblings” are nodes with the same GPUs in Slurm; a majority of at least two defines what is usual. A grant is "
    "compared with the GPUs that were free when the job started."
)

ROWS_AT_MOST = 1000
"""Nodes on one page at most; those that differ come first."""


def siblings(number: int) -> str:
    """The number of nodes of the same kind; empty for none, which the node's state says."""
    return f"{number:,} sibling{'s' * (number != 1)}" if number else ""


def seen_at(when: float, now: float) -> str:
    """When a job last reported from the node."""
    ago = times.relative(when, now=now)
    return f"last report {'just now' if ago == times.NOW else ago}"


def left_out(number: int) -> str:
    """The rest of a list that is longer than the section."""
    return f"{number:,} more node{'s' * (number != 1)} not shown: use gpuspawner fleet."


def summary(nodes: int, ill: int) -> str:
    """All nodes in one line."""
    what = f"{nodes:,} node{'s' * (nodes != 1)} known"
    one = "s" * (ill <= 1)
    return f"{what}; {f'{ill:,}' if ill else 'none'} differ{one} or contradict{one} Slurm's configuration"


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


def rows(health: FleetHealth, now: float) -> tuple[HealthRow, ...]:
    """The nodes in words; ``now`` as in time.time()."""
    return tuple(_row(node, now) for node in health.nodes[:ROWS_AT_MOST])


def _row(node: NodeHealth, now: float) -> HealthRow:
    alike = ALIKE if node.siblings else ALONE
    has = [str(node.shape), siblings(node.siblings), SIMULATED if node.simulated else ""]
    return HealthRow(
        name=node.node,
        ill=node.ill,
        state=DIFFERS if node.ill else alike,
        has=", ".join(filter(None, has)),
        seen=f"{node.seen}; {seen_at(node.seen_at, now)}",
        findings=tuple(sentence(str(fault)) for fault in (*node.differences, *node.contradictions)),
        hints=(*node.doubts, *filter(None, (node.gains,))),
        grants=sentence(str(node.grants)),
    )


@dataclass(frozen=True)
class HealthSection:
    """The section of the map, in words."""

    fleet: FleetHealth
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
        summary(len(nodes), sum(node.ill for node in nodes)),
        ALL_GRANTS.format(grants=health.grants),
        left_out(len(nodes) - ROWS_AT_MOST) if len(nodes) > ROWS_AT_MOST else "",
    )


async def read_health(connection: Connection, store: FleetStore, max_age: float) -> FleetHealth:
    """The health of all nodes, by their reports and Slurm's configuration; raises SQLAlchemyError."""
    snapshot = await connection.cluster.recent(max_age)
    slurm: Mapping[str, Sequence[Gres]] | None = None
    if snapshot is not None and not connection.silent:
        slurm = {node.name: node.gres for node in snapshot.nodes}
    return await store.call(partial(_read, store, slurm))


def _read(store: FleetStore, slurm: Mapping[str, Sequence[Gres]] | None) -> FleetHealth:
    stored = store.read()
    return health_of(stored.records, stored.grants, slurm)
