"""How the hub reads what a node reports: every field has its type and bounds, and the rest is refused. Pure."""

from __future__ import annotations

import json
import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.placement.policies import POLICIES
from jupyterhub_gpuspawner.placement.topology import from_document, is_link
from jupyterhub_gpuspawner.wire.documents import (
    LIST_LIMIT,
    REPORT_LIMIT,
    REPORT_VERSION,
    SEEN,
    TEXT_LIMIT,
    Door,
    NodeGrant,
    NodeReport,
    PlacedGpu,
    PlacementDocument,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class ReportError(ValueError):
    """A report that is refused; the text names the field."""


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


def _text(name: str, value: object, *, none: bool = False) -> str | None:
    if value is None and none:
        return None
    if not isinstance(value, str) or len(value) > TEXT_LIMIT or not all(c.isprintable() for c in value):
        raise ReportError(f"{name}: must be printable text of at most {TEXT_LIMIT} characters")
    return value


def _whole(name: str, value: object, low: int, high: int, *, none: bool = False) -> int | None:
    if value is None and none:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ReportError(f"{name}: must be a whole number from {low} to {high}")
    return value


def _bool(name: str, value: object, *, none: bool = False) -> bool | None:
    if value is None and none:
        return None
    if not isinstance(value, bool):
        raise ReportError(f"{name}: must be true or false")
    return value


def _items(name: str, value: object) -> list[Any]:
    if not isinstance(value, list) or len(value) > LIST_LIMIT:
        raise ReportError(f"{name}: must be a list of at most {LIST_LIMIT}")
    return value


def _fields(name: str, value: object, known: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ReportError(f"{name}: must be an object")
    for key in value:
        if key not in known:
            raise ReportError(f"{name}.{str(key)[:40]}: no such field")
    return value


def _gpu(name: str, value: object) -> PlacedGpu:
    fields = _fields(name, value, PlacedGpu.__dataclass_fields__)
    return PlacedGpu(
        index=_whole(f"{name}.index", fields.get("index"), 0, 1023) or 0,
        uuid=_text(f"{name}.uuid", fields.get("uuid", "")) or "",
        pci=_text(f"{name}.pci", fields.get("pci", "")) or "",
        name=_text(f"{name}.name", fields.get("name", "")) or "",
        memory_mib=_whole(f"{name}.memory_mib", fields.get("memory_mib"), 0, 2**31, none=True),
        numa_node=_whole(f"{name}.numa_node", fields.get("numa_node"), 0, 4095, none=True),
        mig=_text(f"{name}.mig", fields.get("mig"), none=True),
    )


def _node_grant(name: str, value: object) -> NodeGrant:
    fields = _fields(name, value, NodeGrant.__dataclass_fields__)
    return NodeGrant(
        node=_text(f"{name}.node", fields.get("node")) or "",
        gpus=tuple(
            _whole(f"{name}.gpus[{n}]", index, 0, 1023) or 0
            for n, index in enumerate(_items(f"{name}.gpus", fields.get("gpus", [])))
        ),
        gpu_type=_text(f"{name}.gpu_type", fields.get("gpu_type"), none=True),
        cpus=_whole(f"{name}.cpus", fields.get("cpus", 0), 0, 65536) or 0,
        memory_mib=_whole(f"{name}.memory_mib", fields.get("memory_mib", 0), 0, 2**31) or 0,
    )


def _placement(value: object) -> PlacementDocument:
    known = {**PlacementDocument.__dataclass_fields__, "version": None}
    got = _fields("placement", value, known)
    texts = {
        key: _text(f"placement.{key}", got.get(key, default)) or ""
        for key, default in (("node", ""), ("cpus", ""), ("memory_policy", "none"), ("why", ""))
    }
    maybe = {
        key: _text(f"placement.{key}", got.get(key), none=True)
        for key in ("job_id", "partition", "weakest_link", "started_at", "ends_at")
    }
    policy = got.get("policy", "best-effort")
    if policy not in POLICIES:
        raise ReportError(f"placement.policy: must be one of {', '.join(POLICIES)}")
    for key in ("started_at", "ends_at"):
        if maybe[key] is not None and _TIME.fullmatch(str(maybe[key])) is None:
            raise ReportError(f"placement.{key}: must be a time such as 2026-05-04T12:30:00Z")
    if maybe["weakest_link"] is not None and not is_link(str(maybe["weakest_link"])):
        raise ReportError("placement.weakest_link: must be a link word such as NV2 or SYS")
    try:
        parse_cpulist(texts["cpus"])
    except ValueError as error:
        raise ReportError(f"placement.cpus: {error}") from error
    return PlacementDocument(
        simulated=bool(_bool("placement.simulated", got.get("simulated", False))),
        gpus=tuple(
            _gpu(f"placement.gpus[{n}]", g) for n, g in enumerate(_items("placement.gpus", got.get("gpus", [])))
        ),
        numa_nodes=tuple(
            _whole(f"placement.numa_nodes[{n}]", v, 0, 4095) or 0
            for n, v in enumerate(_items("placement.numa_nodes", got.get("numa_nodes", [])))
        ),
        aligned=_bool("placement.aligned", got.get("aligned"), none=True),
        problems=tuple(
            _text(f"placement.problems[{n}]", v) or ""
            for n, v in enumerate(_items("placement.problems", got.get("problems", [])))
        ),
        policy=policy,
        other_nodes=tuple(
            _node_grant(f"placement.other_nodes[{n}]", each)
            for n, each in enumerate(_items("placement.other_nodes", got.get("other_nodes", [])))
        ),
        **texts,
        **maybe,  # type: ignore[arg-type]
    )


def _strict_json(body: bytes) -> Any:
    """One JSON value of RFC 8259 in UTF-8; no NaN, and no key twice in an object: readers differ on what those mean."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ReportError("report: an object names a field twice")
        return found

    def constant(name: str) -> Any:
        raise ReportError(f"report: {name} is no number of JSON")

    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=once, parse_constant=constant)
    except ReportError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReportError("report: must be JSON") from error


def parse_report(body: bytes) -> NodeReport:
    """Read a node's report; raises :class:`ReportError` naming the first field at fault.

    The port is from 1024 to 65535, or null while nothing listens there; version 1 always has one. Nothing in a report
    chooses an address, a path, a class or an attribute.
    """
    if len(body) > REPORT_LIMIT:
        raise ReportError(f"report: {len(body)} bytes are more than {REPORT_LIMIT}")
    document = _strict_json(body)
    got = _fields("report", document, dict.fromkeys(("version", "port", "placement", "topology", "door")))
    if type(got.get("version")) is not int or not 1 <= got["version"] <= REPORT_VERSION:
        raise ReportError(f"version: must be from 1 to {REPORT_VERSION}")
    port = _whole("port", got.get("port"), 1024, 65535, none=got["version"] > 1)
    door = _door(got.get("door"))
    if port and door is not None and door.seen == "taken":
        raise ReportError("port: must be null where another process has it")
    topology = got.get("topology")
    if topology is not None:
        try:
            from_document(topology)
        except ValueError as error:
            raise ReportError(f"topology: {error}") from error
    return NodeReport(port or 0, _placement(got.get("placement", {})), topology, door)


def _door(value: object) -> Door | None:
    if value is None:
        return None
    got = _fields("door", value, Door.__dataclass_fields__)
    if got.get("seen") not in SEEN:
        raise ReportError(f"door.seen: must be one of {', '.join(SEEN)}")
    addresses = _items("door.addresses", got.get("addresses", []))
    for n, address in enumerate(addresses):
        try:
            ip_address(_text(f"door.addresses[{n}]", address) or "")
        except ValueError as error:
            raise ReportError(f"door.addresses[{n}]: must be an IP address") from error
    return Door(got["seen"], tuple(addresses))


def parse_placement(value: object) -> PlacementDocument:
    """Read a placement document back from a spawner's stored state; raises :class:`ReportError`."""
    return _placement(value)
