"""What the launchers of a server's nodes report to the hub: read by the types of :mod:`~.wire`, compared, and kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, TypeVar

from jupyterhub.spawner import Spawner
from pydantic import Field, TypeAdapter, ValidationError

from jupyterhub_gpuspawner.errors import ReportError
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name, proxy_of
from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.hub.site.database import StoredState
from jupyterhub_gpuspawner.hub.site.secrets import redacted
from jupyterhub_gpuspawner.placement.topology import LIST_LIMIT, NodeTopology, from_document
from jupyterhub_gpuspawner.slurm.job import Job
from jupyterhub_gpuspawner.tasks import in_background
from jupyterhub_gpuspawner.units import NodeAllocation, expand_nodelist
from jupyterhub_gpuspawner.wire import bounds
from jupyterhub_gpuspawner.wire.bounds import FOLDER_FAULTS
from jupyterhub_gpuspawner.wire.documents import (
    REPORT_LIMIT,
    REPORT_VERSION,
    TURN_VERSION,
    NodeGrant,
    NodeReport,
    PlacedGpu,
    PlacementDocument,
    StartFailure,
    TurnQuestion,
)

_NAME_LIMIT = 40
"""Characters of an unknown field's name in an error."""

_FAULTS = {
    "unexpected_keyword_argument": "Extra inputs are not permitted",
    "tuple_type": "Input should be a valid list",
}
"""What pydantic says in Python's words, in those of JSON; by its name of the error."""

_REPORT, _PLACEMENT = TypeAdapter(NodeReport), TypeAdapter(PlacementDocument)
_FAILURE, _TURN = TypeAdapter(StartFailure), TypeAdapter(TurnQuestion)
for _adapter in (_REPORT, _PLACEMENT, _FAILURE, _TURN):
    _adapter.rebuild(_types_namespace={"bounds": bounds})  # type checkers import them, nodes do not


class ReportTooEarly(ReportError):
    """A report that cannot be checked yet; it may be sent again in a second."""


def parse_report(body: bytes) -> NodeReport:
    """Read a node's report; raises :class:`ReportError` naming the first field at fault.

    The port is from 1024 to 65535, or null while nothing listens there; version 1 always has one. Nothing in a report
    chooses an address, a path, a class or an attribute.
    """
    version, document = _versioned(body, "report", REPORT_VERSION)
    port = document.get("port")
    if port == 0 or (port is None and version == 1):
        raise ReportError("port: must be a whole number from 1024 to 65535")
    placement = _without_version(document.get("placement", {}))
    report = _read(_REPORT, {**document, "port": 0 if port is None else port, "placement": placement}, "report")
    if report.port and report.door is not None and report.door.seen == "taken":
        raise ReportError("port: must be null if another process uses it")
    if report.other_node and (report.port or report.door is not None):
        raise ReportError("port: must be null, without a door, in a report of another node")
    if report.other_node and report.failure is not None:
        raise ReportError("failure: must be left out in a report of another node")
    _check_other_nodes(report.placement)
    return report


def parse_turn(body: bytes) -> TurnQuestion:
    """Read a job's question whether it runs the server; raises :class:`ReportError`."""
    return read_document(_TURN, body, "turn", TURN_VERSION)


def parse_failure(value: object) -> StartFailure:
    """Read a failure from a spawner's stored state; raises :class:`ReportError`."""
    return _read(_FAILURE, value, "failure")


def parse_placement(value: object) -> PlacementDocument:
    """Read a placement document from a spawner's stored state; raises :class:`ReportError`."""
    placement = _read(_PLACEMENT, _without_version(value), "placement")
    _check_other_nodes(placement)
    return placement


def read_document(adapter: TypeAdapter[Document], body: bytes, name: str, version: int) -> Document:
    """Read another document that a node sends, up to this version; raises :class:`ReportError` as the others do.

    ``name`` begins the path of the field at fault.
    """
    adapter.rebuild(_types_namespace={"bounds": bounds})
    _, document = _versioned(body, name, version)
    return _read(adapter, document, name)


def _check_other_nodes(placement: PlacementDocument) -> None:
    for number, grant in enumerate(placement.other_nodes):
        if grant.placement is not None and grant.placement.other_nodes:
            raise ReportError(f"placement.other_nodes[{number}].placement: must not have other_nodes of its own")


def _without_version(placement: Any) -> Any:
    """A placement without its version, which nothing depends on."""
    return (
        {key: value for key, value in placement.items() if key != "version"}
        if isinstance(placement, dict)
        else placement
    )


def _versioned(body: bytes, name: str, newest: int) -> tuple[int, Mapping[str, Any]]:
    """The version of a document, and its other fields."""
    if len(body) > REPORT_LIMIT:
        raise ReportError(f"{name}: {len(body)} bytes are more than the limit of {REPORT_LIMIT}")
    document = _strict_json(body, name)
    if not isinstance(document, dict):
        raise ReportError(f"{name}: must be an object")
    if "version" not in document:
        raise ReportError(f"{name}.version: Field required".removeprefix("report."))
    number: TypeAdapter[int] = TypeAdapter(Annotated[int, Field(strict=True, ge=1, le=newest)])
    return _read(number, document.pop("version"), f"{name}.version"), document


Document = TypeVar("Document")


def _read(model: TypeAdapter[Document], value: object, name: str) -> Document:
    """Check a value against a type; raises :class:`ReportError`, in which the document has this ``name``."""
    try:
        return model.validate_json(json.dumps(value))  # in JSON only a list is taken for a tuple, even if it is strict
    except RecursionError as error:
        raise ReportError(f"{name}: must be JSON") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key[:_NAME_LIMIT]}" for key in first["loc"])
    fault = _FAULTS.get(first["type"]) or first["msg"].removeprefix("Value error, ").replace("Tuple", "List")
    raise ReportError(f"{f'{name}{path}'.removeprefix('report.')}: {fault}")


def _strict_json(body: bytes, name: str) -> Any:
    """One JSON value of RFC 8259 in UTF-8; no NaN, and no key twice in an object: readers differ on what those mean."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) != len(pairs):
            raise ReportError(f"{name}: an object names a field twice")
        return fields

    def constant(word: str) -> Any:
        raise ReportError(f"{name}: {word} is not a JSON number")

    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant)
    except ReportError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{name}: must be JSON") from error


def confirmed(claimed: PlacementDocument, detail: Job) -> PlacementDocument:
    """The placement that the node claims, with Slurm's facts in place of the node's.

    Its memory is what the hub requested, unless ``detail`` says what the job has.
    If the node that it names is not one of the job's, the rest of the claim is dropped and a problem says so.
    """
    placement, problems = claimed, claimed.problems
    if not names_a_node_of(detail, claimed):
        placement = PlacementDocument()
        problems = (f"The report names node {claimed.node}; Slurm says {detail.nodes}. The rest of it is not shown.",)
    return replace(
        placement,
        job_id=detail.job_id,
        node=detail.batch_host,
        partition=detail.partition or placement.partition,
        memory_mib=_allocated_mib(detail) or claimed.memory_mib or detail.memory_mib,
        ends_at=detail.ends_at_iso or placement.ends_at,
        problems=problems,
        other_nodes=other_nodes(detail),
    )


def _allocated_mib(detail: Job) -> int:
    return sum(allocation.memory_mib for allocation in detail.allocations if allocation.node == detail.batch_host)


def names_a_node_of(detail: Job, claimed: PlacementDocument) -> bool:
    """Whether the report names a node of the job; it may use the node's full host name, or none at all."""
    nodes = expand_nodelist(detail.nodes)
    return not claimed.node or claimed.node in nodes or claimed.node.partition(".")[0] in nodes


def other_nodes(detail: Job) -> tuple[NodeGrant, ...]:
    """The job's nodes except the first, in Slurm's order; at most as many as a placement holds."""
    others = [allocation for allocation in detail.allocations if allocation.node != detail.batch_host]
    return tuple(map(_grant, others[:LIST_LIMIT]))


def _grant(allocation: NodeAllocation) -> NodeGrant:
    gpus = [gres for gres in allocation.gres if gres.name == "gpu"]
    types = {gres.type for gres in gpus}
    return NodeGrant(
        node=allocation.node,
        gpus=tuple(sorted({index for gres in gpus for index in gres.indices}))[:LIST_LIMIT],
        gpu_type=types.pop() if len(types) == 1 else None,
        cpus=len(allocation.cpu_ids),
        memory_mib=allocation.memory_mib,
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
        self.entrance: tuple[str, int] | None = None
        """Where the hub's way to the server begins, if an extension makes it, which keeps it over a restart."""
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

    @property
    def where(self) -> tuple[str, int]:
        """Host and port at which the hub and its proxy connect to the server; port 0 while there is none."""
        return self.entrance if self.entrance is not None and self.port else (self.address, self.port)

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
        if spawner.server is not None and spawner.server.port == self.where[1]:
            spawner.server.port = port if self.entrance is None else 0
        in_background(self.reroute(port))

    async def reroute(self, port: int) -> None:
        """Change the proxy's route once there is one; JupyterHub's own check of routes may be minutes away.

        Before anything is stored: until then the proxy leads to a process that may belong to another user.
        """
        spawner = self._spawner
        while spawner.pending:  # noqa: ASYNC110 - JupyterHub has no event for it
            await asyncio.sleep(_PENDING)
        if spawner.ready and self.port == port:  # still
            proxy = proxy_of(spawner)
            if self.entrance is not None:
                await proxy.delete_user(spawner.user, spawner.name)  # until there is another way
                if port:
                    self.entrance = await spawner.server_extensions.await_first(WithServer.reach, self.address, port)
            spawner.server.port = self.where[1]
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
