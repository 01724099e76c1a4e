"""Why a session ended, from what Slurm reports, who asked for it, and the class of an error."""

from __future__ import annotations

import json

import pytest

from jupyterhub_gpuspawner.records.record import (
    Cause,
    Kind,
    Stopper,
    cause_of,
    end_of_job,
    job_ended_in_start,
    parse_cause,
    start_failed,
    stopped_by,
)
from jupyterhub_gpuspawner.slurm.job import ENDS, End

JOBS = {
    "COMPLETED": Kind.FINISHED,
    "FAILED": Kind.FAILED,
    "LAUNCH_FAILED": Kind.FAILED,
    "CANCELLED": Kind.CANCELLED_OUTSIDE,
    "REVOKED": Kind.CANCELLED_OUTSIDE,
    "TIMEOUT": Kind.TIME_LIMIT,
    "DEADLINE": Kind.TIME_LIMIT,
    "OUT_OF_MEMORY": Kind.MEMORY,
    "NODE_FAIL": Kind.NODE_FAILURE,
    "BOOT_FAIL": Kind.NODE_FAILURE,
    "PREEMPTED": Kind.PREEMPTED,
    "RECONFIG_FAIL": Kind.FAILED,
}


@pytest.mark.parametrize(("state", "kind"), JOBS.items())
def test_the_end_of_a_job_is_a_cause(state: str, kind: Kind) -> None:
    """By Slurm's word for the state."""
    assert end_of_job(ENDS[state]) == Cause(kind)


def test_every_end_of_a_job_has_a_cause() -> None:
    """Also those that Slurm has no word for: then nobody knows."""
    assert set(JOBS) == set(ENDS)
    assert {end: end_of_job(end).kind for end in (End.VANISHED, End.REPLACED, None)} == {
        End.VANISHED: Kind.UNKNOWN,
        End.REPLACED: Kind.UNKNOWN,
        None: Kind.UNKNOWN,
    }
    assert all(end_of_job(end) for end in End)


@pytest.mark.parametrize(
    ("stopper", "kind"),
    [
        (Stopper.OWNER, Kind.STOPPED_BY_USER),
        (Stopper.INSTRUCTOR, Kind.STOPPED_BY_INSTRUCTOR),
        (Stopper.ADMIN, Kind.STOPPED_BY_ADMIN),
        (Stopper.SERVICE, Kind.CULLED),
    ],
)
def test_whoever_asks_for_a_stop_is_the_cause(stopper: Stopper, kind: Kind) -> None:
    """Each as what they act."""
    assert stopped_by(stopper) == Cause(kind)


def test_what_is_known_best_counts() -> None:
    """A stop ends the job as cancelled, so Slurm's word comes last."""
    known = Cause(Kind.MEMORY)

    assert [
        cause_of(cause_so_far=known, stopper=Stopper.ADMIN, fault="timeout", end=End.CANCELLED),
        cause_of(stopper=Stopper.ADMIN, fault="timeout", end=End.CANCELLED),
        cause_of(fault="timeout", end=End.CANCELLED),
        cause_of(end=End.CANCELLED),
        cause_of(),
    ] == [
        known,
        Cause(Kind.STOPPED_BY_ADMIN),
        Cause(Kind.START_FAILED, "timeout"),
        Cause(Kind.CANCELLED_OUTSIDE),
        Cause(Kind.UNKNOWN),
    ]


def test_a_job_that_ended_before_its_server_was_ready_is_a_failed_start() -> None:
    """Its class says how the job ended."""
    assert job_ended_in_start(End.OUT_OF_MEMORY) == Cause(Kind.START_FAILED, "job_out_of_memory")
    assert job_ended_in_start(None) == Cause(Kind.START_FAILED, "job_ended")


@pytest.mark.parametrize("cause", [Cause(Kind.CULLED), start_failed("queue_timeout")])
def test_a_cause_is_stored_and_read(cause: Cause) -> None:
    """As JSON in the spawner's state."""
    assert parse_cause(json.loads(json.dumps(cause.to_json()))) == cause


@pytest.mark.parametrize("document", [None, "culled", {}, {"kind": "bored"}, {"kind": "culled", "fault": 7}])
def test_what_is_no_cause_is_not_read(document: object) -> None:
    """Of another version, or damaged."""
    assert parse_cause(document) is None
