"""The whole cluster in one snapshot: nodes, partitions, reservations and jobs, read with four commands."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmOutputError
from jupyterhub_gpuspawner.slurm.accounting import rows, sacctmgr_show
from jupyterhub_gpuspawner.slurm.commands import OUTPUT_LIMIT, Installation
from jupyterhub_gpuspawner.slurm.scontrol import parse_nodes, parse_partitions, parse_reservations
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState, SlurmConfig
from jupyterhub_gpuspawner.slurm.squeue import CLUSTER, STATES, parse_jobs
from jupyterhub_gpuspawner.slurm.text import UnparsedField, words

# Addresses of compute nodes as Slurm knows them, each kept for five minutes, or for seconds if the node may be
# powered down: a cloud node gets a new one each time it boots.

_NODE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_ADDRESS = re.compile(r"[A-Za-z0-9:][\w.:-]*", re.ASCII)
_MAX_AGE, _MAX_AGE_OF_CLOUD = 300.0, 5.0
"""Seconds that an address is kept; the latter is shorter than a node takes to be powered down and to boot."""


class NodeAddresses:
    """Looks up NodeAddr, once for all who ask for the same node."""

    def __init__(self, installation: Installation) -> None:
        self._slurm = installation
        self._known: dict[str, tuple[float, str]] = {}  # until when, and the address
        self._locks: dict[str, asyncio.Lock] = {}

    async def of(self, node: str) -> str:
        """The address by which Slurm reaches a node (NodeAddr).

        Raises SlurmOutputError where Slurm does not know the node or its address, SlurmUnavailable without an answer.
        """
        if not _NODE.fullmatch(node):
            raise SlurmOutputError(f"{node[:80]!r} is not a valid node name.", raw=node)
        # callers that ask for the same node at once wait for one answer
        async with self._locks.setdefault(node, asyncio.Lock()):
            cached = self._known.get(node)
            if cached is None or time.monotonic() > cached[0]:
                state = await self._ask(node)
                age = _MAX_AGE_OF_CLOUD if "CLOUD" in state.states else _MAX_AGE
                cached = self._known[node] = (time.monotonic() + age, state.address)
            return cached[1]

    async def _ask(self, node: str) -> NodeState:
        answer = await self._slurm.run("scontrol", "--local", "show", "node", "-o", node)
        if f"Node {node} not found" in answer.stdout + answer.stderr:
            raise SlurmOutputError(f"Slurm knows no node {node}.", raw=answer.stdout)
        nodes = parse_nodes(answer.output())
        if len(nodes) != 1 or not _ADDRESS.fullmatch(nodes[0].address):
            raise SlurmOutputError(f"scontrol gave no address for node {node}.", raw=answer.stdout)
        return nodes[0]


_CONFIG_MAX_AGE = 300.0
"""Seconds that slurm.conf's defaults are kept."""
_OF_QOS = ("name", "preempt")
PreemptedQos = Mapping[str, frozenset[str]]
"""Those whose jobs each QOS preempts, all in lower case."""


class SnapshotReader:
    """Reads snapshots of the cluster; parsing and indexing run in a thread, not in the event loop."""

    def __init__(
        self,
        installation: Installation,
        config: Callable[[], Awaitable[SlurmConfig]],
        report: Callable[[Sequence[UnparsedField]], None],
    ) -> None:
        """``report`` gets the records of an answer that were not understood; it is not called where there are none."""
        self._slurm = installation
        self._config = config
        self._report = report
        self._kept: tuple[float, tuple[SlurmConfig, PreemptedQos | None]] | None = None

    async def read(self) -> ClusterSnapshot:
        """Nodes, partitions (hidden ones too), reservations, and jobs that are pending or hold nodes.

        Four commands; a fifth one every five minutes reads slurm.conf's defaults, and where jobs preempt others by
        their QOS a sixth asks slurmdbd which. Raises SlurmUnavailable and SlurmOutputError.
        """
        now, mark = time.time(), secrets.token_hex(8)
        entities = (("node", "-a", "-d"), ("partition", "-a"), ("reservation", "-a"))
        shown = [asyncio.ensure_future(self._show(*words)) for words in entities]
        conf = asyncio.ensure_future(self._slurm_conf())
        queue = asyncio.ensure_future(
            self._slurm.run(
                "squeue", "--local", "-h", "-a", "-t", STATES, "-O", CLUSTER.columns(mark), limit=OUTPUT_LIMIT
            )
        )
        try:
            nodes, partitions, reservations = await asyncio.gather(*shown)
            config, preempted_qos = await conf
            jobs = (await queue).output()
        finally:  # if one has failed, nobody needs the others
            await _cancelled(*shown, conf, queue)

        def parse() -> ClusterSnapshot:
            unread = [] if config is not None else [UnparsedField("configuration", "slurm.conf", "")]
            snapshot = ClusterSnapshot(
                nodes=parse_nodes(nodes, unread.append),
                partitions=parse_partitions(partitions, unread.append),
                reservations=parse_reservations(reservations, unread.append),
                jobs=parse_jobs(jobs, mark, unread.append),
                config=config or SlurmConfig(),
                preempted_qos=preempted_qos,
                taken_at=now,
                unread=tuple(unread),
            )
            _ = snapshot.job_by_id  # an index for those who wait
            return snapshot

        # ten thousand nodes with fifty thousand jobs take about half a second
        snapshot = await asyncio.to_thread(parse)
        if snapshot.unread:
            self._report(snapshot.unread)
        return snapshot

    async def _show(self, what: str, *options: str) -> str:
        # without --local, a federation's other clusters are shown, too
        command = ("scontrol", "--local", "show", what, *options, "-o")
        return (await self._slurm.run(*command, limit=OUTPUT_LIMIT)).output()

    async def _slurm_conf(self) -> tuple[SlurmConfig | None, PreemptedQos | None]:
        """slurm.conf, and with preemption by QOS what each preempts; None where slurmdbd does not tell this account.

        None in the place of slurm.conf where the answer is not understood.
        """
        if self._kept is None or time.monotonic() - self._kept[0] > _CONFIG_MAX_AGE:
            try:
                config = await self._config()
            except SlurmOutputError:
                return None, None
            qos = None
            if config.preemption == "qos":
                with suppress(GPUSpawnerError):
                    answer = (await sacctmgr_show(self._slurm, "qos", _OF_QOS)).lower()
                    qos = {row["name"]: frozenset(words(row["preempt"])) for row in rows(answer, _OF_QOS)}
            self._kept = time.monotonic(), (config, qos)
        return self._kept[1]


async def _cancelled(*tasks: asyncio.Future[Any]) -> None:
    """Cancel the tasks that still run, and wait until all have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
