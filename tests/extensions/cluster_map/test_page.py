"""The page of the cluster map: who may see it, what its rows say, and that every text is escaped."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from jinja2 import Environment, FileSystemLoader
from jupyterhub.scopes import parse_scopes

from jupyterhub_gpuspawner.extensions.cluster_map import page
from jupyterhub_gpuspawner.extensions.cluster_map.hub import HUB
from jupyterhub_gpuspawner.extensions.cluster_map.jobs import JobWords, Moment, Rights, WaitingLine
from jupyterhub_gpuspawner.extensions.cluster_map.page import served_jobs
from jupyterhub_gpuspawner.extensions.cluster_map.rows import (
    Bar,
    Glance,
    GpuRun,
    Row,
    Section,
    at_a_glance,
    in_line,
    sections,
    summary,
)
from jupyterhub_gpuspawner.extensions.cluster_map.survey import (
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
from jupyterhub_gpuspawner.hub.extension import NodeMark, NodeMarks
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.hub.web.clusters import may_see_cluster
from jupyterhub_gpuspawner.units import Gres
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument
from tests.snapshots import NOW, waiting

TEMPLATES = Path(page.__file__).parent / "templates"
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
    placement = PlacementDocument(node="g1", gpus=(PlacedGpu(2), PlacedGpu(3)))
    servers = [
        Server("ada", "", job_id="7", placement=placement),
        Server("ada", "second", job_id="8"),
        Server("ada", "local", placement=placement),
        Server("ada", "gone"),
    ]
    assert list(served_jobs(servers)) == [ServedJob("7", "ada", "", "g1", (2, 3)), ServedJob("8", "ada", "second")]


ADA, BOB = Holder("7", "ada", "second", NOW + 4830), Holder("8", "bob", None, NOW + 30)
ADA_WORDS = JobWords("ada's server second, job 7", "1 h 20 min left", "ada/second")
BOB_WORDS = JobWords("job 8 of bob", "less than a minute left")
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


def a_map(*nodes: MapNode, served: tuple[ServedJob, ...] = (), **more: Any) -> ClusterMap:
    names = tuple(node.name for node in nodes)
    partition = MapPartition("gpu", nodes=names, totals=totals(nodes), **more)
    return ClusterMap((partition,), nodes, served={job.job_id: job for job in served})


def test_a_line_of_the_map() -> None:
    """Neighbouring GPUs of one job are one piece; jobs without GPUs follow; use is given in numbers."""
    assert sections(a_map(G1, state="DRAIN"), now=NOW) == (
        Section(
            name="gpu",
            state="not accepting new jobs",
            words="1 node; 4 GPUs: 1 free, 3 in use",
            rows=(
                Row(
                    name="g1",
                    use="mixed",
                    state="partly used, reservation course",
                    reason="",
                    has="4 \N{MULTIPLICATION SIGN} K80, 12 GB",
                    gpus=(
                        GpuRun("own", 2, "0-1", "ada, 2 GPUs, 1 h 20 min left", (ADA_WORDS,)),
                        GpuRun("used", 1, "2", "bob, less than a minute left", (BOB_WORDS,)),
                        GpuRun("free", 1, "3", "free"),
                    ),
                    jobs=(JobWords("job 9 of an unknown user"),),
                    without_gpus="1 job without a GPU",
                    cpus=Bar("6 of 24", 25),
                    memory=Bar("512 MiB of 64 GiB", 1),
                ),
            ),
            folded=0,
            open=True,
        ),
    )


def test_what_extensions_know_of_a_node_is_in_its_row() -> None:
    """With the command that keeps jobs away from it, unless it takes no jobs already."""
    mark = NodeMark("The last 3 starts here failed.", "scontrol update NodeName=g1 State=DRAIN")
    marks = (NodeMarks("failing_nodes", {"g1": (mark,)}, ()), NodeMarks("hot", {"g1": (NodeMark("It is hot."),)}, ()))
    rows = [
        sections(a_map(node), now=NOW, marks=marks)[0].rows[0]
        for node in (G1, replace(G1, use=NodeUse.OUT), replace(G1, name="g2"))
    ]

    assert [row.marks for row in rows] == [
        (mark, NodeMark("It is hot.")),
        (NodeMark("The last 3 starts here failed."), NodeMark("It is hot.")),
        (),
    ]


RUNS = {
    "several types have their names": (
        (MapGpu(0, "a100"), MapGpu(1, "1g.10gb"), MapGpu(2, "1g.10gb")),
        [("free", "0 A100", "free"), ("free", "1-2 A100 slice", "free")],
    ),
    "not told apart": (
        (MapGpu(None, "k80", GpuUse.USED), MapGpu(None, "k80")),
        [("used", "1\N{MULTIPLICATION SIGN}", "in use"), ("free", "1\N{MULTIPLICATION SIGN}", "free")],
    ),
    "shared by a server and a job": (
        (MapGpu(0, "k80", GpuUse.USED, (BOB, Holder("7", "ada", ""))),),
        [("own", "0", "2 jobs: job 8 of bob; ada's server, job 7")],
    ),
    "out": ((MapGpu(0, "", GpuUse.OUT),), [("out", "0", "out")]),
    "many jobs": (
        (MapGpu(0, "k80", GpuUse.USED, tuple(Holder(str(n), "bob") for n in range(9))),),
        [("used", "0", "9 jobs: " + "; ".join([f"job {n} of bob" for n in range(6)] + ["3 more jobs"]))],
    ),
}


def test_a_slice_in_line_has_the_name_that_it_has_on_its_node() -> None:
    """A MIG profile does not name the GPU that is divided; the nodes that have it do."""
    node = MapNode("m1", NodeUse.IDLE, "free", gpus=(MapGpu(0, "a100"), MapGpu(1, "1g.10gb")))

    cluster_map = a_map(node, queue=(waiting("11", "gpu:1g.10gb:1", time_limit=3600),))
    (section,), (line,) = sections(cluster_map, now=NOW), in_line(cluster_map, now=NOW)

    assert section.rows[0].has.endswith("A100 slice, 10 GB")
    assert line.asks.startswith("1 \N{MULTIPLICATION SIGN} A100 slice, 10 GB, ")


@pytest.mark.parametrize(("gpus", "runs"), RUNS.values(), ids=RUNS.keys())
def test_pieces_of_a_node(gpus: tuple[MapGpu, ...], runs: list[tuple[str, str, str]]) -> None:
    """The name and the text of each piece."""
    (section,) = sections(a_map(MapNode("g1", NodeUse.MIXED, "partly used", gpus=gpus)), now=NOW)
    pieces = section.rows[0].gpus
    words = [": ".join(filter(None, (run.label, "; ".join(job.words for job in run.jobs)))) for run in pieces]
    assert [(run.kind, run.name, text) for run, text in zip(pieces, words, strict=True)] == runs


SERVERS = frozenset({("ada", ""), ("ada", "a/b c")})
LINKS: dict[str, tuple[Rights, dict[str, JobWords]]] = {
    "an admin": (
        Rights(log=SERVERS, stop=SERVERS),
        {
            "7": JobWords("ada's server, job 7", "", "ada", log=True, stop="Stop ada's server"),
            "8": JobWords("ada's server a/b c, job 8", "", "ada/a%2Fb%20c", log=True, stop="Stop ada's server a/b c"),
            "9": JobWords("job 9 of ada"),
        },
    ),
    "one who may see the map only": (
        Rights(),
        {
            "7": JobWords("ada's server, job 7", "", "ada"),
            "8": JobWords("ada's server a/b c, job 8", "", "ada/a%2Fb%20c"),
            "9": JobWords("job 9 of ada"),
        },
    ),
    "one who sees how much a server uses its GPU": (
        Rights(use={("ada", ""): "GPU 83 %"}),
        {
            "7": JobWords("ada's server, job 7, GPU 83 %", "", "ada"),
            "8": JobWords("ada's server a/b c, job 8", "", "ada/a%2Fb%20c"),
            "9": JobWords("job 9 of ada"),
        },
    ),
    "one with rights for one server": (
        Rights(log=frozenset({("ada", "a/b c")}), stop=frozenset({("ada", "")})),
        {
            "7": JobWords("ada's server, job 7", "", "ada", stop="Stop ada's server"),
            "8": JobWords("ada's server a/b c, job 8", "", "ada/a%2Fb%20c", log=True),
            "9": JobWords("job 9 of ada"),
        },
    ),
}


@pytest.mark.parametrize(("rights", "links"), LINKS.values(), ids=LINKS.keys())
def test_links_are_for_servers_of_this_hub_and_those_who_may_follow_them(
    rights: Rights, links: dict[str, JobWords]
) -> None:
    """Log and Stop of each server; any other job of the same user has neither."""
    jobs = (Holder("7", "ada", ""), Holder("8", "ada", "a/b c"), Holder("9", "ada"))
    (section,) = sections(a_map(MapNode("c1", NodeUse.MIXED, "partly used", jobs=jobs)), now=NOW, rights=rights)
    assert section.rows[0].jobs == tuple(links.values())


def clock(at: float) -> Any:
    return datetime.fromtimestamp(at).astimezone()


def test_jobs_in_line() -> None:
    """Those that start first by Slurm's plan, what they ask for, since when, and the start or the reason."""
    first = waiting(
        "11", "gpu:k80:2", starts_in=1200, submitted_at=NOW - 720, memory_mib=1024, time_limit=3600, user="hub"
    )
    second = waiting("12", "gpu:1,shard:a100:3", priority=5, node_count=2, starts_in=-5, user="bob")
    held = waiting("3", priority=0, reason="JobHeldUser", user="eve", time_limit=300)
    cluster_map = a_map(G1, queue=(held, second, first), served=(ServedJob("11", "ada", "lab"),))
    rights = Rights(log=frozenset({("ada", "lab")}), stop=frozenset({("ada", "lab")}))

    (section,) = sections(cluster_map, now=NOW, rights=rights)

    def moment(words: str, at: float) -> Moment:
        return Moment(words, clock(at).isoformat(timespec="seconds"), f"{clock(at):%H:%M %Z}")

    assert section.words == "1 node; 4 GPUs: 1 free, 3 in use; 3 jobs waiting"
    assert in_line(cluster_map, now=NOW, rights=rights) == (
        WaitingLine(
            JobWords("job 12 of bob"),
            "2 nodes, 1 \N{MULTIPLICATION SIGN} GPU on each, 3 \N{MULTIPLICATION SIGN} a100 shard on each, 4 CPUs, "
            "no time limit",
            None,
            "soon (it was expected 5 s ago)",
            "All matching resources are in use.",
        ),
        WaitingLine(
            JobWords("ada's server lab, job 11", path="ada/lab", stop="Stop ada's server lab"),
            "2 \N{MULTIPLICATION SIGN} K80, 12 GB, 4 CPUs, 1 GiB, 1 h",
            moment("waits for 12 min, since", NOW - 720),
            "within 20 min, if nobody with a higher priority comes",
            "All matching resources are in use.",
        ),
        WaitingLine(
            JobWords("job 3 of eve"),
            "4 CPUs, 5 min",
            None,
            "",
            "The job is held by its owner and will not start until it is released.",
        ),
    )


def test_a_long_line_is_cut() -> None:
    """Twenty jobs are named."""
    cluster_map = a_map(G1, queue=tuple(waiting(str(n)) for n in range(25)))
    named = [line.job.words for line in in_line(cluster_map, now=NOW)]
    assert named == [f"job {n} of an unknown user" for n in range(20)]
    assert len(cluster_map.waiting_ids) == 25


def test_a_job_that_waits_for_several_partitions_stands_in_line_once() -> None:
    """By its start in Slurm's plan, whichever partition it is listed in."""
    both, planned = waiting("1"), waiting("2", starts_in=600)
    parts = (MapPartition("a", queue=(both,)), MapPartition("b", queue=(both, planned)))
    named = [line.job.words for line in in_line(ClusterMap(parts), now=NOW)]

    assert named == ["job 2 of an unknown user", "job 1 of an unknown user"]


def test_the_cluster_at_a_glance() -> None:
    """What is in use, who waits, and the first nodes that are out of service or that something is known of."""
    out = MapNode("g2", NodeUse.OUT, "drained", reason="fan", gpus=(MapGpu(0, "k80", GpuUse.OUT),))
    queue = (waiting("11"), waiting("12"))
    cluster_map = a_map(G1, out, queue=queue, served=(ServedJob("11", "ada"),))
    marks = (NodeMarks("failing_nodes", {"g1": (NodeMark("The last 3 starts here failed."),)}, ()),)
    (section,) = sections(cluster_map, now=NOW, marks=marks)

    assert at_a_glance(cluster_map, (section,)) == Glance(
        totals=totals((G1, out)),
        gpus=Bar("3 of 5", 60),
        waiting=2,
        servers_waiting=1,
        out=(section.rows[1],),
        marked=(section.rows[0],),
        nodes_marked=1,
    )


BARS: dict[str, tuple[MapNode, tuple[Bar, Bar]]] = {
    "in use and free": (
        MapNode("g1", NodeUse.MIXED, "", "", cpus=10, cpus_used=4, memory_mib=1024, gpus=(MapGpu(0),)),
        (Bar("4 of 10", 40), Bar("0 of 1 GiB", 0)),
    ),
    "a drained node with a job": (
        MapNode(
            "g1",
            NodeUse.OUT,
            "",
            cpus=10,
            cpus_used=4,
            memory_mib=1024,
            memory_used_mib=256,
            gpus=(MapGpu(0, use=GpuUse.USED), MapGpu(1, use=GpuUse.OUT)),
        ),
        (Bar("4 of 10", 40), Bar("256 MiB of 1 GiB", 25)),
    ),
    "no GPU": (MapNode("c1", NodeUse.IDLE, "", cpus=8), (Bar("0 of 8", 0), Bar("0 of 0", 0))),
}


@pytest.mark.parametrize(("node", "bars"), BARS.values(), ids=BARS.keys())
def test_a_bar_is_what_is_in_use_of_the_whole(node: MapNode, bars: tuple[Bar, Bar]) -> None:
    """CPUs and memory of a node in percent."""
    (section,) = sections(a_map(node), now=NOW)
    assert (section.rows[0].cpus, section.rows[0].memory) == bars


def test_a_partition_without_gpus_says_how_many_cpus_are_in_use() -> None:
    """There is nothing else to tell."""
    (section,) = sections(a_map(MapNode("c1", NodeUse.MIXED, "", cpus=320, cpus_used=228)), now=NOW)
    assert section.words == "1 node; no GPU; 228 of 320 CPUs in use"


def test_a_long_page_is_folded_and_a_longer_one_is_cut() -> None:
    """Partitions are folded beyond a hundred rows; beyond two thousand a link leads to the rest."""
    nodes = tuple(MapNode(f"n{n}", NodeUse.IDLE, "free") for n in range(1500))
    names = tuple(node.name for node in nodes)
    both = ClusterMap((MapPartition("a", nodes=names), MapPartition("b", nodes=names)), nodes)
    parts = [(part.name, len(part.rows), part.folded, part.open) for part in sections(both, now=NOW)]
    assert parts == [("a", 1500, 0, False), ("b", 0, 1500, False)]
    few = ClusterMap((MapPartition("a", nodes=names[:100]),), nodes)
    assert [part.open for part in sections(few, now=NOW)] == [True]
    filtered = ClusterMap((MapPartition("a", nodes=names),), nodes)
    assert [part.open for part in sections(filtered, now=NOW, filtered=True)] == [True]


def test_one_partition_longer_than_a_page_shows_its_first_lines() -> None:
    """And the number of nodes left out."""
    nodes = tuple(MapNode(f"n{n}", NodeUse.IDLE, "free") for n in range(2100))
    cluster_map = ClusterMap((MapPartition("a", nodes=tuple(node.name for node in nodes)),), nodes)
    assert [(len(part.rows), part.folded) for part in sections(cluster_map, now=NOW)] == [(2000, 100)]


def test_memory_of_many_nodes_is_told_in_tebibytes() -> None:
    """Six digits of GiB are hard to read."""
    big = MapNode("g1", NodeUse.MIXED, "partly used", memory_mib=1000 * 1024**2, memory_used_mib=9 * 1024**2)
    assert sections(a_map(big), now=NOW)[0].rows[0].memory == Bar("9216 GiB of 1,000 TiB", 1)


def test_the_whole_in_one_line() -> None:
    """Nodes and GPUs of all partitions, each counted once."""
    assert summary(a_map(G1)) == "1 node; 4 GPUs: 1 free, 3 in use"
    assert summary(ClusterMap()) == "0 nodes; no GPU"


def test_a_job_without_gpus_and_its_stop_stay_in_one_row() -> None:
    """A browser ends a paragraph where a fold begins, so the row has none."""
    node = MapNode("m1", NodeUse.MIXED, "partly used", jobs=(Holder("8", "ada", ""), Holder("9", "bob", "")))
    cluster_map = ClusterMap((MapPartition("cpu", nodes=("m1",), totals=totals((node,))),), (node,))
    rights = Rights(stop=frozenset({("ada", ""), ("bob", "")}))
    page = Environment(autoescape=True, loader=FileSystemLoader(TEMPLATES)).get_template("cluster_rows.html")
    filters = dict.fromkeys(("text", "partition", "use"), "")
    html = page.render(sections=sections(cluster_map, now=NOW, rights=rights), filters=filters)
    row = BeautifulSoup(html, "html.parser")

    assert (len(row.select("li > details button")), row.select("p details")) == (2, [])


def test_a_stop_leads_back_to_the_map() -> None:
    """The form names the page as the navigation bar does; a stop leads to no other address."""
    template = BeautifulSoup((TEMPLATES / "cluster.html").read_text(), "html.parser")

    assert [back["value"] for back in template.select("input[name=back]")] == [link.path for link in HUB.links]


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
    queue = (waiting("9", user=bad, reason=bad)._replace(gpus=(Gres("gpu", bad),)),)
    cluster_map = ClusterMap((MapPartition(bad, bad, nodes=(bad,), totals=totals((node,)), queue=queue),), (node,))
    rights = Rights(log=frozenset({(bad, bad)}), stop=frozenset({(bad, bad)}))
    page = Environment(autoescape=True, loader=FileSystemLoader(TEMPLATES)).get_template("cluster_rows.html")
    filters = {"text": bad, "partition": bad, "use": bad}
    parts, line = sections(cluster_map, now=NOW, rights=rights), in_line(cluster_map, now=NOW, rights=rights)
    rendered = page.render(sections=parts, line=line, more_in_line=0, filters=filters)

    soup = BeautifulSoup(rendered, "html.parser")
    assert soup.select("script") == []
    assert soup.get_text().lower().count(bad) == 17  # a type is shown as its model
