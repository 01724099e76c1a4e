"""What was said of a start, and what came of it."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from jupyterhub_gpuspawner.extensions.records.promised import ServerPromises
from jupyterhub_gpuspawner.extensions.records.promises import (
    Accuracy,
    Learned,
    Outcome,
    Promise,
    PromiseMoment,
    Wait,
    accuracy,
    learned,
    outcomes,
)
from jupyterhub_gpuspawner.extensions.records.waits import PastWait, PastWaits
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, Estimate, Kind, expected, not_before, starts_now
from tests.standins.hub_spawner import HubSpawner

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


def test_a_promise_is_kept_at_the_start_and_at_each_half_of_the_rest() -> None:
    """Until less than a minute is left; nothing is kept of what is not known, or overdue."""
    wait, promises = Wait(), list[Promise]()
    for now in range(int(NOON), int(NOON) + 4000, 10):
        for estimate in (UNKNOWN, expected(NOON + 3600, now=now)):
            promise = wait.follow(estimate, "gpu", now=now)
            promises += [promise] if promise is not None else []

    assert [(promise.moment, promise.at - NOON) for promise in promises[:4]] == [
        (PromiseMoment.QUEUED, 0),
        (PromiseMoment.HALF, 1800),
        (PromiseMoment.HALF, 2700),
        (PromiseMoment.HALF, 3150),
    ]
    assert len(promises) < 12


def test_a_job_begins_to_wait_once() -> None:
    """A restarted hub says it again, some time into the wait; what is kept of one start is bounded."""
    spawner = HubSpawner(SimpleNamespace(name="ada"))
    promises = ServerPromises(spawner)
    estimates = [expected(NOON + 10**8, now=NOON)] * 30
    promises.expects(estimates[0], "gpu", now=NOON)
    spawner.watch.job_id = "42"
    for number, estimate in enumerate(estimates, 1):
        restarted = ServerPromises(spawner)
        restarted.load(json.loads(json.dumps({**promises.to_state()})))
        restarted.expects(estimate, "gpu", now=NOON + number)
        promises = restarted

    assert [promise.moment.value for promise in promises.promises()] == ["click", "queued", *["half"] * 18]
    promises.forget()
    assert (promises.promises(), promises.to_state()) == ((), {})
