"""Capacity is computed once for each snapshot."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.extensions.availability.model.capacity import capacity_of, queue_position
from jupyterhub_gpuspawner.slurm.estimate import QueuePosition
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot, NodeState, Partition
from tests.slurm.recorded import VERSIONS
from tests.snapshots import NOW, cluster, node, recorded_snapshot, running, waiting


def test_capacity_is_computed_once_and_goes_with_its_snapshot() -> None:
    """An equal snapshot has its own; nothing keeps a snapshot or its capacity once it is no longer used."""
    first, second = cluster(node("g1", "gpu:k80:4")), cluster(node("g1", "gpu:k80:4"))
    assert capacity_of(first) is capacity_of(first)
    assert capacity_of(second) is not capacity_of(first)
    capacity, snapshot = weakref.ref(capacity_of(first)), weakref.ref(first)
    del first
    gc.collect()
    assert (snapshot(), capacity()) == (None, None)


# --- a pending job's position in the queue --------------------------------------------------------


def test_order_is_by_priority_and_then_by_age() -> None:
    """Higher priority first, then the lower id; running and held jobs are in no queue."""
    snapshot = cluster(
        node("g1"),
        jobs=(
            running("1", "g1"),
            waiting("12", priority=5, starts_in=90),
            waiting("9", priority=5),
            waiting("100", priority=7),
            waiting("3", priority=0, reason="JobHeldUser"),
            waiting("4", priority=9, reason="Dependency"),
            waiting("5", priority=9, reason="QOSMaxJobsPerUserLimit"),
            waiting("6", priority=9, partitions=("batch",)),
        ),
    )
    assert {job.job_id: queue_position(snapshot, job.job_id) for job in snapshot.jobs} == {
        "1": None,
        "100": QueuePosition(1, 3, "gpu"),
        "9": QueuePosition(2, 3, "gpu", 1),
        "12": QueuePosition(3, 3, "gpu", 2, NOW + 90),
        "3": None,
        "4": None,
        "5": None,
        "6": QueuePosition(1, 1, "batch"),
    }


def test_job_in_several_partitions_has_its_best_position() -> None:
    """The best position counts."""
    snapshot = cluster(
        node("g1"),
        jobs=(waiting("1"), waiting("2", partitions=("gpu", "batch")), waiting("3", partitions=("batch",))),
    )
    assert queue_position(snapshot, "2") == QueuePosition(1, 2, "batch")


def test_job_that_slurm_does_not_list_has_no_position() -> None:
    """It has ended, or is too new for the snapshot."""
    assert queue_position(cluster(node("g1")), "7") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_positions_in_a_real_queue(version: str) -> None:
    """Two jobs are pending for K80s; the others can never run, wait for tomorrow, or are held."""
    snapshot = recorded_snapshot(version)
    positions = {job.job_id: queue_position(snapshot, job.job_id) for job in snapshot.jobs if job.reason}
    estimates = {job.job_id: job.starts_at for job in snapshot.jobs}
    assert positions == {
        "14": QueuePosition(1, 2, "gpu", 0, estimates["14"]),
        "15": QueuePosition(2, 2, "gpu", 1, estimates["15"]),
        "16": None,
        "17": None,
        "18": None,
        "19": None,
    }
    assert queue_position(replace(snapshot, jobs=()), "14") is None


IN_LINE = (
    ClusterJob("2", Phase.QUEUED, user="ada", partitions=("gpu", "cpu"), priority=5),
    ClusterJob("3", Phase.QUEUED, user="bob", partitions=("gpu",), priority=9),
    ClusterJob("4", Phase.QUEUED, user="ada", partitions=("gpu",), priority=9, reason="Dependency"),
    ClusterJob("5", Phase.QUEUED, user="ada", partitions=("gpu",), priority=1, reason="Resources"),
)


def test_places_in_the_queues() -> None:
    """Position, and other people with jobs ahead: nobody waits for themselves.

    Jobs that wait for something else are in no queue.
    """
    assert capacity_of(ClusterSnapshot(jobs=IN_LINE)).queue_positions == {
        "gpu": {"3": (1, 0), "2": (2, 1), "5": (3, 1)},
        "cpu": {"2": (1, 0)},
    }


def test_places_in_the_queue_for_nodes_of_several_partitions() -> None:
    """Jobs of all partitions that have a node in common are in one line, those of a higher PriorityTier first."""
    partitions = (
        Partition("gpu", nodes=("g1", "g2")),
        Partition("cpu", nodes=("g2", "c1"), priority_tier=3),
        Partition("far", nodes=("c2",)),
    )
    far = ClusterJob("6", Phase.QUEUED, user="eve", partitions=("far",), priority=99)
    nodes = tuple(NodeState(name) for name in ("g1", "g2", "c1", "c2"))
    assert capacity_of(ClusterSnapshot(nodes, partitions, jobs=(*IN_LINE, far))).queue_positions == {
        "gpu": {"2": (1, 0), "3": (2, 1), "5": (3, 1)},
        "cpu": {"2": (1, 0), "3": (2, 1), "5": (3, 1)},
        "far": {"6": (1, 0)},
    }
