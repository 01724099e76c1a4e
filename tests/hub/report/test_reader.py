"""Reading a node's report: what is accepted, and what is refused with the name of the field."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.hub.report.reader import ReportError, parse_placement, parse_report
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, to_document
from jupyterhub_gpuspawner.wire.documents import (
    REPORT_LIMIT,
    Door,
    NodeReport,
    PlacedGpu,
    PlacementDocument,
)

PLACEMENT = PlacementDocument(
    job_id="17",
    node="k1",
    partition="gpu",
    simulated=True,
    gpus=(
        PlacedGpu(2, "GPU-2", "0000:85:00.0", "Tesla K80", 11441, 1),
        PlacedGpu(0, "MIG-x", mig="1g.10gb", mig_device=3),
    ),
    cpus="12-15",
    numa_nodes=(1,),
    memory_policy="preferred:1",
    policy="restricted",
    aligned=True,
    weakest_link="PIX",
    why="GPUs 2 and 3, as granted.",
    problems=("One.",),
    started_at="2026-05-04T12:30:00Z",
    ends_at="2026-05-04T20:30:00+00:00",
)
REPORT = NodeReport(
    41234, PLACEMENT, to_document(NodeTopology(hostname="k1", gpus=(Gpu(0),))), Door("process", ("10.0.0.7", "::"))
)


def document(**changes: Any) -> dict[str, Any]:
    """The report as JSON, with changes at paths such as ``placement.gpus.0.index``; ``...`` removes."""
    made: Any = json.loads(REPORT.dumps())
    for path, value in changes.items():
        *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        place = made
        for key in parents:
            place = place[key]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return dict(made)


def test_a_report_comes_back_as_it_was_sent() -> None:
    """Through its JSON."""
    assert parse_report(REPORT.dumps().encode()) == replace(REPORT, topology=json.loads(json.dumps(REPORT.topology)))


def test_a_placement_comes_back_from_the_state_it_was_stored_in() -> None:
    """Through its JSON."""
    assert parse_placement(json.loads(json.dumps(PLACEMENT.to_json()))) == PLACEMENT


def test_the_least_report_is_a_version() -> None:
    """All other fields are optional."""
    assert parse_report(b'{"version": 2}') == parse_report(b'{"version": 2, "port": null}') == NodeReport(0)


def test_a_launcher_that_was_submitted_by_an_older_hub_is_understood() -> None:
    """Version 1 always names the port, and has no ``door``."""
    old = {"version": 1, "port": 41234, "placement": PLACEMENT.to_json()}

    assert parse_report(json.dumps(old).encode()) == NodeReport(41234, PLACEMENT)
    with pytest.raises(ReportError, match="port: must be a whole number"):
        parse_report(json.dumps({**old, "port": None}).encode())


def test_a_port_that_another_process_has_is_not_the_servers() -> None:
    """So the report must not name it."""
    with pytest.raises(ReportError, match="port: must be null"):
        parse_report(NodeReport(41234, door=Door("taken")).dumps().encode())

    assert parse_report(NodeReport(0, door=Door("taken")).dumps().encode()) == NodeReport(0, door=Door("taken"))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", 0),
        ("version", 4),
        ("version", True),
        ("version", "1"),
        ("version", 1.0),
        ("version", ...),
        ("port", 80),
        ("port", 65536),
        ("port", "41234"),
        ("port", 41234.0),
        ("port", True),
        ("host", "10.0.0.1"),
        ("placement", []),
        ("placement", None),
        ("placement.url", "http://evil/"),
        ("placement.node", 7),
        ("placement.node", "k1\n"),
        ("placement.node", "x" * 501),
        ("placement.job_id", 17),
        ("placement.simulated", "yes"),
        ("placement.simulated", None),
        ("placement.aligned", 1),
        ("placement.cpus", "0-"),
        ("placement.cpus", "5-2"),
        ("placement.cpus", "all"),
        ("placement.cpus", None),
        ("placement.policy", "numa"),
        ("placement.policy", []),
        ("placement.weakest_link", "<b>"),
        ("placement.why", "a\x1b[31mb"),
        ("placement.why", "a\u202eb"),
        ("placement.started_at", "yesterday"),
        ("placement.ends_at", "2026-05-04"),
        ("placement.ends_at", 1795259690),
        ("placement.gpus", {}),
        ("placement.gpus", [{"index": 0}] * 65),
        ("placement.gpus.0", 0),
        ("placement.gpus.0.index", ...),
        ("placement.gpus.0.index", -1),
        ("placement.gpus.0.index", 1024),
        ("placement.gpus.0.memory_mib", 2**31 + 1),
        ("placement.gpus.0.mig", 1),
        ("placement.gpus.0.__class__", "x"),
        ("placement.numa_nodes", [None]),
        ("placement.numa_nodes", [4096]),
        ("placement.problems", "none"),
        ("placement.problems", [1]),
        ("door", []),
        ("door.seen", ...),
        ("door.seen", "open"),
        ("door.seen", []),
        ("door.addresses", "10.0.0.7"),
        ("door.addresses.0", "g1"),
        ("door.addresses.0", 1),
        ("door.addresses", ["::"] * 65),
        ("door.url", "http://evil/"),
        ("topology", []),
        ("topology", {"version": 2}),
        ("topology.gpus", [{}]),
        ("topology.__class__", "x"),
    ],
)
def test_what_a_report_may_not_say_is_refused_by_its_field(path: str, value: object) -> None:
    """The sentence begins with the path of the first field at fault."""
    body = json.dumps(document(**{path: value})).encode()

    with pytest.raises(ReportError) as refused:
        parse_report(body)

    told = str(refused.value).partition(": ")[0].replace("[", ".").replace("]", "")
    assert path.startswith(told) or told.startswith((path, "topology", "report.host"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"version": 1, "port": 41234, "port": NaN}',
        b'{"version": 1, "port": 1e400}',
        b" " * (REPORT_LIMIT + 1),
        b"1" * 10_000,
        b'{"version": 1, "port": 41234, "port": 41235}',
        b'{"version": 1, "port": 41234, "placement": {"gpus": [{"index": 0, "index": 1}]}}',
        b'{"version": 1, "port": 41234, "placement": {"why": "\\ud800"}}',
        b'{"version": 1, "port": 41234, "topology": {"version": 1, "hostname": "\\udcff"}}',
        '{"version": 1, "port": 41234}'.encode("utf-16"),
        b'\xef\xbb\xbf{"version": 1, "port": 41234}',
        b'{"version": 1, "port": 41234, "placement": ' + b'{"gpus": [' * 5_000,
    ],
)
def test_what_is_no_report_is_refused(body: bytes) -> None:
    """Whatever it is."""
    with pytest.raises(ReportError):
        parse_report(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
PATHS = st.sampled_from(
    ["version", "port", "placement", "topology"]
    + [f"placement.{name}" for name in PlacementDocument.__dataclass_fields__]
    + [f"placement.gpus.0.{name}" for name in PlacedGpu.__dataclass_fields__]
    + [f"topology.{name}" for name in NodeTopology.__dataclass_fields__]
)


@given(PATHS, JSON)
def test_a_report_is_taken_or_refused_and_nothing_else(path: str, value: object) -> None:
    """For any value in any field: no other exception, and an accepted report can be stored and read back."""
    try:
        report = parse_report(json.dumps(document(**{path: value})).encode())
    except ReportError:
        return

    assert parse_placement(json.loads(json.dumps(report.placement.to_json()))) == report.placement
    assert report.port == 0 or 1024 <= report.port <= 65535  # 0: it does not listen yet
