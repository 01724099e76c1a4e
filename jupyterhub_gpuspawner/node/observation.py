"""The node's topology, as far as it can be observed within a time limit.

The hardware is read in a child process (:mod:`~jupyterhub_gpuspawner.node.child`), which reports each result as soon as
it has it. A driver that hangs therefore costs only what it alone knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.placement.topology import NodeTopology, from_document

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.node.child import Say


def observe(
    *, node: str, topology_file: str | None, deadline: float, root: str = "/", network: bool = False
) -> NodeTopology:
    """What is known of ``node`` after at most ``deadline`` seconds; what is not known is a sentence in ``problems``.

    ``root`` is the folder under which ``/sys`` and ``/proc`` are read. ``network``: the network cards are read, too.
    Raises OSError if no child process can be started.
    """
    documents, finished = child.ask_documents(
        lambda say: _look(say, node=node, topology_file=topology_file, root=root, network=network), deadline
    )
    best, doing, failed = NodeTopology(hostname=node), "starting", ""
    for document in documents:
        doing = document.get("doing", doing)
        failed = document.get("failed", failed)
        best = from_document(document["topology"]) if "topology" in document else best
    if failed:
        return best.with_problem(f"Reading the hardware failed while {doing}: {failed}")
    if not finished:
        return best.with_problem(f"Reading the hardware timed out after {deadline:g} s while {doing}.")
    if doing != "done":
        return best.with_problem(f"Reading the hardware ended unexpectedly while {doing}.")
    return best


def _look(say: Say, *, node: str, topology_file: str | None, root: str, network: bool) -> None:
    """The child's part; of the topologies that it says, each is better than the one before."""
    try:
        from jupyterhub_gpuspawner.node.observe import sources

        sources.look(node=node, topology_file=topology_file, root=root, say=say, network=network)
        say(doing="done")
    except Exception as error:  # noqa: BLE001 - said to the parent, which continues without
        say(failed=f"{type(error).__name__}: {error}")
