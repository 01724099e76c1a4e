"""How the events of a session become its record, and why it ended."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest

from jupyterhub_gpuspawner.extensions.records.record import SessionRecord, applied, lost
from jupyterhub_gpuspawner.hub.job.cause import (
    UNKNOWN,
    Cause,
    Kind,
    Stage,
    end_of_job,
    job_ended_in_start,
    start_failed,
)
from jupyterhub_gpuspawner.hub.job.session import stages
from jupyterhub_gpuspawner.slurm.job import ENDS, End
from tests.extensions.records.a_record import RECORD
from tests.extensions.records.events import ENDED, LIFE, PLACED, PROMISES
from tests.standins.session_events import COMMON, NOON, READY, SUBMITTED, USAGE


def test_a_session_from_its_submission_to_its_end() -> None:
    """Every event adds to the record."""
    record = reduce(applied, LIFE, None)

    assert record == RECORD
    assert record is not None
    assert (record.wait_seconds, record.run_seconds, record.gpu_seconds_held) == (45.0, 600.0, 2 * 614.0)


def test_a_record_names_the_cluster_of_its_session() -> None:
    """Of a start that had a job, and of one that had none."""
    submitted, ended = (replace(event, cluster="cedar") for event in (SUBMITTED, ENDED))
    records = [reduce(applied, (submitted, ended), None), applied(None, replace(ended, job_id=""))]

    assert [record is not None and record.cluster for record in records] == ["cedar", "cedar"]


def test_use_is_summed_and_its_peaks_are_kept() -> None:
    """An unknown energy adds nothing."""
    more = replace(
        USAGE, at=NOON + 500, gpu_memory_max_mib=500, memory_max_mib=None, joules=None, gpu_seconds_busy=50.0
    )
    record = reduce(applied, (SUBMITTED, PLACED, READY, USAGE, more), None)

    assert record is not None
    assert (record.gpu_seconds_measured, record.gpu_seconds_busy, record.joules) == (1200.0, 200.0, 9000.0)
    assert (record.gpu_memory_max_mib, record.memory_max_mib, record.seen_at) == (2000, 1500, NOON + 500)


def test_a_start_that_fails_before_there_is_a_job_has_a_record() -> None:
    """With the class of the error."""
    refused = replace(ENDED, job_id="", served=False, cause=start_failed("submit_rejected"), reasons=(), at=NOON + 1)
    refused = replace(refused, promises=())

    assert applied(None, refused) == SessionRecord(
        **COMMON | {"job_id": ""},
        profile="two-k80",
        course="dl",
        begun_at=NOON,
        ended_at=NOON + 1,
        seen_at=NOON + 1,
        cause=start_failed("submit_rejected"),
    )


@pytest.mark.parametrize("event", [PLACED, READY, USAGE, ENDED], ids=lambda event: event.NAME)
def test_a_session_that_was_forgotten_stays_so(event: object) -> None:
    """Its user was forgotten while the server ran."""
    assert applied(None, event) is None  # type: ignore[arg-type]


def test_nothing_comes_after_the_end() -> None:
    """Such as a last summary that was under way."""
    assert applied(RECORD, USAGE) == RECORD


def test_a_session_whose_end_nobody_saw_ended_after_its_last_event() -> None:
    """Its cause is unknown."""
    record = reduce(applied, LIFE[:-1], None)

    assert record is not None
    lost_record = lost(record)
    assert (lost_record.ended_at, lost_record.cause) == (USAGE.at, UNKNOWN)


@pytest.mark.parametrize(
    ("allocated", "expected"),
    [(103.0, (3.0, 4.0, 2.0)), (98.0, (0.0, 7.0, 2.0)), (200.0, (7.0, 0.0, 2.0)), (None, None)],
    ids=["as it was", "slurmctld's clock is behind", "slurmctld's clock is ahead", "Slurm told no start"],
)
def test_stages_add_up_whatever_slurmctlds_clock_says(
    allocated: float | None, expected: tuple[float, float, float] | None
) -> None:
    """Submitted at 100, reported at 107, ready at 109; no stage has a negative duration."""
    reached = {Stage.QUEUED: 100.0, Stage.STARTING: 107.0}
    reached |= {} if allocated is None else {Stage.ALLOCATED: allocated}

    assert stages(reached, 109.0) == expected


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


def test_every_end_of_a_job_is_a_cause() -> None:
    """By Slurm's word for the state; of ends that Slurm has no word for nobody knows the cause."""
    assert {state: end_of_job(end) for state, end in ENDS.items()} == {
        state: Cause(kind) for state, kind in JOBS.items()
    }
    assert {end_of_job(end) for end in (*(set(End) - set(ENDS.values())), None)} == {Cause(Kind.UNKNOWN)}


def test_a_job_that_ended_before_its_server_was_ready_is_a_failed_start() -> None:
    """Its class says how the job ended."""
    assert job_ended_in_start(End.OUT_OF_MEMORY) == Cause(Kind.START_FAILED, "job_out_of_memory")
    assert job_ended_in_start(None) == Cause(Kind.START_FAILED, "job_ended")


def test_a_start_that_failed_on_its_node_is_no_wait_for_it() -> None:
    """What was said of its start counts as late only where the job had not begun when it was given up."""
    given_up = replace(RECORD, allocated_at=None, placed_at=None, ready_at=None, node="", ended_at=NOON + 86400)

    waits = [len(record.promise_outcomes) for record in (given_up, replace(given_up, node="g3"))]

    assert waits == [len(PROMISES), 0]
