"""Reads what a node sends, reports and summaries of use, by the types and bounds that :mod:`~.wire` declares."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from jupyterhub_gpuspawner.placement.topology import LIST_LIMIT
from jupyterhub_gpuspawner.slurm.job import Job
from jupyterhub_gpuspawner.tasks import in_name_thread
from jupyterhub_gpuspawner.units import NodeAllocation, expand_nodelist
from jupyterhub_gpuspawner.wire import bounds
from jupyterhub_gpuspawner.wire.documents import (
    REPORT_LIMIT,
    REPORT_VERSION,
    NodeGrant,
    NodeReport,
    PlacementDocument,
    StartFailure,
)

_NAME_LIMIT = 40
"""Characters of an unknown field's name in an error."""

_FAULTS = {
    "unexpected_keyword_argument": "Extra inputs are not permitted",
    "tuple_type": "Input should be a valid list",
}
"""What pydantic says in Python's words, in those of JSON; by its name of the error."""

_REPORT, _PLACEMENT = TypeAdapter(NodeReport), TypeAdapter(PlacementDocument)
_FAILURE = TypeAdapter(StartFailure)
for _adapter in (_REPORT, _PLACEMENT, _FAILURE):
    _adapter.rebuild(_types_namespace={"bounds": bounds})  # type checkers import them, nodes do not


class ReportError(ValueError):
    """A report that is refused; the text begins with the path of the field, such as ``placement.gpus[0].index``."""


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


# Compares what a node reports with what Slurm reports of the job.


def confirmed(claimed: PlacementDocument, detail: Job) -> PlacementDocument:
    """The placement that the node claims, with Slurm's facts in place of the node's.

    Its memory is what the hub requested, unless ``detail`` has the job's allocations.
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
        memory_mib=_allocated_mib(detail) or claimed.memory_mib,
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


# Chooses the address of a node at which the hub reaches a server: one on which the server listens.
#
# At an address on which it does not listen, such as the IPv6 address of a server on IPv4 only, any user of the node
# may listen at the same port.

Address = IPv4Address | IPv6Address


async def resolved(host: str) -> tuple[str, ...]:
    """The addresses of a host, in the resolver's order; empty if it cannot be resolved."""
    try:
        return (str(ip_address(host)),)
    except ValueError:
        pass
    try:
        entries = await in_name_thread(partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM))
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))


def reachable_address(host: str, addresses: Sequence[str], listens: Iterable[str]) -> str | None:
    """The host or address for the hub to use.

    That is ``host`` if the server listens on all of its ``addresses``, else the first address on which it listens, and
    None if there is none. If ``addresses`` or ``listens`` is unknown, that is ``host``, too.
    """
    doors = [_plain(ip_address(address)) for address in listens]
    if not doors or not addresses:
        return host
    fitting = [
        resolved_address
        for resolved_address in addresses
        if any(_opens(door, _plain(ip_address(resolved_address))) for door in doors)
    ]
    if not fitting and any(door == IPv6Address("::") for door in doors):  # which may accept IPv4, too
        return host
    if len(fitting) == len(addresses):
        return host
    return fitting[0] if fitting else None


def _plain(address: Address) -> Address:
    return getattr(address, "ipv4_mapped", None) or address


def _opens(door: Address, address: Address) -> bool:
    """Whether a server that listens on ``door`` is reached at ``address`` from another machine."""
    return door.version == address.version and (door.is_unspecified or not door.is_loopback or address.is_loopback)
