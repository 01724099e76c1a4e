"""What the hub keeps of servers' reports of their nodes.

A server's placement is compared with Slurm's own record before it is shown; only then is it taken up here. The GPUs
that were free when the job started are those that Slurm reports as free shortly afterwards, and the job's own. A job
that started in between counts as if it had been there before, so a grant is judged rather too well than too badly.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.extensions.fleet.health import Grant, judge_grant
from jupyterhub_gpuspawner.extensions.fleet.node_record import NodeRecord, View, gpu_count
from jupyterhub_gpuspawner.extensions.fleet.reported import plausible
from jupyterhub_gpuspawner.extensions.fleet.store import FleetStore
from jupyterhub_gpuspawner.hub.site.background import every
from jupyterhub_gpuspawner.hub.spawners.server import Server, servers_with_jobs, site_of
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.placement.topology import from_document
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState
from jupyterhub_gpuspawner.units import format_cpulist
from jupyterhub_gpuspawner.wire.documents import PlacedGpu

DAY = 86400.0
NODE_RETENTION_DAYS = 90
"""Days for which what is known of a node, and of each grant, is kept after the last report."""
POLL_SECONDS = 10.0
"""Seconds between two looks for new placements."""
AGE = 5.0
"""Seconds that Slurm's answer about the nodes may be old."""
LATE = 900.0
"""Seconds after its job's start from which a report is late: the hub was down, or has just learned to keep reports."""
SWEEP = 3600.0
"""Seconds between two deletions of what is too old."""


@dataclass(frozen=True)
class Report:
    """A server's report of its node, with what Slurm says of that node."""

    view: View
    job_id: str
    gpus: tuple[PlacedGpu, ...]
    aligned: bool | None
    busy: frozenset[int] | None
    """Slurm's indices of the GPUs in use when the job started, its own among them; None if they are not known."""
    late: bool = False
    """The job started long ago, so other reports of its node may be newer."""

    def judge(self, record: NodeRecord) -> Grant | None:
        """The grant, compared with what was free as far as that is known; None for a job without GPUs."""
        if not self.gpus:
            return None
        grant = Grant(self.job_id, self.view.node, self.view.at, len(self.gpus), self.aligned)
        topology = record.topology
        keys = {gpu.uuid or gpu.pci: position for position, gpu in enumerate(topology.gpus)}
        own = [keys.get(gpu.uuid or gpu.pci) for gpu in self.gpus]
        granted = [position for position in own if position is not None]
        whole = all(gpu.mig is None for gpu in topology.gpus) and not record.gone
        if self.busy is None or not record.complete or not whole or len(granted) != len(self.gpus):
            return grant
        # Slurm numbers GPUs in the order of gres.conf, which should be that of PCI bus ids, as in the record
        free = {position for position in range(len(topology.gpus)) if position not in self.busy}
        if not set(granted) <= self.busy:  # the answer is older than the job, or gres.conf has another order
            return grant
        return judge_grant(topology, granted, free, aligned=self.aligned, grant=grant)


def report_of(server: Server, snapshot: ClusterSnapshot | None) -> Report | None:
    """The report of a server that has been placed; None if it says nothing of its node."""
    placement = server.placement
    if placement is None or not placement.node or server.topology is None:
        return None
    try:
        topology = plausible(from_document(server.topology))
    except ValueError:
        return None
    state = snapshot.node_by_name.get(placement.node) if snapshot is not None else None
    job = snapshot.job_by_id.get(server.job_id) if snapshot is not None else None
    now = time.time()
    started_at = server.job.starts_at if server.job is not None else None
    late = started_at is not None and now - started_at > LATE
    held = gpu_count(job.gpus) if job is not None and not job.gpus_unknown else 0
    granted = max(held, len(placement.gpus))
    view = View(
        node=placement.node,
        at=now,
        topology=topology,
        granted=granted,
        gres="" if state is None else ",".join(map(_with_sockets, state.gres)),
        user=server.user,
    )
    complete = not late and job is not None and placement.node in job.nodes and held == len(placement.gpus)
    busy = _busy(state) if state is not None and complete else None
    return Report(view, server.job_id, placement.gpus, placement.aligned, busy, late)


def _with_sockets(gres: Any) -> str:
    """As scontrol prints it: ``gpu:a100:8(S:0-1)``."""
    return f"{gres}(S:{format_cpulist(gres.sockets)})" if gres.sockets else str(gres)


def _busy(state: NodeState) -> frozenset[int] | None:
    """Slurm's indices of a node's GPUs in use; None where it counts them, shares them or numbers several types."""
    kinds = [gres for gres in state.gres if gres.name == "gpu"]
    used = [gres for gres in state.gres_used if gres.name in ("gpu", "shard", "mps") and gres.count]
    if len(kinds) != 1 or any(gres.name != "gpu" or len(gres.indices) != gres.count for gres in used):
        return None
    return frozenset(index for gres in used for index in gres.indices)


class FleetUpkeep:
    """Takes up new placements, and deletes what is too old."""

    def __init__(self, app: JupyterHub, site: GPUSlurmSpawner) -> None:
        self._app = app
        self._site = site
        self._done: set[tuple[str, str]] = set()
        """The jobs, by cluster and id, whose reports are kept."""

    async def run_once(self) -> None:
        """Keep the reports of servers that have been placed since the last look; raises SQLAlchemyError."""
        servers = [server for server in servers_with_jobs(self._app.users.values()) if server.placement is not None]
        self._done &= {(server.cluster, server.job_id) for server in servers}
        for name, cluster in self._site.connections().items():
            new = [server for server in servers if server.cluster == name and (name, server.job_id) not in self._done]
            store = FleetStore(self._app.db.get_bind(), name)
            snapshot = await cluster.view.recent(AGE) if new else None
            for server in new:
                await self._keep_report(store, server, snapshot)

    async def take_over(self) -> None:
        """In a hub that names clusters since its last start, what is known of nodes is of the first of them."""
        if first := self._site.first_cluster:
            store = FleetStore(self._app.db.get_bind(), first)
            await store.call(store.take_over)

    async def forget_old(self) -> None:
        """Delete what is too old; raises SQLAlchemyError."""
        store = FleetStore(self._app.db.get_bind())
        await store.call(partial(store.forget_old, time.time() - NODE_RETENTION_DAYS * DAY))

    async def _keep_report(self, store: FleetStore, server: Server, snapshot: ClusterSnapshot | None) -> None:
        since = (server.job.starts_at if server.job is not None else None) or 0.0
        if not await store.call(partial(store.granted, server.job_id, since)):  # it is after a restart of the hub
            report = await asyncio.to_thread(report_of, server, snapshot)
            if report is not None:
                await store.call(partial(store.add, report.view, report.judge, late=report.late))
        self._done.add((server.cluster, server.job_id))


def begin_fleet(app: JupyterHub) -> None:
    """Begin to keep reports."""
    site = site_of(app.tornado_settings)
    if site is not None:
        upkeep = FleetUpkeep(app, site)
        every(app, 0, upkeep.take_over, "Taking over the reports of nodes of a hub without names of clusters")
        every(app, POLL_SECONDS, upkeep.run_once, "Keeping the reports of nodes")
        every(app, SWEEP, upkeep.forget_old, "The deletion of old reports of nodes")
