"""The documents between hub and node: what is taken, and what is refused, naming the field."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.topology import Gpu, NodeTopology, to_document
from jupyterhub_gpuspawner.wire import (
    REPORT_LIMIT,
    LaunchPlan,
    NodeReport,
    PlacedGpu,
    PlacementDocument,
    ReportError,
    parse_placement,
    parse_plan,
    parse_report,
    printable,
    with_job,
)

PLACEMENT = PlacementDocument(
    job_id="17",
    node="k1",
    partition="gpu",
    simulated=True,
    gpus=(PlacedGpu(2, "GPU-2", "0000:85:00.0", "Tesla K80", 11441, 1), PlacedGpu(0, "MIG-x", mig="1g.10gb")),
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
REPORT = NodeReport(41234, PLACEMENT, to_document(NodeTopology(hostname="k1", gpus=(Gpu(0),))))


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
    """Through its JSON, too."""
    assert parse_placement(json.loads(json.dumps(PLACEMENT.to_json()))) == PLACEMENT


def test_the_least_report_is_a_port() -> None:
    """All else may be unknown."""
    assert parse_report(b'{"version": 1, "port": 41234}') == NodeReport(41234)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", 2),
        ("version", True),
        ("version", "1"),
        ("version", 1.0),
        ("version", ...),
        ("port", ...),
        ("port", None),
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
    """Whatever stands wherever: no other exception, and what is taken can be stored and read back."""
    try:
        report = parse_report(json.dumps(document(**{path: value})).encode())
    except ReportError:
        return

    assert parse_placement(json.loads(json.dumps(report.placement.to_json()))) == report.placement
    assert 1024 <= report.port <= 65535


@pytest.mark.parametrize(
    "plan",
    [
        LaunchPlan(),
        LaunchPlan(2, 4, "single-numa-node", "bind", (20000, 20100), "/etc/{node}.json", 1.5, False, False),
        LaunchPlan(gpus=0, cpus=0, deadline=600),
    ],
)
def test_a_plan_comes_back_as_it_was_written(plan: LaunchPlan) -> None:
    """On one line, since it stands in a shell script."""
    text = plan.dumps()

    assert "\n" not in text
    assert parse_plan(text) == plan


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpus", -1),
        ("gpus", "2"),
        ("gpus", True),
        ("cpus", 1.5),
        ("policy", "numa"),
        ("memory_policy", None),
        ("port_range", [20000]),
        ("port_range", [20100, 20000]),
        ("port_range", [80, 90]),
        ("port_range", "20000-20100"),
        ("topology_file", 7),
        ("deadline", 0),
        ("deadline", 601),
        ("deadline", "3"),
        ("deadline", None),
        ("set_threads", 1),
        ("report", None),
    ],
)
def test_a_plan_with_a_wrong_value_names_it(name: str, value: object) -> None:
    """As the launcher will say in its report."""
    with pytest.raises(ValueError, match=f"^{name}: .* is not what a launch plan may say$"):
        parse_plan(json.dumps({"version": 1, name: value}))


@pytest.mark.parametrize("text", ["", "[]", "7", "{", "null"])
def test_what_is_no_plan_is_refused(text: str) -> None:
    """With a ValueError and no other."""
    with pytest.raises(ValueError, match=r"."):
        parse_plan(text)


def test_a_newer_hubs_plan_is_read_as_far_as_it_is_known() -> None:
    """The notebook always starts."""
    assert parse_plan('{"version": 9, "gpus": 2, "colour": "green"}') == LaunchPlan(gpus=2)


def test_what_slurm_says_goes_over_the_nodes_word() -> None:
    """But nothing goes over what Slurm does not say."""
    assert with_job(PLACEMENT, job_id="18", node="k2", ends_at=None) == replace(PLACEMENT, job_id="18", node="k2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("as it is", "as it is"),
        ("two\nlines\tand\x00more", "two lines and more"),
        ("x" * 501, "x" * 499 + "…"),
        ("\u202eevil", " evil"),
    ],
)
def test_any_text_becomes_one_printable_line(text: str, expected: str) -> None:
    """At most 500 characters."""
    assert printable(text) == expected
