"""Reading a node's report: what is accepted, and what is refused with the name of the field."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.errors import ReportError
from jupyterhub_gpuspawner.hub.report.server_report import (
    confirmed,
    other_nodes,
    parse_placement,
    parse_report,
)
from jupyterhub_gpuspawner.hub.start.readiness import reachable_address
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, to_document
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.tasks import resolved
from jupyterhub_gpuspawner.units import Gres, NodeAllocation
from jupyterhub_gpuspawner.wire.documents import (
    REPORT_LIMIT,
    NodeGrant,
    NodeReport,
    PlacedGpu,
    PlacementDocument,
    PortReport,
    StartFailure,
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
    41234,
    PLACEMENT,
    to_document(NodeTopology(hostname="k1", gpus=(Gpu(0),))),
    PortReport("process", ("10.0.0.7", "::")),
    failure=StartFailure("home_full", "/home/ada"),
)


def document(**changes: Any) -> dict[str, Any]:
    """The report as JSON, with changes at paths such as ``placement.gpus.0.index``; ``...`` removes."""
    report: Any = json.loads(REPORT.dumps())
    for path, value in changes.items():
        *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        container = report
        for key in parents:
            container = container[key]
        if value is ...:
            del container[last]
        else:
            container[last] = value
    return dict(report)


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
        parse_report(NodeReport(41234, door=PortReport("taken")).dumps().encode())

    assert parse_report(NodeReport(0, door=PortReport("taken")).dumps().encode()) == NodeReport(
        0, door=PortReport("taken")
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", 0),
        ("version", 5),
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
        ("failure", []),
        ("failure.fault", ...),
        ("failure.fault", "eclipse"),
        ("failure.subject", "x" * 501),
        ("failure.line", "a\nb"),
        ("failure.job", "7"),
        ("topology", []),
        ("topology", {"version": 3}),
        ("topology.gpus", [{}]),
        ("topology.__class__", "x"),
    ],
)
def test_what_a_report_may_not_say_is_refused_by_its_field(path: str, value: object) -> None:
    """The sentence begins with the path of the first field at fault."""
    body = json.dumps(document(**{path: value})).encode()

    with pytest.raises(ReportError) as refused:
        parse_report(body)

    field = str(refused.value).partition(": ")[0].replace("[", ".").replace("]", "")
    assert path.startswith(field) or field.startswith((path, "topology", "report.host"))


BODIES = {
    "must be JSON": (
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 50_000,
        b"1" * 10_000,
        '{"version": 1}'.encode("utf-16"),
        b'\xef\xbb\xbf{"version": 1, "port": 41234}',
        b'{"version": 1, "port": 41234, "placement": ' + b'{"gpus": [' * 5_000,
    ),
    "must be an object": (b"null", b"[]"),
    "NaN is not a JSON number": (b'{"version": 1, "seconds": NaN}',),
    "an object names a field twice": (
        b'{"version": 1, "version": 1}',
        b'{"version": 1, "port": 41234, "placement": {"gpus": [{"index": 0, "index": 1}]}}',
    ),
    "bytes are more than the limit of 65536": (b" " * (REPORT_LIMIT + 1),),
}


@pytest.mark.parametrize(("fault", "body"), [(fault, body) for fault, bodies in BODIES.items() for body in bodies])
def test_what_is_no_document_is_refused(fault: str, body: bytes) -> None:
    """Bounded, and one reading only."""
    with pytest.raises(ReportError, match=fault):
        parse_report(body)


FIELDS = {
    "port": b'"port": 1e400',
    "placement": b'"placement": {"why": "\\ud800"}',
    "topology": b'"topology": {"version": 1, "hostname": "\\udcff"}',
}


@pytest.mark.parametrize(("name", "field"), FIELDS.items())
def test_numbers_and_texts_that_cannot_be_stored_are_refused(name: str, field: bytes) -> None:
    """Infinity, and half a character."""
    with pytest.raises(ReportError, match=f"^({name}|report: Invalid JSON: .*hex escape)"):
        parse_report(b'{"version": 2, ' + field + b"}")


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


# --- A node's report compared with Slurm's answer ---

CLAIMED = PlacementDocument(
    job_id="1", node="g1", partition="debug", gpus=(PlacedGpu(2),), ends_at="2026-05-04T20:30:00+00:00"
)
DETAIL = Job(job_id="17", phase=Phase.RUNNING, nodes="g[1-2]", batch_host="g1")


def test_what_slurm_says_goes_over_the_nodes_word() -> None:
    """Job, node, partition and end are Slurm's; what Slurm does not report stays the node's."""
    job = replace(DETAIL, partition="gpu", ends_at=0.0)

    assert confirmed(CLAIMED, job) == replace(
        CLAIMED, job_id="17", partition="gpu", ends_at="1970-01-01T00:00:00+00:00"
    )
    assert confirmed(CLAIMED, DETAIL) == replace(CLAIMED, job_id="17")


MEMORY: dict[str, tuple[Job, int | None, int | None]] = {
    "as allocated on the server's node": (
        replace(DETAIL, allocations=(NodeAllocation("g1", memory_mib=500), NodeAllocation("g2", memory_mib=900))),
        700,
        500,
    ),
    "as requested, where Slurm was not asked for allocations": (DETAIL, 700, 700),
    "not known": (DETAIL, None, None),
}


@pytest.mark.parametrize(("detail", "requested", "memory_mib"), MEMORY.values(), ids=MEMORY.keys())
def test_the_memory_of_the_job(detail: Job, requested: int | None, memory_mib: int | None) -> None:
    """What Slurm has allocated, else what was requested as an amount."""
    assert confirmed(replace(CLAIMED, memory_mib=requested), detail).memory_mib == memory_mib


@pytest.mark.parametrize("name", ["", "g1", "g2", "g2.example.org"])
def test_a_node_of_the_jobs_may_have_its_full_name(name: str) -> None:
    """Or none at all: the server is on the first node."""
    assert confirmed(replace(CLAIMED, node=name), DETAIL) == replace(CLAIMED, job_id="17")


def test_of_a_report_from_elsewhere_nothing_is_kept() -> None:
    """The page says which node it named."""
    problem = "The report names node h9; Slurm says g[1-2]. The rest of it is not shown."
    assert confirmed(replace(CLAIMED, node="h9"), DETAIL) == PlacementDocument(
        job_id="17", node="g1", problems=(problem,)
    )


def test_a_nodes_own_word_on_other_nodes_does_not_count() -> None:
    """Slurm's answer replaces it, even if Slurm reports no other nodes."""
    placement = PlacementDocument(node="g1", other_nodes=(NodeGrant("elsewhere", (7,)),))
    detail = Job(job_id="1", phase=Phase.RUNNING, nodes="g1", batch_host="g1")
    assert confirmed(placement, detail).other_nodes == ()


# --- A job of several nodes: the server on the first, and what it has on the others ---


def test_nodes_beside_the_servers() -> None:
    """Every node except the batch host, with Slurm's GPUs and counts; GPUs of different types have no common name."""
    detail = Job(
        job_id="1",
        phase=Phase.RUNNING,
        batch_host="g1",
        allocations=(
            NodeAllocation("g1", (0, 1), 4000, (Gres("gpu", "k80", 2, (0, 1)),)),
            NodeAllocation("g2", (0, 1, 2), 6000, (Gres("gpu", "k80", 2, (2, 3)),)),
            NodeAllocation("m1", (4,), 500, (Gres("gpu", "a100", 1, (0,)), Gres("gpu", "1g.10gb", 1, (5,)))),
            NodeAllocation("c1", (0,), 100),
        ),
    )
    grants = other_nodes(detail)
    assert grants == (
        NodeGrant("g2", (2, 3), "k80", 3, 6000),
        NodeGrant("m1", (0, 5), None, 1, 500),
        NodeGrant("c1", (), None, 1, 100),
    )
    placement = PlacementDocument(node="g1", other_nodes=grants)
    assert parse_placement(json.loads(json.dumps(placement.to_json()))) == placement


@pytest.mark.parametrize(
    ("grant", "fault"),
    [
        ({"gpus": [0]}, "node: Field required"),
        ({"node": "g2", "gpus": [-1]}, "gpus[0]: Input should be greater than or equal to 0"),
        ({"node": "g2\n"}, "node: must be printable text"),
        ({"node": "g2", "gpus": [0] * 65}, "gpus: List should have at most 64 items after validation, not 65"),
        ({"node": "g2", "gpus": 2}, "gpus: Input should be a valid list"),
        ({"node": "g2", "cores": 4}, "cores: Extra inputs are not permitted"),
    ],
)
def test_a_document_with_odd_nodes_is_refused(grant: dict[str, object], fault: str) -> None:
    """The refusal names the field."""
    with pytest.raises(ReportError) as refused:
        parse_placement({"other_nodes": [grant]})
    assert str(refused.value) == f"placement.other_nodes[0].{fault}"


# --- Which of a node's addresses the hub uses to reach a server ---

ALL, ALL6 = "0.0.0.0", "::"
BOTH = ("2001:db8::7", "10.0.0.7")
WAYS = {
    "all of IPv4, by IPv4": (("10.0.0.7",), (ALL,), "g1"),
    "all of IPv4, where IPv6 comes first": (BOTH, (ALL,), "10.0.0.7"),
    "all of IPv6, where IPv4 comes first": (BOTH[::-1], (ALL6,), "2001:db8::7"),
    "all of both": (BOTH, (ALL, ALL6), "g1"),
    "all of IPv6, which may be open to IPv4": (("10.0.0.7",), (ALL6,), "g1"),
    "one address, perhaps behind another": (("192.0.2.9",), ("10.0.0.7",), "g1"),
    "IPv4 within IPv6": (BOTH, ("::ffff:10.0.0.7",), "10.0.0.7"),
    "itself alone": (BOTH, ("127.0.0.1",), None),
    "itself alone, on the hub's own machine": (("127.0.0.1",), ("127.0.0.1",), "g1"),
    "not known": (BOTH, (), "g1"),
    "a name without an address": ((), (ALL,), "g1"),
}


@pytest.mark.parametrize(("addresses", "listens", "expected"), WAYS.values(), ids=WAYS.keys())
def test_the_hub_goes_by_an_address_on_which_the_server_listens(
    addresses: tuple[str, ...], listens: tuple[str, ...], expected: str | None
) -> None:
    """The node's name if the server listens on all of its addresses: on the others another user may have the port."""
    assert reachable_address("g1", addresses, listens) == expected


async def test_an_address_is_its_own_and_an_unknown_name_has_none() -> None:
    """The resolver is not asked for an address."""
    assert await resolved("10.0.0.7") == ("10.0.0.7",)
    assert await resolved("2001:DB8::7") == ("2001:db8::7",)
    assert await resolved("no-such-host.invalid") == ()
    assert "127.0.0.1" in await resolved("localhost")
