"""Reads what a node sends, reports and summaries of use, by the types and bounds that :mod:`~.wire` declares."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from jupyterhub_gpuspawner.wire import bounds
from jupyterhub_gpuspawner.wire.documents import (
    REPORT_LIMIT,
    REPORT_VERSION,
    USAGE_VERSION,
    NodeReport,
    PlacementDocument,
    UsageSummary,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME_LIMIT = 40
"""Characters of an unknown field's name in an error."""

_FAULTS = {
    "unexpected_keyword_argument": "Extra inputs are not permitted",
    "tuple_type": "Input should be a valid list",
}
"""What pydantic says in Python's words, in those of JSON; by its name of the error."""

_REPORT, _PLACEMENT, _USAGE = TypeAdapter(NodeReport), TypeAdapter(PlacementDocument), TypeAdapter(UsageSummary)
for _adapter in (_REPORT, _PLACEMENT, _USAGE):
    _adapter.rebuild(_types_namespace=vars(bounds))  # type checkers import them, nodes do not


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
    _check_other_nodes(report.placement)
    return report


def parse_placement(value: object) -> PlacementDocument:
    """Read a placement document from a spawner's stored state; raises :class:`ReportError`."""
    placement = _read(_PLACEMENT, _without_version(value), "placement")
    _check_other_nodes(placement)
    return placement


def parse_usage(body: bytes) -> UsageSummary:
    """Read a summary of a server's use; raises :class:`ReportError` naming the first field at fault."""
    _, document = _versioned(body, "usage", USAGE_VERSION)
    return _read(_USAGE, document, "usage")


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
