"""How the events of a session become its record."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest

from jupyterhub_gpuspawner.records.record import UNKNOWN, SessionRecord, applied, lost, stages, start_failed
from tests.records.a_session import COMMON, ENDED, LIFE, NOON, PLACED, READY, RECORD, SUBMITTED, USAGE


def test_a_session_from_its_submission_to_its_end() -> None:
    """Every event adds to the record."""
    record = reduce(applied, LIFE, None)

    assert record == RECORD
    assert record is not None
    assert (record.wait_seconds, record.run_seconds, record.gpu_seconds_held) == (45.0, 600.0, 2 * 614.0)


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
    found = lost(record)
    assert (found.ended_at, found.cause) == (USAGE.at, UNKNOWN)


@pytest.mark.parametrize(
    ("allocated", "expected"),
    [(103.0, (3.0, 4.0, 2.0)), (98.0, (0.0, 7.0, 2.0)), (200.0, (7.0, 0.0, 2.0)), (None, None)],
    ids=["as it was", "slurmctld's clock is behind", "slurmctld's clock is ahead", "Slurm told no start"],
)
def test_stages_add_up_whatever_slurmctlds_clock_says(
    allocated: float | None, expected: tuple[float, float, float] | None
) -> None:
    """Submitted at 100, reported at 107, ready at 109; no stage has a negative duration."""
    reached = {"queued": 100.0, "starting": 107.0} | ({} if allocated is None else {"allocated": allocated})

    assert stages(reached, 109.0) == expected
