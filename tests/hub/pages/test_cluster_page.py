"""The page of the cluster map: who may see it, what its rows say, and that every text is escaped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from jinja2 import Environment, FileSystemLoader
from jupyterhub.scopes import parse_scopes

from jupyterhub_gpuspawner.cluster.cluster_map import (
    ClusterMap,
    GpuUse,
    Holder,
    MapGpu,
    MapNode,
    MapPartition,
    NodeUse,
    ServedJob,
    totals,
)
from jupyterhub_gpuspawner.hub.page_tools import PageTools
from jupyterhub_gpuspawner.hub.pages.cluster.page import may_see_cluster, served_jobs
from jupyterhub_gpuspawner.hub.pages.cluster.rows import Bar, GpuRun, Row, Section, sections, summary
from jupyterhub_gpuspawner.hub.registration import TEMPLATES
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument

SCOPES: dict[str, tuple[tuple[str, ...], bool]] = {
    "an admin": (("admin-ui", "list:users", "read:servers", "self"), True),
    "a participant": (("self", "read:servers!user=ada", "list:users!user=ada"), False),
    "an instructor of one group": (("admin-ui", "list:users!group=course", "read:servers!group=course"), False),
    "one who may not see servers": (("admin-ui", "list:users"), False),
    "nobody": ((), False),
}


@pytest.mark.parametrize(("scopes", "allowed"), SCOPES.values(), ids=SCOPES.keys())
def test_who_may_see_the_map(scopes: tuple[str, ...], allowed: bool) -> None:
    """Admin scopes without a filter, since the map names everybody."""
    assert may_see_cluster(parse_scopes(scopes)) is allowed


def test_servers_of_the_hub() -> None:
    """Each server with a job, before and after its report; others have none."""
    placed = PlacementDocument(node="g1", gpus=(PlacedGpu(2), PlacedGpu(3)))
    servers = [
        Server("ada", "", job_id="7", placement=placed),
        Server("ada", "second", job_id="8"),
        Server("ada", "local", placement=placed),
        Server("ada", "gone"),
    ]
    assert list(served_jobs(servers)) == [ServedJob("7", "ada", "", "g1", (2, 3)), ServedJob("8", "ada", "second")]


ADA, BOB = Holder("7", "ada", "second"), Holder("8", "bob")
G1 = MapNode(
    "g1",
    NodeUse.MIXED,
    "partly used",
    cpus=24,
    cpus_used=6,
    memory_mib=65536,
    memory_used_mib=512,
    gpus=(
        MapGpu(0, "k80", GpuUse.USED, (ADA,)),
        MapGpu(1, "k80", GpuUse.USED, (ADA,)),
        MapGpu(2, "k80", GpuUse.USED, (BOB,)),
        MapGpu(3, "k80", GpuUse.FREE),
    ),
    jobs=(ADA, BOB, Holder("9")),
    reservation="course",
)


def a_map(*nodes: MapNode, waiting: int = 0, **more: Any) -> ClusterMap:
    names = tuple(node.name for node in nodes)
    return ClusterMap((MapPartition("gpu", nodes=names, totals=totals(nodes), waiting=waiting, **more),), nodes)


def test_a_line_of_the_map() -> None:
    """Neighbouring GPUs of one job are one piece; jobs without GPUs follow; use is given in numbers."""
    assert sections(a_map(G1, waiting=2, state="DRAIN")) == (
        Section(
            name="gpu",
            state="not accepting new jobs",
            words="1 node; 4 GPUs: 1 free, 3 in use; 2 jobs waiting",
            bar=(75, 25, 0),
            cpus=Bar("6 of 24", 25),
            memory=Bar("512 MiB of 64 GiB", 1),
            rows=(
                Row(
                    name="g1",
                    use="mixed",
                    state="partly used, reservation course",
                    reason="",
                    has="4 \N{MULTIPLICATION SIGN} k80",
                    gpus=(
                        GpuRun("own", 2, "0-1", "ada's server second, job 7"),
                        GpuRun("other", 1, "2", "job 8 of bob"),
                        GpuRun("free", 1, "3", "free"),
                    ),
                    jobs="job 9 of an unknown user",
                    cpus=Bar("6 of 24", 25),
                    memory=Bar("512 MiB of 64 GiB", 1),
                ),
            ),
            folded=0,
            open=True,
        ),
    )


RUNS = {
    "several types have their names": (
        (MapGpu(0, "a100"), MapGpu(1, "1g.10gb"), MapGpu(2, "1g.10gb")),
        [("free", "0 a100", "free"), ("free", "1-2 1g.10gb", "free")],
    ),
    "not told apart": (
        (MapGpu(None, "k80", GpuUse.USED), MapGpu(None, "k80")),
        [("other", "1\N{MULTIPLICATION SIGN}", "in use"), ("free", "1\N{MULTIPLICATION SIGN}", "free")],
    ),
    "shared by a server and a job": (
        (MapGpu(0, "k80", GpuUse.USED, (BOB, Holder("7", "ada", ""))),),
        [("own", "0", "job 8 of bob; ada's server, job 7")],
    ),
    "out": ((MapGpu(0, "", GpuUse.OUT),), [("out", "0", "out")]),
    "many jobs": (
        (MapGpu(0, "k80", GpuUse.USED, tuple(Holder(str(n), "bob") for n in range(9))),),
        [("other", "0", "; ".join([f"job {n} of bob" for n in range(6)] + ["3 more jobs"]))],
    ),
}


@pytest.mark.parametrize(("gpus", "told"), RUNS.values(), ids=RUNS.keys())
def test_pieces_of_a_node(gpus: tuple[MapGpu, ...], told: list[tuple[str, str, str]]) -> None:
    """The name and the text of each piece."""
    (section,) = sections(a_map(MapNode("g1", NodeUse.MIXED, "partly used", gpus=gpus)))
    assert [(run.kind, run.name, run.words) for run in section.rows[0].gpus] == told


def test_a_long_page_is_folded_and_a_longer_one_is_cut() -> None:
    """Partitions are folded beyond a hundred rows; beyond two thousand a link leads to the rest."""
    nodes = tuple(MapNode(f"n{n}", NodeUse.IDLE, "free") for n in range(1500))
    names = tuple(node.name for node in nodes)
    both = ClusterMap((MapPartition("a", nodes=names), MapPartition("b", nodes=names)), nodes)
    told = [(part.name, len(part.rows), part.folded, part.open) for part in sections(both)]
    assert told == [("a", 1500, 0, False), ("b", 0, 1500, False)]
    few = ClusterMap((MapPartition("a", nodes=names[:100]),), nodes)
    assert [part.open for part in sections(few)] == [True]
    filtered = ClusterMap((MapPartition("a", nodes=names),), nodes)
    assert [part.open for part in sections(filtered, filtered=True)] == [True]


def test_one_partition_longer_than_a_page_shows_its_first_lines() -> None:
    """And the number of nodes left out."""
    nodes = tuple(MapNode(f"n{n}", NodeUse.IDLE, "free") for n in range(2100))
    found = ClusterMap((MapPartition("a", nodes=tuple(node.name for node in nodes)),), nodes)
    assert [(len(part.rows), part.folded) for part in sections(found)] == [(2000, 100)]


def test_memory_of_many_nodes_is_told_in_tebibytes() -> None:
    """Six digits of GiB are hard to read."""
    big = MapNode("g1", NodeUse.MIXED, "partly used", memory_mib=1000 * 1024**2, memory_used_mib=9 * 1024**2)
    assert sections(a_map(big))[0].memory == Bar("9216 GiB of 1,000 TiB", 1)


def test_the_whole_in_one_line() -> None:
    """Nodes and GPUs of all partitions, each counted once."""
    assert summary(a_map(G1)) == "1 node; 4 GPUs: 1 free, 3 in use"
    assert summary(ClusterMap()) == "0 nodes; no GPU"


def test_every_text_of_the_map_is_escaped() -> None:
    """Names, reasons, types and users come from Slurm and from users."""
    bad = '<script>alert("1")</script>'
    node = MapNode(
        bad,
        NodeUse.OUT,
        "down",
        reason=bad,
        reason_by=bad,
        reason_at=0.0,
        gpus=(MapGpu(0, bad, GpuUse.USED, (Holder("7", bad, bad),)), MapGpu(1, "k80")),
        jobs=(Holder("8", bad),),
        reservation=bad,
    )
    found = ClusterMap((MapPartition(bad, bad, nodes=(bad,), totals=totals((node,))),), (node,))
    page = Environment(autoescape=True, loader=FileSystemLoader(Path(TEMPLATES))).get_template("cluster_rows.html")
    asked = {"text": bad, "partition": bad, "use": bad}
    rendered = page.render(sections=sections(found), asked=asked, gpuspawner=PageTools())

    soup = BeautifulSoup(rendered, "html.parser")
    assert soup.select("script") == []
    assert soup.get_text().count(bad) == 11
