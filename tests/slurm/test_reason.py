"""Slurm's reasons: each has a sentence, and only those that certainly never clear are marked so."""

from __future__ import annotations

import re

import pytest

from jupyterhub_gpuspawner.slurm.reason import Meaning, meaning, never_clears
from tests.slurm.recorded import VERSIONS, recorded


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("", "Slurm has accepted the job and will consider it shortly."),
        ("Priority", "Jobs with a higher priority start first."),
        ("ReqNodeNotAvail", "A node that the job needs is not available now."),
        ("ReqNodeNotAvail, UnavailableNodes:x1", "Waiting: nodes that the job needs are not available."),
        (
            "ReqNodeNotAvail, May be reserved for other job",
            "Waiting: the nodes are reserved for another job or by a reservation.",
        ),
        ("ReqNodeNotAvail, Reserved for maintenance", "Waiting: the nodes are reserved for maintenance."),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            "Waiting: suitable nodes are down, or reserved for jobs with higher priority.",
        ),
        (
            "uid 2002 not in group permitted to use this partition (noroot). groups allowed: alice",
            "You are not a member of any group that may use this partition.",
        ),
        ("QOSMaxJobsPerUserLimit", "Waiting: your own jobs have reached a limit (running jobs)."),
        ("QOSMaxGRESPerUser", "Waiting: your own jobs have reached a limit (GPUs)."),
        ("AssocMaxJobsLimit", "Waiting: your own jobs have reached a limit (running jobs)."),
        ("AssocGrpGRES", "Waiting: all jobs of this account together have reached a limit (GPUs)."),
        (
            "AssocGrpCPUMinutesLimit",
            "Waiting: all jobs of this account together have reached a limit (CPUs times minutes).",
        ),
        ("QOSGrpMemLimit", "Waiting: all jobs of this QOS together have reached a limit (memory)."),
        ("MaxGRESPerAccount", "Waiting: all jobs of this account together have reached a limit (GPUs)."),
        ("QOSMaxGRESPerJob", "The job asks for more GPUs than its QOS allows for one job, so it will never start."),
        (
            "QOSMaxWallDurationPerJobLimit",
            "The job asks for more time than its QOS allows for one job, so it will never start.",
        ),
        (
            "AssocMaxCpuPerJobLimit",
            "The job asks for more CPUs than its account allows for one job, so it will never start.",
        ),
        (
            "QOSMaxMemoryPerNode",
            "The job asks for more memory than its QOS allows for one node, so it will never start.",
        ),
        (
            "QOSMinCpuNotSatisfied",
            "The job asks for fewer CPUs than its QOS requires, so it will never start.",
        ),
        ("QOSMinMemory", "The job asks for less memory than its QOS requires, so it will never start."),
        ("Sunspots", "Waiting: Slurm says 'Sunspots'."),
    ],
)
def test_reason_is_told_in_plain_words(reason: str, told: str) -> None:
    """Single reasons, phrases and the grammar of limits each give one sentence; a new reason is quoted."""
    assert meaning(reason).sentence == told


@pytest.mark.parametrize(
    "reason",
    [
        "AccountNotAllowed",
        "AssocMaxGRESPerJob",
        "BadConstraints",
        "DependencyNeverSatisfied",
        "InvalidAccount",
        "InvalidQOS",
        "Job's QOS not permitted to use this partition (course allows teaching not normal)",
        "Job's account not known, so it can't use this partition (closed allows staff)",
        "JobHeldAdmin",
        "JobHeldUser",
        "JobHoldMaxRequeue",
        "MaxMemPerLimit",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "QOSMaxCpuPerJobLimit",
        "QOSMaxWallDurationPerJobLimit",
        "QOSMinGRES",
        "QOSNotAllowed",
        "ReservationDeleted",
        "job requeued in held state",
        "launch failed requeued held",
        "uid 2002 not in group permitted to use this partition (noroot). groups allowed: alice",
    ],
)
def test_reason_that_waiting_cannot_clear(reason: str) -> None:
    """The job, its limits or its partition would have to change."""
    assert never_clears(reason)


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "None",
        "AssocGrpGRES",
        "BeginTime",
        "Dependency",
        "JobArrayTaskLimit",
        "Licenses",
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
        "PartitionDown",
        "PartitionInactive",
        "Priority",
        "QOSGrpJobsLimit",
        "QOSMaxGRESPerUser",
        "QOSMaxJobsPerUserLimit",
        "ReqNodeNotAvail, UnavailableNodes:x1",
        "Reservation",
        "Resources",
        "Sunspots",
    ],
)
def test_reason_that_may_clear(reason: str) -> None:
    """Other jobs end, nodes return, partitions open; unknown reasons may clear too."""
    assert not never_clears(reason)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_reason_a_cluster_gave_has_words(version: str) -> None:
    """No recorded reason of squeue falls through to the sentence that only quotes it."""
    given = set()
    for name in ("o_main_all_states", "o_late_all_states", "preempted", "node_fail", "prolog_fail"):
        given |= set(
            re.findall(r"^[\d_+]+\|[A-Z_]+\|([^|]+)\|", recorded(version, "squeue", name).stdout, re.MULTILINE)
        )
    assert len(given) > 20
    assert {reason for reason in given if meaning(reason) == Meaning(f"Waiting: Slurm says '{reason}'.")} == set()
