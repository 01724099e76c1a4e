"""GPUs in a snapshot of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.scontrol import parse_nodes, parse_partitions, parse_reservations
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot, NodeState, Table, gpus_of
from tests.slurm.recorded import VERSIONS, recorded


def snapshot(version: str) -> ClusterSnapshot:
    """The recorded cluster."""
    return ClusterSnapshot(
        nodes=parse_nodes(recorded(version, "scontrol", "node_a_o").stdout),
        partitions=parse_partitions(recorded(version, "scontrol", "partition_a_o").stdout),
        reservations=parse_reservations(recorded(version, "scontrol", "reservation_o").stdout),
        taken_at=1795256100.0,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_gpus_of_the_recorded_cluster_by_type(version: str) -> None:
    """Typed and untyped GPUs, MIG devices, a partition without GPUs, an unknown partition."""
    cluster = snapshot(version)
    gpus = {
        partition: sum((gpus_of(node.gres) for node in cluster.nodes_of(partition)), Counter[str]())
        for partition in ("gpu", "debug", "batch", "nosuch")
    }
    assert gpus == {
        "gpu": {"k80": 8, "v100": 8, "1g.10gb": 4, "a100": 2, "t4": 2, "": 2},
        "debug": {"k80": 4},
        "batch": {},
        "nosuch": {},
    }


@pytest.mark.parametrize(
    ("states", "usable"),
    [
        ({"IDLE"}, True),
        ({"MIXED", "PLANNED"}, True),
        ({"ALLOCATED"}, True),
        ({"MIXED", "COMPLETING"}, True),
        ({"IDLE", "RESERVED"}, True),
        ({"IDLE", "CLOUD", "POWERED_DOWN"}, True),
        ({"MIXED", "REBOOT_REQUESTED"}, True),
        ({"IDLE", "DRAIN"}, False),
        ({"MIXED", "FAIL"}, False),
        ({"IDLE", "MAINTENANCE", "RESERVED"}, False),
        ({"IDLE", "NOT_RESPONDING"}, False),
        ({"DOWN"}, False),
        ({"UNKNOWN", "NOT_RESPONDING"}, False),
        ({"IDLE", "CLOUD", "POWERING_DOWN"}, False),
        ({"FUTURE"}, False),
        (set(), False),
    ],
)
def test_usable_nodes(states: set[str], usable: bool) -> None:
    """Slurm may start a job on a node that is up, answers, and is neither draining nor in maintenance."""
    assert NodeState("n1", states=frozenset(states)).usable is usable


def test_what_is_left_on_a_node_is_never_negative() -> None:
    """Slurm may report more allocated than there is (config_overrides)."""
    full = NodeState("n1", cpus=4, cpus_allocated=6, memory_mib=1000, memory_allocated_mib=1200)
    assert (full.cpus_free, full.memory_free_mib) == (0, 0)


JOBS = (
    ClusterJob("1", Phase.RUNNING, nodes=("g1", "g2"), partitions=("gpu",)),
    ClusterJob("2", Phase.QUEUED, user="ada", partitions=("gpu", "cpu"), priority=5),
    ClusterJob("3", Phase.QUEUED, user="bob", partitions=("gpu",), priority=9),
    ClusterJob("4", Phase.QUEUED, user="ada", partitions=("gpu",), priority=9, reason="Dependency"),
    ClusterJob("5", Phase.QUEUED, user="ada", partitions=("gpu",), priority=1, reason="Resources"),
    ClusterJob("6", Phase.RUNNING, nodes=("g1",), partitions=("cpu",)),
)


def test_table_is_the_sequence_of_its_values() -> None:
    """Each value, a part, all of them, and their number; equal to the same values in a tuple."""
    table = Table.of(ClusterJob, JOBS)
    assert (len(table), tuple(table), tuple(table[1:3])) == (6, JOBS, JOBS[1:3])
    assert (table[2], table[-1]) == (JOBS[2], JOBS[5])
    others: list[Sequence[ClusterJob]] = [JOBS, JOBS[:5], (*JOBS[:5], JOBS[4])]
    assert [table == other for other in others] == [True, False, False]
    assert list(table.column("job_id")) == ["1", "2", "3", "4", "5", "6"]
    assert Table.of(ClusterJob, table) is table
    assert list(Table.of(ClusterJob, ())) == []
    assert Table.of(ClusterJob, JOBS * 200) == JOBS * 200


def test_indexes_of_a_snapshot() -> None:
    """Jobs by id, by node and by partition; ended or unknown names are not found."""
    cluster = ClusterSnapshot(jobs=JOBS)
    assert dict(cluster.job_by_id) == {job.job_id: job for job in JOBS}
    assert dict(cluster.jobs_by_node) == {"g1": (JOBS[0], JOBS[5]), "g2": (JOBS[0],)}
    assert dict(cluster.waiting_by_partition) == {"gpu": JOBS[1:5], "cpu": (JOBS[1],)}
    assert (cluster.job_by_id.get("9"), cluster.jobs_by_node.get("g9", ())) == (None, ())
