"""The admin's map: the state of every GPU, and who uses it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.cluster_map.survey import (
    ClusterMap,
    GpuUse,
    Holder,
    MapGpu,
    MapNode,
    NodeUse,
    ServedJob,
    Totals,
    first_in_line,
    survey,
)
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot, NodeState, Partition, Reservation
from jupyterhub_gpuspawner.units import Gres, NodeAllocation, parse_gres
from tests.snapshots import waiting

FREE, USED, OUT = GpuUse.FREE, GpuUse.USED, GpuUse.OUT


def node(name: str = "g1", states: str = "MIXED", gres: str = "gpu:k80:4", used: str = "", **more: Any) -> NodeState:
    facts = {"cpus": 24, "memory_mib": 64000, "partitions": ("gpu",), "cpus_allocated": 4 if used else 0, **more}
    return NodeState(
        name, states=frozenset(states.split("+")), gres=parse_gres(gres), gres_used=parse_gres(used), **facts
    )


def job(job_id: str, user: str, *nodes: str) -> ClusterJob:
    return ClusterJob(job_id, Phase.RUNNING if nodes else Phase.QUEUED, user=user, nodes=nodes, partitions=("gpu",))


def snapshot(*nodes: NodeState, jobs: tuple[ClusterJob, ...] = (), **more: Any) -> ClusterSnapshot:
    names = tuple(state.name for state in nodes)
    return ClusterSnapshot(nodes=nodes, partitions=(Partition("gpu", nodes=names),), jobs=jobs, taken_at=100.0, **more)


def gpus(*nodes: NodeState, jobs=(), allocations=None, servers=()) -> list[tuple[int | None, str, str, str]]:
    """Index, type, use, holders of the first node's GPUs."""
    cluster_map = survey(snapshot(*nodes, jobs=jobs), allocations or {}, servers)
    return [
        (gpu.index, gpu.type, gpu.use.value, " ".join(f"{holder.user}:{holder.job_id}" for holder in gpu.holders))
        for gpu in cluster_map.nodes[0].gpus
    ]


def has(where: str, gres: str) -> NodeAllocation:
    return NodeAllocation(where, gres=parse_gres(gres))


def test_a_node_with_a_server_and_another_job() -> None:
    """A server of this hub has its user and name, another job its owner; other GPUs are free."""
    state = node(used="gpu:k80:3(IDX:0-1,3)", memory_allocated_mib=8000)
    jobs = (job("7", "hub", "g1"), job("8", "bob", "g1"), job("9", "eve"))
    allocations = {"7": (has("g1", "gpu:k80:2(IDX:0-1)"),), "8": (has("g1", "gpu:k80:1(IDX:3)"),)}
    ada, bob = Holder("7", "ada", "second"), Holder("8", "bob")

    cluster_map = survey(snapshot(state, jobs=jobs), allocations, [ServedJob("7", "ada", "second", "g1", (0, 1))])

    assert cluster_map.nodes == (
        MapNode(
            "g1",
            NodeUse.MIXED,
            "partly used",
            cpus=24,
            cpus_used=4,
            memory_mib=64000,
            memory_used_mib=8000,
            gpus=(
                MapGpu(0, "k80", USED, (ada,)),
                MapGpu(1, "k80", USED, (ada,)),
                MapGpu(2, "k80", FREE),
                MapGpu(3, "k80", USED, (bob,)),
            ),
            jobs=(ada, bob),
            partitions=("gpu",),
        ),
    )
    (partition,) = cluster_map.partitions
    assert (partition.nodes, partition.waiting) == (("g1",), 1)
    assert partition.totals == Totals(1, 0, 4, 1, 3, 0, 24, 4, 64000, 8000)


GPU_CASES = {
    "untyped": (("gpu:2", "gpu:1(IDX:1)"), "gpu:1(IDX:1)", [(0, "", "free", ""), (1, "", "used", "bob:7")]),
    "two types in the order of Gres": (
        ("gpu:a100:1,gpu:1g.10gb:2", "gpu:a100:0(IDX:N/A),gpu:1g.10gb:1(IDX:2)"),
        "gpu:1g.10gb:1(IDX:2)",
        [(0, "a100", "free", ""), (1, "1g.10gb", "free", ""), (2, "1g.10gb", "used", "bob:7")],
    ),
    "two types in another order, by what is in use": (
        ("gpu:a100:1,gpu:1g.10gb:2", "gpu:a100:1(IDX:2),gpu:1g.10gb:0(IDX:N/A)"),
        "gpu:a100:1(IDX:2)",
        [(0, "1g.10gb", "free", ""), (1, "1g.10gb", "free", ""), (2, "a100", "used", "bob:7")],
    ),
    "a shard": (
        ("gpu:a100:2,shard:8", "gpu:a100:0(IDX:N/A),shard:3(0/4,3/4)"),
        "shard:3(0/4,3/4)",
        [(0, "a100", "free", ""), (1, "a100", "used", "bob:7")],
    ),
    "counted, not told apart": (
        ("gpu:k80:3", "gpu:k80:1(IDX:N/A)"),
        "gpu:k80:1",
        [(None, "k80", "used", ""), (None, "k80", "free", ""), (None, "k80", "free", "")],
    ),
    "in use, nobody knows by whom": (
        ("gpu:k80:2", "gpu:k80:1(IDX:0)"),
        "",
        [(0, "k80", "used", ""), (1, "k80", "free", "")],
    ),
    "an index that the node does not have": (
        ("gpu:k80:1", "gpu:k80:0(IDX:N/A)"),
        "gpu:k80:1(IDX:5)",
        [(0, "k80", "free", "")],
    ),
}


@pytest.mark.parametrize(("node_gres", "has_gres", "expected"), GPU_CASES.values(), ids=GPU_CASES.keys())
def test_gpus_of_a_node(node_gres, has_gres, expected) -> None:
    """Each device once, with Slurm's index and type and its holders."""
    gres, used = node_gres
    allocations = {"7": (has("g1", has_gres),)}
    assert gpus(node(gres=gres, used=used), jobs=(job("7", "bob", "g1"),), allocations=allocations) == expected


def test_two_jobs_share_a_gpu() -> None:
    """Both are told."""
    allocations = {"7": (has("g1", "shard:1(1/4)"),), "8": (has("g1", "shard:2(2/4)"),)}
    state = node(gres="gpu:a100:1,shard:4", used="shard:3(3/4)")
    jobs = (job("7", "ada", "g1"), job("8", "bob", "g1"))
    assert gpus(state, jobs=jobs, allocations=allocations) == [(0, "a100", "used", "ada:7 bob:8")]


def test_gpus_that_slurm_does_not_hand_out_are_known_by_the_servers_word() -> None:
    """A job without indices has the GPUs that its server reports, on the node that Slurm names and on no other."""
    jobs = (job("7", "hub", "g1"),)
    mine = ServedJob("7", "ada", "", "g1", (2,))
    assert [gpu[3] for gpu in gpus(node(), jobs=jobs, servers=[mine])] == ["", "", "ada:7", ""]
    elsewhere = replace(mine, node="g2")
    assert [gpu[3] for gpu in gpus(node(), jobs=jobs, servers=[elsewhere])] == ["", "", "", ""]


def test_an_allocation_of_a_job_that_is_not_there_holds_nothing() -> None:
    """Jobs that have ended since, or were forged by a job name, are not on the map."""
    allocations = {"7": (has("g1", "gpu:k80:4(IDX:0-3)"),)}
    assert [gpu[2] for gpu in gpus(node(), allocations=allocations)] == ["free"] * 4


STATES = {
    "IDLE": (NodeUse.IDLE, "free", False),
    "IDLE+PLANNED": (NodeUse.IDLE, "free, reserved for a job that starts soon", False),
    "IDLE+POWERED_DOWN": (NodeUse.IDLE, "free, powered down until it is needed", False),
    "IDLE+DRAIN": (NodeUse.OUT, "drained: does not accept jobs", False),
    "MIXED+DRAIN": (NodeUse.OUT, "draining: does not accept new jobs", True),
    "DOWN+NOT_RESPONDING": (NodeUse.OUT, "down: not responding", False),
    "DOWN+DRAIN": (NodeUse.OUT, "down", False),
    "IDLE+NOT_RESPONDING": (NodeUse.OUT, "not responding", False),
    "IDLE+MAINTENANCE+RESERVED": (NodeUse.OUT, "in maintenance", False),
    "DOWN+INVALID_REG": (NodeUse.OUT, "down", False),
    "IDLE+INVALID_REG+DRAIN": (NodeUse.OUT, "registered with hardware that differs from the configuration", False),
    "UNKNOWN": (NodeUse.OUT, "in an unknown state", False),
    "SOMETHING_NEW": (NodeUse.OUT, "in an unknown state", False),
    "MIXED": (NodeUse.MIXED, "partly used", True),
}


@pytest.mark.parametrize(("states", "expected"), STATES.items(), ids=STATES)
def test_states_in_words(states: str, expected: tuple[NodeUse, str, bool]) -> None:
    """States in words; GPUs of a node out of service are out, unless a job still holds them."""
    use, words, busy = expected
    state = node(states=states, used="gpu:k80:1(IDX:0)" if busy else "", reason="fan")
    (map_node,) = survey(snapshot(state), {}).nodes
    rest = OUT if use is NodeUse.OUT else FREE
    assert (map_node.use, map_node.state, map_node.reason) == (use, words, "fan")
    assert [gpu.use for gpu in map_node.gpus] == [USED if busy else rest, rest, rest, rest]


REASONS = {
    "Not responding [slurm@1795273256]": ("Not responding", "slurm", 1795273256.0),
    "fan [left] broken [root@1795273256]": ("fan [left] broken", "root", 1795273256.0),
    "gone [root@2026-11-21T10:00:00]": ("gone", "root", 1795255200.0),
    "gone [root@noon]": ("gone [root@noon]", "", None),
    "": ("", "", None),
}


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize(("reason", "expected"), REASONS.items(), ids=REASONS)
def test_a_reason_its_author_and_its_time(reason: str, expected: tuple[str, str, float | None]) -> None:
    """scontrol prints them together; other reasons are unchanged."""
    (map_node,) = survey(snapshot(node(reason=reason)), {}).nodes
    assert (map_node.reason, map_node.reason_by, map_node.reason_at) == expected


def test_a_node_is_full_without_a_free_gpu_or_without_a_free_cpu() -> None:
    """Either is enough to keep a GPU job out."""
    no_gpu = node("g1", used="gpu:k80:4(IDX:0-3)")
    no_cpu = node("g2", used="gpu:k80:1(IDX:0)", cpus_allocated=24)
    no_gpus = node("c1", gres="", cpus_allocated=24)
    cluster_map = survey(snapshot(no_gpu, no_cpu, no_gpus), {})
    assert [map_node.use for map_node in cluster_map.nodes] == [NodeUse.FULL] * 3


def test_a_reservation_that_has_begun_is_named() -> None:
    """A reservation for tomorrow is not."""
    today = Reservation("course", start=50.0, end=200.0, nodes=("g1",))
    tomorrow = Reservation("later", start=150.0, nodes=("g2",))
    cluster_map = survey(snapshot(node("g1"), node("g2"), reservations=(today, tomorrow)), {})
    assert [map_node.reservation for map_node in cluster_map.nodes] == ["course", ""]


@pytest.fixture(scope="module")
def small() -> ClusterMap:
    """A node with a server, an idle one, one that is down, and one without GPUs in a partition of its own."""
    nodes = (
        node("g1", used="gpu:k80:1(IDX:0)"),
        node("g2", states="IDLE", gres="gpu:p100:2"),
        node("g3", states="DOWN", gres="gpu:p100:2", reason="Fan broken"),
        node("c1", states="IDLE", gres="", partitions=("batch",)),
    )
    cluster = ClusterSnapshot(
        nodes=nodes,
        partitions=(Partition("gpu", nodes=("g1", "g2", "g3")), Partition("batch", nodes=("c1",))),
        jobs=(job("7", "hub", "g1"),),
    )
    return survey(cluster, {"7": (has("g1", "gpu:k80:1(IDX:0)"),)}, [ServedJob("7", "Ada", "second")])


FILTERS = {
    "nothing": ({}, ["gpu", "batch"], ["g1", "g2", "g3", "c1"]),
    "a user": ({"text": "ada"}, ["gpu"], ["g1"]),
    "a server": ({"text": "SECOND"}, ["gpu"], ["g1"]),
    "a job": ({"text": "7"}, ["gpu"], ["g1"]),
    "a type of GPU": ({"text": "p100"}, ["gpu"], ["g2", "g3"]),
    "two words, in any order": ({"text": "fan p100"}, ["gpu"], ["g3"]),
    "a partition": ({"partition": "batch"}, ["batch"], ["c1"]),
    "a partition that is not there": ({"partition": "x"}, [], []),
    "out of service": ({"use": "out"}, ["gpu"], ["g3"]),
    "free": ({"use": "idle"}, ["gpu", "batch"], ["g2", "c1"]),
    "with a free GPU": ({"use": "with-free-gpus"}, ["gpu"], ["g1", "g2"]),
    "all three": ({"text": "p100", "partition": "gpu", "use": "idle"}, ["gpu"], ["g2"]),
    "no such text": ({"text": "<script>"}, [], []),
}


@pytest.mark.parametrize(("filters", "partitions", "nodes"), FILTERS.values(), ids=FILTERS.keys())
def test_filters(small: ClusterMap, filters: dict[str, str], partitions: list[str], nodes: list[str]) -> None:
    """By words, partition and use; totals cover the remaining nodes."""
    filtered = small.only(**filters)
    assert ([partition.name for partition in filtered.partitions], [map_node.name for map_node in filtered.nodes]) == (
        partitions,
        nodes,
    )
    assert filtered.totals.nodes == len(nodes)


def test_the_document_is_json_and_holds_each_node_once(small: ClusterMap) -> None:
    """The REST document: each node once, partitions with their nodes' names."""
    document = json.loads(json.dumps(small.to_json()))
    assert document["version"] == 1
    assert [partition["nodes"] for partition in document["partitions"]] == [["g1", "g2", "g3"], ["c1"]]
    assert document["nodes"][0]["gpus"][0] == {
        "index": 0,
        "type": "k80",
        "use": "used",
        "holders": [{"job_id": "7", "user": "Ada", "server": "second", "ends_at": None}],
    }
    assert document["nodes"][2]["reason"] == "Fan broken"


LINE = (
    waiting("20", "gpu:k80:2", user="hub"),
    waiting("21", "gpu:p100:1", user="bob", priority=20),
    waiting("22", user="eve", partitions=("batch",), reason="Priority"),
)
LINE_FILTERS: dict[str, tuple[dict[str, str], dict[str, list[str]]]] = {
    "nothing": ({}, {"gpu": ["21", "20"], "batch": ["22"]}),
    "the user of a server": ({"text": "ada LAB"}, {"gpu": ["20"]}),
    "not the account of a server's job": ({"text": "hub"}, {}),
    "a job": ({"text": "21"}, {"gpu": ["21"]}),
    "a type of GPU": ({"text": "k80"}, {"gpu": ["20"]}),
    "a reason": ({"text": "priority"}, {"batch": ["22"]}),
    "a partition": ({"partition": "batch"}, {"batch": ["22"]}),
    "a use, which only nodes have": ({"use": "idle"}, {"gpu": []}),
}


@pytest.mark.parametrize(("filters", "queues"), LINE_FILTERS.values(), ids=LINE_FILTERS.keys())
def test_filters_of_jobs_in_line(filters: dict[str, str], queues: dict[str, list[str]]) -> None:
    """A job matches by its own words, those of its server included; its partition stays with it."""
    partitions = (Partition("gpu", nodes=("c1",)), Partition("batch"))
    idle = node("c1", "IDLE", gres="")
    cluster_map = survey(replace(snapshot(idle, jobs=LINE), partitions=partitions), {}, [ServedJob("20", "Ada", "lab")])
    filtered = cluster_map.only(**filters)
    assert {part.name: [job.job_id for job in filtered.waiting(part, 10)] for part in filtered.partitions} == queues


def test_the_document_has_the_first_jobs_in_line() -> None:
    """With their number, and GPUs as ``--gres`` takes them; a server of this hub by its user and name."""
    more = tuple(waiting(str(n), priority=1) for n in range(100, 160))
    cluster_map = survey(snapshot(node(), jobs=(*LINE, *more)), {}, [ServedJob("20", "Ada", "lab")])
    (document,) = json.loads(json.dumps(cluster_map.to_json()))["partitions"]
    assert (document["waiting"], len(document["queue"])) == (62, 50)
    assert document["queue"][1] == {
        "job_id": "20",
        "user": "Ada",
        "server": "lab",
        "nodes": 1,
        "cpus": 4,
        "memory_mib": 0,
        "gpus": ["gpu:k80:2"],
        "time_limit": None,
        "submitted_at": None,
        "starts_at": None,
        "reason": "Resources",
    }


def test_a_count_no_machine_has_is_cut() -> None:
    """A mistake in gres.conf does not fill the hub's memory."""
    state = node()._replace(gres=(Gres("gpu", "k80", 10**9),))
    assert len(survey(snapshot(state), {}).nodes[0].gpus) == 1024


def test_jobs_that_wait_for_something_else_come_last() -> None:
    """By priority and age, as far as asked for; held jobs and those with a dependency follow."""
    jobs = (
        waiting("3", priority=0, reason="JobHeldUser"),
        waiting("4", priority=9, reason="Dependency"),
        waiting("12", priority=5),
        waiting("9", priority=5),
        waiting("100", priority=7),
    )
    assert [job.job_id for job in first_in_line(jobs, 10)] == ["100", "9", "12", "4", "3"]
    assert [job.job_id for job in first_in_line(jobs, 2)] == ["100", "9"]
