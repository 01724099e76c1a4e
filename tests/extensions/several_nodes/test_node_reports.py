"""What a job's other nodes report, beside what Slurm says of them."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from jupyterhub_gpuspawner.errors import ReportError
from jupyterhub_gpuspawner.extensions.several_nodes.reports import PICTURES, OtherNodes
from jupyterhub_gpuspawner.hub.extensions import ServerExtensions
from jupyterhub_gpuspawner.hub.report.server_report import ServerReport, parse_report
from jupyterhub_gpuspawner.placement.topology import LIST_LIMIT, Gpu, NodeTopology, NumaNode, to_document
from jupyterhub_gpuspawner.units import NodeAllocation
from jupyterhub_gpuspawner.wire.documents import NodeGrant, NodeReport, PlacedGpu, PlacementDocument

NODE = NodeTopology(
    gpus=(Gpu(0, numa_node=0), Gpu(1, numa_node=1)),
    numa_nodes=(NumaNode(0, (0, 1)), NumaNode(1, (2, 3))),
    packages=((0, 1), (2, 3)),
    siblings=((0,), (1,), (2,), (3,)),
    nics=("mlx5_0",),
    nic_links=(("PIX", "SYS"),),
)
DOCUMENT = to_document(NODE)
SERVER = PlacementDocument(
    node="g1", gpus=(PlacedGpu(0),), other_nodes=(NodeGrant("g2", (1,), cpus=2), NodeGrant("g3", (0,), cpus=2))
)


def report(node: str, gpu: int = 1, cpus: str = "") -> NodeReport:
    return NodeReport(0, PlacementDocument(node=node, gpus=(PlacedGpu(gpu),), cpus=cpus), DOCUMENT, other_node=True)


def test_a_report_is_shown_beside_slurms_grant() -> None:
    """With the card of each GPU; CPUs that the node could not know are Slurm's; a silent node has no placement."""
    nodes = OtherNodes(None)
    new = (nodes.accept(report("g2.example.org")), nodes.accept(report("g2.example.org", gpu=0)))
    strangers = nodes.confirm((NodeAllocation("g1"), NodeAllocation("g2", (2, 3), 500), NodeAllocation("g3", (0, 1))))
    merged = nodes.merged(SERVER, DOCUMENT)

    assert (new, strangers) == ((True, False), ())
    assert merged.gpus == (PlacedGpu(0, nic="mlx5_0", nic_link="PIX"),)
    assert [grant.placement for grant in merged.other_nodes] == [
        PlacementDocument(
            node="g2.example.org",
            gpus=(PlacedGpu(1, nic="mlx5_0", nic_link="SYS"),),
            cpus="2-3",
            numa_nodes=(1,),
            memory_mib=500,
            aligned=True,
        ),
        None,
    ]
    assert merged.weakest_link_over_nodes is None


def test_the_weakest_link_includes_the_network_of_all_nodes() -> None:
    """Once every node has reported, before or after Slurm's answer."""
    nodes = OtherNodes(None)
    nodes.accept(report("g2", gpu=0))
    nodes.confirm((NodeAllocation("g1"), NodeAllocation("g2"), NodeAllocation("g3")))
    nodes.accept(report("g3", gpu=1))

    assert nodes.merged(SERVER, DOCUMENT).weakest_link_over_nodes == "SYS"


def test_a_node_that_slurm_does_not_name_is_dropped_or_refused() -> None:
    """Before and after Slurm has named them; a full host name is one of them, and gets Slurm's memory and CPUs."""
    nodes = OtherNodes(None)
    nodes.accept(report("h100-secret"))

    assert nodes.confirm((NodeAllocation("g1"), NodeAllocation("g2", (2, 3), 500))) == ("h100-secret",)
    assert (nodes.placements, nodes.topologies) == ({}, {})

    with pytest.raises(ReportError, match=r"^placement\.node: h100-secret is not a node of this server's job$"):
        nodes.accept(report("h100-secret"))
    assert nodes.placements == {}

    nodes.accept(report("g2.example.org"))

    [placement] = nodes.placements.values()
    assert (placement.cpus, placement.memory_mib) == ("2-3", 500)


def test_a_node_reports_once_whatever_it_calls_itself() -> None:
    """By Slurm's name or by its full host name."""
    nodes = OtherNodes(None)
    nodes.confirm((NodeAllocation("g1"), NodeAllocation("g2")))

    assert (nodes.accept(report("g2")), nodes.accept(report("g2.example.org", gpu=0))) == (True, False)


def test_reports_are_few_and_survive_a_restart() -> None:
    """At most as many as a placement holds, few of them with a picture; a server on one node shows none."""
    nodes = OtherNodes(None)
    for number in range(LIST_LIMIT):
        nodes.accept(report(f"n{number}"))
    with pytest.raises(ReportError, match=r"^other_node: 64 nodes have already reported$"):
        nodes.accept(report("n64"))
    restarted = OtherNodes(None)
    restarted.load(json.loads(json.dumps(nodes.to_state())))

    assert (len(restarted.placements), len(restarted.topologies)) == (LIST_LIMIT, PICTURES)
    assert restarted.placements == nodes.placements
    assert restarted.merged(replace(SERVER, other_nodes=()), DOCUMENT) == replace(SERVER, other_nodes=())


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"port": 4000}, "port: must be null, without a door, in a report of another node"),
        ({"door": {"seen": "process"}}, "port: must be null, without a door, in a report of another node"),
        (
            {"placement": {"other_nodes": [{"node": "g2", "placement": {"other_nodes": [{"node": "g3"}]}}]}},
            "placement.other_nodes[0].placement: must not have other_nodes of its own",
        ),
    ],
)
def test_what_a_report_of_another_node_may_not_say(more: dict[str, object], fault: str) -> None:
    """No server runs there."""
    body = json.dumps({"version": 3, "other_node": True, "placement": {"node": "g2"}, **more})
    with pytest.raises(ReportError) as refused:
        parse_report(body.encode())
    assert str(refused.value) == fault


def test_a_report_of_another_node_is_read() -> None:
    """As it was written; the versions before have no such reports."""
    written = report("g2")
    assert parse_report(written.dumps().encode()) == replace(written, topology=json.loads(json.dumps(DOCUMENT)))
    assert not parse_report(b'{"version": 2}').other_node


class Job:
    """A job on several nodes, with the reports of all."""

    log = logging.getLogger("test")
    watch = SimpleNamespace(notify=lambda: None)
    ready, job_id = False, "7"

    def __init__(self) -> None:
        self.row = SimpleNamespace(store_soon=lambda: None)
        self.nodes = OtherNodes(self)
        self.server_extensions = ServerExtensions([("several_nodes", self.nodes)])
        self.report = ServerReport(self, self.row)  # type: ignore[arg-type]


OTHER = NodeReport(0, PlacementDocument(job_id="7", node="g2"), other_node=True)
ALONE = PlacementDocument(job_id="7", node="g1", cpus="0-3")


def test_a_server_on_one_node_keeps_no_reports_of_others() -> None:
    """They could fill the hub's database. Those that came before Slurm's word are dropped."""
    job = Job()
    job.report.accept(OTHER)
    early = job.nodes.to_state()["nodes"]
    job.report.place(ALONE)

    with pytest.raises(ReportError, match=r"^other_node: this server has no other node$"):
        job.report.accept(OTHER)
    assert list(early) == ["g2"]
    assert job.nodes.to_state() == {}


def test_the_other_nodes_of_a_job_report_before_and_after_slurms_word() -> None:
    """Nothing waits for them."""
    job = Job()
    job.report.accept(OTHER)
    job.report.place(replace(ALONE, other_nodes=(NodeGrant("g2"), NodeGrant("g3"))))
    job.report.accept(replace(OTHER, placement=PlacementDocument(node="g3")))

    assert job.report.placement is not None
    reported = [other_node.placement for other_node in job.report.placement.other_nodes]
    assert reported == [OTHER.placement, PlacementDocument(node="g3")]
