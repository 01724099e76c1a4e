"""The health of a fleet of nodes: differences, contradictions and grants, node by node. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.fleet.grants import GrantSummary, summary
from jupyterhub_gpuspawner.fleet.node_record import gpu_count
from jupyterhub_gpuspawner.fleet.siblings import Shape, differences, shape_of
from jupyterhub_gpuspawner.fleet.slurm_view import contradictions, has_links
from jupyterhub_gpuspawner.units import parse_gres

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jupyterhub_gpuspawner.fleet.grants import Grant
    from jupyterhub_gpuspawner.fleet.node_record import NodeRecord
    from jupyterhub_gpuspawner.fleet.siblings import Difference
    from jupyterhub_gpuspawner.fleet.slurm_view import Contradiction
    from jupyterhub_gpuspawner.units import Gres

VERSION = 1


@dataclass(frozen=True)
class NodeHealth:
    """What is known of one node; times are seconds since the epoch."""

    node: str
    shape: Shape
    siblings: int
    """How many other nodes have its shape."""
    seen_at: float
    """When a job last reported from it."""
    gpus_seen: int
    """GPUs of it that jobs have seen and that are not gone."""
    gpus: int | None
    """GPUs that it has: on its PCI bus, or else in Slurm; None if neither is known."""
    complete: bool
    """Every GPU and every link has been seen; otherwise jobs have seen only their own GPUs so far."""
    agreeing: int = 1
    """How many jobs in a row have reported this, and nothing that contradicts it."""
    doubting: int = 0
    """How many jobs in a row have reported otherwise since; too few to be believed."""
    simulated: bool = False
    differences: tuple[Difference, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    links_help: bool = False
    """``Links=`` in gres.conf would tell Slurm which of its GPUs are linked."""
    grants: GrantSummary = field(default_factory=GrantSummary)

    @property
    def ill(self) -> bool:
        """Whether it differs from its siblings, or from Slurm's configuration."""
        return bool(self.differences or self.contradictions)


@dataclass(frozen=True)
class FleetHealth:
    """All nodes of which anything is known: those that are ill first, then by name."""

    nodes: tuple[NodeHealth, ...] = ()
    slurm_asked: bool = True
    """Slurm's configuration is as of now; otherwise as of each node's last report."""
    grants: GrantSummary = field(default_factory=GrantSummary)
    """Over all nodes."""

    def to_json(self) -> dict[str, Any]:
        """The document, version 1."""
        nodes = [{**asdict(node), "ill": node.ill} for node in self.nodes]
        return {"version": VERSION, "slurm_asked": self.slurm_asked, "grants": asdict(self.grants), "nodes": nodes}


def health(
    records: Iterable[NodeRecord], grants: Sequence[Grant], slurm: Mapping[str, Sequence[Gres]] | None = None
) -> FleetHealth:
    """The health of the nodes of these records; ``slurm``: generic resources by node, as slurmctld reports them now."""
    known = list(records)
    unlike = differences(known)
    shapes = [shape_of(record) for record in known]
    alike = Counter(shapes)
    made: dict[str, list[Grant]] = defaultdict(list)
    for grant in grants:
        made[grant.node].append(grant)
    nodes = []
    for record, shape in zip(known, shapes, strict=True):
        gres = slurm.get(record.node, ()) if slurm is not None else parse_gres(record.gres)
        listed = len(record.topology.devices) or gpu_count(gres) or None
        nodes.append(
            NodeHealth(
                node=record.node,
                shape=shape,
                siblings=alike[shape] - 1,
                seen_at=record.seen_at,
                gpus_seen=len(record.present),
                gpus=len(record.present) if record.whole_at is not None else listed,
                complete=record.complete,
                agreeing=record.agreeing,
                doubting=record.doubt.agreeing if record.doubt is not None else 0,
                simulated=record.topology.simulated,
                differences=unlike[record.node],
                contradictions=contradictions(record, gres),
                links_help=has_links(record),
                grants=summary(made[record.node]),
            )
        )
    nodes.sort(key=lambda node: (not node.ill, node.node))
    return FleetHealth(tuple(nodes), slurm is not None, summary(grants))
