"""What the launchers of a server's nodes have reported to the hub: port, placement and topology."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from jupyterhub.spawner import Spawner

from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name, proxy_of
from jupyterhub_gpuspawner.hub.report.reader import ReportError, ReportTooEarly, parse_failure, parse_placement
from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.hub.site.database import StoredState
from jupyterhub_gpuspawner.hub.site.secrets import redacted
from jupyterhub_gpuspawner.placement.topology import NodeTopology, from_document
from jupyterhub_gpuspawner.tasks import in_background
from jupyterhub_gpuspawner.units import NodeAllocation
from jupyterhub_gpuspawner.wire.bounds import FOLDER_FAULTS
from jupyterhub_gpuspawner.wire.documents import (
    NodeReport,
    PlacedGpu,
    PlacementDocument,
    StartFailure,
)


def parsed(topology: Mapping[str, Any] | None) -> NodeTopology | None:
    """The topology of a document; None where there is none, or it is not valid."""
    try:
        return from_document(topology) if topology else None
    except ValueError:
        return None


def position(topology: NodeTopology, own: PlacedGpu) -> int | None:
    """The position of a GPU in the topology: by UUID, or by index where one side has no UUID."""
    for index, gpu in enumerate(topology.gpus):
        if own.uuid and gpu.uuid:
            if own.uuid == gpu.uuid:
                return index
        elif (own.index, own.mig) == (gpu.index, gpu.mig):
            return index
    return None


Document = TypeVar("Document")
_PENDING = 0.1
"""Seconds between two looks whether JupyterHub has finished a server's start."""


class ServerReport:
    """The reports of one spawner's server.

    A report is stored in the spawner's state, and the state in the database, before the launcher gets its answer: it is
    not lost with the hub. What the report says of the placement is a claim until :meth:`place` is called with what is
    to be shown.
    """

    def __init__(
        self,
        spawner: Spawner,
        state: StoredState,
    ) -> None:
        self._spawner = spawner
        self._state = state
        self._log = spawner.log
        self.forget()

    def forget(self) -> None:
        """Begin a new start: nothing has been reported."""
        self.port = 0
        """Where the server listens; 0 while it does not, or while another process has its port."""
        self.address = ""
        """The server's host as the hub reaches it; empty until that is known."""
        self.accepted: NodeReport | None = None
        """The last report; None before it, and after a restart of the hub."""
        self.claimed: PlacementDocument | None = None
        """The placement as the node reported it, not compared with Slurm's."""
        self.placement: PlacementDocument | None = None
        """The placement that is shown."""
        self.topology: Mapping[str, Any] | None = None
        """The node's topology document."""
        self.failure: StartFailure | None = None
        """Why the job will end before its server runs, or what may keep the server from running."""
        self.port_taken = False
        """Another process had the port in this start."""
        self.reported = asyncio.Event()
        """Set once there is a report."""
        self._handed_over = False

    def accept(self, report: NodeReport, *, memory_mib: int | None = None) -> None:
        """Take a report: its port, and its placement as a claim; the hub decides the address.

        The port of the last report counts, at any time: only the job has the token, and whoever listens at another port
        may be anyone. A launcher's first report, which has no port yet, does not take one away: it comes late. The
        placement of a server that is ready stays, and a report of another one is refused.
        ``memory_mib`` is the memory that the hub requested; after a restart it is None, and the last report's counts.

        Raises ReportError; ReportTooEarly where the report may be sent again; SQLAlchemyError where it was not stored.
        """
        self._check_job(report)
        if report.other_node:
            if not self._spawner.server_extensions.node_reported(report):
                raise ReportError("other_node: nothing in this hub takes the report of another node")
            return
        if report.failure is not None:
            self._accept_failure(report.failure)
            if report.failure.fault not in FOLDER_FAULTS:
                return
        if self.port and not report.port and report.door is None:
            return
        ready, moved = self._spawner.ready, report.port != self.port
        if ready and not moved:
            if self.accepted is None or replace(report, door=None) != replace(self.accepted, door=None):
                raise ReportError("server: it is ready and has already reported")
            self._state.store()  # a launcher repeats a report that could not be stored
            return
        self.accepted = report
        self._log_problems(report)
        if not ready:
            if memory_mib is None and self.claimed is not None:
                memory_mib = self.claimed.memory_mib
            self.claimed = replace(report.placement, memory_mib=memory_mib or None)
            self.topology = report.topology
        if moved and (self._handed_over or ready):
            self._redirect(report.port)
        self.port = report.port
        self._state.store()
        self.reported.set()
        self._spawner.watch.notify()

    def _accept_failure(self, failure: StartFailure) -> None:
        """Keep why a start fails; that the server has ended adds its last line to the fault of a folder."""
        if self._spawner.ready:
            return
        failure = replace(failure, subject=redacted(failure.subject), line=redacted(failure.line))
        previous = self.failure if failure.fault == "server" else None
        if previous is not None:
            failure = replace(previous, line=failure.line) if previous.fault in FOLDER_FAULTS else previous
        self.failure = failure
        self._state.store()

    def _check_job(self, report: NodeReport) -> None:
        job_id = self._spawner.job_id
        if not job_id:
            if self._spawner.pending == "spawn":  # sbatch has not returned yet
                raise ReportTooEarly("server: its job is not known yet")
            raise ReportError("server: it is not being started")
        if report.placement.job_id not in (None, job_id):
            raise ReportError(f"placement.job_id: must be {job_id}, the job of this server")

    def _log_problems(self, report: NodeReport) -> None:
        """Log what was seen at the port if that is not the server; count a port that was taken, once a start."""
        if report.door is None or report.door.seen in ("process", "user"):
            return
        for problem in report.placement.problems:
            self._log.warning("The node of %s reports: %s", log_name(self._spawner), problem)
        if report.door.seen == "taken" and not self.port_taken:
            self.port_taken = True
            metrics.PORTS.labels(self._spawner.cluster, "taken").inc()

    def _redirect(self, port: int) -> None:
        """Have the hub use another port (0: none), and the proxy too if it has a route to the server."""
        spawner = self._spawner
        self._log.warning(
            "%s was expected at port %d and reports %s: the process at the first port may belong to another user",
            log_name(self._spawner),
            self.port,
            f"port {port}" if port else "that another process has it",
        )
        metrics.PORTS.labels(spawner.cluster, "moved").inc()
        if spawner.server is not None and spawner.server.port == self.port:
            spawner.server.port = port
        in_background(self._reroute(port))

    async def _reroute(self, port: int) -> None:
        """Change the proxy's route once there is one; JupyterHub's own check of routes may be minutes away.

        Before anything is stored: until then the proxy leads to a process that may belong to another user.
        """
        spawner = self._spawner
        while spawner.pending:  # noqa: ASYNC110 - JupyterHub has no event for it
            await asyncio.sleep(_PENDING)
        if spawner.ready and self.port == port:  # still
            spawner.server.port = port
            proxy = proxy_of(spawner)
            await (proxy.add_user if port else proxy.delete_user)(spawner.user, spawner.name)
            self._state.store_soon()

    def hand_over(self) -> None:
        """Note that JupyterHub gets the server's address and port now; a later report of another port redirects it."""
        self._handed_over = True

    def place(self, placement: PlacementDocument, allocations: Sequence[NodeAllocation] = ()) -> None:
        """Show this placement from now on, with what extensions know of it.

        ``allocations`` are those of all the job's nodes as Slurm reports them, if it was asked for them.
        """
        self.placement = self._spawner.server_extensions.placed(placement, allocations)
        self._spawner.watch.notify()

    # --- the spawner's state --------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """The report's part of the spawner's state."""
        state: dict[str, Any] = {}
        if self.port:
            state["port"] = self.port
        if self.placement is not None:
            state["placement"] = self.placement.to_json()
        elif self.claimed is not None:
            state["claimed"] = self.claimed.to_json()
        if self.topology is not None:
            state["topology"] = self.topology
        if self.failure is not None:
            state["failure"] = asdict(self.failure)
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Read the report's part of the state; what cannot be read is dropped with a warning in the log."""
        port = state.get("port", 0)
        self.port = port if isinstance(port, int) and 1024 <= port <= 65535 else 0
        topology = state.get("topology")
        self.topology = topology if isinstance(topology, dict) else None
        self.claimed = self._stored(state, "claimed", parse_placement)
        self.failure = self._stored(state, "failure", parse_failure)
        placement = self._stored(state, "placement", parse_placement)
        if placement is not None:
            self.place(placement)
        if self.port or self.claimed is not None or placement is not None:
            self.reported.set()

    def _stored(self, state: Mapping[str, Any], name: str, parse: Callable[[object], Document]) -> Document | None:
        try:
            return parse(state[name]) if name in state else None
        except ReportError as error:
            self._log.warning("The stored report of %s is ignored: %s", log_name(self._spawner), error)
            return None
