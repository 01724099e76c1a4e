"""What was said of a start, and what came of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.extensions.records.promises import Accuracy, Learned, Outcome, accuracy, learned, outcomes
from jupyterhub_gpuspawner.extensions.records.waits import PastWait, PastWaits
from jupyterhub_gpuspawner.hub.job.session import Promise, PromiseMoment
from jupyterhub_gpuspawner.slurm.estimate import Estimate, Kind, expected, not_before, starts_now

NOON = 1772452800.0
NOW = Promise(NOON, PromiseMoment.CLICK, starts_now(), "gpu")
HOUR = Promise(NOON, PromiseMoment.QUEUED, expected(NOON + 3600, now=NOON), "gpu")
RANGE = Promise(NOON, PromiseMoment.HALF, Estimate(Kind.EXPECTED, NOON + 600, NOON + 1200, NOON + 900), "gpu")


@pytest.mark.parametrize(
    ("promise", "started", "result"),
    [
        (NOW, 60, "within"),
        (NOW, 61, "late"),
        (HOUR, 0, "within"),
        (HOUR, 3601, "late"),
        (RANGE, 599, "early"),
        (RANGE, 600, "within"),
        (RANGE, 1201, "late"),
    ],
)
def test_a_start_is_within_the_range_or_early_or_late(promise: Promise, started: float, result: str) -> None:
    """As the words said it."""
    assert Outcome(promise, NOON + started).result == result


def test_a_wait_that_was_given_up_or_goes_on_counts_once_it_was_too_long() -> None:
    """Else only the waits that were kept would be measured, and a new delay be learned only when it is over."""
    assert list(outcomes([HOUR], None, NOON + 60)) == []
    assert list(outcomes([HOUR], None, NOON + 4000)) == [Outcome(HOUR, NOON + 4000)]
    assert list(outcomes([HOUR], None, None)) == []


def test_how_well_promises_were_kept() -> None:
    """The share within the range, and the median distance of the likely start, and of Slurm's plan, from what came."""
    learned_hour = Promise(NOON, PromiseMoment.HALF, replace(HOUR.estimate, likely=NOON + 1800), "gpu")
    promise_outcomes = [Outcome(learned_hour, NOON + started) for started in (600, 1800, 5000)] + [
        Outcome(NOW, NOON + 30)
    ]

    assert accuracy(promise_outcomes) == Accuracy(4, within=0.75, error=1200.0, slurm_error=1800.0)
    assert accuracy(promise_outcomes[3:]) == Accuracy(1, within=1.0, error=None, slurm_error=None)
    assert accuracy([]) is None


def test_past_waits_are_learned_by_partition_and_by_who_said_it() -> None:
    """From plans of Slurm alone: what was to start now or at a set time teaches nothing."""
    others = [
        Outcome(HOUR, NOON + 1770),
        Outcome(NOW, NOON + 9000),
        Outcome(Promise(NOON, PromiseMoment.QUEUED, not_before(NOON + 60), "gpu"), NOON + 90),
        Outcome(Promise(NOON, PromiseMoment.CLICK, HOUR.estimate, "gpu"), NOON + 90),
        Outcome(Promise(NOON + 60, PromiseMoment.HALF, HOUR.estimate, "few"), NOON + 90),
    ]

    assert learned(others) == Learned(
        {"gpu": PastWaits((PastWait(3600, 90),))},
        {"gpu": PastWaits((PastWait(3600, 1770),)), "few": PastWaits((PastWait(3540, 30),))},
    )
