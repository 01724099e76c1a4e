"""Snapshots of clusters: recorded ones, and made ones in few words."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.scontrol import parse_nodes, parse_partitions, parse_reservations
from jupyterhub_gpuspawner.slurm.snapshot import (
    ClusterJob,
    ClusterSnapshot,
    NodeState,
    Partition,
    Reservation,
    free_gpus_of,
    gpus_of,
)
from jupyterhub_gpuspawner.slurm.squeue import parse_jobs
from jupyterhub_gpuspawner.units import parse_gres
from tests.slurm.recorded import MARK, recorded, with_array_tasks

NOW = 1_800_000_000.0
"""A moment for made snapshots."""


@lru_cache
def recorded_snapshot(version: str) -> ClusterSnapshot:
    """The cluster of the recordings' area ``cluster``, 15 s after its last job was submitted."""

    def output(name: str) -> str:
        return recorded(version, "cluster", name).stdout

    jobs = parse_jobs(with_array_tasks(output("squeue")), MARK)
    return ClusterSnapshot(
        nodes=parse_nodes(output("node")),
        partitions=parse_partitions(output("partition")),
        reservations=parse_reservations(output("reservation")),
        jobs=jobs,
        taken_at=max(job.submitted_at or 0.0 for job in jobs) + 15,
    )


def free_gpus(snapshot: ClusterSnapshot, partition: str) -> Counter[str]:
    """GPUs by type that no job holds on the partition's usable, unreserved nodes."""
    nodes = (state for state in snapshot.nodes_of(partition) if state.usable and "RESERVED" not in state.states)
    return sum((free_gpus_of(gpus_of(state.gres), state.gres_used) for state in nodes), Counter[str]())


def node(name: str, gres: str = "", used: str = "", **more: Any) -> NodeState:
    """A node of 16 cores and 64 GiB that is up, with these gres."""
    fields: dict[str, Any] = {"cpus": 16, "memory_mib": 65536, "states": frozenset({"MIXED"}), **more}
    return NodeState(name, gres=parse_gres(gres), gres_used=parse_gres(used), **fields)


def running(job_id: str, where: str, gres: str = "", *, ends_in: float | None = 600, **more: Any) -> ClusterJob:
    """A job of 4 cores that holds nodes (``g1 g2``) and ends in so many seconds; None: it has no end."""
    fields: dict[str, Any] = {"cpus": 4 * len(where.split()), **more}
    return ClusterJob(
        job_id,
        Phase.RUNNING,
        "RUNNING",
        nodes=tuple(where.split()),
        node_count=len(where.split()),
        gpus=parse_gres(gres),
        ends_at=None if ends_in is None else NOW + ends_in,
        **fields,
    )


def waiting(job_id: str, gres: str = "", *, starts_in: float | None = None, **more: Any) -> ClusterJob:
    """A job that waits for resources in partition ``gpu``; Slurm expects it to start in so many seconds."""
    fields: dict[str, Any] = {"partitions": ("gpu",), "priority": 10, "reason": "Resources", "cpus": 4, **more}
    starts_at = None if starts_in is None else NOW + starts_in
    return ClusterJob(job_id, Phase.QUEUED, "PENDING", gpus=parse_gres(gres), starts_at=starts_at, **fields)


def cluster(
    *nodes: NodeState,
    jobs: tuple[ClusterJob, ...] = (),
    reservations: tuple[Reservation, ...] = (),
    **partition: Any,
) -> ClusterSnapshot:
    """A cluster with one partition ``gpu`` of all these nodes, where jobs hold what the nodes say is used and more."""
    held = [
        state._replace(
            cpus_allocated=sum(job.cpus // job.node_count for job in jobs if state.name in job.nodes),
            memory_allocated_mib=sum(job.memory_mib // job.node_count for job in jobs if state.name in job.nodes),
        )
        for state in nodes
    ]
    fields: dict[str, Any] = {
        "default": True,
        "max_time": 86400,
        "default_time": 3600,
        "nodes": tuple(state.name for state in nodes),
        **partition,
    }
    return ClusterSnapshot(
        nodes=tuple(held),
        partitions=(Partition("gpu", **fields),),
        reservations=reservations,
        jobs=jobs,
        taken_at=NOW,
    )
