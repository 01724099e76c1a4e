"""The two documents that hub and node exchange, both versioned. Pure, stdlib only.

:class:`LaunchPlan` goes from the hub to the node, inside the batch script: nothing in it is secret.
:class:`NodeReport` comes back by ``POST /hub/api/gpuspawner/report`` with the server's own token. The hub
does not trust it: :func:`parse_report` knows every field, its type and its bounds, and refuses the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping  # noqa: TC003 - the reference is made from these types
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from jupyterhub_gpuspawner.topology import from_document, is_link
from jupyterhub_gpuspawner.units import parse_cpulist

PLAN_VERSION = 1
REPORT_VERSION = 1
REPORT_LIMIT = 65536
"""Bytes of a report at most."""
TEXT_LIMIT = 500
"""Characters of one text in a report at most; all of them printable."""
LIST_LIMIT = 64
"""Items of one list in a placement at most."""
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
MEMORY_POLICIES = ("none", "preferred", "bind")


@dataclass(frozen=True)
class LaunchPlan:
    """What the launcher is to do on the node."""

    gpus: int | None = None
    """GPUs the profile promised; None: whatever was granted."""
    cpus: int | None = None
    """CPUs the profile promised; None: all granted."""
    policy: str = "best-effort"
    memory_policy: str = "preferred"
    port_range: tuple[int, int] | None = None
    """First and last port to try, both included; None: any free port."""
    topology_file: str | None = None
    """A topology file that stands in for discovery; ``{node}`` in it is the node's Slurm name."""
    deadline: float = 3.0
    """Seconds that looking at the hardware may take."""
    set_threads: bool = True
    """Export OMP_NUM_THREADS and its kin unless set."""
    report: bool = True
    """False: bind and exec only (``gpuspawner bind``)."""
    claim: str | None = None
    """Folder of the locks by which servers claim GPUs that Slurm does not hand out; None: they do not."""

    def dumps(self) -> str:
        """One line of JSON; the launcher reads it back with :func:`parse_plan`."""
        return json.dumps({"version": PLAN_VERSION, **asdict(self)}, sort_keys=True)


def parse_plan(text: str) -> LaunchPlan:
    """Read a plan; raises ValueError. Fields a newer hub added are ignored: the notebook always starts."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("a launch plan is a JSON object")  # noqa: TRY004 - what json.loads raises, too
    values = {key: value for key, value in document.items() if key in LaunchPlan.__dataclass_fields__}
    for key, value in values.items():
        if not _FITS[key](value):
            raise ValueError(f"{key}: {value!r:.40} is not what a launch plan may say")
    if values.get("port_range") is not None:
        first, last = values["port_range"]
        values["port_range"] = (first, last)
    return LaunchPlan(**values)


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65536)


def _is_range(value: object) -> bool:
    if value is None:
        return True
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(type(port) is int for port in value):
        return False
    return bool(1024 <= value[0] <= value[1] <= 65535)


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 600


_FITS: Mapping[str, Callable[[object], bool]] = {
    "gpus": _is_count,
    "cpus": _is_count,
    "policy": POLICIES.__contains__,
    "memory_policy": MEMORY_POLICIES.__contains__,
    "port_range": _is_range,
    "topology_file": lambda value: value is None or isinstance(value, str),
    "deadline": _is_seconds,
    "set_threads": lambda value: isinstance(value, bool),
    "report": lambda value: isinstance(value, bool),
    "claim": lambda value: value is None or isinstance(value, str),
}


@dataclass(frozen=True)
class PlacedGpu:
    """One of the server's own GPUs, in the order of ``CUDA_VISIBLE_DEVICES``."""

    index: int
    uuid: str = ""
    pci: str = ""
    name: str = ""
    memory_mib: int | None = None
    numa_node: int | None = None
    mig: str | None = None


@dataclass(frozen=True)
class NodeGrant:
    """What a job of several nodes has on one of the others, as Slurm tells the hub."""

    node: str
    gpus: tuple[int, ...] = ()
    """By Slurm's index, the place in gres.conf."""
    gpu_type: str | None = None
    """Slurm's word, such as ``k80``; None where it has none, or several."""
    cpus: int = 0
    """How many, as Slurm counts them."""
    memory_mib: int = 0


@dataclass(frozen=True)
class PlacementDocument:
    """Where a server runs and what it got: version 1, as pages and REST show it."""

    job_id: str | None = None
    """Slurm's job id; None for a server on the hub's own machine."""
    node: str = ""
    partition: str | None = None
    simulated: bool = False
    gpus: tuple[PlacedGpu, ...] = ()
    cpus: str = ""
    """CPUs the server may use, as a kernel cpulist (``0-3,8``)."""
    numa_nodes: tuple[int, ...] = ()
    """NUMA nodes of these CPUs by kernel number; those of the GPUs where the CPUs' are not known."""
    memory_policy: str = "none"
    """What the kernel answered when asked: ``default``, ``preferred:0``, ``bind:0-1``, …"""
    policy: str = "best-effort"
    aligned: bool | None = None
    """GPUs, CPUs and memory on the same NUMA node(s); None where unknown."""
    weakest_link: str | None = None
    why: str = ""
    problems: tuple[str, ...] = ()
    started_at: str | None = None
    """ISO 8601, UTC."""
    ends_at: str | None = None
    other_nodes: tuple[NodeGrant, ...] = ()
    """The job's nodes beside ``node``, at most 64."""

    def to_json(self) -> dict[str, Any]:
        """The document as pages, REST and the spawner's state carry it."""
        return {"version": REPORT_VERSION, **asdict(self)}


@dataclass(frozen=True)
class NodeReport:
    """What the launcher tells the hub just before it becomes the server."""

    port: int
    placement: PlacementDocument = field(default_factory=PlacementDocument)
    topology: Mapping[str, Any] | None = None
    """The node's topology document, for the picture; None where it is not known or too large."""

    def dumps(self) -> str:
        """The body of the report."""
        document = {"version": REPORT_VERSION, "port": self.port, "placement": self.placement.to_json()}
        if self.topology is not None:
            document["topology"] = self.topology
        return json.dumps(document)


class ReportError(ValueError):
    """A report that is refused; the text names the field."""


def printable(text: str) -> str:
    """One line of text, at most :data:`TEXT_LIMIT` characters: what a document may hold."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= TEXT_LIMIT else line[: TEXT_LIMIT - 1] + "…"


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

    The port is from 1024 to 65535. Nothing in a report chooses an address, a path, a class or an attribute.
    """
    if len(body) > REPORT_LIMIT:
        raise ReportError(f"report: {len(body)} bytes are more than {REPORT_LIMIT}")
    document = _strict_json(body)
    got = _fields("report", document, {"version": None, "port": None, "placement": None, "topology": None})
    if type(got.get("version")) is not int or got["version"] != REPORT_VERSION:
        raise ReportError(f"version: must be {REPORT_VERSION}")
    port = _whole("port", got.get("port"), 1024, 65535)
    topology = got.get("topology")
    if topology is not None:
        try:
            from_document(topology)
        except ValueError as error:
            raise ReportError(f"topology: {error}") from error
    return NodeReport(port=port or 0, placement=_placement(got.get("placement", {})), topology=topology)


def parse_placement(value: object) -> PlacementDocument:
    """Read a placement document back from a spawner's stored state; raises :class:`ReportError`."""
    return _placement(value)


def with_job(placement: PlacementDocument, **facts: Any) -> PlacementDocument:
    """The placement with what Slurm itself says (job id, node, partition, end) put over the node's word."""
    return replace(placement, **{key: value for key, value in facts.items() if value is not None})
