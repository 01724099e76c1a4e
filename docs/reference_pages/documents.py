"""The JSON documents of hub and node, and the REST addresses."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args, get_type_hints

from jupyterhub_gpuspawner.cluster import cluster_map
from jupyterhub_gpuspawner.courses import report
from jupyterhub_gpuspawner.fleet import differences
from jupyterhub_gpuspawner.fleet import health as fleet
from jupyterhub_gpuspawner.hub import routes
from jupyterhub_gpuspawner.hub.choose import api as choose_api
from jupyterhub_gpuspawner.hub.course import api as course
from jupyterhub_gpuspawner.hub.messages import api as messages
from jupyterhub_gpuspawner.hub.server import api as server_api
from jupyterhub_gpuspawner.hub.server import report as report_api
from jupyterhub_gpuspawner.placement import topology
from jupyterhub_gpuspawner.placement.topology import LIST_LIMIT, TEXT_LIMIT
from jupyterhub_gpuspawner.slurm.twin import outcome, what_if
from jupyterhub_gpuspawner.wire import bounds, documents
from jupyterhub_gpuspawner.wire import documents as usage_wire

from .wording import attribute_docs, code, markdown, table, type_in_words

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


def page() -> str:
    """The page of documents and REST addresses."""
    parts = [
        "# Documents\n",
        "The JSON documents that the hub, the launcher and REST clients exchange. Each has a `version`.\n",
        "## Addresses\n",
        table(("Address, below `/hub`", "Meaning"), list(_addresses())),
        f"A report has at most {documents.REPORT_LIMIT} bytes, a string in it at most {TEXT_LIMIT} printable "
        f"characters, and a list in its placement at most {LIST_LIMIT} items. "
        "A report that exceeds a limit is refused with the name of the field.\n",
        f"## Placement document, version {documents.PLACEMENT_VERSION}\n",
        *_records(documents.PlacementDocument),
        f"```json\n{json.dumps(EXAMPLE.to_json(), indent=2)}\n```\n",
        f"## Profiles document, version {choose_api.VERSION}\n",
        *_records(choose_api.ProfilesDocument),
        "Its `resources`:\n",
        _record(choose_api.AskedResources),
        "Its `availability`:\n",
        _record(choose_api.Prospect),
        f"## Trial document, version {choose_api.VERSION}\n",
        _record(choose_api.TrialDocument),
        f"## Courses document, version {course.VERSION}\n",
        *_records(course.CoursesDocument),
        "Its `session_now` and `session_next`:\n",
        _record(course.CourseSession),
        f"## Course document, version {course.VERSION}\n",
        "Its `course` is one of the courses document.\n",
        *_records(course.CourseDocument),
        f"## Outcomes document, version {course.VERSION}\n",
        *_records(course.OutcomesDocument),
        f"## Session document, version {server_api.VERSION}\n",
        *_records(server_api.SessionDocument),
        f"## Messages document, version {messages.VERSION}\n",
        "A request to show a message has a JSON object with its `message`, a text; `to`, one of "
        '`{"everybody": true}`, `{"user": name}`, `{"user": name, "server": name}` (empty for the default server), '
        '`{"profile": slug}`, `{"cluster": name}`, `{"node": name}` (of every cluster) and `{"cluster": name, "node": '
        "name}`; and `minutes` for which it is shown, "
        f"{messages.SHOWN} if absent. A request to withdraw one has `to`.\n",
        *_records(messages.MessagesDocument),
        f"## Cluster map, version {cluster_map.VERSION}\n",
        "In addition to the fields below it has `totals` of all nodes; `age_s`, its age in seconds; `silent`, true "
        "while Slurm does not answer; in a hub that names its clusters `cluster`, its own, and `clusters`, the names "
        "of all of them; `holders_known`, false if Slurm did not say which job has which GPU; and "
        "`failing_nodes`, the nodes on which the last starts of several people failed, each with `node`, the number of "
        "`starts`, the `people`, and the commands or lines that `drain` and `exclude` it.\n",
        *_records(cluster_map.ClusterMap),
        "A partition also has `waiting`, the number of its pending jobs, and `queue`, the first "
        f"{cluster_map.WAITING_AT_MOST} of them, with GPUs as `--gres` takes them:\n",
        _record(cluster_map.WaitingJob),
        "One of a node's `gpus`:\n",
        _record(cluster_map.MapGpu),
        "One of its `holders`, and of a node's `jobs`:\n",
        _record(cluster_map.Holder),
        "`totals`:\n",
        _record(cluster_map.Totals),
        f"## Fleet document, version {fleet.VERSION}\n",
        "What `gpuspawner fleet --json` prints, too.\n",
        _record(fleet.FleetHealth),
        "One of its `nodes`; it also has `ill`, true if there are differences or contradictions:\n",
        _record(fleet.NodeHealth),
        "A node's `shape`:\n",
        _record(differences.Shape),
        f"One of its `differences`; its `kind` is one of {', '.join(code(kind.value) for kind in differences.Kind)}:\n",
        _record(differences.Difference),
        "One of its `contradictions`; its `fault` is one of "
        f"{', '.join(code(fault.value) for fault in differences.Fault)}:\n",
        _record(differences.Contradiction),
        "`grants`:\n",
        _record(fleet.GrantSummary),
        f"## What-if document, version {what_if.VERSION}\n",
        _record(what_if.WhatIfDocument),
        "`today` and `then`:\n",
        *_records(outcome.SiteOutcome),
        "One of the `shares` of a job:\n",
        _record(outcome.Share),
        f"## Course check document, version {report.VERSION}\n",
        *_records(report.CheckDocument),
        f"## Node report, version {documents.REPORT_VERSION}\n",
        *_records(documents.NodeReport),
        f"## Usage document, version {report_api.USAGE_VERSION}\n",
        *_records(report_api.UsageDocument),
        "Its `use` is a usage summary.\n",
        f"## Usage summary, version {usage_wire.USAGE_VERSION}\n",
        "It has the limits of a report.\n",
        *_records(usage_wire.UsageSummary),
        f"## Launch plan, version {documents.PLAN_VERSION}\n",
        "It is part of the batch script, so it contains no secrets.\n",
        _record(documents.LaunchPlan),
        f"## Topology document, version {topology.VERSION}\n",
        "Part of a report, and the format of a topology file.\n",
        f"{markdown(topology.__doc__).split(chr(10) * 2)[-1]}\n",
        *_records(topology.NodeTopology),
    ]
    return "\n".join(parts)


def _addresses() -> Iterator[tuple[str, str]]:
    for handler, entries in itertools.groupby(routes.API, key=lambda entry: entry[1]):
        patterns = [pattern for pattern, *_ in entries]
        for method in ("get", "post", "put", "delete"):
            if method in vars(handler):
                function = vars(handler)[method]
                doc = markdown(inspect.getdoc(function)).splitlines()[0]
                names = (code(f"{method.upper()} {_named(pattern, function)}") for pattern in patterns)
                yield (", ".join(names), f"{markdown(handler.__doc__)} {doc}")


def _named(pattern: str, method: Callable[..., object]) -> str:
    """The pattern of an address with its groups replaced by the names of the method's parameters."""
    names = iter(list(inspect.signature(method).parameters)[1:])
    return re.sub(_GROUP, lambda _: f"{{{next(names)}}}", pattern)


def _records(cls: type) -> Iterator[str]:
    """The fields of a document, then those of each type of item in its lists."""
    yield _record(cls)
    hints = _hints(cls)
    for name, hint in ((field.name, hints[field.name]) for field in _fields(cls)):
        items = [each for each in get_args(hint) if isinstance(each, type) and dataclasses.is_dataclass(each)]
        for item in items:
            yield f"One of its `{name}`:\n"
            yield _record(item)


def _fields(cls: type) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if field.metadata.get("in_document", True)]


def _hints(cls: type) -> dict[str, Any]:
    # not those of ClusterJob, which is in no document; GPUs that are asked for are written as --gres takes them
    local = {"Difference": differences.Difference, "Contradiction": differences.Contradiction}
    return get_type_hints(
        cls, localns={**vars(bounds), "bounds": bounds, "Mapping": Mapping, "ClusterJob": object, "Gres": str, **local}
    )


def _record(cls: type) -> str:
    bases = [base for base in reversed(cls.__mro__) if dataclasses.is_dataclass(base)]
    docs = {name: doc for base in bases for name, doc in attribute_docs(base).items()}
    hints = _hints(cls)
    rows = []
    for field in _fields(cls):
        missing = field.default is dataclasses.MISSING
        made = field.default_factory is not dataclasses.MISSING
        default = "" if missing and made else "required" if missing else code(json.dumps(field.default))
        rows.append((code(field.name), _hint(hints[field.name]), default, _json(docs.get(field.name))))
    return f"{_json(cls.__doc__)}\n\n" + table(("Field", "Type", "Default", "Meaning"), rows)


def _hint(hint: Any) -> str:
    if dataclasses.is_dataclass(hint):
        return code(getattr(hint, "__name__", hint))
    return type_in_words(hint)


def _json(docstring: str | None) -> str:
    """A docstring with JSON's null, true and false."""
    return re.sub(r"\bNone\b", "null", re.sub(r"\bTrue\b", "true", re.sub(r"\bFalse\b", "false", markdown(docstring))))
