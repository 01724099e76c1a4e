"""The node as far as it can be known in a bounded time.

The looking is done in a child process (:mod:`~jupyterhub_gpuspawner.node.child`), which says what it knows as soon as
it knows it: a driver that hangs costs its own facts and no others.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.child import Child
from jupyterhub_gpuspawner.topology import NodeTopology, from_document

if TYPE_CHECKING:
    from collections.abc import Callable


def observe(*, node: str, topology_file: str | None, deadline: float, root: str = "/") -> Callable[[], NodeTopology]:
    """Begin to look at ``node``, for ``deadline`` seconds at most; ``root`` is where ``/sys`` and ``/proc`` are read.

    To be called once, what is returned waits for what is known; what is not is a sentence in ``problems``.
    """
    try:
        looking = Child(lambda fd: _tell(fd, node=node, topology_file=topology_file, root=root), deadline)
    except OSError as error:
        nothing = NodeTopology(hostname=node, problems=(f"The node cannot be looked at: {error.strerror}.",))
        return lambda: nothing

    def known() -> NodeTopology:
        output, finished = looking.answer()
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

    return known


def _tell(fd: int, *, node: str, topology_file: str | None, root: str) -> None:
    """The child's part: one JSON object a line, each topology better than the one before."""

    def say(**document: object) -> None:
        text = memoryview(json.dumps(document).encode() + b"\n")
        while text:
            text = text[os.write(fd, text) :]

    try:
        from jupyterhub_gpuspawner.node import sources

        sources.look(node=node, topology_file=topology_file, root=root, say=say)
        say(doing="done")
    except Exception as error:  # noqa: BLE001 - told to the parent, which goes on without
        say(failed=f"{type(error).__name__}: {error}")
