"""The node as far as it can be known in a bounded time.

The looking is done in a child process (:mod:`~jupyterhub_gpuspawner.node.child`), which says what it knows as soon as
it knows it: a driver that hangs costs its own facts and no others.
"""

from __future__ import annotations

import json
import os

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.placement.topology import NodeTopology, from_document


def observe(*, node: str, topology_file: str | None, deadline: float, root: str = "/") -> NodeTopology:
    """What is known of ``node`` after ``deadline`` seconds at most; what is not is a sentence in ``problems``.

    ``root`` is where ``/sys`` and ``/proc`` are read. Raises OSError where the system gives no process to look with.
    """
    output, finished = child.ask(lambda fd: _tell(fd, node=node, topology_file=topology_file, root=root), deadline)
    best, doing, failed = NodeTopology(hostname=node), "starting", ""
    for line in output.splitlines():
        document = json.loads(line)
        doing = document.get("doing", doing)
        failed = document.get("failed", failed)
        best = from_document(document["topology"]) if "topology" in document else best
    if failed:
        return best.with_problem(f"Looking at the node failed while {doing}: {failed}")
    if not finished:
        return best.with_problem(f"Looking at the node was given up after {deadline:g} s while {doing}.")
    if doing != "done":
        return best.with_problem(f"Looking at the node ended by itself while {doing}.")
    return best


def _tell(fd: int, *, node: str, topology_file: str | None, root: str) -> None:
    """The child's part: one JSON object a line, each topology better than the one before."""

    def say(**document: object) -> None:
        text = memoryview(json.dumps(document).encode() + b"\n")
        while text:
            text = text[os.write(fd, text) :]

    try:
        from jupyterhub_gpuspawner.node.observe import sources

        sources.look(node=node, topology_file=topology_file, root=root, say=say)
        say(doing="done")
    except Exception as error:  # noqa: BLE001 - told to the parent, which goes on without
        say(failed=f"{type(error).__name__}: {error}")
