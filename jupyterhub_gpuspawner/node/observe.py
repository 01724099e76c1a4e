"""Looking at the node: a topology file if there is one, else NVML, nvidia-smi and sysfs, merged.

All of it happens in a child process with a deadline (:mod:`~jupyterhub_gpuspawner.node.child`). The child says what it
knows as soon as it knows it, so that a driver that hangs costs its own facts and no others.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from typing import Callable, Optional

from jupyterhub_gpuspawner.node import child, sysfs
from jupyterhub_gpuspawner.topology import NodeTopology, from_document, load, to_document

_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.A)


def observe(*, node: str, topology_file: Optional[str], deadline: float, root: str = "/") -> NodeTopology:
    """The node as far as it can be known in ``deadline`` seconds; what cannot is a sentence in ``problems``."""
    answer = child.ask(lambda fd: _tell(fd, node=node, topology_file=topology_file, root=root), deadline)
    best, doing, failed = NodeTopology(hostname=node), "starting", ""
    for line in answer.lines:
        document = json.loads(line)
        doing = document.get("doing", doing)
        failed = document.get("failed", failed)
        if "topology" in document:
            best = from_document(document["topology"])
    if failed:
        return best.with_problem(f"Looking at the node failed while {doing}: {failed}")
    if not answer.finished:
        return best.with_problem(f"Looking at the node was given up after {deadline:g} s while {doing}.")
    if doing != "done":
        return best.with_problem(f"Looking at the node ended by itself while {doing}.")
    return best


def _tell(fd: int, *, node: str, topology_file: Optional[str], root: str) -> None:
    """The child's part: one JSON object a line, each topology better than the one before."""

    def say(**document: object) -> None:
        os.write(fd, json.dumps(document).encode() + b"\n")

    try:
        look(node=node, topology_file=topology_file, root=root, say=say)
        say(doing="done")
    except Exception as error:  # noqa: BLE001 - told to the parent, which goes on without
        say(failed=f"{type(error).__name__}: {error}")


def look(*, node: str, topology_file: Optional[str], root: str, say: Callable[..., None]) -> None:
    """Say, source by source, what is being read and what is known so far."""
    problems = []
    if topology_file:
        say(doing="reading the topology file")
        try:
            known = from_file(topology_file, node)
        except (OSError, ValueError) as error:
            problems.append(f"The topology file {topology_file} is of no use, the hardware was read instead: {error}")
        else:
            say(topology=to_document(known))
            return
    say(doing="reading sysfs")
    known = replace(sysfs.read(root), hostname=node).with_problem(*problems)
    say(topology=to_document(known))


def from_file(name: str, node: str) -> NodeTopology:
    """The topology file ``name`` with ``{node}`` replaced; raises OSError or ValueError."""
    if "{node}" in name:
        if _NODE_NAME.fullmatch(node) is None:
            raise ValueError(f"{node!r} is no node name to look up a file by")
        name = name.replace("{node}", node)
    known = load(name)
    return replace(known, hostname=node, source="file")
