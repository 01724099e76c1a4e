"""Nodes on which the last starts failed, on the map of the cluster."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.records.failures import FailingNode
from jupyterhub_gpuspawner.extensions.records.keeper import FromRecords
from jupyterhub_gpuspawner.hub.extension import NodeMark, NodeMarks
from jupyterhub_gpuspawner.hub.site.state import HubState
from jupyterhub_gpuspawner.words import people

FAILING = "The last {starts} starts here failed, those of {people}."


def marks_of(hub: HubState, cluster: str) -> NodeMarks:
    """The nodes of a cluster on which starts fail, each with the command that drains it."""
    failing = hub.of(FromRecords).failing_nodes.get(cluster, {})
    return NodeMarks(
        "failing_nodes",
        nodes={name: (mark(node),) for name, node in failing.items()},
        document=[node.to_json() for node in failing.values()],
    )


def mark(node: FailingNode) -> NodeMark:
    """That the last starts on a node failed, what to look at before it is drained, and the command that drains it."""
    text = FAILING.format(starts=len(node.records), people=people(len(node.people)))
    return NodeMark(f"{text} {node.doubt}".rstrip(), node.drain)
