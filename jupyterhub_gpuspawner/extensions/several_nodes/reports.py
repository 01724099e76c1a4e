"""The reports of a job's other nodes: what the launcher on each found there, kept until and after Slurm confirms it.

A report counts once Slurm says that its node belongs to the job; afterwards a report of any other node is refused.
Nothing waits for these reports; a node without one is shown as such. Their number is that of a placement's other nodes
at most, and few of them keep their topology.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jupyterhub_gpuspawner.errors import ReportError
from jupyterhub_gpuspawner.extensions.several_nodes.node.network import nearest_nic, weakest
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name
from jupyterhub_gpuspawner.hub.report.server_report import parse_placement, parsed, position
from jupyterhub_gpuspawner.placement.choice import aligned
from jupyterhub_gpuspawner.placement.topology import LIST_LIMIT, NodeTopology, kernel_cpus
from jupyterhub_gpuspawner.units import NodeAllocation, format_cpulist
from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacedGpu, PlacementDocument

PICTURES = 16
"""Nodes beside the server's whose topology is kept, for their pictures: they are stored in the hub's database."""


class OtherNodes(WithServer):
    """Of one server: for each other node that has reported, its placement, and its topology if that is kept."""

    def __init__(self, spawner: Any) -> None:
        super().__init__(spawner)
        self.forget()

    def forget(self) -> None:
        """No node has reported."""
        self.placements: dict[str, PlacementDocument] = {}
        self.topologies: dict[str, Mapping[str, Any]] = {}
        self._allocations: dict[str, NodeAllocation] = {}

    def node_reported(self, report: NodeReport) -> bool:
        """Keep the report of another node, at any time; the start does not depend on it."""
        shown = self.spawner.report
        if shown.placement is not None and not shown.placement.other_nodes:
            raise ReportError("other_node: this server has no other node")
        if self.accept(report):
            if shown.placement is not None:
                shown.place(shown.placement)
            self.spawner.row.store_soon()
        return True

    def placed(self, placement: PlacementDocument, allocations: Sequence[NodeAllocation]) -> PlacementDocument:
        """The placement with what the job's other nodes report; what a node has reported that is none is dropped."""
        if not placement.other_nodes:
            self.forget()
        elif allocations:
            for node in self.confirm(allocations):
                self.spawner.log.warning(
                    "%s: a report names node %.60s, which is not of its job", log_name(self.spawner), node
                )
        return self.merged(placement, self.spawner.report.topology)

    def accept(self, report: NodeReport) -> bool:
        """Keep a node's first report; returns whether it is new.

        Raises ReportError for one too many, and for a node that is not of the job.
        """
        placement, topology = report.placement, parsed(report.topology)
        node = placement.node
        if not node:
            raise ReportError("placement.node: must name the node")
        if self._name(node) in map(self._name, self.placements):
            return False
        if self._allocations and self._name(node) not in self._allocations:
            raise ReportError(f"placement.node: {node:.60} is not a node of this server's job")
        if len(self.placements) >= LIST_LIMIT:
            raise ReportError(f"other_node: {LIST_LIMIT} nodes have already reported")
        placement = replace(placement, other_nodes=(), gpus=with_nics(placement.gpus, topology))
        self.placements[node] = _completed(placement, topology, self._allocations.get(self._name(node)))
        if topology is not None and len(self.topologies) < PICTURES:
            self.topologies[node] = report.topology or {}
        return True

    def confirm(self, allocations: Sequence[NodeAllocation]) -> tuple[str, ...]:
        """Take Slurm's word on the job's nodes; returns the names of those that reported and are none of them."""
        self._allocations = {allocation.node: allocation for allocation in allocations}
        strangers = tuple(node for node in self.placements if self._name(node) not in self._allocations)
        for node in strangers:
            del self.placements[node]
            self.topologies.pop(node, None)
        for node, placement in self.placements.items():
            allocation = self._allocations.get(self._name(node))
            self.placements[node] = _completed(placement, parsed(self.topologies.get(node)), allocation)
        return strangers

    def _name(self, node: str) -> str:
        """Slurm's name of the node, once Slurm has named them; a report may have its full host name."""
        return node if node in self._allocations or not self._allocations else node.partition(".")[0]

    def merged(self, placement: PlacementDocument, topology: Mapping[str, Any] | None) -> PlacementDocument:
        """The server's placement with what its other nodes have reported, for a job on several nodes."""
        if not placement.other_nodes:
            return placement
        placements = {
            node.partition(".")[0]: placement for node, placement in self.placements.items()
        } | self.placements
        grants = tuple(replace(grant, placement=placements.get(grant.node)) for grant in placement.other_nodes)
        own = replace(placement, gpus=with_nics(placement.gpus, parsed(topology)), other_nodes=grants)
        return replace(own, weakest_link_over_nodes=_weakest_over_nodes(own))

    def to_state(self) -> dict[str, Any]:
        """The reports by node; empty where there is none."""
        nodes = {
            node: {"placement": placement.to_json(), "topology": self.topologies.get(node)}
            for node, placement in self.placements.items()
        }
        return {"nodes": nodes} if nodes else {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Read the reports; from the first that cannot be read, they are dropped with a warning in the log."""
        nodes = state.get("nodes")
        try:
            for node, stored in nodes.items() if isinstance(nodes, dict) else ():
                if isinstance(stored, dict) and len(self.placements) < LIST_LIMIT:
                    self.placements[node] = parse_placement(stored.get("placement"))
                    if parsed(stored.get("topology")) is not None and len(self.topologies) < PICTURES:
                        self.topologies[node] = stored["topology"]
        except ReportError as error:
            self.spawner.log.warning(
                "The stored reports of the nodes of %s are ignored: %s", log_name(self.spawner), error
            )


def with_nics(gpus: Sequence[PlacedGpu], topology: NodeTopology | None) -> tuple[PlacedGpu, ...]:
    """The GPUs with the network card beside each, as far as the topology says."""
    if topology is None:
        return tuple(gpus)
    with_nic = []
    for gpu in gpus:
        index = position(topology, gpu)
        nic = nearest_nic(topology, index) if index is not None else None
        with_nic.append(replace(gpu, nic=nic.name, nic_link=nic.link) if nic is not None else gpu)
    return tuple(with_nic)


def _completed(
    placement: PlacementDocument, topology: NodeTopology | None, allocation: NodeAllocation | None
) -> PlacementDocument:
    """The placement with Slurm's memory, and with Slurm's CPUs where the node's launcher could not know them."""
    if allocation is None:
        return placement
    placement = replace(placement, memory_mib=allocation.memory_mib or placement.memory_mib)
    if placement.cpus or topology is None or not topology.numa_nodes or not allocation.cpu_ids:
        return placement
    cpus = kernel_cpus(allocation.cpu_ids, topology)
    near = {topology.numa_node_of_cpu(cpu) for cpu in cpus} - {None}
    gpus = [index for gpu in placement.gpus if (index := position(topology, gpu)) is not None]
    return replace(
        placement,
        cpus=format_cpulist(cpus),
        numa_nodes=tuple(sorted(node for node in near if node is not None)),
        aligned=aligned(topology, gpus, cpus),
    )


def _weakest_over_nodes(placement: PlacementDocument) -> str | None:
    links: list[str | None] = []
    for document in (placement, *(grant.placement for grant in placement.other_nodes)):
        if document is None:
            return None
        links += [gpu.nic_link for gpu in document.gpus]
        links += [document.weakest_link] if len(document.gpus) > 1 else []
    return weakest(links)
