"""How many participants fit at the same time, counted by hand, and which smaller requests are tried."""

from __future__ import annotations

from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.seats.count import estimate, smaller_values, with_value
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState, Reservation
from tests.snapshots import NOW, cluster, node, running

START = NOW + 3600
FOUR = node("g1", "gpu:k80:4", memory_mib=60 * 1024)
"""Four GPUs, 16 cores, 60 GiB."""


def fit(snapshot: ClusterSnapshot, people: int = 20, **resources: Any) -> int:
    """How many of so many people's servers would start."""
    request = {"partition": "gpu", "memory": "1G", "time": "2:00:00", **resources}
    (count,) = estimate([Resources.model_validate(request)], {"": snapshot}, people, at=START)
    return count


SEATS: dict[str, tuple[list[NodeState], dict[str, Any], int]] = {
    "GPUs are short": ([FOUR], {"gpus": 1, "cpus": 2}, 4),
    "memory is short": ([FOUR], {"gpus": 1, "cpus": 2, "memory": "24G"}, 2),
    "cores are short": ([FOUR], {"gpus": 1, "cpus": 6}, 2),
    "no GPU is requested": ([FOUR], {"cpus": 3}, 5),
    "another type": ([FOUR, node("g2", "gpu:p100:2")], {"gpus": 1, "gpu_type": "p100"}, 2),
    "two types together": ([node("g3", "gpu:k80:2,gpu:p100:2")], {"gpus": 1}, 4),
    "MIG": ([node("m1", "gpu:1g.10gb:7")], {"gpus": 1, "gpu_type": "1g.10gb", "cpus": 2}, 7),
    "whole nodes": ([FOUR, node("g2")], {"exclusive": True, "cpus": 1}, 2),
    "a drained node": ([FOUR, node("g2", "gpu:k80:4", states=frozenset({"IDLE", "DRAIN"}))], {"gpus": 1}, 4),
    "two nodes each": ([node(f"n{number}", "gpu:4") for number in range(3)], {"gpus": 2, "nodes": 2}, 3),
    "three threads take two cores": ([node("h1", cpus=32, cpus_per_core=2, socket_cores=8)], {"cpus": 3}, 8),
    "more than anybody asks for": ([node(f"n{number}") for number in range(9)], {"cpus": 1}, 30),
    "more than a node has": ([FOUR], {"gpus": 5}, 0),
}


@pytest.mark.parametrize(("nodes", "resources", "expected"), SEATS.values(), ids=SEATS.keys())
def test_an_estimate_counts_node_by_node(nodes: list[NodeState], resources: dict[str, Any], expected: int) -> None:
    """What each node has, divided by what one participant requests."""
    assert fit(cluster(*nodes), **resources) == expected


OTHERS: dict[str, tuple[list[dict[str, Any]], int, dict[str, Any], int]] = {
    "nobody": ([{"gpus": 1, "cpus": 1}], 0, {"gpus": 1, "cpus": 1}, 8),
    "they leave the others their GPUs": ([{"gpus": 1, "cpus": 1}], 3, {"gpus": 1, "cpus": 1}, 5),
    "and take no more than they are": ([{"gpus": 2, "cpus": 1}], 1, {"gpus": 1, "cpus": 1}, 6),
    "they take the cores of a node": ([{"cpus": 16}], 1, {"gpus": 1, "cpus": 1}, 4),
    "the second of their profiles takes what is left": (
        [{"gpus": 4, "cpus": 1}, {"gpus": 1, "cpus": 15}],
        9,
        {"gpus": 1, "cpus": 1},
        0,
    ),
    "two nodes each": ([{"gpus": 1, "cpus": 1, "nodes": 2}], 3, {"gpus": 1, "cpus": 1}, 2),
}


@pytest.mark.parametrize(("others", "people", "own", "expected"), OTHERS.values(), ids=OTHERS.keys())
def test_an_estimate_leaves_out_what_others_take_who_are_served_before(
    others: list[dict[str, Any]], people: int, own: dict[str, Any], expected: int
) -> None:
    """So many of them, on two nodes of four GPUs and 16 cores."""
    common = {"partition": "gpu", "memory": "1G", "time": "2:00:00"}
    before = [Resources.model_validate({**common, **request}) for request in others]
    nodes = cluster(FOUR, node("g2", "gpu:k80:4"))
    request = Resources.model_validate({**common, **own})
    assert estimate([request], {"": nodes}, 20, at=START, before=[(before, people)]) == [expected]


SEVERAL: dict[str, tuple[list[dict[str, Any]], list[int]]] = {
    "the second gets what the first leaves": ([{"gpus": 3, "cpus": 2}, {"gpus": 1, "cpus": 2}], [1, 1]),
    "the first leaves no cores": ([{"gpus": 1, "cpus": 8}, {"cpus": 1}], [2, 0]),
    "a whole node is left to nobody": ([{"exclusive": True, "cpus": 1}, {"gpus": 1, "cpus": 1}], [1, 0]),
    "and is not had where others are": ([{"gpus": 4, "cpus": 1}, {"exclusive": True, "cpus": 1}], [1, 0]),
    "whoever has a seat needs no other": ([{"cpus": 1}, {"cpus": 1}], [3, 0]),
}


@pytest.mark.parametrize(("profiles", "expected"), SEVERAL.values(), ids=SEVERAL.keys())
def test_profiles_that_share_a_node_count_it_once(profiles: list[dict[str, Any]], expected: list[int]) -> None:
    """Each next profile gets what the ones before it leave."""
    common = {"partition": "gpu", "memory": "1G", "time": "2:00:00"}
    requests = [Resources.model_validate({**common, **more}) for more in profiles]
    assert estimate(requests, {"": cluster(FOUR)}, 2, at=START) == expected


def test_jobs_of_others_keep_their_seats_until_they_end() -> None:
    """What counts is the start of the session, not the moment of the check."""
    jobs = (running("1", "g1", "gpu:k80:2", ends_in=1800), running("2", "g1", "gpu:k80:1", ends_in=None))
    busy = node("g1", "gpu:k80:4", "gpu:k80:3", memory_mib=60 * 1024)

    assert fit(cluster(busy, jobs=jobs), gpus=1, cpus=1) == 3


@pytest.mark.parametrize(("begins", "expected"), [(NOW, 0), (START + 3600, 0), (START + 7200, 4)])
def test_a_node_reserved_for_others_has_no_seats(begins: float, expected: int) -> None:
    """Also where their reservation begins before the servers' time is over."""
    theirs = Reservation("week", begins, begins + 86400, ("g1",))
    assert fit(cluster(FOUR, reservations=(theirs,)), gpus=1, cpus=1) == expected


def test_a_job_for_several_partitions_counts_each_node_once() -> None:
    """A node that is in two of them has the seats of the one that allows more."""
    one = cluster(FOUR)
    assert fit(one, gpus=1, cpus=1, partition="gpu,gpu") == 4


SMALLER: dict[str, tuple[dict[str, Any], dict[str, str], list[tuple[str, int]]]] = {
    "parts of a node with four GPUs, and of a socket": (
        {"gpus": 1},
        {"cpus-per-task": "6", "mem": "24G"},
        [("cpus-per-task", cpus) for cpus in (5, 4, 2)] + [("mem", gib * 1024) for gib in (20, 15)],
    ),
    "at most six of each": (
        {},
        {"cpus-per-task": "2", "mem": "24G"},
        [("cpus-per-task", 1)] + [("mem", gib * 1024) for gib in (20, 12, 8, 6, 4, 2)],
    ),
    "nothing is requested": ({"gpus": 1}, {"gres": "gpu:1", "mem": "0"}, []),
    "nothing is smaller": ({"gpus": 1}, {"cpus-per-task": "1", "mem": "500M"}, []),
}


@pytest.mark.parametrize(("resources", "options", "expected"), SMALLER.values(), ids=SMALLER.keys())
def test_smaller_requests_are_tried_at_which_one_more_fits_on_a_node(
    resources: dict[str, Any], options: dict[str, str], expected: list[tuple[str, int]]
) -> None:
    """The largest first."""
    snapshot = cluster(FOUR._replace(socket_cores=8))
    assert list(smaller_values(options, Resources(partition="gpu", **resources), snapshot)) == expected


@pytest.mark.parametrize(("extra", "cpus"), [((), [6]), (("--hint=nomultithread",), [6, 4, 3])])
def test_smaller_requests_are_parts_of_the_cores_where_a_job_uses_one_thread(
    extra: tuple[str, ...], cpus: list[int]
) -> None:
    """Of 24 cores with 48 threads for four GPUs; with both threads eight CPUs are four cores."""
    snapshot = cluster(FOUR._replace(cpus=48, cpus_per_core=2, socket_cores=12))
    resources = Resources(partition="gpu", gpus=1, extra=extra)
    smaller = smaller_values({"cpus-per-task": "8"}, resources, snapshot)
    assert [value for _, value in smaller] == cpus


def test_nothing_smaller_is_tried_where_no_node_is_in_service() -> None:
    """A smaller request would wait like the others."""
    down = cluster(FOUR._replace(states=frozenset({"DOWN"})))
    assert smaller_values({"cpus-per-task": "6", "mem": "24G"}, Resources(partition="gpu", gpus=1), down) == ()


def test_a_smaller_request_is_written_as_sbatch_reads_it() -> None:
    """In the place of the larger one."""
    options = {"gres": "gpu:1", "mem": "24G", "cpus-per-task": "6"}
    smaller = with_value(with_value(options, "mem", 15 * 1024), "cpus-per-task", 4)
    assert smaller == {"gres": "gpu:1", "mem": "15360M", "cpus-per-task": "4"}
