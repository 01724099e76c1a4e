"""Reads what a node reports: a strict model in which every field has its type and its bounds.

The models have the fields of :mod:`~jupyterhub_gpuspawner.wire.documents`, whose classes they return.
"""

from __future__ import annotations

import json
import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.placement.choice import POLICIES
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
    from collections.abc import Callable, Sequence

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_NAME_LIMIT = 40
"""Characters of an unknown field's name in an error."""


class ReportError(ValueError):
    """A report that is refused; the text begins with the path of the field, such as ``placement.gpus[0].index``."""


class ReportTooEarly(ReportError):
    """A report that cannot be checked yet; it may be sent again in a second."""


# --- values ----------------------------------------------------------------------------------------


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be printable text")
    return text


def _one_of(words: Sequence[str]) -> Callable[[str], str]:
    def check(word: str) -> str:
        if word not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return word

    return check


def _time(text: str) -> str:
    if _TIME.fullmatch(text) is None:
        raise ValueError("must be a time such as 2026-05-04T12:30:00Z")
    return text


def _link(word: str) -> str:
    if not is_link(word):
        raise ValueError("must be a link word such as NV2 or SYS")
    return word


def _cpulist(text: str) -> str:
    parse_cpulist(text)
    return text


def _address(text: str) -> str:
    try:
        ip_address(text)
    except ValueError:
        raise ValueError("must be an IP address") from None
    return text


def _topology(document: Any) -> Any:
    if document is not None:
        from_document(document)
    return document


Text = Annotated[StrictStr, Field(max_length=TEXT_LIMIT), AfterValidator(_printable)]
Time = Annotated[Text, AfterValidator(_time)]
Policy = Annotated[Text, AfterValidator(_one_of(POLICIES))]
LinkWord = Annotated[Text, AfterValidator(_link)]
CpuList = Annotated[Text, AfterValidator(_cpulist)]
IPAddress = Annotated[Text, AfterValidator(_address)]
Seen = Annotated[Text, AfterValidator(_one_of(SEEN))]
Topology = Annotated[Any, AfterValidator(_topology)]
GpuIndex = Annotated[StrictInt, Field(ge=0, le=1023)]
NumaNumber = Annotated[StrictInt, Field(ge=0, le=4095)]
MiB = Annotated[StrictInt, Field(ge=0, le=2**31)]
Port = Annotated[StrictInt, Field(ge=1024, le=65535)]
Item = TypeVar("Item")
Items = Annotated[list[Item], Field(max_length=LIST_LIMIT)]


# --- documents -------------------------------------------------------------------------------------


class Document(BaseModel):
    """An object of the report: no field but its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def values(self) -> dict[str, Any]:
        """The fields, with lists as tuples."""
        return {name: tuple(value) if isinstance(value, list) else value for name, value in self}


class _Gpu(Document):
    index: GpuIndex
    uuid: Text = ""
    pci: Text = ""
    name: Text = ""
    memory_mib: MiB | None = None
    numa_node: NumaNumber | None = None
    mig: Text | None = None
    mig_device: GpuIndex | None = None
    nic: Text | None = None
    nic_link: LinkWord | None = None


class _NodeGrant(Document):
    node: Text
    gpus: Items[GpuIndex] = []
    gpu_type: Text | None = None
    cpus: Annotated[StrictInt, Field(ge=0, le=65536)] = 0
    memory_mib: MiB = 0
    placement: _Placement | None = None

    @field_validator("placement")
    @classmethod
    def _has_no_other_nodes(cls, placement: _Placement | None) -> _Placement | None:
        if placement is not None and placement.other_nodes:
            raise ValueError("must not have other_nodes of its own")
        return placement

    def grant(self) -> NodeGrant:
        placement = self.placement.document() if self.placement is not None else None
        return NodeGrant(**{**self.values(), "placement": placement})


class _Placement(Document):
    version: Any = None
    job_id: Text | None = None
    node: Text = ""
    partition: Text | None = None
    simulated: StrictBool = False
    gpus: Items[_Gpu] = []
    cpus: CpuList = ""
    memory_mib: MiB | None = None
    numa_nodes: Items[NumaNumber] = []
    memory_policy: Text = "none"
    policy: Policy = "best-effort"
    aligned: StrictBool | None = None
    weakest_link: LinkWord | None = None
    why: Text = ""
    problems: Items[Text] = []
    started_at: Time | None = None
    ends_at: Time | None = None
    other_nodes: Items[_NodeGrant] = []
    weakest_link_over_nodes: LinkWord | None = None

    def document(self) -> PlacementDocument:
        values = self.values()
        del values["version"]
        values["gpus"] = tuple(PlacedGpu(**gpu.values()) for gpu in self.gpus)
        values["other_nodes"] = tuple(grant.grant() for grant in self.other_nodes)
        return PlacementDocument(**values)


class _Door(Document):
    seen: Seen
    addresses: Items[IPAddress] = []


class _Report(Document):
    version: Annotated[StrictInt, Field(ge=1, le=REPORT_VERSION)]
    other_node: StrictBool = False
    door: _Door | None = None
    port: Annotated[Port | None, Field(validate_default=True)] = None
    placement: _Placement = _Placement()
    topology: Topology = None

    @field_validator("port")
    @classmethod
    def _fits_the_rest(cls, port: int | None, info: ValidationInfo) -> int | None:
        """Version 1 always names the port; a port that another process has is not the server's."""
        if port is None and info.data.get("version") == 1:
            raise ValueError("must be a whole number from 1024 to 65535")
        door = info.data.get("door")
        if port is not None and door is not None and door.seen == "taken":
            raise ValueError("must be null if another process uses it")
        if info.data.get("other_node") and (port is not None or door is not None):
            raise ValueError("must be null, without a door, in a report of another node")
        return port

    def report(self) -> NodeReport:
        door = Door(**self.door.values()) if self.door is not None else None
        return NodeReport(self.port or 0, self.placement.document(), self.topology, door, self.other_node)


# --- reading ---------------------------------------------------------------------------------------


def parse_report(body: bytes) -> NodeReport:
    """Read a node's report; raises :class:`ReportError` naming the first field at fault.

    The port is from 1024 to 65535, or null while nothing listens there; version 1 always has one. Nothing in a report
    chooses an address, a path, a class or an attribute.
    """
    if len(body) > REPORT_LIMIT:
        raise ReportError(f"report: {len(body)} bytes are more than the limit of {REPORT_LIMIT}")
    return read(_Report, strict_json(body, "report"), "report").report()


def parse_placement(value: object) -> PlacementDocument:
    """Read a placement document from a spawner's stored state; raises :class:`ReportError`."""
    return read(_Placement, value, "placement").document()


Model = TypeVar("Model", bound=Document)


def read(model: type[Model], value: object, name: str) -> Model:
    """Check a value against a model; raises :class:`ReportError`, in which the document has this ``name``."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key[:_NAME_LIMIT]}" for key in first["loc"])
    told = first["msg"].removeprefix("Value error, ")
    raise ReportError(f"{f'{name}{path}'.removeprefix('report.')}: {told}")


def strict_json(body: bytes, name: str) -> Any:
    """One JSON value of RFC 8259 in UTF-8; no NaN, and no key twice in an object: readers differ on what those mean."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ReportError(f"{name}: an object names a field twice")
        return found

    def constant(word: str) -> Any:
        raise ReportError(f"{name}: {word} is not a JSON number")

    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=once, parse_constant=constant)
    except ReportError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{name}: must be JSON") from error
