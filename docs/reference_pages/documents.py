"""The JSON documents of hub and node, and the REST addresses."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import Any, get_args, get_type_hints

from jupyterhub_gpuspawner.extension import installed
from jupyterhub_gpuspawner.hub import routes
from jupyterhub_gpuspawner.hub.extensions import HubExtensions
from jupyterhub_gpuspawner.hub.server import api as server_api
from jupyterhub_gpuspawner.placement import topology
from jupyterhub_gpuspawner.placement.topology import LIST_LIMIT, TEXT_LIMIT
from jupyterhub_gpuspawner.wire import bounds, documents

from .document import Document
from .of_extensions import all_of
from .wording import anchor, attribute_docs, code, markdown, table, type_in_words

_GROUP = r"\(\[[^\]]*\][*+]\)"
"""A group of a handler's pattern."""
EXAMPLE = documents.PlacementDocument(
    job_id="4711",
    node="g3",
    partition="gpu",
    gpus=(
        documents.PlacedGpu(2, "GPU-5a1e9ad0-6a6b-4a2c-9d2e-6f1f5b7c0a11", "0000:83:00.0", "Tesla K80", 11441, 1),
        documents.PlacedGpu(3, "GPU-8c0b1e57-0f3d-4b7e-8a64-2e5a7f9d1c22", "0000:84:00.0", "Tesla K80", 11441, 1),
    ),
    cpus="12-15",
    memory_mib=65536,
    numa_nodes=(1,),
    memory_policy="preferred:1",
    aligned=True,
    weakest_link="PIX",
    why="GPUs 2 and 3, as granted; the slowest link of their ring is PIX (about 12 GB/s).",
    started_at="2026-03-02T09:00:07Z",
    ends_at="2026-03-02T17:00:05Z",
)


DOCUMENTS = (
    Document("Placement document", documents.PLACEMENT_VERSION, documents.PlacementDocument),
    Document(
        "Session document",
        server_api.VERSION,
        server_api.SessionDocument,
        "Extensions add `more_time`, as `GET .../extend` answers; `idle`, null while its user is told nothing; "
        "`course`, the title of the course that it is for, or empty, and `session_ends_at`, null while no session of "
        "it is under way; as minutes before the end, `notices`, when JupyterLab tells it, and `saves`, when it "
        "saves open documents; `styles`, the addresses of the hub's stylesheets; `more_memory`, a sentence about the "
        "profile that has more, where there is one; and `picture`, whether there is one of the node.",
    ),
    Document(
        "Topology document",
        topology.VERSION,
        topology.NodeTopology,
        "Part of a node's report, and the format of a topology file; every field may be absent.\n\n"
        f"{markdown(topology.__doc__).split(chr(10) * 2)[-1]}",
    ),
    *itertools.chain(*all_of("DOCUMENTS")),
)


def page() -> str:
    """The page of documents and REST addresses."""
    anchors = {document.cls: anchor(document.heading) for document in DOCUMENTS}
    parts = [
        "# Documents\n",
        "The JSON documents that the hub gives to REST clients, that commands print with `--json`, and that a topology "
        "file is. Each has a `version`. Any field may be missing in a document of an earlier version, and new fields "
        "may appear at any time. What hub and launcher exchange in the same version of the package (launch plan, "
        "report, summary of use) is in `jupyterhub_gpuspawner/wire/documents.py`.\n",
        "## Addresses\n",
        table(("Address, below `/hub`", "Meaning"), list(_addresses())),
        "The events of JupyterHub's own `GET /api/users/{user_name}/server/progress` have the field `gpuspawner` with "
        "what the waiting page shows: `headline` and `sentence`; `stages`, each with `name`, `title`, `state` (`done`, "
        "`current`, `coming`), `at` and `took` in seconds; `reason`, `hint`, `position` and `of`; `estimate`, when the "
        "job is expected to start, and `expected`, the same as a sentence; `change`, why that is another time than "
        "before; `kept` and `kept_until`, how long its place is kept; `notes`; `silent` and `answered_at`, while Slurm "
        "does not respond.\n",
        f"A report has at most {documents.REPORT_LIMIT} bytes, a string in it at most {TEXT_LIMIT} printable "
        f"characters, and a list in its placement at most {LIST_LIMIT} items. "
        "A report that exceeds a limit is refused with the name of the field.\n",
    ]
    for document in DOCUMENTS:
        parts += [f"## {document.heading}\n", f"{document.about}\n" if document.about else ""]
        inner = {}
        also = itertools.chain(document.also, *(also.get(document.name, ()) for also in all_of("ALSO")))
        for cls, where in (*also, *((cls, "") for cls in _inside(document.cls))):
            if cls not in anchors:
                anchors[cls], inner[cls] = anchor(cls.__name__), where
        parts.append(_record(document.cls, anchors))
        for cls, where in inner.items():
            parts += [f"### {cls.__name__}\n", f"{where}\n" if where else "", _record(cls, anchors)]
        if document.cls is documents.PlacementDocument:
            parts.append(f"```json\n{json.dumps(EXAMPLE.to_json(), indent=2)}\n```\n")
    return "\n".join(filter(None, parts))


def every_api() -> list[tuple[Any, ...]]:
    """The routes of ours that answer in JSON, and those of extensions."""
    return [*routes.API, *(route for part in HubExtensions(installed()) for route in part.adds.api)]


def _addresses() -> Iterator[tuple[str, str]]:
    """Each address with what it is; what a handler says of all its methods stands at the first of them."""
    for handler, entries in itertools.groupby(every_api(), key=lambda entry: entry[1]):
        about = markdown(handler.__doc__)
        patterns = [pattern for pattern, *_ in entries]
        for method in ("get", "post", "put", "delete"):
            if method in vars(handler):
                function = vars(handler)[method]
                doc = markdown(inspect.getdoc(function)).splitlines()[0]
                yield code(f"{method.upper()} {_address(patterns, function)}"), f"{about} {doc}"
                about = ""


def _address(patterns: list[str], method: Callable[..., object]) -> str:
    """The pattern of an address with its groups replaced by the names of the method's parameters.

    What only the longer one of two patterns has is in brackets.
    """
    addresses = [_named(pattern, method).split("/") for pattern in patterns]
    shortest = min(addresses, key=len)
    return "/".join(part if part in shortest else f"[{part}]" for part in max(addresses, key=len))


def _named(pattern: str, method: Callable[..., object]) -> str:
    names = iter(list(inspect.signature(method).parameters)[1:])
    return re.sub(_GROUP, lambda _: f"{{{next(names)}}}", pattern)


def _inside(cls: type) -> Iterator[type]:
    """The types of a document's fields, of theirs, and so on, each once."""
    waiting, types = [cls], {cls}
    while waiting:
        outer = waiting.pop(0)
        hints = _hints(outer)
        for field in _fields(outer):
            for inner in _dataclasses(hints[field.name]):
                if inner not in types:
                    types.add(inner)
                    waiting.append(inner)
                    yield inner


def _dataclasses(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for argument in get_args(hint):
        yield from _dataclasses(argument)


def _fields(cls: type) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if field.metadata.get("in_document", True)]


def _hints(cls: type) -> dict[str, Any]:
    # not those of ClusterJob, which is in no document; GPUs that are asked for are written as --gres takes them
    local = {**vars(bounds), "bounds": bounds, "Mapping": Mapping, "ClusterJob": object, "Gres": str}
    return get_type_hints(cls, localns=dict(ChainMap(local, *all_of("NAMES"))))


def _record(cls: type, anchors: Mapping[type, str]) -> str:
    """The fields of a type; those of a base that the page has already are not repeated."""
    above = [base for base in cls.__mro__[1:] if base in anchors]
    own = set(cls.__annotations__) if above else {field.name for field in _fields(cls)}
    bases = [base for base in reversed(cls.__mro__) if dataclasses.is_dataclass(base)]
    docs = {name: doc for base in bases for name, doc in attribute_docs(base).items()}
    hints = _hints(cls)
    rows = [
        (code(field.name), _type(hints[field.name], anchors), _json(docs.get(field.name)))
        for field in _fields(cls)
        if field.name in own
    ]
    has = f" It has the fields of [{above[0].__name__}](#{anchors[above[0]]}), and:" if above else ""
    return f"{_json(cls.__doc__)}{has}\n\n" + table(("Field", "Type", "Meaning"), rows)


def _type(hint: Any, anchors: Mapping[type, str]) -> str:
    """A type in words, with links to those that the page describes."""
    words = code(hint.__name__) if isinstance(hint, type) and dataclasses.is_dataclass(hint) else type_in_words(hint)
    for cls in _dataclasses(hint):
        words = words.replace(f"`{cls.__name__}`", f"[{cls.__name__}](#{anchors[cls]})")
    return f"{words} or null" if NoneType in get_args(hint) else words


def _json(docstring: str | None) -> str:
    """A docstring with JSON's null, true and false."""
    return re.sub(r"\bNone\b", "null", re.sub(r"\bTrue\b", "true", re.sub(r"\bFalse\b", "false", markdown(docstring))))
