"""What the card of a server shows of its job's other nodes, and of the network between all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jupyterhub_gpuspawner.extensions.several_nodes.node.network import UNKNOWN, has_no_nic
from jupyterhub_gpuspawner.extensions.several_nodes.reports import OtherNodes
from jupyterhub_gpuspawner.hub.extension import Place, ServerPart
from jupyterhub_gpuspawner.hub.report.server_report import parsed
from jupyterhub_gpuspawner.hub.server.card import ServerFacts, node_facts
from jupyterhub_gpuspawner.hub.spawners.server import Server, ServerState, kept_with
from jupyterhub_gpuspawner.placement.topology import gpu_name
from jupyterhub_gpuspawner.slurm.gpu_model import gpu_model
from jupyterhub_gpuspawner.units import format_cpulist
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacementDocument

NETWORK = "Network"
NETWORK_EXPLAINED = (
    "The network card next to each GPU and the link between the two: PIX and PXB are the shortest ways, SYS the "
    "longest. Work on several nodes is as fast as the weakest link of all."
)
OTHER_NODES = "Other nodes"
OTHER_NODES_EXPLAINED = "What the job has on its other machines."
NOT_REPORTED = "{node} has not reported what the job has there. The log may say why."
Topologies = Mapping[str, Mapping[str, Any]]


def parts_of(spawner: Any, server: Server) -> Iterator[ServerPart]:
    """The part of a server whose job has several nodes; their pictures are drawn when the card is shown."""
    nodes = kept_with(spawner, OtherNodes)
    placement = server.placement
    if server.state is ServerState.RUNNING and placement is not None and placement.other_nodes and nodes is not None:
        yield nodes_part(placement, server.topology, nodes.topologies)


def nodes_part(placement: PlacementDocument, topology: Mapping[str, Any] | None, topologies: Topologies) -> ServerPart:
    """The part of a placement on several nodes; ``topologies`` are those of the others, by node."""
    weakest = placement.weakest_link_over_nodes or "not known"
    network = (f"weakest link of all nodes: {weakest}", *_network(placement, topology))
    return ServerPart(
        "several_nodes",
        Place.BELOW,
        "several_nodes_card.html",
        partial(other_nodes, placement, topologies),
        version=placement.other_nodes,
        rows=(
            (NETWORK, "\n".join(network), NETWORK_EXPLAINED),
            (OTHER_NODES, "\n".join(map(in_words, placement.other_nodes)), OTHER_NODES_EXPLAINED),
        ),
        problems=tuple(
            NOT_REPORTED.format(node=grant.node) for grant in placement.other_nodes if grant.placement is None
        ),
    )


@dataclass(frozen=True)
class OtherNode:
    """What the job has on a node that has reported."""

    facts: ServerFacts
    placement: PlacementDocument
    """Its problems are those that are not said of the server's node already."""
    topology: Mapping[str, Any] | None


def other_nodes(placement: PlacementDocument, topologies: Topologies) -> Iterator[OtherNode]:
    """Each other node that has reported."""
    for other in (grant.placement for grant in placement.other_nodes if grant.placement is not None):
        new = replace(other, problems=tuple(text for text in other.problems if text not in placement.problems))
        topology = topologies.get(other.node)
        facts = node_facts(new, topology)
        facts = replace(facts, rows=(*facts.rows, (NETWORK, "\n".join(_network(other, topology)))))
        yield OtherNode(facts, new, topology)


def _network(placement: PlacementDocument, topology: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Each GPU's network card on a node."""
    cards = tuple(
        f"{gpu_name(gpu.index, gpu.mig, gpu.mig_device)}: {gpu.nic}, "
        f"{gpu.nic_link if gpu.nic_link not in (None, '', UNKNOWN) else 'link not known'}"
        for gpu in placement.gpus
        if gpu.nic
    )
    if cards:
        return cards
    node = parsed(topology)
    if node is not None and has_no_nic(node):
        return ("this node has no network card that GPUs can use directly",)
    return ("the network cards of this node are not known",)


def in_words(grant: NodeGrant) -> str:
    """Such as ``g2: GPU 0-1 (K80, 12 GB), 4 CPUs; has not reported``; GPUs by Slurm's index."""
    kind = f" ({gpu_model(grant.gpu_type)})" if grant.gpu_type else ""
    gpus = f"GPU {format_cpulist(grant.gpus)}{kind}" if grant.gpus else ""
    cpus = f"{grant.cpus} CPU{'s' if grant.cpus > 1 else ''}" if grant.cpus else ""
    silent = "" if grant.placement is not None else "; has not reported"
    return f"{grant.node}: {', '.join(filter(None, (gpus, cpus))) or 'not known'}{silent}"
