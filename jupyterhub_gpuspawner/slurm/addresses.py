"""Addresses of compute nodes as Slurm knows them, each kept for five minutes."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.commands import good
from jupyterhub_gpuspawner.slurm.parse.cluster import parse_nodes

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.slurm.commands import Installation

_NODE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_ADDRESS = re.compile(r"[A-Za-z0-9:][\w.:-]*", re.ASCII)
_MAX_AGE = 300.0
"""Seconds that an address is kept; a cloud node gets a new one each time it starts, before its job runs."""


class NodeAddresses:
    """Looks up NodeAddr, once for all who ask for the same node."""

    def __init__(self, installation: Installation) -> None:
        self._slurm = installation
        self._known: dict[str, tuple[float, str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def of(self, node: str) -> str:
        """The address by which Slurm reaches a node (NodeAddr).

        Raises SlurmOutputError where Slurm does not know the node or its address, SlurmUnavailable without an answer.
        """
        if not _NODE.fullmatch(node):
            raise SlurmOutputError(f"{node[:80]!r} is not a valid node name.", raw=node)
        # callers that ask for the same node at once wait for one answer
        async with self._locks.setdefault(node, asyncio.Lock()):
            known = self._known.get(node)
            if known is None or time.monotonic() - known[0] > _MAX_AGE:
                known = self._known[node] = (time.monotonic(), await self._ask(node))
            return known[1]

    async def _ask(self, node: str) -> str:
        answer = await self._slurm.run("scontrol", "--local", "show", "node", "-o", node)
        if f"Node {node} not found" in answer.stdout + answer.stderr:
            raise SlurmOutputError(f"Slurm knows no node {node}.", raw=answer.stdout)
        found = parse_nodes(good("scontrol", answer))
        if len(found) != 1 or not _ADDRESS.fullmatch(found[0].address):
            raise SlurmOutputError(f"scontrol gave no address for node {node}.", raw=answer.stdout)
        return found[0].address
