"""How many participants fit at the same time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyterhub_gpuspawner.cluster.capacity import capacity_of
from jupyterhub_gpuspawner.cluster.fit import Need
from jupyterhub_gpuspawner.courses.seats import Sharing, count_seats, free_at, remedy
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, CpuAllocation, NodeState, Reservation
from tests.snapshots import NOW, cluster, node, running

START, END = NOW + 3600, NOW + 4 * 3600
FOUR = node("g1", "gpu:k80:4", memory_mib=60 * 1024)
"""Four GPUs, 16 cores, 60 GiB."""

SEATS: dict[str, tuple[list[NodeState], dict[str, Any], tuple[int, str]]] = {
    "all fit": ([FOUR], {"gpus": 1, "cpus": 4, "memory": 1024, "wanted": 4}, (4, "")),
    "GPUs are short": ([FOUR], {"gpus": 1, "cpus": 2, "memory": 1024}, (4, "gpus")),
    "memory is short": ([FOUR], {"gpus": 1, "cpus": 2, "memory": 24 * 1024}, (2, "memory")),
    "cores are short": ([FOUR], {"gpus": 1, "cpus": 6, "memory": 1024}, (2, "cpus")),
    "no GPU is requested": ([FOUR], {"cpus": 3, "memory": 1024}, (5, "cpus")),
    "another type": ([FOUR, node("g2", "gpu:p100:2")], {"gpus": 1, "gpu_type": "p100"}, (2, "gpus")),
    "two types together": ([node("g3", "gpu:k80:2,gpu:p100:2")], {"gpus": 1}, (4, "gpus")),
    "MIG": ([node("m1", "gpu:1g.10gb:7")], {"gpus": 1, "gpu_type": "1g.10gb", "cpus": 2}, (7, "gpus")),
    "shards": ([node("s1", "gpu:2,shard:8")], {"shards": 3, "cpus": 1}, (2, "shards")),
    "whole nodes": ([FOUR, node("g2")], {"exclusive": True, "cpus": 1}, (2, "")),
    "a drained node": (
        [FOUR, node("g2", "gpu:k80:4", states=frozenset({"IDLE", "DRAIN"}))],
        {"gpus": 1},
        (4, "gpus"),
    ),
    "two nodes each": (
        [node(f"n{number}", "gpu:4") for number in range(3)],
        {"gpus": 2, "nodes_each": 2},
        (3, "gpus"),
    ),
    "two nodes each, one much larger": (
        [node("big", "gpu:16", cpus=64), node("a", "gpu:1"), node("b", "gpu:1")],
        {"gpus": 1, "nodes_each": 2},
        (2, "gpus"),
    ),
}


@pytest.mark.parametrize(("nodes", "asked", "expected"), SEATS.values(), ids=SEATS.keys())
def test_seats_are_counted_node_by_node(
    nodes: list[NodeState], asked: dict[str, Any], expected: tuple[int, str]
) -> None:
    """And the resource of which more would let most people in is the tight one."""
    need = Need(**{name: value for name, value in asked.items() if name not in ("wanted", "nodes_each")})
    found = count_seats(
        capacity_of(cluster(*nodes)).nodes("gpu").all,
        need,
        (),
        wanted=asked.get("wanted", 20),
        start=START,
        end=END,
        nodes_per_person=asked.get("nodes_each", 1),
    )

    assert (found.fit, found.tight) == expected


THREADS = node("h1", "gpu:k80:4", cpus=32, cpus_per_core=2, socket_cores=8)
"""Sixteen cores with two hardware threads each, on two sockets."""
DIVIDED: dict[str, tuple[NodeState, CpuAllocation, dict[str, Any], Sharing, int]] = {
    "three threads take two cores": (THREADS, CpuAllocation(), {"cpus": 3}, Sharing(), 8),
    "CPUs are given out singly": (THREADS, CpuAllocation("cpu"), {"cpus": 3}, Sharing(), 10),
    "sockets are given out whole": (THREADS, CpuAllocation("socket"), {"cpus": 3}, Sharing(), 2),
    "nodes are given out whole": (THREADS, CpuAllocation("node"), {"cpus": 3}, Sharing(), 1),
    "memory for each CPU that a job gets": (
        THREADS,
        CpuAllocation(),
        {"cpus": 3, "memory": 9000, "memory_per_cpu": 3000},
        Sharing(),
        5,
    ),
    "the partition may use ten CPUs of a node": (FOUR, CpuAllocation(), {"cpus": 3}, Sharing("gpu", 10), 3),
    "two jobs on each CPU": (FOUR, CpuAllocation(), {"cpus": 4}, Sharing("gpu", None, 2), 8),
}


@pytest.mark.parametrize(("state", "cpus", "asked", "sharing", "fit"), DIVIDED.values(), ids=DIVIDED.keys())
def test_cpus_are_counted_as_slurm_gives_them_out(
    state: NodeState, cpus: CpuAllocation, asked: dict[str, Any], sharing: Sharing, fit: int
) -> None:
    """Whole cores by default; sockets, nodes or single CPUs where slurm.conf says so; within the partition's limits."""
    snapshot = replace(cluster(state), cpu_allocation=cpus)
    nodes = capacity_of(snapshot).nodes("gpu").all

    assert count_seats(nodes, Need(**asked), (), wanted=50, start=START, end=END, sharing=sharing).fit == fit


def test_jobs_of_the_partition_count_for_its_limit() -> None:
    """And those of other partitions do not."""
    jobs = tuple(running(number, "g1", cpus=4, partitions=(name,)) for number, name in (("1", "gpu"), ("2", "debug")))
    snapshot = cluster(FOUR, jobs=tuple(job._replace(ends_at=None) for job in jobs))
    (fit,) = capacity_of(snapshot).nodes("gpu").all

    assert free_at(fit, snapshot.jobs, START, Sharing("gpu", 10)).cpus == 6


JOBS: dict[str, tuple[list[ClusterJob], int]] = {
    "ends before": ([running("1", "g1", "gpu:k80:2", ends_in=1800)], 4),
    "ends afterwards": ([running("1", "g1", "gpu:k80:2", ends_in=7200)], 2),
    "has no end": ([running("1", "g1", "gpu:k80:1", ends_in=None)], 3),
    "one of each": (
        [running("1", "g1", "gpu:k80:2", ends_in=60), running("2", "g1", "gpu:k80:1", ends_in=7200)],
        3,
    ),
}


@pytest.mark.parametrize(("jobs", "expected"), JOBS.values(), ids=JOBS.keys())
def test_jobs_of_others_keep_their_seats_until_they_end(jobs: list[ClusterJob], expected: int) -> None:
    """What counts is the start of the session, not the moment of the check."""
    used = sum(gres.count for job in jobs for gres in job.gpus)
    busy = node("g1", "gpu:k80:4", f"gpu:k80:{used}", cpus_allocated=4 * len(jobs))
    snapshot = cluster(busy, jobs=tuple(jobs))
    nodes = capacity_of(snapshot).nodes("gpu").all

    assert count_seats(nodes, Need(gpus=1), snapshot.jobs, wanted=9, start=START, end=END).fit == expected


def test_a_node_reserved_for_others_has_no_seats_and_says_so() -> None:
    """For the time of the session; the session's own reservation does not count."""
    theirs = Reservation("week", NOW, NOW + 86400, ("g1",))
    own = Reservation("ml", START, END, ("g2",))
    snapshot = cluster(FOUR, node("g2", "gpu:k80:4"), reservations=(theirs, own))
    everywhere = count_seats(capacity_of(snapshot).nodes("gpu").all, Need(gpus=1), (), wanted=9, start=START, end=END)
    in_own = capacity_of(snapshot).nodes("gpu", reservation="ml").all
    found = count_seats(in_own, Need(gpus=1), (), wanted=9, start=START, end=END)

    assert [(each.node, each.seats, each.why) for each in everywhere.nodes] == [
        ("g1", 0, "reserved for week"),
        ("g2", 0, "reserved for ml"),
    ]
    assert [(each.node, each.seats, each.why) for each in found.nodes] == [("g2", 4, "")]


REMEDIES: dict[str, tuple[dict[str, Any], str]] = {
    "memory": (
        {"gpus": 1, "cpus": 2, "memory": 24 * 1024},
        "With 24 GiB of memory for each person, 2 of 4 GPUs of node g1 can be used; 15 GiB each would allow all 4.",
    ),
    "cores": (
        {"gpus": 1, "cpus": 6, "memory": 1024},
        "With 6 cores for each person, 2 of 4 GPUs of node g1 can be used; 4 cores each would allow all 4.",
    ),
    "GPUs: the request cannot change it": ({"gpus": 1, "cpus": 1, "memory": 1024}, ""),
}


@pytest.mark.parametrize(("asked", "said"), REMEDIES.values(), ids=REMEDIES.keys())
def test_the_remedy_names_a_request_with_which_all_fit(asked: dict[str, Any], said: str) -> None:
    """And with that request they do."""
    nodes = capacity_of(cluster(FOUR)).nodes("gpu").all
    need = Need(**asked)
    found = count_seats(nodes, need, (), wanted=20, start=START, end=END)

    assert remedy(found, need, {each.name: free_at(each, (), START) for each in nodes}) == said
